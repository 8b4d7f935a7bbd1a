//! Gates are opened once the probes are in place.

use super::Work;

impl Work {
    /// Opens the gates of those whose probes are in place now.
    pub(super) fn open_placed(&mut self) {
        let (slots, cpu) = self.gates.finish();
        self.placings.placing_took(cpu);
        for slot in slots {
            if self.open(slot).is_none() {
                // Probes that could not be placed in it failed for that reason.
                self.gates.take_failed();
                self.dismiss(slot);
            }
        }
    }

    /// Opens a gate, as its policy wants; `None` if the process is gone.
    pub(super) fn open(&mut self, slot: u32) -> Option<()> {
        self.gates.open(slot).ok()?;
        let opened = self.gates.reading(slot, &self.costs)?;
        let charge = self.charges.get_mut(&slot)?;
        charge.policy.opened(charge.placing, opened);
        charge.opened = Some(opened);
        charge.due = opened.time;
        if charge.policy.stays_open() && !charge.shares {
            // What went before was not observed at all.
            self.tell_stretch(slot, opened)?;
        }
        Some(())
    }
}
