//! What is there whether a gate is open or not is made lighter where it costs too much: futex calls' records and stacks, and probes that no gate closes.

use super::super::gates::Used;
use super::{Work, now};

impl Work {
    /// Decides how many of a process's waits are recorded.
    pub(super) fn thin(&mut self, slot: u32, used: &Used) {
        let processes = self.charges.len();
        let Some(charge) = self.charges.get_mut(&slot) else { return };
        if charge.policy.is_open() {
            return charge.thinning.interrupt();
        }
        if !charge.thinning.is_due(now()) {
            return;
        }
        if let Some(level) = charge.thinning.look(used.spent(&self.costs), processes) {
            log::debug!("pid {}: of short waits 1 of 2^{level} is recorded with its stack", charge.pid);
            if let Err(error) = self.gates.thin(slot, level) {
                log::warn!("waits of pid {} are not thinned: {error}", charge.pid);
            }
        }
    }

    /// Takes what no gate closes out of processes in which it costs too much, also while their sums are still to be read.
    pub(super) fn shed(&mut self) {
        let (processes, time) = (self.charges.len(), now());
        for (&slot, charge) in &mut self.charges {
            let shedding = charge.shedding.as_mut().filter(|shedding| shedding.is_due(time));
            let Some(shedding) = shedding.filter(|_| self.gates.has_ungated(slot)) else { continue };
            // One that is gone is noticed elsewhere.
            let Some(used) = self.gates.used(slot) else { continue };
            if shedding.look(used.ungated(&self.costs), processes) {
                log::debug!("pid {}: probes that are there all the time cost too much", charge.pid);
                charge.shedding = charge.shedding.take().filter(|_| self.gates.shed(slot));
            }
        }
    }
}
