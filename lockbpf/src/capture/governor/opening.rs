//! Gates are opened once the probes are in place.

use super::Work;
use super::charge::Charge;

/// Processes whose windows are sampled often.
const MOST_SAMPLED: usize = 4;

impl Work {
    /// Opens the gates of those whose probes are in place now.
    pub(super) fn open_placed(&mut self) {
        // Else what was not seen before would end these windows, too.
        self.cut_if_lapsed();
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

    /// While there is a window, samples of the clock are taken more often; `opening` has one now. Among many processes there always is one: then
    /// they are taken seldom, since each sample costs whoever runs some microseconds.
    pub(super) fn pace_clock(&mut self, opening: Option<u32>) {
        let in_window = |(&slot, charge): (&u32, &Charge)| {
            charge.policy.is_open() && !charge.policy.stays_open()
                || opening == Some(slot) && charge.policy.opens_window()
        };
        self.gates.sample(self.charges.len() <= MOST_SAMPLED && self.charges.iter().any(in_window));
    }

    /// Opens a gate, as its policy wants; `None` if the process is gone.
    pub(super) fn open(&mut self, slot: u32) -> Option<()> {
        self.pace_clock(Some(slot));
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
