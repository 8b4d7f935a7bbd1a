//! How many of a process's waits are recorded where only its futex calls show them: that tier is always there, so no gate bounds
//! what its records and stacks cost. What the kernel side counts and sums is not thinned, nor can be: the calls themselves cost
//! what they cost.

use super::{Budget, SPEND, least_use};
use crate::units::{Nanos, Time};
use lockbpf_common::thin::{MAX_LEVEL, STACKS_FIRST};
use std::time::Duration;

/// How often it is judged.
const INTERVAL: Duration = Duration::from_millis(100);
/// CPU time below which an interval tells nothing.
const LEAST_CPU: Nanos = Nanos(1_000_000);
/// The part of what may be spent that goes into records and stacks; the rest is left to windows.
const PART: f64 = 0.5;
/// What they may cost at least, of what may be spent, even if the calls alone cost more than that.
const LEAST: f64 = 0.1;
/// Below this part of what they may cost, more of them are made.
const CHEAP: f64 = 0.25;
/// As many waits a second are recorded, whatever that costs: fewer would have each stand for too many.
const LEAST_WAITS: u64 = 25;

/// What a process has used, and of this what its futex calls and the records of its waits took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// When.
    pub time: Time,
    /// CPU time.
    pub cpu: Nanos,
    /// Futex calls.
    pub futex_calls: u64,
    /// What the calls took.
    pub calls: Nanos,
    /// What records and stacks took.
    pub records: Nanos,
}

/// The thinning of one process.
#[derive(Debug)]
pub struct Thinning {
    budget: Budget,
    level: u32,
    /// Since when the tier has been as it is, if it is closed; else records are those of sections, too.
    closed: Option<Spent>,
}

impl Thinning {
    /// Everything is recorded at first.
    #[must_use]
    pub fn new(budget: Budget) -> Self {
        Self { budget, level: 0, closed: None }
    }

    /// Whether it is to be told what was spent, at this time.
    #[must_use]
    pub fn is_due(&self, now: Time) -> bool {
        self.closed.is_none_or(|from| now.since(from.time) >= Nanos(INTERVAL.as_nanos() as u64))
    }

    /// The tier is about to be opened: what is spent from now on tells nothing.
    pub fn interrupt(&mut self) {
        self.closed = None;
    }

    /// Tells what was spent, the tier being closed, while so many processes are observed together. Returns the new level, if it is another.
    pub fn look(&mut self, now: Spent, processes: usize) -> Option<u32> {
        let from = self.closed.replace(now)?;
        if now.cpu - from.cpu < LEAST_CPU {
            self.closed = Some(from);
            return None;
        }
        let least = least_use(processes) * now.time.since(from.time).0 as f64;
        let cpu = ((now.cpu - from.cpu).0 as f64).max(least);
        let part = |later: Nanos, before: Nanos| (later - before).0 as f64 / cpu;
        let (calls, records) = (part(now.calls, from.calls), part(now.records, from.records));
        let spend = self.budget.0 * SPEND;
        let allowed = ((spend - calls) * PART).max(spend * LEAST);
        let level = if records > allowed {
            // Each level halves what short waits take.
            self.level + (records / allowed).log2().ceil().clamp(1.0, f64::from(MAX_LEVEL)) as u32
        } else if records < allowed * CHEAP {
            self.level.saturating_sub(1)
        } else {
            self.level
        };
        let level = level.min(most(now.futex_calls - from.futex_calls.min(now.futex_calls), now.time.since(from.time)));
        (std::mem::replace(&mut self.level, level) != level).then_some(level)
    }
}

