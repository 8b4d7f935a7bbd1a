//! One process of those that are observed: its gate, and what is placed in it.

use super::super::attach::ProbeSite;
use super::super::placer::{Links, Mechanism, Placer, Whom, hold};
use super::super::probe_table::By;
use super::super::target::FileKey;
use crate::leader;
use crate::quality::FailedProbe;
use crate::units::Time;
use aya::maps::{Array, MapData};
use lockbpf_common::gate::Gate;
use nix::time::ClockId;

/// Which of the probes that no gate closes came to cost too much in a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shed {
    /// None.
    #[default]
    Nothing,
    /// Those where virtual threads leave their threads, whatever for: they are gone.
    Absences,
    /// The others, too: these are opened and closed like all probes.
    All,
}

impl Shed {
    /// Whether a probe that goes there stays when the gate is closed.
    pub(super) fn leaves(self, site: &ProbeSite) -> bool {
        self.leaves_by(site.function.by)
    }

    fn leaves_by(self, by: By) -> bool {
        match by {
            By::Virtual | By::VirtualReturn | By::CustomBlock | By::CustomWake => self < Self::All,
            By::VirtualAbsence => self < Self::Absences,
            _ => false,
        }
    }
}

/// One process's gate and probes.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) pid: u32,
    /// The clock of the CPU time that it uses; `None` of a process that had ended already.
    pub(super) cpu_clock: Option<ClockId>,
    /// The files to place its probes in; `None` for all that are known.
    pub(super) files: Option<Vec<FileKey>>,
    pub(super) epoch: u64,
    pub(super) gate: Gate,
    pub(super) links: Links,
    /// Those that are there whether the gate is open or not.
    pub(super) ungated: Links,
    /// What of these came to cost too much.
    pub(super) shed: Shed,
    /// Whether the main thread had ended when it was looked last.
    pub(super) headless: bool,
    /// Sets of probes placed so far.
    pub(super) sets: u64,
    /// The thread that stands in for the main thread, if that has ended, and what keeps the breakpoints in place by it.
    pub(super) stand_in: Option<u32>,
    pub(super) holders: Links,
    /// What kept them by threads that have ended.
    pub(super) spent: Vec<Links>,
    /// Since when the gate is closed until such a thread is found that goes on.
    pub(super) muted: Option<Time>,
}

impl Slot {
    /// Begins a set of probes: tells the kernel side, before the first breakpoint is there to be inherited, and in whom to place them. `None` if
    /// probes are in place already, or the process has ended.
    pub(super) fn prepare(&mut self, gates: &mut Array<MapData, Gate>, slot: u32) -> Option<Whom> {
        if !self.links.is_empty() {
            return None;
        }
        let main = leader::find(self.pid);
        if self.pid != 0 && main.is_none() {
            return None;
        }
        self.sets += 1;
        self.gate.set = self.sets;
        // A map that cannot be written fails the opening, too.
        let _ = gates.set(slot, self.gate, 0);
        self.stand_in = main.filter(|&tid| tid != self.pid);
        Some(self.whom(slot, Some(self.gate.set)))
    }

    /// Keeps what has been placed; returns how much that is, and what failed.
    pub(super) fn keep(&mut self, placed: Placed) -> (usize, Vec<FailedProbe>) {
        self.holders.extend(placed.holders);
        self.links.extend(placed.links);
        (placed.number, placed.failed)
    }

    /// Places probes of the present set at those of these sites that it wants, and that the gate is for; returns how many, and what failed.
    pub(super) fn place<'a>(
        &mut self,
        placer: &Placer,
        sites: impl Iterator<Item = &'a ProbeSite>,
        slot: u32,
    ) -> (usize, Vec<FailedProbe>) {
        let sites: Vec<&ProbeSite> = sites.filter(|site| self.is_gated(site)).collect();
        self.keep(place(placer, &sites, self.whom(slot, Some(self.gate.set))))
    }

    /// The same at those that the gate is not for.
    pub(super) fn place_ungated<'a>(
        &mut self,
        placer: &Placer,
        sites: impl Iterator<Item = &'a ProbeSite>,
        slot: u32,
    ) -> (usize, Vec<FailedProbe>) {
        let sites: Vec<&ProbeSite> = sites.filter(|site| self.is_ungated(site)).collect();
        let (links, failed) = placer.place(&sites, self.whom(slot, None));
        self.ungated.extend(links);
        (sites.len().saturating_sub(failed.len()), failed)
    }

    fn whom(&self, slot: u32, set: Option<u64>) -> Whom {
        Whom { pid: self.pid, stand_in: self.stand_in, slot, set }
    }

    /// Whether a probe goes there that stays when the gate is closed.
    pub(super) fn is_ungated(&self, site: &ProbeSite) -> bool {
        self.wants(site) && self.shed.leaves(site)
    }

    /// Whether a probe that stays there now would go if so much was shed.
    pub(super) fn loses(&self, site: &ProbeSite, shed: Shed) -> bool {
        self.is_ungated(site) && !shed.leaves(site)
    }

    /// Whether a probe goes there while the gate is open.
    pub(super) fn is_gated(&self, site: &ProbeSite) -> bool {
        self.wants(site) && !self.shed.leaves(site) && site.function.by != By::VirtualAbsence
    }

    /// Whether a probe goes there.
    pub(super) fn wants(&self, site: &ProbeSite) -> bool {
        self.files.as_ref().is_none_or(|files| files.contains(&site.file))
    }
}

/// Probes of a set in place.
pub(super) struct Placed {
    /// What keeps their breakpoints in place by the thread that stands in for the main thread. Dropped first: the links' programs count hits until then.
    holders: Links,
    links: Links,
    /// How many there are.
    number: usize,
    failed: Vec<FailedProbe>,
}

/// Places probes of a set.
pub(super) fn place(placer: &Placer, sites: &[&ProbeSite], whom: Whom) -> Placed {
    let by_links = placer.mechanism() != Mechanism::PerfEvents;
    let (holders, unheld) = whom.stand_in.filter(|_| by_links).map(|tid| hold(sites, tid)).unwrap_or_default();
    let (links, mut failed) = placer.place(sites, whom);
    let number = sites.len().saturating_sub(failed.len());
    failed.extend(unheld);
    Placed { links, holders, number, failed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tells_why_nobody_runs_is_shed_first() {
        let leaves = |by: By| [Shed::Nothing, Shed::Absences, Shed::All].map(|shed| shed.leaves_by(by));
        assert_eq!(leaves(By::VirtualAbsence), [true, false, false]);
        assert_eq!([leaves(By::Virtual), leaves(By::VirtualReturn)], [[true, true, false]; 2]);
        assert_eq!(leaves(By::Entry), [false; 3]);
    }
}
