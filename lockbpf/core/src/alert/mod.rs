//! Alerts: which of the waits and holds in progress are told while they last, and what an alert says. Time is given; nothing here reads a
//! clock.
//!
//! A wait (or a hold) is due when it has lasted for the threshold, and again each time it has doubled since. Of one lock at most one alert
//! a second is told, the one of the longest; every other that was due is counted as left out.

mod purpose;
mod told;

pub use purpose::{Purpose, purpose};
pub use told::{Alert, CodePlace, HeldFor, HolderTold, Kind, LinkTold, LockTold, SCHEMA, ThreadTold};

use crate::id::{Lock, Tid};
use crate::units::{Nanos, Time};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

/// For so long after an alert nothing more is told of its lock.
pub const PAUSE: Nanos = Nanos(1_000_000_000);
/// Alerts told at one look at most, of that many locks.
pub const MAX_AT_ONCE: usize = 8;
/// For so long it is remembered how many alerts of a lock were left out.
const MEMORY: Nanos = Nanos(60_000_000_000);

/// A wait or a hold that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lasting {
    /// The lock.
    pub lock: Lock,
    /// By this thread.
    pub tid: Tid,
    /// Since when.
    pub since: Time,
}

/// An alert that is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// What it is of.
    pub lasting: Lasting,
    /// How many of its lock's were left out since the one told before.
    pub left_out: u64,
}

/// How many alerts there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Told.
    pub told: u64,
    /// Due, but left out.
    pub left_out: u64,
}

/// Which alerts were told so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SoFar {
    /// How many told of a wait.
    pub waits: u64,
    /// How many told of a hold.
    pub holds: u64,
    /// The last one, as a line for people.
    pub last: String,
}

/// What was told of a lock.
#[derive(Clone, Copy, Debug)]
struct Last {
    told: Time,
    left_out: u64,
}

/// Decides what is told, of waits or of holds.
#[derive(Debug)]
pub struct Rules {
    threshold: Nanos,
    /// How often each had doubled when it was due last.
    doublings: HashMap<Lasting, u32>,
    locks: HashMap<Lock, Last>,
    tally: Tally,
}

impl Rules {
    /// With this threshold; zero counts as 1 ns.
    #[must_use]
    pub fn new(threshold: Nanos) -> Self {
        Self {
            threshold: threshold.max(Nanos(1)),
            doublings: HashMap::new(),
            locks: HashMap::new(),
            tally: Tally::default(),
        }
    }

    /// From when on an alert is due.
    #[must_use]
    pub fn threshold(&self) -> Nanos {
        self.threshold
    }

    /// Whether something has lasted long enough by now.
    #[must_use]
    pub fn is_over(&self, since: Time, now: Time) -> bool {
        now.since(since) >= self.threshold
    }

    /// What is to be told of all that goes on `now`; the longest first. What is not among `lasting` is over and forgotten. `goes_on` is asked of
    /// each that is due, before it is told: if it is over after all, it is neither told nor counted.
    pub fn look(&mut self, now: Time, lasting: &[Lasting], goes_on: impl Fn(&Lasting) -> bool) -> Vec<Due> {
        let going_on: HashSet<&Lasting> = lasting.iter().collect();
        self.doublings.retain(|known, _| going_on.contains(known));
        self.locks.retain(|_, last| now.since(last.told) < MEMORY);
        let mut due: Vec<Lasting> = lasting.iter().copied().filter(|one| self.has_come(one, now)).collect();
        due.sort_unstable_by_key(|one| (one.since, Reverse(one.tid)));
        let mut told = Vec::new();
        for lasting in due {
            let last = self.locks.get(&lasting.lock).copied();
            if last.is_some_and(|last| now.since(last.told) < PAUSE) || told.len() >= MAX_AT_ONCE {
                self.tally.left_out += 1;
                if let Some(last) = self.locks.get_mut(&lasting.lock) {
                    last.left_out += 1;
                }
                continue;
            }
            if !goes_on(&lasting) {
                continue;
            }
            self.tally.told += 1;
            self.locks.insert(lasting.lock, Last { told: now, left_out: 0 });
            told.push(Due { lasting, left_out: last.map_or(0, |last| last.left_out) });
        }
        told
    }

