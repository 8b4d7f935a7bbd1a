//! Sums of locks, sites and threads added up from steps: what the kernel side keeps itself where capture is live.
//!
//! Memory is bounded like the kernel's maps; what finds no room is counted in [`Totals::beyond`] and [`Totals::of_other_threads`].
#![forbid(unsafe_code)]

use crate::event::ThreadTotals;
use crate::id::{Lock, Process, Site, Tid};
use crate::op::{Action, Failure, Op, Released};
use crate::state::{Instance, Observer};
use crate::sums::{Rows, SiteSums};
use crate::tally::Tally;
use crate::units::{Nanos, Time};
use foldhash::fast::RandomState;
use lockbpf_common::kind::{Via, mutex_kind};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Threads summed one by one.
pub const MAX_THREADS: usize = 65_536;

/// Sums of everything so far. Gets sections from the machines as an [`Observer`], and the steps themselves, of which it
/// needs those that are no part of a section ([`Totals::step`]).
#[derive(Clone, Debug, Default)]
pub struct Totals {
    sites: Rows,
    threads: HashMap<Tid, Thread, RandomState>,
    of_other_threads: u64,
    first: Option<Time>,
    last: Time,
}

#[derive(Clone, Debug)]
struct Thread {
    totals: ThreadTotals,
    /// Locks held now.
    depth: u64,
    /// Since when at least one is held.
    held_since: Time,
    /// Σ of the times at which they were acquired.
    acquired: u128,
    /// The condition that it waits for, where, and since when.
    idle: Option<(Lock, Site, Time)>,
}

impl Totals {
    /// Takes a step: condition waits and the threads that take part are seen only here. Comes before what the machines
    /// make of the same step.
    pub fn step(&mut self, op: &Op) {
        self.first.get_or_insert(op.time);
        self.last = op.time;
        match op.action {
            Action::CondWait { condition, site } => {
                if let Some(thread) = self.thread(op.tid, op.process) {
                    thread.idle = Some((condition, site, op.time));
                }
            }
            Action::CondWake { .. } => {
                let idle = self.thread(op.tid, op.process).and_then(|thread| thread.idle.take());
                if let Some((condition, site, since)) = idle {
                    let wait = op.time.since(since);
                    if let Some(sums) = self.sites.row((condition, site, Via::CondWait), since, wait) {
                        sums.mutex_kind = mutex_kind::IS_CONDVAR;
                        sums.acquisitions += 1;
                        sums.wait.add(wait);
                    }
                }
            }
            Action::Barrier(_) | Action::Join { .. } | Action::Exit { .. } => {
                if let Some(thread) = self.thread(op.tid, op.process) {
                    thread.totals.time = op.time;
                }
            }
            Action::Attempt(_)
            | Action::Acquire { .. }
            | Action::Release { .. }
            | Action::Fail { .. }
            | Action::Off { .. }
            | Action::Holds(_)
            | Action::On => {}
        }
    }

    /// Sums by lock and site, in the order of their first operations.
    #[must_use]
    pub fn sites(&self) -> Vec<SiteSums> {
        self.sites.sums()
    }

    /// Sums by thread, in the order of their numbers, as of the last step: locks that are still held count up
    /// to then. Their names are left empty.
    #[must_use]
    pub fn threads(&self) -> Vec<ThreadTotals> {
        let mut threads: Vec<ThreadTotals> = self.threads.values().map(|thread| self.as_of_now(thread)).collect();
        threads.sort_unstable_by_key(|totals| totals.tid);
        threads
    }

    /// Sections (and failed attempts and condition waits) of locks and sites beyond the number that is told apart, and
    /// what they waited.
    #[must_use]
    pub fn beyond(&self) -> Tally {
        self.sites.beyond()
    }

    /// Sections of threads beyond [`MAX_THREADS`]: they are in the sums by lock and site only.
    #[must_use]
    pub fn of_other_threads(&self) -> u64 {
        self.of_other_threads
    }

    fn as_of_now(&self, thread: &Thread) -> ThreadTotals {
        let mut totals = thread.totals.clone();
        if thread.depth > 0 {
            totals.held_union += self.last.since(thread.held_since);
            let since = (u128::from(self.last.0) * u128::from(thread.depth)).saturating_sub(thread.acquired);
            totals.held_sum += Nanos(u64::try_from(since).unwrap_or(u64::MAX));
        }
        totals.time = totals.time.max(self.last);
        // A thread that waits for two things at once, as no program can, waits no longer than there is time.
        totals.wait = self.first.map_or(totals.wait, |first| totals.wait.min(self.last.since(first)));
        totals
    }

