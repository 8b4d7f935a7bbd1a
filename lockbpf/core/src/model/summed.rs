//! A model from sums of transitions, for which no section need be recorded: the kernel side keeps them while it observes.

use super::pattern::{self, Flow, Holds, Known, Pattern};
use super::profile::{MAX_LOCKS, ProfileError};
use super::schema::{Input, Recorded};
use super::shadow::Shadow;
use super::violations;
use super::walk::{END, START, Walk};
use crate::estimate::{Coverage, Estimates, Interval, Subject};
use crate::id::{Lock, Process, Tid};
use crate::report::text::{count, percent};
use crate::sums::KernelSums;
use crate::transitions::Transition;
use crate::units::Time;
use foldhash::fast::RandomState;
use lockbpf_common::kind::Via;
use lockbpf_common::via::{is_semaphore, is_shared};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Locks in the model at most where there are more than [`MAX_LOCKS`]: most of so many have little to do with it.
const MAX_KEPT: usize = 256;
/// Share of the acquisitions from which on it is told that they are not in the model.
const FEW: f64 = 0.01;

/// What a recording holds beside its events that a model can be made of.
#[derive(Clone, Debug, Default)]
pub struct Sums<'a> {
    /// From lock to lock.
    pub transitions: &'a [Transition],
    /// By lock and site.
    pub sums: &'a [KernelSums],
    /// When it began and ended.
    pub period: (Time, Time),
    /// Acquisitions up to some times, in order of time; empty where that is not known, or not of everything.
    pub pace: &'a [(Time, u64)],
    /// Whether not everything was watched all the time.
    pub windows: bool,
    /// How much was watched, and what was estimated of the rest; `None` if all was watched.
    pub estimates: Option<&'a Estimates>,
    /// What observing added to all times, where that was measured.
    pub shadow: Option<&'a Shadow>,
}

/// What was seen of a lock.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    acquisitions: u64,
    shared: u64,
    wait: u64,
    hold: u64,
    contended: u64,
    inner_hits: u64,
}

impl Used {
    /// What observing added on average to a section, and to the time after one.
    fn added(&self, shadow: Option<&Shadow>) -> [f64; 2] {
        let of = |number: u64| number as f64 / self.acquisitions.max(1) as f64;
        shadow.map_or([0.0; 2], |shadow| {
            [shadow.in_section(of(self.inner_hits)), shadow.between(of(self.contended).min(1.0))]
        })
    }
}

/// Makes a model; `name` tells what a lock is called, `wanted` which are to be in it.
///
/// # Errors
/// When nothing of them was locked.
pub fn model(
    sums: &Sums<'_>,
    name: impl Fn(Lock) -> String,
    wanted: impl Fn(&str) -> bool,
) -> Result<Input, ProfileError> {
    let locks = locks(sums.transitions);
    let names: Vec<String> = locks.iter().map(|&lock| name(lock)).collect();
    let used = used(sums.sums);
    let used = |lock: &Lock| used.get(lock).copied().unwrap_or_default();
    let mut walks = walks(sums, &locks, used);
    let wanted: Vec<bool> = names.iter().map(|name| wanted(name)).collect();
    let works = pattern::workers(&walks.iter().map(|walk| walk.operations(&wanted)).collect::<Vec<u64>>());
    let all = walks.len();
    let late = walks.iter().filter(|walk| walk.first.is_some_and(|first| is_late(first, sums.period))).count();
    let mut keep = works.iter();
    walks.retain(|_| keep.next().is_some_and(|works| *works));
    let taken: BTreeSet<u32> = walks.iter().flat_map(|walk| walk.holds.keys().copied()).collect();
    let mut candidates: Vec<(u32, &Lock)> = (0..).zip(&locks).collect();
    candidates.retain(|(i, _)| wanted[*i as usize] && taken.contains(i));
    let taken = candidates.len();
    if taken > MAX_LOCKS {
        candidates.sort_by_key(|(_, lock)| Reverse((used(lock).wait, used(lock).hold)));
        candidates.truncate(MAX_KEPT);
        candidates.sort_by_key(|(i, _)| *i);
    }
    let mut cover = vec![None; locks.len()];
    let mut kept = Vec::with_capacity(candidates.len());
    for (i, lock) in candidates {
        cover[i as usize] = Some(kept.len() as u32);
        let Used { acquisitions, shared, .. } = used(lock);
        kept.push(Known { name: names[i as usize].clone(), acquisitions, shared });
    }
    let visits: f64 = walks.iter().map(|walk| walk.visits(&cover)).sum();
    let recorded = recorded(sums, walks.len(), visits, &locks, &cover);
    let (arrivals, cut) = walks.iter().map(Walk::arrivals_and_cuts).fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
    let threads: Vec<Pattern> = walks.into_iter().map(|walk| walk.pattern(&cover)).collect();
    let (mut input, whole) = pattern::model(&threads, &kept, 1.0, sums.shadow);
    if kept.is_empty() || whole.operations() <= 0.0 {
        return Err(ProfileError::Empty);
    }
    let mut said = Vec::new();
    said.extend(halves(sums).and_then(violations::unsteady));
    violations::threads(&mut said, all, threads.len(), late);
    if taken > kept.len() {
        said.push(format!(
            "Of {} locks the {} with most waiting (and, among equal ones, holding) are in the model: what is done with the others counts \
             as what threads do between locks.",
            count(taken as u64),
            count(kept.len() as u64)
        ));
    }
    violations::distributions(&mut said, &input, &whole);
    if sums.windows {
        said.push(windows(cut, arrivals));
    }
    beside(&mut said, sums, &whole);
    let of_locks = sums.sums.iter().filter(|sums| sums.is_of_lock());
    let contended = of_locks.fold(0_u64, |all, sums| all.saturating_add(sums.sums.contended));
    violations::company(&mut said, threads.len(), contended);
    input.recorded = recorded;
    input.violations = said;
    Ok(input)
}

