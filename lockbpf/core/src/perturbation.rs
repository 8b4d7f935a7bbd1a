//! What observing took of the target: counted by the kernel side, priced by what each thing costs.

use crate::costs::Costs;
use crate::units::Nanos;
use lockbpf_common::counter::Counter;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What single-stepping adds to a hit, ns: measured on x86_64 under nested virtualisation; about a third of that on bare metal.
pub const STEPPING_NS: f64 = 9_490.0;

/// What the kernel side did in the target's threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Taken {
    /// Hits of probes.
    pub hits: u64,
    /// How many of these were hits that had to be single-stepped.
    pub stepped: u64,
    /// Records written.
    pub records: u64,
    /// Bytes of memory written for them.
    pub record_bytes: u64,
    /// Bytes of memory written for copies of stacks.
    pub stack_bytes: u64,
    /// Futex calls seen.
    pub futex_calls: u64,
    /// Switches away from threads that held locks.
    pub switches: u64,
    /// Time for copying stacks, ns.
    pub stack_ns: u64,
}

impl std::ops::AddAssign for Taken {
    fn add_assign(&mut self, more: Self) {
        self.hits += more.hits;
        self.stepped += more.stepped;
        self.records += more.records;
        self.record_bytes += more.record_bytes;
        self.stack_bytes += more.stack_bytes;
        self.futex_calls += more.futex_calls;
        self.switches += more.switches;
        self.stack_ns += more.stack_ns;
    }
}

impl Taken {
    /// What it cost by these prices.
    #[must_use]
    pub fn cost(&self, costs: &Costs) -> Nanos {
        let ns = self.hits as f64 * costs.hit_ns
            + self.stepped as f64 * STEPPING_NS
            + self.records as f64 * costs.record_ns
            + self.futex_calls as f64 * costs.futex_ns
            + self.switches as f64 * costs.switch_ns
            + self.stack_ns as f64;
        Nanos(ns as u64)
    }
}

/// What observing costs, as it was measured on the machine of a recording for its way of observing; in whole ns of CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Prices {
    /// [`Costs::hit_ns`].
    pub hit_ns: u64,
    /// [`Costs::hold_bias_ns`].
    pub hold_bias_ns: u64,
    /// [`Costs::record_ns`].
    pub record_ns: u64,
    /// [`Costs::futex_ns`].
    pub futex_ns: u64,
    /// [`Costs::spread`], in thousandths.
    pub spread_permille: u64,
}

impl From<&Costs> for Prices {
    fn from(costs: &Costs) -> Self {
        let whole = |cost: f64| cost.max(0.0).round() as u64;
        Self {
            hit_ns: whole(costs.hit_ns),
            hold_bias_ns: whole(costs.hold_bias_ns),
            record_ns: whole(costs.record_ns),
            futex_ns: whole(costs.futex_ns),
            spread_permille: whole(costs.spread * 1e3),
        }
    }
}

/// Processes that observed ones have started while probes were in place in them. Unless they are observed themselves, the probes of
/// their parents stay in them for a moment, and nobody counts how often they are hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Children {
    /// How many.
    pub started: u64,
    /// Time, of the CPU where that could be had, that they used until they were certainly free of them, ns: what that cost them is less.
    pub used_ns: u64,
}

impl Children {
    /// As they were counted.
    #[must_use]
    pub fn of(counters: &BTreeMap<&'static str, u64>) -> Self {
        let of = |counter: Counter| counters.get(counter.name()).copied().unwrap_or(0);
        Self { started: of(Counter::Children), used_ns: of(Counter::ChildrenNs) }
    }
}

/// What observing took, and what that is of the target's own use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Perturbation {
    /// What was done.
    pub taken: Taken,
    /// What that cost, ns of CPU time.
    pub cost_ns: u64,
    /// The part of this that seeing the futex calls cost, ns.
    pub futex_cost_ns: u64,
    /// What observing adds to a hold, ns.
    pub hold_bias_ns: u64,
    /// CPU time that the target used meanwhile, that cost included; `None` if it is not known.
    pub target_cpu_ns: Option<u64>,
    /// Whether the prices were measured on this machine, just before; else they are cautious ones.
    pub measured: bool,
    /// The prices; `None` if they were not measured, and in recordings of older versions.
    pub prices: Option<Prices>,
    /// Processes that the observed ones started.
    pub children: Children,
}

impl Perturbation {
    /// The cost as a share of the target's CPU time; `None` if that is not known.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        self.share_of(self.cost_ns)
    }

    /// What seeing the futex calls cost, likewise.
    #[must_use]
    pub fn futex_share(&self) -> Option<f64> {
        self.share_of(self.futex_cost_ns)
    }

    fn share_of(&self, ns: u64) -> Option<f64> {
        let cpu = self.target_cpu_ns.filter(|&cpu| cpu > 0)?;
        Some((ns as f64 / cpu as f64).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_has_its_price() {
        let costs = Costs { hit_ns: 1_000.0, record_ns: 200.0, futex_ns: 300.0, switch_ns: 50.0, ..Costs::default() };
        let taken =
            Taken { hits: 10, stepped: 1, records: 2, futex_calls: 3, switches: 4, stack_ns: 7, ..Taken::default() };
        assert_eq!(taken.cost(&costs), Nanos(10_000 + 9_490 + 400 + 900 + 200 + 7));
    }

    #[test]
    fn a_share_is_of_what_was_used() {
        let of = |cost_ns, target_cpu_ns| Perturbation { cost_ns, target_cpu_ns, ..Perturbation::default() }.share();
        assert_eq!(
            [of(20, Some(1_000)), of(20, Some(10)), of(20, Some(0)), of(20, None)],
            [Some(0.02), Some(1.0), None, None]
        );
    }
}
