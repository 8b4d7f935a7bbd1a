//! Probes that no gate closes. A program comes to them only where a thread waits, or ends a wait, so a free lock costs nothing; and no system call shows these
//! waits. Where they cost a process too much, they are *shed*: first those that tell why a virtual thread does not run, then those of monitors and of what
//! users have described. These are opened and closed like all others from then on.

use super::super::aside::drop_aside;
use super::super::attach::ProbeSite;
use super::super::placer::Links;
use super::super::probe_table::By;
use super::Gates;
use super::slot::{Shed, Slot};
use crate::leader;
use std::collections::{BTreeMap, BTreeSet};

/// In which processes not all of these probes were there all the time.
#[derive(Clone, Debug, Default)]
pub struct Sheds {
    by_pid: BTreeMap<u32, Shed>,
    /// Those that lost probes at functions which users have described.
    described: BTreeSet<u32>,
}

impl Sheds {
    /// In a process so much was shed by now, perhaps also what users have described.
    pub(super) fn add(&mut self, pid: u32, shed: Shed, described: bool) {
        self.by_pid.insert(pid, shed);
        if described && shed == Shed::All {
            self.described.insert(pid);
        }
    }

    /// What is not known of locks that users have described, a sentence.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        let where_to = match self.described.len() {
            0 => return None,
            1 => "one process".to_owned(),
            several => format!("{several} processes"),
        };
        Some(format!(
            "In {where_to}, probes at functions that are described to block could not stay or cost too much. From then on such waits were seen in \
             windows only, and who caused them is known in part."
        ))
    }

    /// Whether each wait of a virtual thread for a monitor was seen in a process.
    #[must_use]
    pub fn knows_monitors(&self, pid: u32) -> bool {
        self.by_pid.get(&pid).is_none_or(|&shed| shed < Shed::All)
    }

    /// Whether it was seen each time that a virtual thread did not run.
    #[must_use]
    pub fn knows_absences(&self, pid: u32) -> bool {
        !self.by_pid.contains_key(&pid)
    }
}

/// Processes that have such probes at a time, at most: each hit in a file is offered to the links of all of them, which makes it dearer.
const MOST: usize = 16;
/// The same of processes that have only what users have described, where each hit is a wait.
const MOST_DESCRIBED: usize = 128;

/// Whether a probe goes to a function that users have described.
fn is_described(site: &ProbeSite) -> bool {
    matches!(site.function.by, By::CustomBlock | By::CustomWake)
}

impl Gates {
    /// Places those of a slot, if they are not there. Where they cannot stay they are [given up](Gates::give_up_ungated).
    pub(super) fn place_ungated(&mut self, slot: u32) {
        let Some(state) = self.slots.get(slot as usize).filter(|state| state.ungated.is_empty()) else { return };
        if !self.sites.iter().any(|site| state.is_ungated(site)) {
            return;
        }
        if state.pid != 0 {
            let Some(main) = leader::find(state.pid) else { return };
            let described = self.has_described_only(state);
            let most = if described { MOST_DESCRIBED } else { MOST };
            let others = self.slots.iter().filter(|slot| !slot.ungated.is_empty());
            if main != state.pid || others.filter(|slot| self.has_described_only(slot) == described).count() >= most {
                return self.give_up_ungated(slot);
            }
        }
        let Some(state) = self.slots.get_mut(slot as usize) else { return };
        let placed = state.place_ungated(&self.placer, self.sites.iter(), slot);
        self.enter(placed);
    }

    /// Whether all of a slot's are at functions that users have described.
    fn has_described_only(&self, state: &Slot) -> bool {
        self.sites.iter().filter(|site| state.is_ungated(site)).all(is_described)
    }

    /// Takes those of a slot out of the count, if it has any; they go when they are dropped.
    fn take_ungated(&mut self, slot: u32) -> Option<Links> {
        let state = self.slots.get_mut(slot as usize).filter(|state| !state.ungated.is_empty())?;
        let stay = self.sites.iter().filter(|site| state.is_ungated(site)).count();
        self.placed = self.placed.saturating_sub(stay);
        Some(std::mem::take(&mut state.ungated))
    }

    /// Removes those of a slot, without waiting until the kernel has done with them.
    pub(super) fn remove_ungated(&mut self, slot: u32) {
        self.take_ungated(slot).into_iter().for_each(drop_aside);
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
        let Some(state) = self.slots.get(slot as usize) else { return false };
        let first = state.shed == Shed::Nothing && self.sites.iter().any(|site| state.loses(site, Shed::Absences));
        let next = if first { Shed::Absences } else { Shed::All };
        self.shed_to(slot, next);
        self.has_ungated(slot)
    }

    /// Gives those of a slot up whose main thread has ended: links keep breakpoints in place by that one only. A process that ends loses it a moment
    /// before its other threads, so the second look in a row tells.
    pub(super) fn look_after_ungated(&mut self, slot: u32) {
        let Some(state) = self.slots.get_mut(slot as usize).filter(|state| !state.ungated.is_empty()) else { return };
        let headless = state.pid != 0 && leader::find(state.pid).is_some_and(|main| main != state.pid);
        if std::mem::replace(&mut state.headless, headless) && headless {
            self.give_up_ungated(slot);
        }
    }

    /// Has all of a slot's opened and closed like the others from now on, since they cannot stay.
    pub(super) fn give_up_ungated(&mut self, slot: u32) {
        self.shed_to(slot, Shed::All);
    }

    fn shed_to(&mut self, slot: u32, shed: Shed) {
        let (old, failed) = (self.take_ungated(slot), self.failed.len());
        let Some(state) = self.slots.get_mut(slot as usize) else { return };
        let described = self.sites.iter().any(|site| is_described(site) && state.loses(site, shed));
        let before = std::mem::replace(&mut state.shed, shed);
        self.sheds.add(state.pid, shed, described);
        // What stays is placed anew before the old ones are gone: what is seen to begin or end a second time has begun or ended.
        let placed = state.place_ungated(&self.placer, self.sites.iter(), slot);
        self.enter(placed);
        let Some(state) = self.slots.get_mut(slot as usize) else { return };
        if state.gate.epoch != 0 {
            let gated = self.sites.iter().filter(|site| before.leaves(site) && !shed.leaves(site));
            let placed = state.place(&self.placer, gated, slot);
            self.enter(placed);
        }
        if self.slots.get(slot as usize).is_some_and(|state| leader::is_gone(state.pid)) {
            // That is why probes could not be placed.
            self.failed.truncate(failed);
        }
        old.into_iter().for_each(drop_aside);
    }

    /// In which processes any were shed, or never placed.
    #[must_use]
    pub fn sheds(&self) -> &Sheds {
        &self.sheds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_shed_is_not_known() {
        let mut sheds = Sheds::default();
        sheds.add(1, Shed::Absences, true);
        sheds.add(2, Shed::All, false);
        assert_eq!(sheds.note(), None);
        let knows = |pid| (sheds.knows_monitors(pid), sheds.knows_absences(pid));
        assert_eq!([1, 2, 3].map(knows), [(true, false), (false, false), (true, true)]);
        sheds.add(4, Shed::All, true);
        assert!(sheds.note().unwrap().starts_with("In one process,"));
    }
}