/// What the recording itself did: so many visits of the locks that are in the model.
fn recorded(sums: &Sums<'_>, threads: usize, visits: f64, locks: &[Lock], cover: &[Option<u32>]) -> Option<Recorded> {
    let in_model = || locks.iter().zip(cover).filter(|(_, number)| number.is_some()).map(|(lock, _)| lock);
    let processes: BTreeSet<Process> = in_model().map(|lock| lock.process).collect();
    let coverages = sums.estimates.iter().flat_map(|estimates| &estimates.processes);
    let coverages: BTreeMap<Process, &Coverage> =
        coverages.filter(|of| processes.contains(&of.process)).map(|of| (of.process, of)).collect();
    let all = sums.period.1.since(sums.period.0);
    let time = coverages.values().map(|of| of.observed.0).max().unwrap_or(all.0) as f64;
    // Sections inside of others are no visits: of those that were seen, the same share is estimated to be none.
    let kernel =
        |lock: &Lock| sums.sums.iter().filter(|of| of.lock == *lock).map(|of| of.sums.acquisitions).sum::<u64>();
    let acquisitions: u64 = if sums.windows { in_model().map(kernel).sum() } else { 0 };
    let mut rates = Interval::default();
    for lock in in_model() {
        let figures = sums.estimates.and_then(|estimates| estimates.of(Subject::Lock(*lock)));
        if let (Some(figures), Some(of)) = (figures, coverages.get(&lock.process)) {
            let part = visits / acquisitions.max(1) as f64 / of.time.0.max(1) as f64;
            let Interval { value, low, high } = figures.acquisitions;
            rates.value += value * part;
            rates.low += low * part;
            rates.high += high * part;
        }
    }
    let estimated = rates.value > 0.0;
    (time > 0.0).then(|| Recorded {
        threads: threads as u32,
        without_observer: sums.shadow.is_some(),
        observed_per_ns: visits / time,
        estimated_per_ns: estimated.then_some(rates.value),
        estimated_interval_per_ns: estimated.then_some([rates.low, rates.high]),
    })
}

/// The locks visited, in the order of their first visits.
fn locks(transitions: &[Transition]) -> Vec<Lock> {
    let mut first: HashMap<Lock, Time, RandomState> = HashMap::default();
    for transition in transitions {
        if let Some(lock) = transition.to {
            let known = first.entry(lock).or_insert(transition.first);
            *known = (*known).min(transition.first);
        }
    }
    let mut locks: Vec<(Time, Lock)> = first.into_iter().map(|(lock, time)| (time, lock)).collect();
    locks.sort_unstable();
    locks.into_iter().map(|(_, lock)| lock).collect()
}

