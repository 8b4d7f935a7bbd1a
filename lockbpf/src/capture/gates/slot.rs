//! One process of those that are observed: its gate, and what is placed in it.

use super::super::attach::ProbeSite;
use super::super::placer::{Links, Mechanism, Placer, Whom, hold};
use super::super::target::FileKey;
use crate::quality::FailedProbe;
use crate::units::Time;
use lockbpf_common::gate::Gate;
use nix::time::ClockId;

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
    /// Places probes of the present set at further sites; returns what failed.
    pub(super) fn place(&mut self, placer: &Placer, sites: &[&ProbeSite], slot: u32) -> Vec<FailedProbe> {
        let whom = Whom { pid: self.pid, stand_in: self.stand_in, slot, set: self.gate.set };
        if let Some(tid) = self.stand_in
            && placer.mechanism() != Mechanism::PerfEvents
        {
            self.holders.extend(hold(sites, tid));
        }
        let (links, failed) = placer.place(sites, whom);
        self.links.extend(links);
        failed
    }

    /// Whether a probe goes there.
    pub(super) fn wants(&self, site: &ProbeSite) -> bool {
        self.files.as_ref().is_none_or(|files| files.contains(&site.file))
    }
}
