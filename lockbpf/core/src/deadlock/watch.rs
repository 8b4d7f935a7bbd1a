//! Deadlocks while they happen: a circle of waits is one if two looks find the same waits in it.
//!
//! Who holds what is read from the target's memory while it runs, so one look may mix moments. But a thread that is in the
//! same wait at both looks has done nothing in between: the lock that it held at the first it still holds. So if all waits
//! of a circle are the same at both looks, there was a moment at which all of them were there, with all those holders.
//!
//! That does not make it last: most mutexes may be given back by any thread, and some programs park a thread on a mutex that
//! it holds itself. So each circle is looked for again to the end.
#![forbid(unsafe_code)]

use super::{Blocked, Deadlock, find};
use crate::id::{Lock, Tid};
use crate::units::Time;
use std::collections::{BTreeMap, HashSet};

/// A wait without a deadline, and who holds what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The wait.
    pub blocked: Blocked,
    /// The holder of the lock.
    pub holder: Tid,
    /// Whether it was there before the observation began.
    pub before_start: bool,
    /// Whether only the holder can give the lock back.
    pub owned: bool,
}

/// What makes two looks speak of the same circle: its waits, from the smallest on.
type Key = Vec<(Tid, Lock, Time)>;

/// What a look has changed, by numbers in [`Watch::found`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// Circles that it confirms, each once.
    pub confirmed: Vec<usize>,
    /// Circles that are there no more. Whether they ended, or their process with them, is to be found out.
    pub gone: Vec<usize>,
}

/// Keeps what the looks before have found.
#[derive(Debug, Default)]
pub struct Watch {
    /// Circles that the last look saw.
    suspected: HashSet<Key>,
    /// Circles that were confirmed and still stood at the last look.
    standing: BTreeMap<Key, usize>,
    /// All that were confirmed.
    found: Vec<Deadlock>,
    /// Locks on which a thread waited for itself until another one let it go on: that is what they are for.
    parking: HashSet<Lock>,
}

impl Watch {
    /// Takes the waits that one look found.
    pub fn look(&mut self, now: Time, waits: &[Wait]) -> Looked {
        let edges: Vec<_> = waits.iter().map(|w| (w.blocked.tid, w.blocked.lock, w.holder)).collect();
        let mut suspected = HashSet::new();
        let mut standing = BTreeMap::new();
        let mut looked = Looked::default();
        for circle in find(&edges) {
            let members: Vec<&Wait> = circle.iter().filter_map(|&i| waits.get(i)).collect();
            let mut key: Key = members.iter().map(|w| (w.blocked.tid, w.blocked.lock, w.blocked.since)).collect();
            let first = (0..key.len()).min_by_key(|&i| key.get(i)).unwrap_or(0);
            key.rotate_left(first);
            if let Some(number) = self.standing.remove(&key) {
                if let Some(deadlock) = self.found.get_mut(number) {
                    deadlock.seen = now;
                }
                standing.insert(key, number);
            } else if let [only] = members[..]
                && self.parking.contains(&only.blocked.lock)
            {
                // Told once, and withdrawn.
            } else if self.suspected.contains(&key) {
                looked.confirmed.push(self.found.len());
                standing.insert(key, self.found.len());
                self.found.push(Deadlock {
                    found: now,
                    seen: now,
                    ended: None,
                    exited: false,
                    members: members.iter().map(|w| w.blocked).collect(),
                    before_start: members.iter().all(|w| w.before_start),
                    owned: members.iter().all(|w| w.owned),
                });
            } else {
                suspected.insert(key);
            }
        }
        looked.gone.extend(std::mem::replace(&mut self.standing, standing).into_values());
        looked.gone.sort_unstable();
        self.suspected = suspected;
        looked
    }

    /// A circle is over since `at`: one of its threads has gone on.
    pub fn end(&mut self, number: usize, at: Time) {
        self.standing.retain(|_, &mut standing| standing != number);
        let Some(deadlock) = self.found.get_mut(number).filter(|deadlock| deadlock.ended.is_none()) else { return };
        (deadlock.ended, deadlock.exited) = (Some(at), false);
        if let [only] = deadlock.members[..] {
            self.parking.insert(only.lock);
        }
    }

    /// A circle is gone, and its process with it.
    pub fn exit(&mut self, number: usize) {
        if let Some(deadlock) = self.found.get_mut(number) {
            deadlock.exited = deadlock.ended.is_none();
        }
    }

    /// A thread got a lock at this time. Returns the circles that were over by that.
    pub fn acquired(&mut self, tid: Tid, lock: Lock, at: Time) -> Vec<usize> {
        let went_on = |d: &Deadlock| {
            let is_it = d.members.iter().any(|member| (member.tid, member.lock) == (tid, lock));
            is_it && d.ended.is_none() && at >= d.found
        };
        let over: Vec<usize> = (0..self.found.len()).filter(|&i| self.found.get(i).is_some_and(went_on)).collect();
        over.iter().for_each(|&number| self.end(number, at));
        over
    }

    /// What was confirmed so far, whether it stands or is over.
    #[must_use]
    pub fn found(&self) -> &[Deadlock] {
        &self.found
    }

