//! Probes that no gate closes: they are where a program comes only if it has to wait, so that a free lock costs nothing, and tell of waits that no system call
//! shows. Where a process waits so often that they cost too much, they are *shed*: first those that tell why a virtual thread does not run, then those of
//! monitors, which from then on are opened and closed like all others.

use super::super::aside::drop_aside;
use super::Gates;
use super::slot::Shed;
use crate::leader;
use std::collections::BTreeMap;

/// In which processes not all of these probes were there all the time.
#[derive(Clone, Debug, Default)]
pub struct Sheds(BTreeMap<u32, Shed>);

impl Sheds {
    /// Whether each wait of a virtual thread for a monitor was seen in a process.
    #[must_use]
    pub fn knows_monitors(&self, pid: u32) -> bool {
        self.0.get(&pid).is_none_or(|&shed| shed < Shed::All)
    }

    /// Whether it was seen each time that a virtual thread did not run.
    #[must_use]
    pub fn knows_absences(&self, pid: u32) -> bool {
        !self.0.contains_key(&pid)
    }
}

impl Gates {
    /// Places those of a slot, if they are not there.
    pub(super) fn place_ungated(&mut self, slot: u32) {
        let Some(state) = self.slots.get_mut(slot as usize).filter(|state| state.ungated.is_empty()) else { return };
        if !self.sites.iter().any(|site| state.wants(site) && state.stays(site)) {
            return;
        }
        if state.links.is_empty() {
            state.stand_in = leader::find(state.pid).filter(|&tid| tid != state.pid);
        }
        let placed = state.place_ungated(&self.placer, self.sites.iter(), slot);
        self.enter(placed);
    }

    /// Removes those of a slot, without waiting until the kernel has done with them.
    pub(super) fn remove_ungated(&mut self, slot: u32) {
        let Some(state) = self.slots.get_mut(slot as usize).filter(|state| !state.ungated.is_empty()) else { return };
        let stay = self.sites.iter().filter(|site| state.wants(site) && state.stays(site)).count();
        self.placed = self.placed.saturating_sub(stay);
        drop_aside(std::mem::take(&mut state.ungated));
    }

    /// Whether a slot has any.
    #[must_use]
    pub fn has_ungated(&self, slot: u32) -> bool {
        self.slots.get(slot as usize).is_some_and(|state| !state.ungated.is_empty())
    }

    /// Removes those of all slots for a while.
    pub fn lift_ungated(&mut self) {
        (0..self.slots.len() as u32).for_each(|slot| self.remove_ungated(slot));
    }

    /// Places them again.
    pub fn lower_ungated(&mut self) {
        for slot in 1..self.slots.len() as u32 {
            if self.slots.get(slot as usize).is_some_and(|state| state.pid != 0) {
                self.place_ungated(slot);
            }
        }
    }

    /// Sheds the next of a slot's. Returns whether there are others left.
    pub fn shed(&mut self, slot: u32) -> bool {
        // What stays is placed anew, before the old ones are gone: what is seen to begin or end a second time has begun or ended.
        self.remove_ungated(slot);
        let Some(state) = self.slots.get_mut(slot as usize) else { return false };
        state.shed = if state.shed == Shed::Nothing { Shed::Absences } else { Shed::All };
        self.shed.insert(state.pid, state.shed);
        self.place_ungated(slot);
        self.has_ungated(slot)
    }

    /// In which processes any were shed, or never placed.
    #[must_use]
    pub fn sheds(&self) -> Sheds {
        Sheds(self.shed.clone())
    }
}