    fn thread(&mut self, tid: Tid, process: Process) -> Option<&mut Thread> {
        let known = self.threads.len();
        match self.threads.entry(tid) {
            Entry::Occupied(entry) => Some(entry.into_mut()),
            Entry::Vacant(_) if known >= MAX_THREADS => None,
            Entry::Vacant(entry) => Some(entry.insert(Thread {
                totals: ThreadTotals {
                    time: Time(0),
                    tid,
                    process,
                    comm: String::new(),
                    acquisitions: 0,
                    wait: Nanos(0),
                    kernel_wait: Nanos(0),
                    held_sum: Nanos(0),
                    held_union: Nanos(0),
                    ends_process: false,
                },
                depth: 0,
                held_since: Time(0),
                acquired: 0,
                idle: None,
            })),
        }
    }

    fn section(&mut self, i: &Instance, at: Time, wait: Nanos) -> Option<&mut SiteSums> {
        let first = i.attempt.or(i.acquire).unwrap_or(at);
        let sums = self.sites.row((i.lock, i.site.unwrap_or_default(), Via::Lock), first, wait)?;
        sums.kind = i.kind;
        sums.stack = sums.stack.or(i.stack);
        Some(sums)
    }
}

impl Observer for Totals {
    fn passed(&mut self, _region: &Instance, successor: &Instance) {
        // Waiting for the others is the thread's; nothing is acquired and nothing held.
        if let Some((attempt, acquire)) = successor.attempt.zip(successor.acquire)
            && let Some(thread) = self.thread(successor.tid, successor.process)
        {
            thread.totals.wait += acquire.since(attempt);
        }
    }

    fn acquired(&mut self, i: &Instance) {
        if let Some((thread, at)) = self.thread(i.tid, i.process).zip(i.acquire) {
            if thread.depth == 0 {
                thread.held_since = at;
            }
            thread.depth += 1;
            thread.acquired += u128::from(at.0);
        }
    }

    fn released(&mut self, i: &Instance, at: Time, how: Released) {
        // How long a lock was waited for or held is not known if it was taken before the recording.
        let Some(acquire) = i.acquire else { return };
        let hold = at.since(acquire);
        let wait = if i.contended { i.attempt.map_or(Nanos(0), |attempt| acquire.since(attempt)) } else { Nanos(0) };
        if let Some(sums) = self.section(i, at, wait) {
            sums.acquisitions += 1;
            if how == Released::Unseen {
                sums.unseen += 1;
            } else {
                sums.hold.add(hold);
            }
            if i.contended {
                sums.contended += 1;
                sums.wait.add(wait);
            }
        }
        if let Some(thread) = self.thread(i.tid, i.process) {
            thread.totals.acquisitions += 1;
            thread.totals.wait += wait;
            thread.totals.held_sum += hold;
            thread.depth = thread.depth.saturating_sub(1);
            thread.acquired = thread.acquired.saturating_sub(u128::from(acquire.0));
            if thread.depth == 0 {
                thread.totals.held_union += at.since(thread.held_since);
            }
        } else {
            self.of_other_threads += 1;
        }
    }

