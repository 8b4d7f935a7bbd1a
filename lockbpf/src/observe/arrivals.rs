//! Who and what turns up while an observation goes on: processes, other programs in them, libraries.

use super::running::Running;
use super::stacks::Seen;
use crate::capture::attach::ProbeSite;
use crate::capture::newcomers::Found;
use anyhow::Result;

impl Running<'_> {
    /// Takes note of processes that events came from for the first time: whoever had replaced its program is observed anew, and whoever is
    /// to be followed from now on.
    ///
    /// # Errors
    /// When the kernel side cannot be told.
    pub(super) fn welcome(&mut self, seen: &[Seen]) -> Result<()> {
        self.newcomers.notice(seen.iter().map(|seen| seen.pid));
        if !self.census.is_busy() {
            seen.iter().for_each(|seen| self.throttling.meet(seen.pid));
        }
        for &Seen { pid, .. } in seen {
            // The kernel tied the probes to the thread that was the first before.
            if let Some(when) = self.session.replaced(pid) {
                self.watch.renew(&mut self.session, pid, when);
            }
        }
        if self.many || !self.watch.follows() {
            return Ok(());
        }
        for &Seen { pid, start } in seen {
            self.watch.admit(&mut self.session, pid, None)?;
            if !self.ready.pids.contains(&pid) {
                self.ready.pids.push(pid);
                self.liveness.add(pid, start);
            }
        }
        Ok(())
    }

    /// Observes who has turned up where nobody in particular is observed; `thorough`: everybody is looked at.
    ///
    /// # Errors
    /// When the kernel side cannot be told.
    pub(super) fn take_in(&mut self, thorough: bool) -> Result<()> {
        let Found { processes, mut libraries } = self.newcomers.look(thorough, self.census.is_busy());
        let new = self.placing.sites(&libraries);
        self.place(new);
        self.later.append(&mut libraries);
        let pids: Vec<u32> = processes.iter().filter_map(|process| process.pid).collect();
        self.census.refresh_some(&pids);
        let known = |&pid: &u32| Some((self.census.number(pid)?, pid));
        self.carriers.reconsider(pids.iter().filter_map(known));
        for process in processes.into_iter().filter(|process| process.unusable.is_none()) {
            if let Some(pid) = process.pid {
                self.watch.admit(&mut self.session, pid, Some(process.files))?;
            }
        }
        Ok(())
    }

    /// Places probes in C libraries that the targets have loaded meanwhile: a dlopen, or a command's exec of another program.
    pub(super) fn place_in_what_was_loaded(&mut self) {
        // A target that is just exiting has nothing to add.
        let Ok(mut targets) = self.newcomers.survey().of_pids(&self.ready.pids) else { return };
        let new = self.placing.sites(&targets.libraries);
        self.later.append(&mut targets.libraries);
        self.place(new);
    }

    /// Places probes in files that have none yet.
    fn place(&mut self, mut new: Vec<ProbeSite>) {
        new.retain(|site| !self.attached.contains(&site.file));
        if !new.is_empty() {
            self.watch.extend(&mut self.session, &new);
            self.attached.extend(new.iter().map(|site| site.file));
            self.sites.append(&mut new);
        }
    }
}