    /// How many there were so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Whether it has reached the threshold, or has doubled since it had last.
    fn has_come(&mut self, one: &Lasting, now: Time) -> bool {
        let Some(doublings) = (now.since(one.since).0 / self.threshold.0).checked_ilog2() else { return false };
        match self.doublings.insert(*one, doublings) {
            Some(before) => doublings > before,
            None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Process;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn ms(at: u64) -> Time {
        Time(at * MS)
    }

    fn wait(lock: u64, tid: u32, since_ms: u64) -> Lasting {
        Lasting { lock: Lock { process: Process(1), addr: lock }, tid: Tid(tid), since: ms(since_ms) }
    }

    fn rules(threshold_ms: u64) -> Rules {
        Rules::new(Nanos(threshold_ms * MS))
    }

    fn look(rules: &mut Rules, now: Time, lasting: &[Lasting]) -> Vec<Due> {
        rules.look(now, lasting, |_| true)
    }

    fn told(due: &[Due]) -> Vec<(u32, u64)> {
        due.iter().map(|due| (due.lasting.tid.0, due.left_out)).collect()
    }

    #[test]
    fn a_wait_is_told_at_the_threshold_and_each_time_it_has_doubled() {
        let mut rules = rules(1_000);
        let when: Vec<u64> =
            (0..20_000).step_by(50).filter(|&at| !look(&mut rules, ms(at), &[wait(1, 7, 0)]).is_empty()).collect();
        assert_eq!(when, [1_000, 2_000, 4_000, 8_000, 16_000]);
        assert_eq!(rules.tally(), Tally { told: 5, left_out: 0 });
    }

    #[test]
    fn a_look_that_comes_late_tells_once() {
        let mut rules = rules(100);
        assert_eq!(told(&look(&mut rules, ms(950), &[wait(1, 7, 0)])), [(7, 0)]);
        assert_eq!(told(&look(&mut rules, ms(1_599), &[wait(1, 7, 0)])), []);
    }

    #[test]
    fn one_that_begins_anew_is_another() {
        let mut rules = rules(2_000);
        assert_eq!(told(&look(&mut rules, ms(2_000), &[wait(1, 7, 0)])), [(7, 0)]);
        assert_eq!(told(&look(&mut rules, ms(3_000), &[wait(1, 7, 2_500)])), []);
        assert_eq!(told(&look(&mut rules, ms(4_500), &[wait(1, 7, 2_500)])), [(7, 0)]);
    }

    #[test]
    fn of_one_lock_one_a_second_is_told_and_the_others_are_counted() {
        let mut rules = rules(100);
        let waits = [wait(1, 8, 10), wait(1, 7, 0), wait(2, 9, 20)];
        assert_eq!(told(&look(&mut rules, ms(150), &waits)), [(7, 0), (9, 0)], "the longest of each lock");
        assert_eq!(rules.tally(), Tally { told: 2, left_out: 1 });
        assert_eq!(told(&look(&mut rules, ms(250), &waits)), [], "all have doubled, too soon");
        assert_eq!(rules.tally(), Tally { told: 2, left_out: 4 });
        // 800 ms: too soon. 1,600 ms: not any more.
        assert_eq!(told(&look(&mut rules, ms(850), &waits)), []);
        assert_eq!(told(&look(&mut rules, ms(1_650), &waits)), [(7, 5), (9, 2)], "with what was left out since");
    }

    #[test]
    fn what_is_over_after_all_is_not_told() {
        let mut rules = rules(100);
        assert_eq!(rules.look(ms(100), &[wait(1, 7, 0)], |_| false), []);
        assert_eq!(rules.tally(), Tally::default());
        assert_eq!(told(&look(&mut rules, ms(150), &[wait(1, 8, 50)])), [(8, 0)], "the next one of the lock is");
    }

    #[test]
    fn many_locks_at_once_are_counted() {
        let mut rules = rules(100);
        let waits: Vec<Lasting> = (0..20).map(|n| wait(n, n as u32, 0)).collect();
        assert_eq!(look(&mut rules, ms(100), &waits).len(), MAX_AT_ONCE);
        assert_eq!(rules.tally(), Tally { told: 8, left_out: 12 });
    }

    proptest! {
        /// Whatever goes on: nothing below the threshold, at most one alert a lock a second, and everything that was due is counted once.
        #[test]
        fn the_rules_hold(
            looks in prop::collection::vec((1u64..400, prop::collection::vec((0u64..3, 1u32..6, 0u64..2_000), 0..8)), 1..40),
        ) {
            let mut rules = rules(100);
            let mut now = 0;
            let mut at: HashMap<Lock, Time> = HashMap::new();
            let mut count = Tally::default();
            for (step, waits) in looks {
                now += step;
                let waits: HashSet<Lasting> = waits.into_iter().map(|(l, t, ago)| wait(l, t, now.saturating_sub(ago))).collect();
                let waits: Vec<Lasting> = waits.into_iter().collect();
                let before = rules.doublings.clone();
                for due in look(&mut rules, ms(now), &waits) {
                    prop_assert!(ms(now).since(due.lasting.since).0 >= 100 * MS);
                    if let Some(last) = at.insert(due.lasting.lock, ms(now)) {
                        prop_assert!(ms(now).since(last) >= PAUSE);
                    }
                    count.told += 1;
                }
                let risen = rules.doublings.iter().filter(|&(one, n)| before.get(one).is_none_or(|known| n > known)).count();
                count.left_out += risen as u64;
            }
            prop_assert_eq!(rules.tally().told, count.told);
            prop_assert_eq!(rules.tally().told + rules.tally().left_out, count.left_out);
        }
    }
}
