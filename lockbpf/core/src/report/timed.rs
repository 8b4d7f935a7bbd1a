//! When the waits of a profile were: what a timeline knows of them one by one, for samples that are sums.

use super::profile::{self, Moment, Profile, Sample};
use super::schema::{Ns, StackFrame};
use super::timeline::{Culprit, Timeline, Wait};
use rustc_hash::FxHashMap;

/// Gives samples the times of their waits. A sample keeps none where it is not known which waits are its own.
pub(super) fn tell(profile: &mut Profile, timeline: &Timeline) {
    let waiters = Waiters::new(&profile.waiters, timeline);
    let culprits = Culprits::new(&profile.culprits, timeline);
    let mut found = (Times::new(&profile.waiters), Times::new(&profile.culprits));
    for (at, wait) in timeline.waits.iter().enumerate() {
        let since_start_ns = wait.start_ns - timeline.start_ns;
        let tell = |times: &mut Times, sample: Option<usize>, wait_ns: Ns| {
            if let Some(sample) = sample.filter(|_| wait_ns > Ns::default()) {
                times.add(sample, at, Moment { since_start_ns, wait_ns });
            }
        };
        tell(&mut found.0, waiters.sample(wait), wait.wait_ns);
        for culprit in &wait.culprits {
            tell(&mut found.1, culprits.sample(wait, culprit), culprit.wait_ns);
        }
        let blamed: Ns = wait.culprits.iter().map(|culprit| culprit.wait_ns).sum();
        tell(&mut found.1, culprits.nobody(wait), wait.wait_ns - blamed);
    }
    found.0.give(&mut profile.waiters);
    found.1.give(&mut profile.culprits);
}

/// Times by sample.
struct Times {
    moments: Vec<Vec<Moment>>,
    /// The last wait of each: the parts of one wait that are one sample's are one.
    last: Vec<Option<usize>>,
}

impl Times {
    fn new(samples: &[Sample]) -> Self {
        Self { moments: vec![Vec::new(); samples.len()], last: vec![None; samples.len()] }
    }

    fn add(&mut self, sample: usize, wait: usize, moment: Moment) {
        let moments = &mut self.moments[sample];
        match moments.last_mut() {
            Some(last) if self.last[sample] == Some(wait) => last.wait_ns += moment.wait_ns,
            _ => moments.push(moment),
        }
        self.last[sample] = Some(wait);
    }

    /// Where waits come to more than their sample, which ones are its own is not known.
    fn give(self, samples: &mut [Sample]) {
        for (sample, moments) in samples.iter_mut().zip(self.moments) {
            if moments.iter().map(|moment| moment.wait_ns).sum::<Ns>() <= sample.wait_ns {
                sample.moments = moments;
            }
        }
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
struct Waiters(FxHashMap<(usize, usize), usize>);

impl Waiters {
    fn new(samples: &[Sample], timeline: &Timeline) -> Self {
        let numbers = numbered(samples.iter().map(|sample| sample.lock.as_str()));
        let by_frames: FxHashMap<(usize, &[StackFrame]), usize> =
            samples.iter().enumerate().map(|(at, s)| ((numbers[s.lock.as_str()], s.frames.as_slice()), at)).collect();
        let names = named(&numbers, timeline);
        // Of a place only some stacks are told apart; the others are told as the place alone.
        let alone: Vec<[StackFrame; 1]> = timeline.stacks.iter().map(|s| [profile::frame(&s.place)]).collect();
        let mut found = FxHashMap::default();
        for wait in &timeline.waits {
            let Some(lock) = names[wait.lock] else { continue };
            let stack = timeline.stacks[wait.stack].frames.as_slice();
            let sample = by_frames.get(&(lock, stack)).or_else(|| by_frames.get(&(lock, alone[wait.stack].as_slice())));
            if let Some(&sample) = sample {
                found.insert((wait.lock, wait.stack), sample);
            }
        }
        Self(found)
    }

    fn sample(&self, wait: &Wait) -> Option<usize> {
        self.0.get(&(wait.lock, wait.stack)).copied()
    }
}

/// Samples of those to blame, by the lock that was waited for, the one held, and the place.
struct Culprits<'a> {
    samples: &'a [Sample],
    by_place: FxHashMap<(usize, usize, &'a str), Vec<usize>>,
    nobody: FxHashMap<usize, usize>,
    names: Vec<Option<usize>>,
    timeline: &'a Timeline,
}

impl<'a> Culprits<'a> {
    fn new(samples: &'a [Sample], timeline: &'a Timeline) -> Self {
        let waited = |sample: &'a Sample| sample.waited_for.as_deref().unwrap_or(&sample.lock);
        let numbers = numbered(samples.iter().flat_map(|sample| [sample.lock.as_str(), waited(sample)]));
        let (mut by_place, mut nobody) = (FxHashMap::<_, Vec<usize>>::default(), FxHashMap::default());
        for (at, sample) in samples.iter().enumerate() {
            let (held, waited) = (numbers[sample.lock.as_str()], numbers[waited(sample)]);
            if !sample.place.is_empty() {
                by_place.entry((waited, held, sample.place.as_str())).or_default().push(at);
            } else if sample.is_of_nobody() {
                nobody.insert(waited, at);
            }
        }
        let names = named(&numbers, timeline);
        Self { samples, by_place, nobody, names, timeline }
    }

    /// What a culprit was doing is known of its sums, and seldom of one wait.
    fn sample(&self, wait: &Wait, culprit: &Culprit) -> Option<usize> {
        let place = self.timeline.places[culprit.place].symbol.as_str();
        let key = (self.names[wait.lock]?, self.names[culprit.lock]?, place);
        let all = self.by_place.get(&key)?.iter().copied();
        let fits = |&at: &usize| culprit.cause.is_none() || self.samples[at].cause == culprit.cause;
        let mut fitting = all.filter(fits);
        fitting.next().filter(|_| fitting.next().is_none())
    }

    fn nobody(&self, wait: &Wait) -> Option<usize> {
        self.nobody.get(&self.names[wait.lock]?).copied()
    }
}
