//! Which owner words are believed. What stands where a lock keeps its holder may be anything: a number that the program has put
//! there, or what another kind of lock guards. A holder is a thread of the lock's own process, or of one that shares the lock.
#![forbid(unsafe_code)]

use crate::event::Event;
use crate::id::{Lock, Process, Tid};
use crate::op::{Action, Op};
use lockbpf_common::custom;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

/// Locks of which a word that is not believed is remembered.
const MAX_LOCKS: usize = 1_024;

/// Threads known so far, and words that named none of them.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    threads: FxHashMap<Tid, Process>,
    /// Locks that threads of several processes use.
    shared: FxHashSet<Lock>,
    disbelieved: BTreeMap<Lock, Tid>,
}

impl Owners {
    /// Knows a thread.
    pub fn meet(&mut self, process: Process, tid: Tid) {
        self.threads.insert(tid, process);
    }

    /// Knows whom an event is about.
    pub fn see(&mut self, event: &Event) {
        match event {
            Event::Section(s) => {
                self.meet(s.process, s.tid);
                self.share(s.lock, s.process);
            }
            Event::FutexWait(w) => {
                // The word of a lock that processes share is known by the first of them.
                for tid in std::iter::once(w.tid).chain(w.waker) {
                    self.threads.entry(tid).or_insert(w.word.process);
                }
            }
            Event::Wake(w) => self.meet(w.process, w.tid),
            Event::OffCpu(o) => self.meet(o.process, o.tid),
            Event::ThreadExit(t) => self.meet(t.process, t.tid),
            Event::Step(op) | Event::Op(op) => {
                self.meet(op.process, op.tid);
                if let Action::Attempt(attempt) = op.action {
                    self.share(attempt.lock, op.process);
                }
            }
            Event::Process(_) => {}
        }
    }

    fn share(&mut self, lock: Lock, by: Process) {
        if lock.process != by && !lock.is_kernel() {
            self.shared.insert(lock);
        }
    }

    /// Knows who waited for a futex word: if they are of several processes, these share it.
    pub fn waited(&mut self, word: Lock, mut waiters: impl Iterator<Item = Tid>) {
        if waiters.any(|tid| self.threads.get(&tid).is_some_and(|&of| of != word.process)) {
            self.shared.insert(word);
        }
    }

    /// A step without the owner that it names, if that cannot be.
    #[must_use]
    pub fn check(&mut self, mut op: Op) -> Op {
        if let Action::Attempt(attempt) = &mut op.action {
            attempt.owner = attempt.owner.filter(|&owner| self.believes(attempt.lock, op.process, owner));
        }
        op
    }

    /// Whether the thread that a lock's word names, to a thread of `process`, can be its holder. If not, that is remembered.
    pub fn believes(&mut self, lock: Lock, process: Process, owner: Tid) -> bool {
        // Whoever described a lock that is known by numbers has said where its holder stands, of whatever process that is.
        let can_be = lock.is_kernel()
            || custom::numbers(lock.addr).is_some()
            || self.threads.get(&owner).is_some_and(|&of| of == process || self.shared.contains(&lock));
        if !can_be && self.disbelieved.len() < MAX_LOCKS {
            self.disbelieved.insert(lock, owner);
        }
        can_be
    }

    /// Locks whose words were not believed, and the number that each named last.
    #[must_use]
    pub fn disbelieved(self) -> BTreeMap<Lock, Tid> {
        self.disbelieved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Site;
    use crate::op::{Attempt, LockKind};
    use crate::units::Time;

    const LOCK: Lock = Lock { process: Process(1), addr: 0x10 };

    fn attempt(process: u32, tid: u32, owner: u32) -> Op {
        let process = Process(process);
        let attempt = Attempt {
            lock: LOCK,
            site: Site { process, addr: 9 },
            shared: false,
            kind: LockKind::Mutex,
            owner: Some(Tid(owner)),
            stack: None,
            contended: Some(true),
        };
        Op { time: Time(1), tid: Tid(tid), process, action: Action::Attempt(attempt) }
    }

    fn owner(op: Op) -> Option<Tid> {
        match op.action {
            Action::Attempt(attempt) => attempt.owner,
            _ => None,
        }
    }

    #[test]
    fn a_holder_is_a_thread_of_the_process() {
        let mut owners = Owners::default();
        owners.see(&Event::Step(attempt(1, 11, 0)));
        owners.see(&Event::Step(Op { action: Action::On, ..attempt(2, 21, 0) }));
        let mut named = |number| owner(owners.check(attempt(1, 12, number)));
        assert_eq!(named(11), Some(Tid(11)));
        assert_eq!(named(21), None, "a thread of another process");
        assert_eq!((named(1), named(u32::MAX)), (None, None));
        assert_eq!(owners.disbelieved(), BTreeMap::from([(LOCK, Tid(u32::MAX))]));
    }

    #[test]
    fn a_lock_may_be_shared() {
        let mut owners = Owners::default();
        owners.see(&Event::Step(attempt(1, 11, 0)));
        owners.see(&Event::Step(attempt(2, 21, 0)));
        assert_eq!(owner(owners.check(attempt(1, 11, 21))), Some(Tid(21)));
        assert_eq!(owner(owners.check(attempt(1, 11, 99))), None);
    }
}
