//! Places for probes: few processes have any at a time, so that others give theirs away.

use super::Work;
use super::charge::Charge;
use crate::governor::Reading;
use crate::units::Time;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Without CPU time for so long, a process gives its place to one that uses some.
const IDLE: Duration = Duration::from_millis(300);
/// After so long, a process gives its place to another that waits for one.
const TURN: Duration = Duration::from_millis(1500);

/// A place for probes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Room {
    Free,
    /// That of another slot's process, which uses CPU time or does not.
    Of {
        other: u32,
        busy: bool,
    },
}

impl Work {
    /// Where there is a place for the probes of a process: if all are taken, and it uses CPU time, that of the process that has used none for
    /// longest, or that had its turn. `None` if there is none.
    pub(super) fn room(&self, slot: u32, reading: Reading) -> Option<Room> {
        let ago = |time: Time| Duration::from_nanos(reading.time.since(time).0);
        let charge = self.charges.get(&slot)?;
        let works = charge.busy > charge.from.time && ago(charge.busy) < IDLE;
        let (places, early) = self.places;
        let early = if self.busy.load(Ordering::Relaxed) { 0 } else { early };
        if self.gates.is_placed(slot) || !self.gates.is_probed(slot) {
            return Some(Room::Free);
        }
        if self.charges.len() > places && !self.placings.may_be(reading.time) {
            return None;
        }
        if self.gates.occupied() < if works { places } else { early } {
            return Some(Room::Free);
        }
        if !works || !self.placings.may_pass_on(reading.time, false) {
            return None;
        }
        let rotates = self.placings.may_pass_on(reading.time, true);
        let over = |charge: &Charge| rotates && charge.opened.is_some_and(|opened| ago(opened.time) > TURN);
        let leaves = |slot: u32, charge: &Charge| {
            !charge.held
                && charge.policy.stays_open()
                && self.gates.is_placed(slot)
                && (ago(charge.busy) > IDLE || over(charge))
        };
        let candidates = self.charges.iter().filter(|(slot, charge)| leaves(**slot, charge));
        let (&other, charge) = candidates.min_by_key(|(_, charge)| charge.busy)?;
        Some(Room::Of { other, busy: ago(charge.busy) <= IDLE })
    }

    /// Takes a place for the probes that are placed next.
    pub(super) fn make(&mut self, room: Room, time: Time) {
        let Room::Of { other, busy } = room else { return };
        self.placings.pass_on(time);
        if self.vacate(other, busy).is_none() {
            self.dismiss(other);
        }
    }
}
