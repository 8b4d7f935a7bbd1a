//! What is kept of a process: how much of it was observed, in which windows.

use super::shadow::{LEAST_PAIR, Shadow};
use super::stretch::{BY_TIME, CHEAP, Cluster, DEAR, NOMINAL, Sample, Stretch, WAYS};
use super::{Costs, Coverage};
use crate::id::Process;
use crate::units::Nanos;
use std::collections::BTreeMap;

/// Window lengths are told apart by so many steps per octave.
const STEPS: f64 = 8.0;
/// Part of the CPU time above which windows have missed something.
const UNFAMILIAR: f64 = 0.25;
/// Own CPU time of all windows as a part of their time, below which work is measured by time.
const MEASURABLE: f64 = 1e-5;

/// Sizes of a process's windows in one way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sizes {
    /// Σ v size.
    pub sum: f64,
    /// Σ (v size)².
    pub squares: f64,
    /// Σ size.
    pub plain: f64,
    /// Size of all stretches that were not observed as a whole.
    pub of: f64,
}

/// Windows and stretches of one process.
#[derive(Clone, Debug, Default)]
pub(super) struct ProcessSums {
    /// Stretches that are over, of which the sums have not been read.
    pub pending: Option<Cluster>,
    /// In each way.
    pub sizes: [Sizes; WAYS],
    /// Clusters with a window.
    pub clusters: f64,
    /// Windows by length: Σ v and Σ v length.
    lengths: BTreeMap<i32, (f64, f64)>,
    /// Everything, whole stretches too.
    all: Cluster,
    /// Time of stretches that were not observed as a whole.
    sampled_time: f64,
    /// CPU time of stretches that were not observed as a whole, and in windows, cost of observing included.
    sampled_cpu: f64,
    window_cpu: f64,
    /// The greatest part of a window's time that was CPU time.
    busiest: f64,
    /// Own CPU time, all and observed.
    own: (f64, f64),
    /// What windows and the time between them tell of the cost.
    pub shadow: Shadow,
}

impl ProcessSums {
    /// A stretch is over.
    pub(super) fn stretch(&mut self, stretch: &Stretch) {
        self.pending = Some(Cluster::add(self.pending, stretch));
    }

    /// Its sums have been read: so many acquisitions of all locks. Returns the windows, unless all was observed (or
    /// nothing).
    pub(super) fn settle(&mut self, costs: &Costs, acquisitions: f64) -> Option<[Sample; WAYS]> {
        let cluster = self.pending.take()?;
        self.all.time += cluster.time;
        self.all.observed += cluster.observed;
        self.all.cpu += cluster.cpu;
        self.all.cost += cluster.cost;
        self.all.windows += cluster.windows;
        if !cluster.whole {
            self.shadow.add(&cluster, acquisitions);
        }
        let by_samples = self.shadow.part_of(&cluster, costs).unwrap_or(cluster.observed_cpu);
        let samples = cluster.samples(costs, acquisitions, by_samples);
        self.own.0 += samples[NOMINAL].of;
        self.own.1 += if cluster.whole { samples[NOMINAL].of } else { samples[NOMINAL].size };
        if cluster.whole {
            return None;
        }
        self.sampled_time += cluster.time;
        self.sampled_cpu += cluster.cpu;
        for (sizes, sample) in self.sizes.iter_mut().zip(&samples) {
            sizes.of += sample.of;
        }
        if cluster.observed <= 0.0 {
            return None;
        }
        self.clusters += 1.0;
        self.window_cpu += cluster.observed_cpu;
        self.busiest = self.busiest.max(cluster.observed_cpu / cluster.observed);
        for (sizes, sample) in self.sizes.iter_mut().zip(&samples) {
            let weighted = sample.weight * sample.size;
            sizes.sum += weighted;
            sizes.squares += weighted * weighted;
            sizes.plain += sample.size;
        }
        let length = cluster.observed / cluster.windows.max(1) as f64;
        let weight = samples[NOMINAL].weight * cluster.windows.max(1) as f64;
        let (sum, product) = self.lengths.entry((length.max(1.0).log2() * STEPS) as i32).or_default();
        *sum += weight;
        *product += weight * length;
        Some(samples)
    }

    /// Whether its whole time was observed.
    pub(super) fn is_whole(&self) -> bool {
        self.sampled_time <= 0.0
    }

    /// Whether it used CPU time that could be measured.
    pub(super) fn works(&self) -> bool {
        self.sizes[NOMINAL].plain > MEASURABLE * self.sizes[BY_TIME].plain
    }

