//! Stretches of a process's time, and what a window in one stands for.

use super::{COST_RANGE, Costs};
use crate::governor::{Sampled, progress};
use crate::id::Process;
use crate::units::{Nanos, Time};

/// A stretch of a process's time, and what of it was fully observed: either all of it (the full tier stayed open) or one
/// window at a random place in it: in its [`progress`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    /// The process.
    pub process: Process,
    /// Its beginning.
    pub from: Time,
    /// Its end.
    pub to: Time,
    /// Time for which the gate was open; 0 without a window.
    pub observed: Nanos,
    /// CPU time that the process used, cost of observing included.
    pub cpu: Nanos,
    /// The part of that while the gate was open.
    pub observed_cpu: Nanos,
    /// Calibrated cost of observing.
    pub cost: Nanos,
    /// The part of that while the gate was open.
    pub observed_cost: Nanos,
    /// What samples of the CPU's clock found.
    pub sampled: Sampled,
    /// The part of that while the gate was open.
    pub observed_sampled: Sampled,
    /// Whether the gate was open all the time.
    pub whole: bool,
}

/// Ways to say how much of a stretch a window stands for: with the cost as calibrated, as low and as high as it may be, by
/// time alone, as if observing cost nothing, and by samples of the clock.
pub(super) const WAYS: usize = 6;
/// The cost as calibrated.
pub(super) const NOMINAL: usize = 0;
/// At the least cost.
pub(super) const CHEAP: usize = 1;
/// At the greatest.
pub(super) const DEAR: usize = 2;
/// By time.
pub(super) const BY_TIME: usize = 3;
/// As if it cost nothing: for a program that waits busily, of which observing takes only waiting.
pub(super) const FREE: usize = 4;
/// CPU time divided among windows by what samples tell of the work in each ([`super::shadow`]).
pub(super) const SAMPLED: usize = 5;

/// A window in one of these ways.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sample {
    /// Size of the window: own CPU time (or time), ns.
    pub size: f64,
    /// Size of the stretch.
    pub of: f64,
    /// Inverse of the part of the stretch's progress for which the window stands.
    pub weight: f64,
}

/// Stretches of one process that share a difference of sums.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cluster {
    pub time: f64,
    pub observed: f64,
    pub cpu: f64,
    pub observed_cpu: f64,
    pub cost: f64,
    pub observed_cost: f64,
    /// Whether all of them were whole.
    pub whole: bool,
    /// Windows among them.
    pub windows: u64,
    pub sampled: Sampled,
    pub observed_sampled: Sampled,
}

impl Cluster {
    /// Adds a stretch.
    pub(super) fn add(before: Option<Self>, s: &Stretch) -> Self {
        let before = before.unwrap_or(Self { whole: true, ..Self::default() });
        let ns = |ns: Nanos| ns.0 as f64;
        let time = ns(s.to.since(s.from));
        let observed = if s.whole { time } else { ns(s.observed).min(time) };
        // What is told of a window is part of what is told of its stretch, even where clocks are read one after the other.
        let cpu = ns(s.cpu).max(ns(s.observed_cpu));
        Self {
            time: before.time + time,
            observed: before.observed + observed,
            cpu: before.cpu + cpu,
            observed_cpu: before.observed_cpu + if s.whole { cpu } else { ns(s.observed_cpu) },
            cost: before.cost + ns(s.cost).max(ns(s.observed_cost)).min(cpu),
            observed_cost: before.observed_cost + if s.whole { ns(s.cost) } else { ns(s.observed_cost) },
            whole: before.whole && s.whole,
            windows: before.windows + u64::from(!s.whole && s.observed.0 > 0),
            sampled: before.sampled + s.sampled,
            observed_sampled: before.observed_sampled + if s.whole { s.sampled } else { s.observed_sampled },
        }
    }

    /// Own CPU time of the window and of the stretch if the cost is `multiple` of the calibrated one. So many
    /// acquisitions take a minimum of it.
    fn own(&self, multiple: f64, floor: f64) -> (f64, f64) {
        let floor = floor.min(self.observed_cpu);
        let window = (self.observed_cpu - multiple * self.observed_cost).max(floor);
        let outside = (self.cpu - self.observed_cpu) - multiple * (self.cost - self.observed_cost).max(0.0);
        (window, window + outside.max(0.0))
    }

    /// The window in each of the ways; `acquisitions` were seen in it, and so much CPU time is its part by samples, ns.
    pub(super) fn samples(&self, costs: &Costs, acquisitions: f64, by_samples: f64) -> [Sample; WAYS] {
        let floor = acquisitions * costs.bare_pair_ns;
        let (least, most) = multiples(costs);
        let of = |(size, of): (f64, f64)| {
            // What ran in the window would have taken so much less time had nobody observed.
            let busy = self.observed_cpu.min(self.observed);
            let speed = if self.observed_cpu > 0.0 { (size / self.observed_cpu).min(1.0) } else { 1.0 };
            let slowed = busy * (1.0 - speed);
            let stands_for = (self.observed - slowed).max(1.0);
            let (inside, all) = (progress(size, stands_for), progress(of, (self.time - slowed).max(stands_for)));
            Sample { size, of, weight: all / inside }
        };
        let way = |multiple: f64| of(self.own(multiple, floor));
        let (own, whole) = self.own(1.0, floor);
        let nominal = of((own, whole));
        let time = Sample { size: self.observed, of: self.time, weight: nominal.weight };
        let window = by_samples.max(floor);
        let sampled = of((window, window + whole - own));
        [nominal, way(least), way(most), time, way(0.0), sampled]
    }
}

/// Least and greatest multiple of the calibrated cost.
pub(super) fn multiples(costs: &Costs) -> (f64, f64) {
    let (least, most) = COST_RANGE;
    (least * (1.0 - costs.spread.clamp(0.0, 0.5)), most * (1.0 + costs.spread.clamp(0.0, 0.5)))
}
