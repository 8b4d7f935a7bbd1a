//! What a process has used, and what observing it has taken of that.

use super::super::session::now;
use super::Gates;
use crate::costs::Costs;
use crate::governor::Reading;
use crate::governor::thinning::Spent;
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
}

impl Used {
    /// With what observing it has cost by these prices.
    #[must_use]
    pub fn reading(&self, costs: &Costs) -> Reading {
        Reading { time: self.time, cpu: self.cpu, cost: self.taken.cost(costs) }
    }

    /// With what the hits of probes have cost that no gate closes, and all stacks: those of waits that only futex calls show are thinned, so that they take
    /// half of what may be spent at most.
    #[must_use]
    pub fn ungated(&self, costs: &Costs) -> Reading {
        let taken = Taken { hits: self.ungated, stack_ns: self.taken.stack_ns, ..Taken::default() };
        Reading { time: self.time, cpu: self.cpu, cost: taken.cost(costs) }
    }

    /// With what its futex calls and their records have cost.
    #[must_use]
    pub fn spent(&self, costs: &Costs) -> Spent {
        let Taken { futex_calls, records, stack_ns, .. } = self.taken;
        let (calls, written) =
            (Taken { futex_calls, ..Taken::default() }, Taken { records, stack_ns, ..Taken::default() });
        Spent { time: self.time, cpu: self.cpu, futex_calls, calls: calls.cost(costs), records: written.cost(costs) }
    }
}

impl Gates {
    /// What a process has used, and what observing it has taken; `None` if it is gone.
    #[must_use]
    pub fn used(&self, slot: u32) -> Option<Used> {
        let state = self.slots.get(slot as usize)?;
        let cpu = clock_gettime(state.cpu_clock?).ok()?;
        let (taken, ungated) = account(&self.accounts, slot).ok()?;
        Some(Used { time: now(), cpu: Nanos(Duration::from(cpu).as_nanos() as u64), taken, ungated })
    }

    /// The same, by these prices.
    #[must_use]
    pub fn reading(&self, slot: u32, costs: &Costs) -> Option<Reading> {
        Some(self.used(slot)?.reading(costs))
    }
}

/// What observing a slot's process has taken so far.
pub(in super::super) fn taken(accounts: &PerCpuArray<MapData, Account>, slot: u32) -> Result<Taken, MapError> {
    Ok(account(accounts, slot)?.0)
}

/// The same, and how many of the hits were of probes that no gate closes.
fn account(accounts: &PerCpuArray<MapData, Account>, slot: u32) -> Result<(Taken, u64), MapError> {
    let (mut sum, mut ungated) = (Taken::default(), 0);
    for cpu in accounts.get(&slot, 0)?.iter() {
        ungated += cpu.ungated;
        sum.hits += cpu.hits;
        sum.stepped += cpu.stepped;
        sum.records += cpu.records;
        sum.record_bytes += cpu.record_bytes;
        sum.stack_bytes += cpu.stack_bytes;
        sum.futex_calls += cpu.futex_calls;
        sum.switches += cpu.switches;
        sum.stack_ns += cpu.stack_ns;
    }
    Ok((sum, ungated))
}
