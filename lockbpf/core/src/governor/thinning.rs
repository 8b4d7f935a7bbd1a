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
/// Below this part of what they may cost, more of them are made: at the next level they may be twice as dear.
const CHEAP: f64 = 0.4;
/// As many records a second are written, of whatever kind and whatever that costs: with fewer, each wait would stand for too many.
const LEAST_RECORDS: f64 = 100.0;

/// What a process has used, and of this what its futex calls and the records of its waits took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// When.
    pub time: Time,
    /// CPU time.
    pub cpu: Nanos,
    /// What futex calls took.
    pub calls: Nanos,
    /// Records written: of waits, wakes and absences.
    pub records: u64,
    /// What they and stacks took.
    pub cost: Nanos,
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
        let time = now.time.since(from.time).0 as f64;
        let cpu = ((now.cpu - from.cpu).0 as f64).max(least_use(processes) * time);
        let part = |later: Nanos, before: Nanos| (later - before).0 as f64 / cpu;
        let (calls, cost) = (part(now.calls, from.calls), part(now.cost, from.cost));
        let spend = self.budget.0 * SPEND;
        let allowed = ((spend - calls) * PART).max(spend * LEAST);
        let enough = now.records.saturating_sub(from.records) as f64 * 1e9 / (time.max(1.0) * LEAST_RECORDS);
        let level = if cost < allowed * CHEAP || enough < 1.0 && self.level > STACKS_FIRST {
            self.level.saturating_sub(1)
        } else if cost > allowed {
            // Each level halves what short waits take. The first ones leave out stacks alone, the others records.
            let further = (cost / allowed).log2().ceil().clamp(1.0, f64::from(MAX_LEVEL)) as u32;
            let spared = enough.log2().clamp(0.0, f64::from(MAX_LEVEL)) as u32;
            (self.level + further).min(self.level.max(STACKS_FIRST) + spared).min(MAX_LEVEL)
        } else {
            self.level
        };
        (std::mem::replace(&mut self.level, level) != level).then_some(level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process whose waits cost so much of its CPU time while all are recorded, over so many intervals; the levels.
    fn levels(calls: f64, cost: f64, intervals: u64) -> Vec<u32> {
        let mut thinning = Thinning::new(Budget::new(0.03).unwrap());
        let (mut spent, mut level, mut levels) = (Spent::default(), 0, Vec::new());
        for _ in 0..intervals {
            if let Some(changed) = thinning.look(spent, 1) {
                level = changed;
                levels.push(level);
            }
            spent.time.0 += 100_000_000;
            spent.cpu.0 += 100_000_000;
            spent.calls.0 += (calls * 1e8) as u64;
            spent.records += 1 << 24;
            spent.cost.0 += (cost * 1e8 / f64::from(1 << level)) as u64;
        }
        levels
    }

    #[test]
    fn records_are_thinned_until_they_fit_and_no_further() {
        // 10 % where 1.05 % may be: 2^4 times fewer, which is more than the part that is cheap.
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
        let at = |ms: u64, cpu: u64, cost: u64| Spent {
            time: Time(ms * 1_000_000),
            cpu: Nanos(cpu * 1_000_000),
            calls: Nanos(0),
            records: ms * 1_000,
            cost: Nanos(cost * 1_000_000),
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
            calls: Nanos(0),
            records: ms * 1_000,
            cost: Nanos(ms * 4_000),
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
        let mut thinning = Thinning::new(Budget::new(0.03).unwrap());
        let mut spent = Spent::default();
        let mut look = |records: u64| {
            spent.time.0 += 1_000_000_000;
            spent.cpu.0 += 1_000_000_000;
            spent.records += records;
            spent.cost.0 += 1_000_000_000;
            thinning.look(spent, 1)
        };
        assert_eq!(look(0), None);
        // A quarter of them is enough. As much time as stacks take, the first levels leave out.
        assert_eq!(look(400), Some(STACKS_FIRST + 2));
        assert_eq!(look(199), None);
        assert_eq!([look(99), look(0), look(0)], [Some(STACKS_FIRST + 1), Some(STACKS_FIRST), None]);
    }
}
