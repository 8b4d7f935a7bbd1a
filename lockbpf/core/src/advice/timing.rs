//! Timing of critical sections from a recording: how long each thread waited for and held what, how many other threads'
//! holds an acquisition waited for, and whose these were.

use crate::id::{Lock, Process, Site, Tid};
use crate::op::{Action, Attempt, LockKind, Op};
use crate::units::Time;
use foldhash::fast::RandomState;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Holds of one wait that are looked at for who is to blame. Waits that meet more meet the same again and again.
const CULPRITS: usize = 64;
/// Holds of a lock that are remembered before those that nobody needs any more are looked for.
const REMEMBERED: usize = 1 << 12;

type Map<K, V> = HashMap<K, V, RandomState>;

/// A critical section: where a lock was asked for, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Section {
    /// The lock.
    pub lock: Lock,
    /// The site.
    pub site: Site,
}

/// A thread's part in waiting: who, and at which site.
pub type Part = (u32, Site);

/// A thread's time in a section, in the recording's units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Acquisitions.
    pub acquisitions: u64,
    /// How many of these waited for a hold.
    pub waited: u64,
    /// Σ wait.
    pub wait: u64,
    /// Σ hold, recursive acquisitions within the outermost one.
    pub hold: u64,
    /// Σ over acquisitions of other threads' holds of the lock that fall into the wait.
    pub met: u64,
}

/// A thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadSpan {
    /// Who.
    pub tid: Tid,
    /// Its process.
    pub process: Process,
    /// Its first step.
    pub first: Time,
    /// Its last one.
    pub last: Time,
}

/// All of a recording.
#[derive(Clone, Debug, Default)]
pub struct Timing {
    /// The threads.
    pub threads: Vec<ThreadSpan>,
    /// By thread (its place in `threads`) and section.
    pub spent: Map<(u32, Section), Spent>,
    /// Who waited for whose hold of the same lock: thread and site of the hold, then of the wait.
    pub waits: BTreeSet<(Part, Part)>,
}

#[derive(Clone, Copy, Debug)]
struct Holding {
    thread: u32,
    section: Section,
    acquired: Time,
    depth: u32,
}

#[derive(Clone, Copy, Debug)]
struct Asking {
    section: Section,
    at: Time,
    /// Holds of the lock before it.
    before: u64,
    recursive: bool,
}

#[derive(Clone, Debug, Default)]
struct LockNow {
    holders: Vec<Holding>,
    /// Holds begun, since the first one still needed; and how many came before that.
    log: Vec<(u32, Site, Time)>,
    dropped: u64,
    waiting: u64,
    /// The last attempt.
    asked: Time,
    /// Length of `log` at which it is to be shortened.
    full: usize,
}

/// Makes the timing of steps in order of time.
#[derive(Debug, Default)]
pub struct Clock {
    timing: Timing,
    by_tid: Map<Tid, u32>,
    asking: Map<u32, (Asking, Vec<Holding>)>,
    locks: Map<Lock, LockNow>,
    held: Map<u32, Vec<Lock>>,
    waits: HashSet<(Part, Part), RandomState>,
}

impl Clock {
    /// Takes one step.
    pub fn op(&mut self, op: &Op) {
        let thread = self.thread(op);
        match op.action {
            Action::Attempt(attempt) => self.attempt(thread, &attempt, op.time),
            Action::Acquire { lock, .. } => self.acquire(thread, lock, op.time),
            Action::Release { lock, .. } => self.release(thread, lock, op.time, false),
            Action::Fail { .. } => self.give_up(thread),
            Action::Exit { .. } => {
                self.give_up(thread);
                for lock in self.held.remove(&thread).unwrap_or_default() {
                    self.release(thread, lock, op.time, true);
                }
                self.by_tid.remove(&op.tid);
            }
            Action::Barrier(_)
            | Action::CondWait { .. }
            | Action::CondWake { .. }
            | Action::Off { .. }
            | Action::On
            | Action::Holds(_)
            | Action::Join { .. } => {}
        }
    }

    /// What came of it.
    #[must_use]
    pub fn finish(mut self) -> Timing {
        self.timing.waits = self.waits.into_iter().collect();
        self.timing
    }

    fn thread(&mut self, op: &Op) -> u32 {
        let threads = &mut self.timing.threads;
        let thread = *self.by_tid.entry(op.tid).or_insert_with(|| {
            threads.push(ThreadSpan { tid: op.tid, process: op.process, first: op.time, last: op.time });
            threads.len() as u32 - 1
        });
        let span = &mut threads[thread as usize];
        span.last = span.last.max(op.time);
        thread
    }

