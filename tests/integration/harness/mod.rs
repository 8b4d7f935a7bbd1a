//! What the suites share: workloads that print their own truth, lockbpf run as a user runs it, and the checks that hold
//! for every report.

pub(crate) mod agent;
pub(crate) mod browser;
pub(crate) mod build;
pub(crate) mod capture;
pub(crate) mod cgroup;
pub(crate) mod collector;
pub(crate) mod estimates;
pub(crate) mod exact;
pub(crate) mod go;
pub(crate) mod observer;
pub(crate) mod privilege;
pub(crate) mod process;
pub(crate) mod python;
pub(crate) mod report;
pub(crate) mod text;
pub(crate) mod tmux;
pub(crate) mod tracefs;
pub(crate) mod workload;

use std::sync::{Mutex, MutexGuard, PoisonError};

static TURN: Mutex<()> = Mutex::new(());

/// One test at a time: an observation of one would slow down and be seen by another.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The turn of a test that loads eBPF programs; `None`, with the proof printed, where the rights for it are missing.
pub(crate) fn may_observe() -> Option<MutexGuard<'static, ()>> {
    match privilege::lacking() {
        None => Some(turn()),
        Some(proof) => {
            privilege::skipped(&proof);
            None
        }
    }
}
