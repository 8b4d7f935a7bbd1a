//! Who waits for whom right now: the waits in progress, as probes saw them begin or as `/proc` shows those whose beginning none
//! saw, and the holders, as the locks' own memory names them. Everything is read from a running target and may be gone
//! or nonsense at any moment: what cannot be read, or cannot be a lock, is left out.

pub use super::open_stacks::TakenStack;

use super::inflight::{self, Blocked as Sleep, Snapshot};
use super::open_stacks;
use super::owner::{Owner, Owners, read};
use crate::deadlock::{Blocked, Wait};
use crate::id::{Lock, Process, Site, Tid};
use crate::observation::OpenWait;
use crate::units::{Nanos, Time};
use crate::unwind::Unwind;
use lockbpf_common::kind::Via;
use lockbpf_common::parking::is_for_lock;
use lockbpf_common::record::TOP_WORDS;
use std::collections::{HashMap, HashSet};

/// Waits that began less than this before are left out: nearly all of them end by themselves.
const MIN_AGE: Nanos = Nanos(100_000_000);
/// Waits looked at, at most.
const MAX_WAITS: usize = 4_096;

/// Looks at waits again and again.
#[derive(Debug)]
pub struct Waits {
    /// Threads that slept in futex calls, perhaps for a lock, and were not seen to begin.
    unseen: HashMap<(u32, Tid), Unseen>,
    owners: Owners,
}

/// A sleep whose beginning no probe saw.
#[derive(Debug)]
struct Unseen {
    sleep: Sleep,
    /// When it was found.
    since: Time,
    /// Whether it began before the observation.
    before_start: bool,
}

impl Waits {
    /// Begins with those that were in progress at `start`.
    #[must_use]
    pub fn new(before: &Snapshot, start: Time) -> Self {
        let mut waits = Self { unseen: HashMap::new(), owners: Owners::default() };
        waits.take_in(before, start, true);
        waits
    }

    /// Takes in those that are in progress `now`, since beginnings may have been missed.
    pub fn missed(&mut self, now_asleep: &Snapshot, now: Time) {
        self.take_in(now_asleep, now, false);
    }

    fn take_in(&mut self, asleep: &Snapshot, since: Time, before_start: bool) {
        for (thread, sleep) in asleep.sleeps() {
            let known = self.unseen.get(&thread).is_some_and(|unseen| unseen.sleep == sleep);
            if !known && self.unseen.len() < MAX_WAITS {
                self.unseen.insert(thread, Unseen { sleep, since, before_start });
            }
        }
    }

    /// The waits without a deadline that have lasted for some time, and who holds what they wait for. `seen` are those whose
    /// beginning a probe saw, `pids` the processes observed, with their numbers.
    pub fn look(&mut self, now: Time, seen: &[OpenWait], pids: &HashMap<Process, u32>) -> Vec<Wait> {
        self.owners.forget();
        let seen_tids: HashSet<Tid> = seen.iter().map(|w| w.tid).collect();
        let mut waits = Vec::new();
        for wait in seen.iter().filter(|w| w.since + MIN_AGE <= now).take(MAX_WAITS) {
            let Some(&pid) = pids.get(&wait.lock.process) else { continue };
            let holder = match wait.via {
                Via::Lock | Via::CondReacquire => self.owners.of_mutex(pid, wait.lock.addr),
                Via::Futex => self.owners.of_word(pid, wait.lock.addr).filter(|_| {
                    inflight::sleep(pid, wait.tid).is_some_and(|s| s.word == wait.lock.addr && !s.has_deadline)
                }),
                Via::ReadLock | Via::WriteLock => self.owners.of_rwlock(pid, wait.lock.addr),
                // Others cannot wait for ever, or do not say who holds them.
                _ => None,
            };
            if let Some(Owner { tid: holder, alone: owned }) = holder {
                let OpenWait { tid, lock, site, since, stack, .. } = *wait;
                let blocked = Blocked { tid, lock, site, since, stack };
                waits.push(Wait { blocked, holder, before_start: false, owned });
            }
        }
        let mut numbers: HashMap<u32, Process> = HashMap::new();
        for (&process, &pid) in pids {
            // After exec a pid has a second number: the later one.
            let latest = numbers.entry(pid).or_insert(process);
            *latest = process.max(*latest);
        }
        self.unseen.retain(|&(pid, tid), unseen| {
            !seen_tids.contains(&tid)
                && numbers.contains_key(&pid)
                && !unseen.sleep.has_deadline
                // Who has gone on does not come back to the same wait.
                && inflight::sleep(pid, tid) == Some(unseen.sleep)
        });
        for (&(pid, tid), &Unseen { sleep, since, before_start }) in &self.unseen {
            let Some(&process) = numbers.get(&pid) else { continue };
            let Some(Owner { tid: holder, alone: owned }) = self.owners.of_word(pid, sleep.word) else { continue };
            if !before_start && since + MIN_AGE > now || inflight::sleep(pid, tid) != Some(sleep) {
                continue;
            }
            let lock = Lock { process, addr: sleep.word };
            let blocked = Blocked { tid, lock, site: None, since, stack: None };
            waits.push(Wait { blocked, holder, before_start, owned });
        }
        waits
    }
}