    fn attempt(&mut self, thread: u32, attempt: &Attempt, at: Time) {
        self.give_up(thread);
        if attempt.kind == LockKind::Semaphore {
            return;
        }
        let section = Section { lock: attempt.lock, site: attempt.site };
        let now = self.locks.entry(attempt.lock).or_default();
        let held = now.holders.iter().any(|holding| holding.thread == thread);
        if held && attempt.contended.is_some() {
            // Live sources fold recursion themselves: a release is missing.
            self.release(thread, attempt.lock, at, true);
        }
        let recursive = held && attempt.contended.is_none();
        let now = self.locks.entry(attempt.lock).or_default();
        now.waiting += 1;
        now.asked = at;
        let before = now.dropped + now.log.len() as u64;
        let others = now.holders.iter().filter(|holding| holding.thread != thread).copied().collect();
        self.asking.insert(thread, (Asking { section, at, before, recursive }, others));
    }

    /// The thread does not ask any more.
    fn give_up(&mut self, thread: u32) {
        if let Some((asking, _)) = self.asking.remove(&thread) {
            self.leave(asking.section.lock);
        }
    }

    fn leave(&mut self, lock: Lock) {
        let Some(now) = self.locks.get_mut(&lock) else { return };
        now.waiting = now.waiting.saturating_sub(1);
        if now.waiting == 0 {
            now.dropped += now.log.len() as u64;
            now.log.clear();
        }
    }

    fn acquire(&mut self, thread: u32, lock: Lock, time: Time) {
        let Some((asking, holders)) = self.asking.remove(&thread) else { return };
        if asking.section.lock != lock {
            self.leave(asking.section.lock);
            return;
        }
        let Some(now) = self.locks.get_mut(&lock) else { return };
        if asking.recursive {
            if let Some(held) = now.holders.iter_mut().find(|holding| holding.thread == thread) {
                held.depth += 1;
            }
            self.leave(lock);
            return;
        }
        let since = asking.before.saturating_sub(now.dropped) as usize;
        let (mut met, mut culprits) = (0, Vec::new());
        if time > asking.at {
            met += holders.len() as u64;
            culprits.extend(holders.iter().map(|holding| (holding.thread, holding.section.site)));
            for &(other, site, acquired) in now.log.get(since..).unwrap_or_default() {
                if other != thread && acquired < time {
                    met += 1;
                    if culprits.len() < CULPRITS {
                        culprits.push((other, site));
                    }
                }
            }
        }
        if now.waiting > 1 {
            now.log.push((thread, asking.section.site, time));
            if now.log.len() > now.full.max(REMEMBERED) {
                let needed = self.asking.values().filter(|(other, _)| other.section.lock == lock);
                let from = needed.map(|(other, _)| other.before.saturating_sub(now.dropped)).min().unwrap_or_default();
                now.log.drain(..(from as usize).min(now.log.len()));
                now.dropped += from;
                now.full = 2 * now.log.len();
            }
        } else {
            now.dropped += 1;
        }
        now.holders.push(Holding { thread, section: asking.section, acquired: time, depth: 0 });
        self.leave(lock);
        self.held.entry(thread).or_default().push(lock);
        for culprit in culprits {
            self.waits.insert((culprit, (thread, asking.section.site)));
        }
        let spent = self.timing.spent.entry((thread, asking.section)).or_default();
        spent.acquisitions += 1;
        spent.waited += u64::from(met > 0);
        spent.wait += time.since(asking.at).0;
        spent.met += met;
    }

    fn release(&mut self, thread: u32, lock: Lock, time: Time, wholly: bool) {
        let Some(now) = self.locks.get_mut(&lock) else { return };
        let Some(at) = now.holders.iter().rposition(|holding| holding.thread == thread) else { return };
        if now.holders[at].depth > 0 && !wholly {
            now.holders[at].depth -= 1;
            return;
        }
        let holding = now.holders.remove(at);
        if let Some(held) = self.held.get_mut(&thread)
            && let Some(at) = held.iter().rposition(|held| *held == lock)
        {
            held.remove(at);
        }
        // A hold that ends when a thread asks has not kept it waiting.
        if now.waiting > 0 && now.asked == time {
            for (asking, holders) in self.asking.values_mut() {
                if asking.section.lock == lock && asking.at == time {
                    holders.retain(|held| held.thread != thread || held.acquired != holding.acquired);
                }
            }
        }
        let spent = self.timing.spent.entry((thread, holding.section)).or_default();
        spent.hold += time.since(holding.acquired).0;
    }
}
