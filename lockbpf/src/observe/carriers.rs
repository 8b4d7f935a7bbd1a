//! Processes that run Java: the kernel side is told where their threads tell which virtual threads they carry. They may begin after the observation
//! does.

use super::census::Census;
use crate::capture::hotspot::LIBRARY;
use crate::capture::session::Session;
use crate::id::Process;
use lockbpf_common::virtual_thread::Carrier;

/// Looks before a machine is given up that does not begin: 10 s.
const LOOKS: u32 = 200;

/// Processes whose machines had not begun at the last look, with their pids and the looks that are left.
#[derive(Default)]
pub(crate) struct Carriers(Vec<(Process, u32, u32)>);

impl Carriers {
    /// Looks into processes that are new, and into those whose machine had not begun.
    pub(crate) fn look(&mut self, new: &[(Process, u32)], session: &mut Session, census: &mut Census) {
        self.0.extend(new.iter().map(|&(process, pid)| (process, pid, LOOKS)));
        self.0.retain_mut(|(process, pid, looks)| {
            *looks -= 1;
            *looks > 0 && !look_into(*process, *pid, session, census)
        });
    }

    /// What is loaded may have changed.
    pub(crate) fn reconsider(&mut self, census: &Census) {
        self.0 = census.pids().into_iter().map(|(process, pid)| (process, pid, LOOKS)).collect();
    }
}

/// Returns whether nothing has still to be found.
fn look_into(process: Process, pid: u32, session: &mut Session, census: &mut Census) -> bool {
    if !census.symbols().loaded(process).any(|file| file.name == LIBRARY) {
        return true;
    }
    let Some(carrier) = census.carrier(process, pid) else { return false };
    if let Some(Err(error)) = carrier.map(|carrier| session.carries(Carrier { process: process.0, ..carrier })) {
        log::warn!("waits of virtual threads of process {pid} are not observed: {error}");
    }
    true
}
