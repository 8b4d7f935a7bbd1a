//! The program on `sched_switch`, which tells what a holder does instead of running: on only while some full tier is open,
//! since every switch of the machine passes it.

use super::aside::drop_aside;
use super::attach::reason;
use super::btf::Btf;
use super::probe_table::SCHED_SWITCH;
use super::raw_program::{self, Kind, Programs, RawError};
use crate::quality::FailedProbe;
use std::os::fd::OwnedFd;

/// The loaded program, and its link while it is on.
pub(super) struct Sched {
    program: Option<OwnedFd>,
    link: Option<OwnedFd>,
    /// Why it cannot be used, until that is told.
    failed: Option<FailedProbe>,
}

impl Sched {
    /// Loads it. Without it, only what it tells is missing.
    pub(super) fn load(programs: &Programs, types: &Btf) -> Self {
        match load(programs, types, SCHED_SWITCH) {
            Ok(program) => Self { program: Some(program), link: None, failed: None },
            Err(error) => Self { program: None, link: None, failed: Some(failure(&error)) },
        }
    }

    /// Switches it on; returns what failed, once.
    pub(super) fn on(&mut self) -> Option<FailedProbe> {
        if let (Some(program), None) = (&self.program, &self.link) {
            match raw_program::attach_tracepoint(program) {
                Ok(link) => self.link = Some(link),
                Err(error) => {
                    self.program = None;
                    self.failed = Some(failure(&error));
                }
            }
        }
        self.failed.take()
    }

    /// Switches it off.
    pub(super) fn off(&mut self) {
        if let Some(link) = self.link.take() {
            // Not waited for: the kernel patches its code.
            drop_aside(link);
        }
    }
}

/// Loads the program of this name for the tracepoint of the same name, with typed arguments.
pub(super) fn load(programs: &Programs, types: &Btf, name: &'static str) -> Result<OwnedFd, RawError> {
    let id = types.tracepoint(name).ok_or(RawError::NoTracepoint(name))?;
    programs.load(name, Kind::Tracepoint(id))
}

fn failure(error: &RawError) -> FailedProbe {
    FailedProbe { probe: format!("sched:{SCHED_SWITCH}"), file: None, reason: reason(error) }
}
