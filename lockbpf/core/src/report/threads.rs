//! What each thread did. Of processes that were observed in windows its waiting is what was recorded of it, so that the threads' waiting adds
//! up to that for locks.

use super::gather::Gathered;
use super::place::Places;
use super::schema::ThreadEntry;
use super::windows;
use crate::event::ThreadTotals;
use crate::graph::turns::MAX_THREADS;
use crate::id::{Lock, Process, Tid};
use crate::observation::Observation;
use crate::units::{Nanos, Time};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The threads, longest waiting first.
pub(super) fn threads(
    observation: &Observation,
    all: &BTreeMap<Lock, Gathered<'_>>,
    places: &mut Places<'_>,
) -> Vec<ThreadEntry> {
    let listed = observation.threads.iter().map(|t| t.tid).collect();
    let recorded = Recorded::of(all, observation.end, &listed);
    let is_guessed = |t: &&ThreadTotals| observation.is_estimated(t.process) && recorded.wait(t).is_none();
    let guessed: u64 = observation.threads.iter().filter(is_guessed).map(|t| t.wait.0).sum();
    // No more is left for those that were not told apart.
    let guess = |t: &ThreadTotals| {
        let part = u128::from(t.wait.0) * u128::from(recorded.beyond.0.min(guessed)) / u128::from(guessed.max(1));
        Nanos(part as u64)
    };
    // Those that have ended, beyond the ones listed, are one entry.
    let longest = |t: &ThreadTotals| if t.tid == Tid(0) { Nanos(u64::MAX) } else { observation.duration() };
    let without_calls = without_calls(observation, all);
    let for_work = for_work(observation, all);
    let mut threads = Vec::with_capacity(observation.threads.len());
    for t in &observation.threads {
        let estimated = observation.is_estimated(t.process);
        let slept = without_calls.get(&t.tid).copied().unwrap_or_default();
        let wait = if estimated {
            recorded.wait(t).unwrap_or_else(|| guess(t)).min(longest(t))
        } else {
            let wait = t.wait - for_work.get(&t.tid).copied().unwrap_or_default().min(t.wait);
            (wait + slept).min(longest(t).max(wait))
        };
        threads.push(ThreadEntry {
            tid: places.thread(t.tid),
            pid: observation.processes.get(&t.process).map(|p| p.pid),
            comm: places.comm(t.tid, &t.comm),
            wait_ns: places.ns(wait + t.kernel_wait),
            kernel_wait_ns: places.ns(t.kernel_wait),
            held_union_ns: places.ns(t.held_union),
            held_sum_ns: places.ns(t.held_sum),
            acquisitions: t.acquisitions,
            estimated,
        });
    }
    threads.sort_by(|a, b| (b.wait_ns, &a.tid, &a.comm).cmp(&(a.wait_ns, &b.tid, &b.comm)));
    threads
}

/// How long threads slept for locks in calls that were not seen: those of locks that are known by their sleepers, and calls that began before.
fn without_calls(observation: &Observation, all: &BTreeMap<Lock, Gathered<'_>>) -> HashMap<Tid, Nanos> {
    let mut slept = observation.findings.attempt_unseen.clone();
    for (lock, _) in all.iter().filter(|(_, g)| !g.permits.is_empty()) {
        let Some(shares) = observation.findings.locks.get(lock) else { continue };
        let all: Nanos = shares.turns.threads.values().map(|turn| turn.waits.time).sum();
        for (tid, turn) in &shares.turns.threads {
            let part = u128::from(turn.waits.time.0) * u128::from(shares.attempt_unseen.0) / u128::from(all.0.max(1));
            slept.entry(*tid).and_modify(|slept| *slept = *slept - Nanos(part as u64).min(*slept));
        }
    }
    for shares in all.values().filter(|g| g.is_inferred_lock()).filter_map(Gathered::blame) {
        for (&tid, turn) in &shares.turns.threads {
            *slept.entry(tid).or_default() += turn.waits.time;
        }
    }
    slept
}

/// How long threads waited for permits that stand for work, as far as it was recorded. The kernel side counts that with their waiting for locks.
fn for_work(observation: &Observation, all: &BTreeMap<Lock, Gathered<'_>>) -> HashMap<Tid, Nanos> {
    let mut waited = HashMap::new();
    let semaphores = all.iter().filter(|(_, g)| !g.permits.is_empty());
    for permits in semaphores.filter_map(|(lock, _)| observation.findings.permits.get(lock)) {
        permits.waited().for_each(|(tid, wait)| *waited.entry(tid).or_default() += wait);
    }
    waited
}

/// How long threads waited for locks of the program's, as far as it was recorded.
struct Recorded {
    waits: HashMap<Tid, Nanos>,
    /// The part of it of threads that are not listed, by the process of the lock.
    unlisted: HashMap<Process, Nanos>,
    /// Waiting of which no record names the thread: the lock has no records, or more waiters than lockbpf tells apart.
    beyond: Nanos,
}

impl Recorded {
    fn of(all: &BTreeMap<Lock, Gathered<'_>>, end: Time, listed: &HashSet<Tid>) -> Self {
        let mut recorded = Self { waits: HashMap::new(), unlisted: HashMap::new(), beyond: Nanos(0) };
        for (lock, gathered) in all.iter().filter(|(lock, _)| !lock.is_kernel()) {
            let Some(shares) = gathered.blame() else {
                recorded.beyond += windows::waited(gathered, end);
                continue;
            };
            let turns = &shares.turns.threads;
            let all = if gathered.mutex.is_empty() { shares.waits.time } else { windows::waited(gathered, end) };
            // That may be more than was recorded, or less.
            let sum: Nanos = turns.values().map(|turn| turn.waits.time).sum();
            let theirs = if turns.len() < MAX_THREADS { all } else { all.min(sum) };
            recorded.beyond += all - theirs;
            for (&tid, turn) in turns {
                let part = u128::from(turn.waits.time.0) * u128::from(theirs.0) / u128::from(sum.0.max(1));
                let whose = if listed.contains(&tid) {
                    recorded.waits.entry(tid).or_default()
                } else {
                    recorded.unlisted.entry(lock.process).or_default()
                };
                *whose += Nanos(part as u64);
            }
        }
        recorded
    }

    /// `None` if nothing was, of this thread.
    fn wait(&self, thread: &ThreadTotals) -> Option<Nanos> {
        let wait = if thread.tid == Tid(0) { self.unlisted.get(&thread.process) } else { self.waits.get(&thread.tid) };
        wait.copied()
    }
}
