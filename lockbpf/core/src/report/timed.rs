//! When the waits of a profile were, and whose: what a timeline knows of them one by one, for samples that are sums.

use super::profile::{self, Moment, Profile, Sample};
use super::schema::{Ns, StackFrame};
use super::timeline::{Culprit, Timeline, Wait};
use indexmap::IndexMap;
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::cmp::Reverse;

/// Gives samples the times of their waits, and divides them by the name of the thread that waited. A sample keeps no times, and stays whole, where
/// it is not known which waits are its own.
pub(super) fn tell(profile: &mut Profile, timeline: &Timeline) {
    unite(&mut profile.waiters);
    unite(&mut profile.culprits);
    let waiters = Waiters::new(&profile.waiters, timeline);
    let culprits = Culprits::new(&profile.culprits, timeline);
    let (mut waited, mut caused) = (Times::new(&profile.waiters), Times::new(&profile.culprits));
    let told = told(&profile.waiters, timeline);
    for (at, wait) in timeline.waits.iter().enumerate() {
        let part = |ns: Ns| if told[wait.lock] < 1.0 { Ns::new((ns.as_f64() * told[wait.lock]) as u64) } else { ns };
        let moment = |wait_ns| Moment { since_start_ns: wait.start_ns - timeline.start_ns, wait_ns: part(wait_ns) };
        waited.add(waiters.samples(wait), at, moment(wait.wait_ns));
        for culprit in &wait.culprits {
            caused.add(&culprits.samples(wait, culprit), at, moment(culprit.wait_ns));
        }
        let blamed: Ns = wait.culprits.iter().map(|culprit| culprit.wait_ns).sum();
        caused.add(culprits.nobody(wait), at, moment(wait.wait_ns - blamed));
    }
    waited.give(&mut profile.waiters, timeline);
    caused.give(&mut profile.culprits, timeline);
}

/// By a timeline's lock, the part of its waits that the samples tell: less than all where the kernel has counted less than was recorded.
fn told(samples: &[Sample], timeline: &Timeline) -> Vec<f64> {
    let mut sums: FxHashMap<&str, [f64; 2]> = FxHashMap::default();
    for sample in samples {
        sums.entry(&sample.lock).or_default()[0] += sample.wait_ns.as_f64();
    }
    for wait in &timeline.waits {
        sums.entry(&timeline.locks[wait.lock].name).or_default()[1] += wait.wait_ns.as_f64();
    }
    let part = |[told, recorded]: [f64; 2]| if told < recorded { told / recorded } else { 1.0 };
    timeline.locks.iter().map(|lock| sums.get(lock.name.as_str()).copied().map_or(1.0, part)).collect()
}

/// Makes one sample of those between which nothing tells: calls of one function at one line.
fn unite(samples: &mut Vec<Sample>) {
    let mut united: IndexMap<Sample, (u64, Ns), FxBuildHasher> = IndexMap::default();
    for sample in std::mem::take(samples) {
        let (count, wait_ns) = (sample.count, sample.wait_ns);
        let sum = united.entry(Sample { count: 0, wait_ns: Ns::default(), ..sample }).or_default();
        *sum = (sum.0 + count, sum.1 + wait_ns);
    }
    samples.extend(united.into_iter().map(|(sample, (count, wait_ns))| Sample { count, wait_ns, ..sample }));
    samples.sort_by_key(|sample| Reverse(sample.wait_ns));
}

/// Times by sample, each with its wait: the parts of one wait that are one sample's are one.
struct Times {
    moments: Vec<Vec<(usize, Moment)>>,
    /// Waiting of each that has no time yet.
    left: Vec<Ns>,
}

impl Times {
    fn new(samples: &[Sample]) -> Self {
        let left = samples.iter().map(|sample| sample.wait_ns).collect();
        Self { moments: vec![Vec::new(); samples.len()], left }
    }

    /// Adds to one of these samples, between which nothing tells. Times never come to more than their sample.
    fn add(&mut self, samples: &[usize], wait: usize, moment: Moment) {
        let exact = samples.iter().find(|&&sample| self.left[sample] == moment.wait_ns);
        let roomiest = || samples.iter().max_by_key(|&&sample| self.left[sample]);
        let Some(&sample) = exact.or_else(roomiest) else { return };
        if moment.wait_ns == Ns::default() || moment.wait_ns > self.left[sample] {
            return;
        }
        self.left[sample] = self.left[sample] - moment.wait_ns;
        let moments = &mut self.moments[sample];
        match moments.last_mut() {
            Some((of, last)) if *of == wait => last.wait_ns += moment.wait_ns,
            _ => moments.push((wait, moment)),
        }
    }

    fn give(self, samples: &mut Vec<Sample>, timeline: &Timeline) {
        let name = |wait: usize| timeline.threads[timeline.waits[wait].thread].name.as_str();
        let whole = std::mem::take(samples);
        for (sample, moments) in whole.into_iter().zip(self.moments) {
            divide(sample, moments.into_iter().map(|(wait, moment)| (name(wait), moment)), samples);
        }
        samples.sort_by_key(|sample| Reverse(sample.wait_ns));
    }
}

