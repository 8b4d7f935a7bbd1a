//! Deadlocks while they happen: a circle of waits is one if two looks find the same waits in it.
//!
//! Who holds what is read from the target's memory while it runs, so one look may mix moments. But a thread that is in the
//! same wait at both looks has done nothing in between: the lock that it held at the first it still holds. So if all waits
//! of a circle are the same at both looks, there was a moment at which all of them were there, with all those holders.
#![forbid(unsafe_code)]

use super::{Blocked, Deadlock, find};
use crate::id::{Lock, Tid};
use crate::units::Time;
use std::collections::HashSet;

/// A wait without a deadline, and who holds what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The wait.
    pub blocked: Blocked,
    /// The holder of the lock.
    pub holder: Tid,
    /// Whether it was there before the observation began.
    pub before_start: bool,
}

/// What makes two looks speak of the same circle: its waits, from the smallest on.
type Key = Vec<(Tid, Lock, Time)>;

/// Keeps what the looks before have found.
#[derive(Debug, Default)]
pub struct Watch {
    /// Circles that the last look saw.
    suspected: HashSet<Key>,
    /// Circles that were reported; a deadlock lasts, and its waits never come again.
    reported: HashSet<Key>,
}

impl Watch {
    /// Takes the waits that one look found; returns the deadlocks that it confirms, each once.
    pub fn look(&mut self, now: Time, waits: &[Wait]) -> Vec<Deadlock> {
        let edges: Vec<_> = waits.iter().map(|w| (w.blocked.tid, w.blocked.lock, w.holder)).collect();
        let mut suspected = HashSet::new();
        let mut confirmed = Vec::new();
        for circle in find(&edges) {
            let members: Vec<&Wait> = circle.iter().filter_map(|&i| waits.get(i)).collect();
            let mut key: Key = members.iter().map(|w| (w.blocked.tid, w.blocked.lock, w.blocked.since)).collect();
            let first = (0..key.len()).min_by_key(|&i| key.get(i)).unwrap_or(0);
            key.rotate_left(first);
            if self.reported.contains(&key) {
                continue;
            }
            if self.suspected.contains(&key) {
                confirmed.push(Deadlock {
                    found: now,
                    members: members.iter().map(|w| w.blocked).collect(),
                    before_start: members.iter().all(|w| w.before_start),
                });
                self.reported.insert(key);
            } else {
                suspected.insert(key);
            }
        }
        self.suspected = suspected;
        confirmed
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
        }
    }

    #[test]
    fn two_looks_make_a_deadlock_and_it_is_told_once() {
        let mut watch = Watch::default();
        let waits = [wait(1, 2, 10), wait(2, 1, 20), wait(3, 1, 5)];
        assert!(watch.look(Time(100), &waits).is_empty());
        let found = watch.look(Time(200), &[waits[2], waits[1], waits[0]]);
        let [deadlock] = &found[..] else { panic!("{found:?}") };
        assert_eq!((deadlock.found, deadlock.members.len(), deadlock.before_start), (Time(200), 2, false));
        assert!(watch.look(Time(300), &waits).is_empty());
    }

    #[test]
    fn new_waits_begin_anew() {
        let mut watch = Watch::default();
        assert!(watch.look(Time(100), &[wait(1, 2, 10), wait(2, 1, 20)]).is_empty());
        assert!(watch.look(Time(200), &[wait(1, 2, 10), wait(2, 1, 150)]).is_empty(), "another wait of thread 2");
        assert!(watch.look(Time(300), &[wait(1, 2, 10)]).is_empty());
        assert!(watch.look(Time(400), &[wait(1, 2, 10), wait(2, 1, 150)]).is_empty(), "not seen by the look before");
        assert_eq!(watch.look(Time(500), &[wait(1, 2, 10), wait(2, 1, 150)]).len(), 1);
    }

    #[test]
    fn one_that_was_there_before_is_marked() {
        let mut watch = Watch::default();
        let waits = [wait(1, 2, 0), wait(2, 1, 0), wait(3, 4, 0), wait(4, 3, 7)];
        watch.look(Time(100), &waits);
        let before: Vec<bool> = watch.look(Time(200), &waits).iter().map(|d| d.before_start).collect();
        assert_eq!(before, [true, false], "the second was closed by a later wait");
    }
}