/// The waits among these whose end was missed: their threads are blocked elsewhere by now, or further out. Those of runtimes' own locks sleep on
/// words of their own, of which nothing is known here.
pub fn over<'a>(seen: &'a [OpenWait], pids: &HashMap<Process, u32>) -> impl Iterator<Item = &'a OpenWait> {
    seen.iter().filter(move |wait| {
        if wait.via == Via::CustomWait {
            return wait.expected.is_some_and(|began| open_stacks::has_left(wait.tid, began));
        }
        let known = matches!(
            wait.via,
            Via::Lock
                | Via::TimedLock
                | Via::ClockLock
                | Via::CondReacquire
                | Via::Futex
                | Via::ReadLock
                | Via::WriteLock
        );
        let size = if wait.via == Via::Futex { 1 } else { Lock::LARGEST };
        let is_elsewhere = |&pid: &u32| inflight::is_elsewhere(pid, wait.tid, wait.lock.addr, size);
        let known = known && !wait.expected.is_some_and(is_for_lock);
        known && pids.get(&wait.lock.process).is_some_and(is_elsewhere)
    })
}

/// The words at the top of the stack of a thread that sleeps in a futex call, among which its caller can be found.
#[must_use]
pub fn top_of_stack(pid: u32, tid: Tid) -> Option<[u64; TOP_WORDS]> {
    read::<{ TOP_WORDS * 8 }>(pid, inflight::sleep(pid, tid)?.stack_pointer).map(|bytes| {
        let mut words = [0; TOP_WORDS];
        for (word, chunk) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_ne_bytes(*chunk);
        }
        words
    })
}

/// The word on which a thread sleeps in a futex call.
#[must_use]
pub fn word(pid: u32, tid: Tid) -> Option<u64> {
    Some(inflight::sleep(pid, tid)?.word)
}

/// The stack of a thread in a wait whose beginning no probe saw, by unwind information: in a futex call, or, for a described lock, in any.
#[must_use]
pub fn stack(wait: &OpenWait, unwinder: &mut dyn Unwind) -> Option<Vec<u64>> {
    match wait.via {
        Via::CustomWait => open_stacks::of_blocked(wait.lock.process, wait.tid, unwinder),
        _ => open_stacks::of_sleeper(wait.tid, wait.lock, unwinder),
    }
}

/// The place from which a thread that sleeps in a futex call came there, if no probe saw that.
#[must_use]
pub fn caller(pid: u32, blocked: &Blocked, find: impl FnOnce(&[u64]) -> Option<u64>) -> Option<Site> {
    let addr = find(&top_of_stack(pid, blocked.tid)?)?;
    Some(Site { process: blocked.lock.process, addr })
}