/// Divides a sample by the names of those whose waits are known to be its own. What is left over has no name.
fn divide<'a>(sample: Sample, moments: impl Iterator<Item = (&'a str, Moment)>, samples: &mut Vec<Sample>) {
    let mut by_name = IndexMap::<&str, Vec<Moment>, FxBuildHasher>::default();
    for (name, moment) in moments {
        by_name.entry(name).or_default().push(moment);
    }
    let mut rest = Sample { moments: by_name.shift_remove("").unwrap_or_default(), ..sample.clone() };
    let first = samples.len();
    for (name, moments) in by_name {
        let wait_ns = moments.iter().map(|moment| moment.wait_ns).sum();
        let count = rest.count.min(moments.len() as u64);
        rest.count -= count;
        rest.wait_ns = rest.wait_ns - wait_ns;
        samples.push(Sample { thread: name.to_owned(), count, wait_ns, moments, ..sample.clone() });
    }
    match samples.get_mut(first..).and_then(<[Sample]>::last_mut) {
        // Waits of no time are nobody's in particular.
        Some(last) if rest.wait_ns == Ns::default() => last.count += rest.count,
        _ => samples.push(rest),
    }
}

/// A timeline's locks by the names that samples have for them. `None`: no sample is of it.
fn named(locks: &FxHashMap<&str, usize>, timeline: &Timeline) -> Vec<Option<usize>> {
    timeline.locks.iter().map(|lock| locks.get(lock.name.as_str()).copied()).collect()
}

/// Numbers for the names of locks.
fn numbered<'a>(names: impl Iterator<Item = &'a str>) -> FxHashMap<&'a str, usize> {
    let mut numbers = FxHashMap::default();
    for name in names {
        let next = numbers.len();
        numbers.entry(name).or_insert(next);
    }
    numbers
}

/// Samples of those who waited, by a timeline's lock and stack.
struct Waiters(FxHashMap<(usize, usize), Vec<usize>>);

impl Waiters {
    fn new(samples: &[Sample], timeline: &Timeline) -> Self {
        let numbers = numbered(samples.iter().map(|sample| sample.lock.as_str()));
        let mut by_frames = FxHashMap::<(usize, &[StackFrame]), Vec<usize>>::default();
        for (at, sample) in samples.iter().enumerate() {
            by_frames.entry((numbers[sample.lock.as_str()], &sample.frames)).or_default().push(at);
        }
        let names = named(&numbers, timeline);
        let mut found = FxHashMap::default();
        for wait in &timeline.waits {
            let Some(lock) = names[wait.lock] else { continue };
            found.entry((wait.lock, wait.stack)).or_insert_with(|| {
                let stack = &timeline.stacks[wait.stack];
                // The profile keeps some stacks of a place apart. It sums up the others under the place alone.
                let alone = [profile::frame(&stack.place)];
                let of = |frames| by_frames.get(&(lock, frames)).cloned();
                of(stack.frames.as_slice()).or_else(|| of(alone.as_slice())).unwrap_or_default()
            });
        }
        Self(found)
    }

    fn samples(&self, wait: &Wait) -> &[usize] {
        self.0.get(&(wait.lock, wait.stack)).map_or(&[], Vec::as_slice)
    }
}

/// Samples of those to blame, by the lock that was waited for, the one held, and the place.
struct Culprits<'a> {
    samples: &'a [Sample],
    by_place: FxHashMap<(usize, usize, &'a str), Vec<usize>>,
    nobody: FxHashMap<usize, Vec<usize>>,
    names: Vec<Option<usize>>,
    timeline: &'a Timeline,
}

impl<'a> Culprits<'a> {
    fn new(samples: &'a [Sample], timeline: &'a Timeline) -> Self {
        let waited = |sample: &'a Sample| sample.waited_for.as_deref().unwrap_or(&sample.lock);
        let numbers = numbered(samples.iter().flat_map(|sample| [sample.lock.as_str(), waited(sample)]));
        let (mut by_place, mut nobody) = (FxHashMap::<_, Vec<usize>>::default(), FxHashMap::<_, Vec<usize>>::default());
        for (at, sample) in samples.iter().enumerate() {
            let (held, waited) = (numbers[sample.lock.as_str()], numbers[waited(sample)]);
            if !sample.place.is_empty() {
                by_place.entry((waited, held, sample.place.as_str())).or_default().push(at);
            } else if sample.is_of_nobody() {
                nobody.entry(waited).or_default().push(at);
            }
        }
        let names = named(&numbers, timeline);
        Self { samples, by_place, nobody, names, timeline }
    }

    /// What a culprit was doing, and with which stack, is known of its sums, and seldom of one wait.
    fn samples(&self, wait: &Wait, culprit: &Culprit) -> Vec<usize> {
        let place = self.timeline.places[culprit.place].symbol.as_str();
        let named = self.names[wait.lock].zip(self.names[culprit.lock]);
        let all = named.and_then(|(waited, held)| self.by_place.get(&(waited, held, place)));
        let fits = |&at: &usize| culprit.cause.is_none() || self.samples[at].cause == culprit.cause;
        let fitting: Vec<usize> = all.into_iter().flatten().copied().filter(fits).collect();
        let told = |&at: &usize| (&self.samples[at].frames, self.samples[at].cause, self.samples[at].inferred);
        let is_one = fitting.windows(2).all(|pair| told(&pair[0]) == told(&pair[1]));
        if is_one { fitting } else { Vec::new() }
    }

    fn nobody(&self, wait: &Wait) -> &[usize] {
        let samples = self.names[wait.lock].and_then(|lock| self.nobody.get(&lock));
        samples.map_or(&[], Vec::as_slice)
    }
}
