//! Sums of all that was observed, which go on from observation to observation.

use super::shared::{Published, Shared};
use crate::event::ProcessSeen;
use crate::id::Process;
use crate::metrics::{Ledger, Limits, Profiles, Snapshot, Workload};
use crate::observation::Observation;
use crate::observe::own;
use crate::proc;
use crate::report::measured::Measured;
use crate::units::Nanos;
use std::collections::HashMap;
use std::sync::Arc;

/// Sums, and whom they are shown to.
pub(super) struct Told {
    ledger: Ledger,
    profiles: Profiles,
    /// Whose locks they are, in the present observation.
    workloads: HashMap<Process, Workload>,
    shared: Arc<Shared>,
    begun: bool,
    /// Whether an observation goes on.
    goes_on: bool,
}

impl Told {
    /// Nothing yet.
    pub(super) fn new(limits: Limits, stacks: usize, shared: Arc<Shared>) -> Self {
        Self {
            ledger: Ledger::new(limits),
            profiles: Profiles::new(stacks),
            workloads: HashMap::new(),
            shared,
            begun: false,
            goes_on: false,
        }
    }

    /// Other limits from now on.
    pub(super) fn limit(&mut self, limits: Limits, stacks: usize) {
        self.ledger.limit(limits);
        self.profiles.limit(stacks);
    }

    /// An observation goes on.
    pub(super) fn begin(&mut self) {
        (self.begun, self.goes_on) = (true, true);
        self.shared.observing(None);
    }

    /// Whether there has been an observation.
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Takes note of a process, at once, while it lives.
    pub(super) fn meet(&mut self, seen: &ProcessSeen) {
        // One that is gone has no cgroup, but a name.
        let cgroups = proc::text(format!("/proc/{}/cgroup", seen.pid)).unwrap_or_default();
        self.workloads.insert(seen.process, Workload::new(&seen.comm, &cgroups));
    }

    /// Takes what was seen since the present observation began; `cost` is what that has cost the target.
    pub(super) fn take(&mut self, observation: &Observation, measured: &Measured, cost: Nanos) {
        let at_ns = own::wall_ns();
        self.ledger.take(&Snapshot {
            at_ns,
            locks: &measured.locks,
            workloads: &self.workloads,
            quality: &observation.quality,
            deadlocks: &observation.deadlocks,
            observed: observed(observation),
            overhead: cost,
        });
        self.profiles.take(&measured.profile, &self.workloads);
        self.publish(at_ns);
    }

    /// The present observation is over.
    pub(super) fn end_round(&mut self) {
        self.goes_on = false;
        self.ledger.end_round();
        self.profiles.end_round();
        self.workloads = HashMap::new();
    }

    /// Nothing is observed, and why. What the present observation had come to, if there was one, was told before.
    pub(super) fn fault(&mut self, why: String) {
        if self.goes_on {
            self.end_round();
        }
        self.shared.observing(Some(why));
        self.publish(self.shared.published().snapshot_ns);
    }

    fn publish(&self, snapshot_ns: u64) {
        self.shared.publish(Published::new(self.ledger.book().clone(), self.profiles.stacks(), snapshot_ns));
    }
}

/// Part of the programs' work in which every lock operation was seen.
fn observed(observation: &Observation) -> f64 {
    let duration = observation.duration();
    let on = match duration {
        Nanos(0) => 1.0,
        Nanos(all) => 1.0 - (observation.quality.paused.0 as f64 / all as f64).min(1.0),
    };
    let covered = observation.estimates.as_ref().map(|estimates| estimates.overall());
    covered.filter(|all| all.own_cpu > Nanos(0)).map_or(on, |all| all.observed_cpu_share())
}
