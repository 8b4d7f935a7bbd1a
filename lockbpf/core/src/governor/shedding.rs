//! Whether probes that no gate closes cost too much. Hits cannot be [thinned](super::thinning): then these probes have to go, or to be opened and closed
//! like all others.

use super::{Budget, Reading, SPEND, least_use};
use crate::units::{Nanos, Time};
use std::time::Duration;

/// How often it is judged.
const INTERVAL: Duration = Duration::from_millis(100);
/// By how much they may have cost more than they should, ns: what begins a program may be a burst.
const BURST: f64 = 30e6;

/// What one process's ungated probes have cost.
#[derive(Debug)]
pub struct Shedding {
    budget: Budget,
    from: Option<Reading>,
    /// By how much they have cost more than they should, ns.
    debt: f64,
}

impl Shedding {
    /// Nothing is known at first.
    #[must_use]
    pub fn new(budget: Budget) -> Self {
        Self { budget, from: None, debt: 0.0 }
    }

    /// Whether it is to be told what was used, at this time.
    #[must_use]
    pub fn is_due(&self, now: Time) -> bool {
        self.from.is_none_or(|from| now.since(from.time) >= Nanos(INTERVAL.as_nanos() as u64))
    }

    /// Whether they have cost too much by now. The cost in a reading is that of their hits and of stacks; `processes` are observed together.
    pub fn look(&mut self, now: Reading, processes: usize) -> bool {
        if !self.is_due(now.time) {
            return false;
        }
        let Some(from) = self.from.replace(now) else { return false };
        let time = now.time.since(from.time).0;
        let cpu = ((now.cpu - from.cpu).0 as f64).max(least_use(processes) * time as f64);
        self.debt += (now.cost - from.cost).0 as f64 - self.budget.0 * SPEND * cpu;
        self.debt = self.debt.max(0.0);
        let is_too_much = self.debt > BURST;
        if is_too_much {
            // What is left is judged anew.
            self.debt = 0.0;
        }
        is_too_much
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In which tenths of a second something is shed, by what the hits cost of a CPU in each; the process uses this part of one.
    fn shed(cpu: f64, cost: impl Fn(u64) -> f64) -> Vec<u64> {
        let add = |part: f64| Nanos((part * 1e8) as u64);
        // What the slot's process before has cost does not count.
        let mut seen = Reading { cost: Nanos(1 << 40), ..Reading::default() };
        let mut shedding = Shedding::new(Budget::new(0.03).unwrap());
        let mut tenths = Vec::new();
        for tenth in 0..60 {
            seen.time = Time(tenth * 100_000_000);
            if shedding.look(seen, 1) {
                tenths.push(tenth);
            }
            (seen.cpu, seen.cost) = (seen.cpu + add(cpu), seen.cost + add(cost(tenth)));
        }
        tenths
    }

    #[test]
    fn what_costs_too_much_is_shed_the_sooner_the_dearer_it_is() {
        // 70 % of 3 % is 2.1 % of the CPU time.
        assert_eq!(shed(1.0, |_| 0.02), [0; 0]);
        assert_eq!(shed(4.0, |_| 0.08), [0; 0]);
        assert_eq!(shed(1.0, |_| 0.0355), [21, 42]);
        // What is left is judged anew.
        assert_eq!(shed(1.0, |tenth| if tenth < 4 { 0.12 } else { 0.005 }), [4]);
        assert_eq!(shed(1.0, |_| 0.25).len(), 29);
        // One that uses hardly any CPU time counts as one that uses half of it.
        assert_eq!((shed(0.0, |_| 0.01), shed(0.0, |_| 0.0275)), (vec![], vec![18, 36, 54]));
        // Single bursts do not matter.
        assert_eq!(shed(1.0, |tenth| if tenth % 50 == 0 { 0.2 } else { 0.0 }), [0; 0]);
    }
}