    /// One of these.
    pub fn get_mut(&mut self, number: usize) -> Option<&mut Deadlock> {
        self.found.get_mut(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(tid: u32, holder: u32, since: u64) -> Wait {
        Wait {
            blocked: Blocked {
                tid: Tid(tid),
                lock: Lock { addr: u64::from(holder) * 0x100, ..Lock::default() },
                site: None,
                since: Time(since),
                stack: None,
            },
            holder: Tid(holder),
            before_start: since == 0,
            owned: false,
        }
    }

    /// The deadlocks that a look confirms.
    fn confirmed(watch: &mut Watch, now: u64, waits: &[Wait]) -> Vec<Deadlock> {
        let looked = watch.look(Time(now), waits);
        looked.confirmed.iter().map(|&i| watch.found()[i].clone()).collect()
    }

    #[test]
    fn two_looks_make_a_deadlock_and_it_is_told_once() {
        let mut watch = Watch::default();
        let waits = [wait(1, 2, 10), wait(2, 1, 20), wait(3, 1, 5)];
        assert!(confirmed(&mut watch, 100, &waits).is_empty());
        let found = confirmed(&mut watch, 200, &[waits[2], waits[1], waits[0]]);
        let [deadlock] = &found[..] else { panic!("{found:?}") };
        assert_eq!((deadlock.found, deadlock.members.len(), deadlock.before_start), (Time(200), 2, false));
        assert_eq!(watch.look(Time(300), &waits), Looked::default());
        assert_eq!((watch.found()[0].seen, watch.found()[0].ended), (Time(300), None));
    }

    #[test]
    fn new_waits_begin_anew() {
        let mut watch = Watch::default();
        assert!(confirmed(&mut watch, 100, &[wait(1, 2, 10), wait(2, 1, 20)]).is_empty());
        assert!(confirmed(&mut watch, 200, &[wait(1, 2, 10), wait(2, 1, 150)]).is_empty(), "another wait of thread 2");
        assert!(confirmed(&mut watch, 300, &[wait(1, 2, 10)]).is_empty());
        assert!(
            confirmed(&mut watch, 400, &[wait(1, 2, 10), wait(2, 1, 150)]).is_empty(),
            "not seen by the look before"
        );
        assert_eq!(confirmed(&mut watch, 500, &[wait(1, 2, 10), wait(2, 1, 150)]).len(), 1);
    }

    #[test]
    fn one_that_was_there_before_is_marked() {
        let mut watch = Watch::default();
        let waits = [wait(1, 2, 0), wait(2, 1, 0), wait(3, 4, 0), wait(4, 3, 7)];
        watch.look(Time(100), &waits);
        let before: Vec<bool> = confirmed(&mut watch, 200, &waits).iter().map(|d| d.before_start).collect();
        assert_eq!(before, [true, false], "the second was closed by a later wait");
    }

    #[test]
    fn what_ended_is_withdrawn() {
        let mut watch = Watch::default();
        let waits = [wait(1, 2, 10), wait(2, 1, 20), wait(7, 7, 30)];
        watch.look(Time(100), &waits);
        assert_eq!(watch.look(Time(200), &waits).confirmed.len(), 2);
        // Thread 7 waits for itself once more: another wait.
        let again = [waits[0], waits[1], wait(7, 7, 250)];
        assert_eq!(watch.look(Time(300), &again), Looked { gone: vec![1], confirmed: vec![] });
        watch.end(1, Time(300));
        let parked = &watch.found()[1];
        assert_eq!((parked.ended, parked.closed(), parked.until()), (Some(Time(300)), Time(30), Time(300)));
        assert!(!parked.is_for_ever());
        assert_eq!(watch.look(Time(400), &again), Looked::default());
        assert_eq!(watch.look(Time(500), &again), Looked::default(), "that is what its lock is for");
        assert_eq!(watch.look(Time(600), &[]).gone, [0]);
        watch.exit(0);
        assert!(watch.found()[0].exited);
        assert!(watch.acquired(Tid(1), waits[0].blocked.lock, Time(150)).is_empty(), "before it was found");
        assert_eq!(watch.acquired(Tid(1), waits[0].blocked.lock, Time(550)), [0], "told late");
        let ended = &watch.found()[0];
        assert_eq!((ended.ended, ended.exited), (Some(Time(550)), false));
    }

    #[test]
    fn for_ever_is_what_nobody_else_can_end() {
        let mut watch = Watch::default();
        let owned = |w: Wait| Wait { owned: true, ..w };
        let waits = [owned(wait(1, 2, 10)), owned(wait(2, 1, 20)), owned(wait(3, 4, 10)), wait(4, 3, 20)];
        watch.look(Time(100), &waits);
        let sure: Vec<bool> = confirmed(&mut watch, 200, &waits).iter().map(Deadlock::is_for_ever).collect();
        assert_eq!(sure, [true, false]);
        watch.look(Time(300), &waits[2..]);
        watch.exit(0);
        assert!(!watch.found()[0].is_for_ever(), "the process is gone");
    }
}