/// The highest level at which enough waits are recorded of a process that makes so many futex calls in a time.
fn most(futex_calls: u64, time: Nanos) -> u32 {
    // As many waits as wakes.
    let waits = u128::from(futex_calls / 2) * 1_000_000_000 / u128::from(time.0.max(1));
    let each = (waits / u128::from(LEAST_WAITS)).max(1);
    (STACKS_FIRST + each.ilog2()).min(MAX_LEVEL)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process whose waits cost so much of its CPU time while all are recorded, over so many intervals; the levels.
    fn levels(calls: f64, records: f64, intervals: u64) -> Vec<u32> {
        let mut thinning = Thinning::new(Budget::new(0.03).unwrap());
        let (mut spent, mut level, mut levels) = (Spent::default(), 0, Vec::new());
        for _ in 0..intervals {
            if let Some(changed) = thinning.look(spent, 1) {
                level = changed;
                levels.push(level);
            }
            spent.time.0 += 100_000_000;
            spent.cpu.0 += 100_000_000;
            spent.futex_calls += 1 << 24;
            spent.calls.0 += (calls * 1e8) as u64;
            spent.records.0 += (records * 1e8 / f64::from(1 << level)) as u64;
        }
        levels
    }

    #[test]
    fn records_are_thinned_until_they_fit_and_no_further() {
        // 10 % where 1.05 % may be: 2^4 times fewer, which is more than a quarter of that.
        assert_eq!(levels(0.0, 0.1, 100), [4]);
        // Cheap ones stay.
        assert_eq!(levels(0.001, 0.005, 100), [0; 0]);
        // Where the calls alone cost more than all that may be spent, records take little of it.
        assert_eq!(levels(0.2, 0.1, 100), [6]);
        // One that cannot be thinned enough stops at the last level.
        assert_eq!(levels(0.0, 1e4, 100).last(), Some(&MAX_LEVEL));
    }

    #[test]
    fn what_becomes_cheap_is_recorded_again_and_pauses_tell_nothing() {
        let mut thinning = Thinning::new(Budget::new(0.03).unwrap());
        let at = |ms: u64, cpu: u64, records: u64| Spent {
            time: Time(ms * 1_000_000),
            cpu: Nanos(cpu * 1_000_000),
            futex_calls: ms * 1_000,
            calls: Nanos(0),
            records: Nanos(records * 1_000_000),
        };
        assert_eq!(thinning.look(at(0, 0, 0), 1), None);
        assert_eq!(thinning.look(at(100, 100, 10), 1), Some(4));
        assert_eq!(thinning.look(at(200, 200, 10), 1), Some(3));
        // It sleeps.
        assert_eq!(thinning.look(at(300, 200, 10), 1), None);
        thinning.interrupt();
        assert!(thinning.is_due(Time(0)));
        assert_eq!(thinning.look(at(400, 300, 90), 1), None);
        assert_eq!(thinning.look(at(500, 400, 90), 1), Some(2));
    }

    #[test]
    fn who_uses_hardly_any_cpu_time_may_cost_more_of_it_but_many_of_them_may_not() {
        let at = |ms: u64| Spent {
            time: Time(ms * 1_000_000),
            cpu: Nanos(ms * 20_000),
            futex_calls: ms * 1_000,
            calls: Nanos(0),
            records: Nanos(ms * 4_000),
        };
        // A fifth of its CPU time, which is 0.4 % of a CPU.
        for (processes, level) in [(1, None), (100, Some(5))] {
            let mut thinning = Thinning::new(Budget::new(0.03).unwrap());
            assert_eq!(thinning.look(at(0), processes), None);
            assert_eq!(thinning.look(at(100), processes), level, "{processes} processes");
        }
    }

    #[test]
    fn some_waits_are_always_recorded() {
        let second = Nanos(1_000_000_000);
        assert_eq!([most(0, second), most(99, second), most(100, second)], [3, 3, 4]);
        // 25 of 6,400 waits a second: one in 2^8.
        assert_eq!(most(12_800, second), STACKS_FIRST + 8);
        assert_eq!(most(1_280, Nanos(100_000_000)), STACKS_FIRST + 8);
        assert_eq!([most(u64::MAX, Nanos(0)), most(1 << 30, second)], [MAX_LEVEL; 2]);
    }
}