    fn failed(&mut self, i: &Instance, at: Time, how: Failure) {
        let wait = i.attempt.map_or(Nanos(0), |attempt| at.since(attempt));
        if let Some(sums) = self.section(i, at, wait) {
            match how {
                Failure::TryFailed => sums.try_failures += 1,
                Failure::TimedOut => {
                    sums.timeouts += 1;
                    sums.timed_out += wait;
                }
                Failure::Error => sums.errors += 1,
            }
        }
        if let Some(thread) = self.thread(i.tid, i.process)
            && how == Failure::TimedOut
        {
            thread.totals.wait += wait;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::LockKind;
    use crate::sums::MAX_ROWS;

    const SITE: Site = Site { process: Process(0), addr: 9 };

    fn lock(addr: u64) -> Lock {
        Lock { process: Process(0), addr }
    }

    fn instance(tid: u32, addr: u64, attempt: u64, acquire: Option<u64>) -> Instance {
        Instance {
            number: 1,
            tid: Tid(tid),
            process: Process(0),
            lock: lock(addr),
            kind: LockKind::Rwlock,
            site: Some(SITE),
            shared: false,
            contended: acquire.is_none_or(|acquire| acquire > attempt),
            attempt: Some(Time(attempt)),
            acquire: acquire.map(Time),
            stack: None,
        }
    }

    fn section(totals: &mut Totals, tid: u32, addr: u64, [attempt, acquire, release]: [u64; 3]) {
        let i = instance(tid, addr, attempt, Some(acquire));
        totals.acquired(&i);
        totals.released(&i, Time(release), Released::Unlock);
    }

    fn step(totals: &mut Totals, time: u64, action: Action) {
        totals.step(&Op { time: Time(time), tid: Tid(1), process: Process(0), action });
    }

    #[test]
    fn a_sites_sections_are_summed() {
        let mut totals = Totals::default();
        section(&mut totals, 1, 5, [0, 0, 10]);
        section(&mut totals, 2, 5, [4, 10, 12]);
        totals.failed(&instance(2, 5, 13, None), Time(20), Failure::TimedOut);
        totals.failed(&instance(2, 5, 21, None), Time(21), Failure::TryFailed);
        let [sums] = &totals.sites()[..] else { panic!("one lock, one site") };
        assert_eq!((sums.acquisitions, sums.contended, sums.try_failures, sums.timeouts), (2, 1, 1, 1));
        assert_eq!((sums.wait.sum, sums.hold.sum, sums.hold.max), (Nanos(6), Nanos(12), Nanos(10)));
        assert_eq!((sums.timed_out, sums.kind, sums.first), (Nanos(7), LockKind::Rwlock, Time(0)));
        let waits: Vec<u64> = totals.threads().iter().map(|t| t.wait.0).collect();
        assert_eq!(waits, [0, 13]);
    }

    #[test]
    fn nested_holds_count_twice_in_the_sum_and_once_in_the_union() {
        let mut totals = Totals::default();
        let outer = instance(1, 5, 0, Some(0));
        totals.acquired(&outer);
        section(&mut totals, 1, 6, [2, 3, 5]);
        section(&mut totals, 1, 7, [6, 6, 7]);
        totals.released(&outer, Time(10), Released::Unlock);
        section(&mut totals, 1, 5, [20, 20, 24]);
        let [thread] = &totals.threads()[..] else { panic!("one thread") };
        assert_eq!((thread.held_sum, thread.held_union, thread.acquisitions), (Nanos(17), Nanos(14), 4));
    }

    #[test]
    fn what_overlaps_without_nesting_and_what_is_held_at_the_end_count_once_too() {
        let mut totals = Totals::default();
        let (a, b) = (instance(1, 5, 0, Some(0)), instance(1, 6, 2, Some(2)));
        totals.acquired(&a);
        totals.acquired(&b);
        totals.released(&a, Time(5), Released::Unlock);
        step(&mut totals, 9, Action::Exit { ends: false });
        let [thread] = &totals.threads()[..] else { panic!("one thread") };
        assert_eq!((thread.held_sum, thread.held_union, thread.time), (Nanos(5 + 7), Nanos(9), Time(9)));
    }

    #[test]
    fn waiting_for_a_condition_is_summed_apart() {
        let mut totals = Totals::default();
        step(&mut totals, 5, Action::CondWait { condition: lock(8), site: SITE });
        step(&mut totals, 25, Action::CondWake { condition: lock(8) });
        step(&mut totals, 30, Action::CondWake { condition: lock(8) });
        let [sums] = &totals.sites()[..] else { panic!("one condition") };
        assert_eq!((sums.via, sums.acquisitions, sums.wait.sum), (Via::CondWait, 1, Nanos(20)));
        assert_eq!(sums.mutex_kind, mutex_kind::IS_CONDVAR);
        assert_eq!(totals.threads()[0].wait, Nanos(0));
    }

    #[test]
    fn a_section_that_began_before_the_recording_is_not_counted() {
        let mut totals = Totals::default();
        totals.released(&instance(1, 5, 0, None), Time(9), Released::Unlock);
        assert!(totals.sites().is_empty());
    }

    #[test]
    fn rows_are_bounded_and_the_rest_is_counted() {
        let mut totals = Totals::default();
        for n in 0..MAX_ROWS as u64 + 3 {
            section(&mut totals, 1, n, [0, 1, 1]);
        }
        assert_eq!(totals.sites().len(), MAX_ROWS);
        assert_eq!(totals.beyond(), Tally { count: 3, time: Nanos(3) });
        assert_eq!(totals.threads()[0].acquisitions, MAX_ROWS as u64 + 3);
    }

    #[test]
    fn threads_are_bounded_and_what_the_rest_did_is_counted() {
        let mut totals = Totals::default();
        for tid in 1..=MAX_THREADS as u32 + 2 {
            section(&mut totals, tid, 5, [0, 1, 1]);
        }
        assert_eq!((totals.threads().len(), totals.of_other_threads()), (MAX_THREADS, 2));
        assert_eq!(totals.sites()[0].acquisitions, MAX_THREADS as u64 + 2);
    }
}