    /// The ways in which it may be scaled: the likeliest, then those at the ends.
    pub(super) fn ways(&self) -> &'static [usize] {
        if self.works() { &[NOMINAL, CHEAP, DEAR] } else { &[BY_TIME] }
    }

    /// The part of what was sampled that was observed.
    pub(super) fn fraction(&self) -> f64 {
        let sizes = &self.sizes[if self.works() { NOMINAL } else { BY_TIME }];
        if sizes.of > 0.0 { (sizes.plain / sizes.of).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// How fast its own work went in windows, of 1: own over all CPU time there.
    pub(super) fn speed(&self) -> f64 {
        if self.window_cpu > 0.0 { (self.sizes[NOMINAL].plain / self.window_cpu).clamp(1e-6, 1.0) } else { 1.0 }
    }

    /// How many acquisitions there may have been at times that were unlike those of windows.
    pub(super) fn unfamiliar(&self, costs: &Costs) -> f64 {
        pairs_in(self.unfamiliar_cpu(), costs)
    }

    /// The part of the sampled CPU time that was used at times unlike those of windows.
    pub(super) fn unfamiliar_share(&self) -> f64 {
        if self.sampled_cpu > 0.0 { self.unfamiliar_cpu() / self.sampled_cpu } else { 0.0 }
    }

    /// CPU time used at times that were unlike those of windows: if the process was much busier outside of them than in
    /// any of them, they have missed what it did then.
    fn unfamiliar_cpu(&self) -> f64 {
        let time = self.sizes[BY_TIME].plain;
        if time <= 0.0 {
            return 0.0;
        }
        let excess = self.sampled_cpu - self.window_cpu / time * self.sampled_time;
        let missed = excess > UNFAMILIAR * self.sampled_cpu && self.busiest * self.sampled_time < self.sampled_cpu;
        if missed { excess } else { 0.0 }
    }

    /// How many acquisitions of a lock there may have been that no window saw, of a process that was not observed whole.
    pub(super) fn unseen(&self, costs: &Costs) -> f64 {
        pairs_in((self.sampled_cpu - self.window_cpu).max(0.0), costs)
    }

    /// How many acquisitions there may have been at most in what was not observed as a whole.
    pub(super) fn most(&self, costs: &Costs) -> f64 {
        if costs.bare_pair_ns > 0.0 { pairs_in(self.sampled_cpu, costs) / LEAST_PAIR } else { f64::INFINITY }
    }

    /// Time of the stretches that were not observed as a whole, ns.
    pub(super) fn sampled_time(&self) -> f64 {
        self.sampled_time
    }

    /// Time of all stretches, ns.
    pub(super) fn time(&self) -> f64 {
        self.all.time
    }

    /// Whether something of this length, ns, that begins in a window ends there too: with which probability.
    pub(super) fn inside(&self, length: f64) -> f64 {
        let (mut room, mut all) = (0.0, 0.0);
        for &(weight, product) in self.lengths.values() {
            room += (product - weight * length).max(0.0);
            all += product;
        }
        if all > 0.0 { room / all } else { 0.0 }
    }

    /// Σ over windows of what sections of this length that began before one and ended after it spent inside, ns², for one
    /// beginning per ns.
    pub(super) fn spanning(&self, length: f64) -> f64 {
        let span = |&(weight, product): &(f64, f64)| {
            let window = product / weight;
            weight * (length - window).max(0.0) * window
        };
        self.lengths.values().map(span).sum()
    }

    /// Mean length of a window, ns.
    pub(super) fn window(&self) -> f64 {
        let weights: f64 = self.lengths.values().map(|&(weight, _)| weight).sum();
        if weights > 0.0 { self.weighted_time() / weights } else { 0.0 }
    }

    /// Σ v length, ns.
    pub(super) fn weighted_time(&self) -> f64 {
        self.lengths.values().map(|&(_, product)| product).sum()
    }

    /// How much of it was observed.
    pub(super) fn coverage(&self, process: Process, factor: f64, hold_factor: f64) -> Coverage {
        let ns = |ns: f64| Nanos(ns.round() as u64);
        Coverage {
            process,
            time: ns(self.all.time),
            observed: ns(self.all.observed),
            cpu: ns(self.all.cpu),
            cost: ns(self.all.cost),
            own_cpu: ns(self.own.0),
            observed_own_cpu: ns(self.own.1),
            windows: self.all.windows,
            whole: self.is_whole(),
            factor,
            hold_factor,
        }
    }
}

/// So many uncontended pairs fit at most into this CPU time, ns.
fn pairs_in(cpu: f64, costs: &Costs) -> f64 {
    if costs.bare_pair_ns > 0.0 { cpu / costs.bare_pair_ns } else { 0.0 }
}