fn walks(sums: &Sums<'_>, locks: &[Lock], used: impl Fn(&Lock) -> Used) -> Vec<Walk> {
    let numbers: HashMap<Lock, u32, RandomState> = locks.iter().copied().zip(0..).collect();
    let number = |lock: Option<Lock>, none: u32| lock.map_or(none, |lock| numbers.get(&lock).copied().unwrap_or(none));
    let mut walks: BTreeMap<(Process, Tid), Walk> = BTreeMap::new();
    let added = |lock: Option<Lock>| lock.map_or([0.0; 2], |lock| used(&lock).added(sums.shadow));
    let cut_short = sums.shadow.map_or(0.0, Shadow::cut);
    for t in sums.transitions {
        let walk = walks.entry((t.process, t.tid)).or_default();
        walk.first = Some(walk.first.map_or(t.first, |first| first.min(t.first)));
        let (from, to) = (number(t.from, START), number(t.to, END));
        let (count, time) = (t.count as f64, t.local.0 as f64);
        // Of what leads on from where it was not seen, no time is known.
        let [_, between] = added(t.from);
        let added_each = if to == END { cut_short } else { between };
        walk.flows.entry((from, to)).or_default().add(Flow { count, time, added: (count * added_each).min(time) });
        if to != END {
            let (count, sum, cut) = (t.visits as f64, t.hold.0 as f64, t.cut.0 as f64);
            let [in_section, _] = added(t.to);
            let begun = (t.count as f64 - count).max(0.0);
            let added = (count * in_section).min(sum) + (begun * cut_short).min(cut);
            let holds = Holds { count, sum, squares: t.squares as f64, cut, added };
            walk.holds.entry(to).or_default().add(holds);
        }
    }
    walks.into_values().collect()
}

fn used(sums: &[KernelSums]) -> HashMap<Lock, Used, RandomState> {
    let mut used: HashMap<Lock, Used, RandomState> = HashMap::default();
    for sums in sums.iter().filter(|sums| sums.is_of_lock()) {
        let of = used.entry(sums.lock).or_default();
        let shared = if is_shared(sums.via as u32) { sums.sums.acquisitions } else { 0 };
        of.acquisitions = of.acquisitions.saturating_add(sums.sums.acquisitions);
        of.shared = of.shared.saturating_add(shared);
        of.wait = of.wait.saturating_add(sums.sums.wait_ns);
        of.hold = of.hold.saturating_add(sums.sums.hold_ns);
        of.contended = of.contended.saturating_add(sums.sums.contended);
        of.inner_hits = of.inner_hits.saturating_add(sums.sums.inner_hits);
    }
    used
}

fn is_late(first: Time, (start, end): (Time, Time)) -> bool {
    first.since(start).0 > end.since(start).0 / 10
}

/// Acquisitions in the two halves; `None` where that is not known.
fn halves(sums: &Sums<'_>) -> Option<[f64; 2]> {
    let (start, end) = sums.period;
    let middle = start.0 + end.since(start).0 / 2;
    let all = sums.pace.last()?.1 as f64;
    let after = sums.pace.iter().position(|(time, _)| time.0 >= middle)?;
    // One before and one after are enough, if they are not the ends.
    let (&(a, before), &(b, later)) = (sums.pace.get(after.checked_sub(1)?)?, sums.pace.get(after)?);
    if sums.pace.len() < 4 {
        return None;
    }
    let part = (middle - a.0) as f64 / b.since(a).0.max(1) as f64;
    let half = before as f64 + part * (later.saturating_sub(before)) as f64;
    Some([half, all - half])
}

fn windows(cut: f64, arrivals: f64) -> String {
    format!(
        "The recording saw the program in windows (--budget). Of the ways from lock to lock that were seen, {} were cut by a window's \
         end: times between sections are extended for that as if they were exponential, and longer ways than a window are missing.",
        percent(cut / (arrivals + cut).max(1.0))
    )
}

/// What is not in the transitions: inner locks, locks that are not held, waits.
fn beside(said: &mut Vec<String>, sums: &Sums<'_>, whole: &Pattern) {
    let (mut held, mut inline, mut idle, mut left_out) = (0_u64, 0_u64, 0.0, 0_u64);
    for KernelSums { via, sums, .. } in sums.sums {
        match *via {
            via if via.is_inline() => inline = inline.saturating_add(sums.acquisitions),
            via if is_semaphore(via as u32) => idle += sums.wait_ns as f64,
            Via::CondWait => {
                let timed_out = sums.timeouts.min(sums.acquisitions);
                left_out = left_out.saturating_add(sums.acquisitions - timed_out);
                idle += sums.wait_ns as f64 * timed_out as f64 / sums.acquisitions.max(1) as f64;
            }
            Via::Futex | Via::Once | Via::Kernel => {}
            _ => held = held.saturating_add(sums.acquisitions),
        }
    }
    let visits = sums.transitions.iter().fold(0_u64, |all, transition| all.saturating_add(transition.visits));
    violations::nesting(said, held.saturating_sub(visits), held as f64);
    if inline as f64 > FEW * (held as f64 + inline as f64) {
        said.push(format!(
            "{} of acquisitions seen are of locks that the program takes inline (Go, Rust, Java, …): their sections cannot be seen, and \
             are not in the model.",
            percent(inline as f64 / (held as f64 + inline as f64))
        ));
    }
    violations::idling(said, idle, whole.local);
    violations::conditions(said, left_out);
}
