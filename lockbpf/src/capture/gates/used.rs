//! What a process has used, and what observing it has taken of that.

use super::super::cpu_clock::Pace;
use super::super::session::now;
use super::Gates;
use crate::costs::Costs;
use crate::governor::thinning::Spent;
use crate::governor::{Reading, Sampled};
use crate::perturbation::Taken;
use crate::units::{Nanos, Time};
use aya::maps::{MapData, MapError, PerCpuArray};
use lockbpf_common::gate::Account;
use nix::time::clock_gettime;
use std::time::Duration;

/// What a process has used so far.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    time: Time,
    cpu: Nanos,
    taken: Taken,
    /// Hits of probes that no gate closes.
    ungated: u64,
    sampled: Sampled,
}

impl Used {
    /// With what observing it has cost by these prices.
    #[must_use]
    pub fn reading(&self, costs: &Costs) -> Reading {
        Reading { time: self.time, cpu: self.cpu, cost: self.taken.cost(costs), sampled: self.sampled }
    }

    /// With what the hits of probes have cost that no gate closes, and all stacks: those of waits that only futex calls show are thinned, so that they take
    /// half of what may be spent at most.
    #[must_use]
    pub fn ungated(&self, costs: &Costs) -> Reading {
        let taken = Taken { hits: self.ungated, stack_ns: self.taken.stack_ns, ..Taken::default() };
        Reading { cost: taken.cost(costs), ..self.reading(costs) }
    }

    /// With what its futex calls and their records have cost.
    #[must_use]
    pub fn spent(&self, costs: &Costs) -> Spent {
        let Taken { futex_calls, records, stack_ns, .. } = self.taken;
        let (calls, written) =
            (Taken { futex_calls, ..Taken::default() }, Taken { records, stack_ns, ..Taken::default() });
        let (calls, cost) = (calls.cost(costs), written.cost(costs));
        Spent { time: self.time, cpu: self.cpu, calls, records, cost }
    }
}

impl Gates {
    /// What a process has used, and what observing it has taken; `None` if it is gone.
    #[must_use]
    pub fn used(&self, slot: u32) -> Option<Used> {
        let state = self.slots.get(slot as usize)?;
        let cpu = clock_gettime(state.cpu_clock?).ok()?;
        let Counted { taken, ungated, sampled } = account(&self.accounts, slot).ok()?;
        Some(Used { time: now(), cpu: Nanos(Duration::from(cpu).as_nanos() as u64), taken, ungated, sampled })
    }

    /// In windows samples of the CPUs' clocks are taken often, else seldom.
    pub fn sample(&mut self, in_window: bool) {
        if in_window { self.clock.pace(Pace::Often) } else { self.clock.slow_down() }
    }

    /// There will be windows: samples are taken from now on.
    pub fn start_sampling(&mut self) {
        self.clock.start();
    }

    /// What takes the verifier's time is done before.
    pub fn prepare_sampling(&mut self) {
        self.clock.load();
    }

    /// Samples are taken of a private child.
    pub(in super::super) fn sample_child(&mut self) {
        self.clock.pace(Pace::Calibrating);
    }

    /// What samples have found of a slot's process.
    pub(in super::super) fn sampled(&self, slot: u32) -> Option<Sampled> {
        Some(account(&self.accounts, slot).ok()?.sampled)
    }

    /// The same, by these prices.
    #[must_use]
    pub fn reading(&self, slot: u32, costs: &Costs) -> Option<Reading> {
        Some(self.used(slot)?.reading(costs))
    }
}

/// What observing a slot's process has taken so far.
pub(in super::super) fn taken(accounts: &PerCpuArray<MapData, Account>, slot: u32) -> Result<Taken, MapError> {
    Ok(account(accounts, slot)?.taken)
}

/// What an account says, all CPUs together.
#[derive(Default)]
struct Counted {
    taken: Taken,
    ungated: u64,
    sampled: Sampled,
}

fn account(accounts: &PerCpuArray<MapData, Account>, slot: u32) -> Result<Counted, MapError> {
    let Counted { taken: mut sum, mut ungated, mut sampled } = Counted::default();
    for cpu in accounts.get(&slot, 0)?.iter() {
        ungated += cpu.ungated;
        sampled = sampled + Sampled { samples: cpu.samples, user: cpu.user_samples, hits: cpu.hits };
        sum.hits += cpu.hits;
        sum.stepped += cpu.stepped;
        sum.records += cpu.records;
        sum.record_bytes += cpu.record_bytes;
        sum.stack_bytes += cpu.stack_bytes;
        sum.futex_calls += cpu.futex_calls;
        sum.switches += cpu.switches;
        sum.stack_ns += cpu.stack_ns;
    }
    Ok(Counted { taken: sum, ungated, sampled })
}
