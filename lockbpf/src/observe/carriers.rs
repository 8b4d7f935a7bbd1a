//! Processes that run Java. Their threads tell which virtual threads they carry, and lockbpf tells the kernel side where. A process may begin after the
//! observation does.

use super::census::Census;
use crate::capture::hotspot::LIBRARY;
use crate::capture::session::Session;
use crate::id::Process;
use lockbpf_common::virtual_thread::{Carrier, MAX_PROCESSES};
use std::collections::HashMap;

/// Looks before a machine is given up that does not begin: 10 s.
const LOOKS: u32 = 200;

/// What is known of them.
#[derive(Default)]
pub(crate) struct Carriers {
    /// Processes whose machines had not begun at the last look, with their pids and the looks that are left.
    unsettled: HashMap<Process, (u32, u32)>,
    /// Those that the kernel side knows, by their places there.
    told: HashMap<u32, Process>,
}

impl Carriers {
    /// Looks into processes that are new, and into those whose machine had not begun.
    pub(crate) fn look(&mut self, new: &[(Process, u32)], session: &mut Session, census: &mut Census) {
        self.reconsider(new.iter().copied());
        let mut unsettled = std::mem::take(&mut self.unsettled);
        unsettled.retain(|&process, (pid, looks)| {
            *looks -= 1;
            *looks > 0 && !self.look_into(process, *pid, session, census)
        });
        self.unsettled = unsettled;
    }

    /// What these have loaded may have changed.
    pub(crate) fn reconsider(&mut self, processes: impl IntoIterator<Item = (Process, u32)>) {
        self.unsettled.extend(processes.into_iter().map(|(process, pid)| (process, (pid, LOOKS))));
    }

    /// Whether the kernel side knows of the virtual threads of a process.
    pub(crate) fn knows(&self, process: Process) -> bool {
        self.told.get(&(process.0 % MAX_PROCESSES)) == Some(&process)
    }

    /// Returns whether nothing has still to be found.
    fn look_into(&mut self, process: Process, pid: u32, session: &mut Session, census: &mut Census) -> bool {
        if self.knows(process) || !census.symbols().loaded(process).any(|file| file.name == LIBRARY) {
            return true;
        }
        if let Err(error) = session.generates_code(process) {
            log::warn!("waits of process {pid} may lack stacks: {error}");
        }
        let Some(carrier) = census.carrier(process, pid) else { return false };
        let Some(carrier) = carrier else { return true };
        if let Err(error) = session.carries(Carrier { process: process.0, ..carrier }) {
            log::warn!("waits of virtual threads of process {pid} are not observed: {error}");
            return true;
        }
        // Not all is known while the machine begins.
        if carrier.blocker != 0 {
            self.told.insert(process.0 % MAX_PROCESSES, process);
        }
        carrier.blocker != 0
    }
}
