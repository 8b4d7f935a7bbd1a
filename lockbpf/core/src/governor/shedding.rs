//! Whether probes that no gate closes cost too much. Records and stacks can be [thinned](super::thinning), hits cannot: then these probes have to be
//! opened and closed like all others.

use super::{Budget, Reading, SPEND, least_use};
use crate::units::{Nanos, Time};
use std::time::Duration;

/// How often it is judged: what begins a program may be a burst.
const INTERVAL: Duration = Duration::from_secs(1);
/// Such intervals in a row are too many.
const ENOUGH: u32 = 2;
/// The part of what may be spent that the hits may cost; the rest is for what they record, and for windows.
const PART: f64 = 0.5;

/// What the hits of one process's ungated probes have cost.
#[derive(Debug)]
pub struct Shedding {
    budget: Budget,
    from: Reading,
    dear: u32,
}

impl Shedding {
    /// From this reading on, of which the cost is that of these hits alone, as in all that follow.
    #[must_use]
    pub fn new(budget: Budget, from: Reading) -> Self {
        Self { budget, from, dear: 0 }
    }

    /// Whether it is to be told what was used, at this time.
    #[must_use]
    pub fn is_due(&self, now: Time) -> bool {
        now.since(self.from.time) >= Nanos(INTERVAL.as_nanos() as u64)
    }

    /// Whether they have cost too much for some time, while so many processes are observed together.
    pub fn look(&mut self, now: Reading, processes: usize) -> bool {
        if !self.is_due(now.time) {
            return false;
        }
        let time = now.time.since(self.from.time).0;
        let cpu = ((now.cpu - self.from.cpu).0 as f64).max(least_use(processes) * time as f64);
        let is_dear = (now.cost - self.from.cost).0 as f64 > self.budget.0 * SPEND * PART * cpu;
        self.dear = if is_dear { self.dear + 1 } else { 0 };
        self.from = now;
        let is_enough = self.dear >= ENOUGH;
        // What is left is judged anew.
        self.dear = if is_enough { 0 } else { self.dear };
        is_enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After how many tenths of a second they are shed, by what they cost of a CPU in each; the process uses this part of one.
    fn shed(cpu: f64, cost: impl Fn(u64) -> f64) -> Option<u64> {
        let mut seen = Reading::default();
        let mut shedding = Shedding::new(Budget::new(0.03).unwrap(), seen);
        (1..=100).find(|&tenth| {
            let add = |part: f64| Nanos((part * 1e8) as u64);
            seen.time = Time(tenth * 100_000_000);
            (seen.cpu, seen.cost) = (seen.cpu + add(cpu), seen.cost + add(cost(tenth)));
            shedding.look(seen, 1)
        })
    }

    #[test]
    fn what_costs_too_much_for_long_is_shed() {
        // Half of 70 % of 3 % is 1.05 % of the CPU time.
        assert_eq!(shed(1.0, |_| 0.01), None);
        assert_eq!(shed(1.0, |_| 0.011), Some(20));
        assert_eq!(shed(4.0, |_| 0.04), None);
        // One that uses hardly any CPU time counts as one that uses half of it.
        assert_eq!([shed(0.0, |_| 0.005), shed(0.0, |_| 0.006)], [None, Some(20)]);
        // Single bursts do not matter.
        assert_eq!(shed(1.0, |tenth| if tenth % 20 == 0 { 0.1 } else { 0.0 }), None);
    }
}
