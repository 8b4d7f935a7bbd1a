//! What the suites share: workloads that print their own truth, lockbpf run as a user runs it, and the checks that hold
//! for every report.

pub(crate) mod agent;
pub(crate) mod browser;
pub(crate) mod build;
pub(crate) mod capture;
pub(crate) mod cgroup;
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

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static TURN: RwLock<()> = RwLock::new(());

/// Nothing beside it: an observation of one test would slow down and be seen by another.
pub(crate) fn turn() -> RwLockWriteGuard<'static, ()> {
    TURN.write().unwrap_or_else(PoisonError::into_inner)
}

/// Beside others that say so, too: what the test observes is its own process only, and it holds on a busy machine.
pub(crate) fn turn_beside() -> RwLockReadGuard<'static, ()> {
    TURN.read().unwrap_or_else(PoisonError::into_inner)
}

/// The turn of a test that loads eBPF programs; `None`, with the proof printed, where the rights for it are missing.
pub(crate) fn may_observe() -> Option<RwLockWriteGuard<'static, ()>> {
    is_permitted().then(turn)
}

/// The same [beside others](turn_beside).
pub(crate) fn may_observe_beside() -> Option<RwLockReadGuard<'static, ()>> {
    is_permitted().then(turn_beside)
}

fn is_permitted() -> bool {
    let lacking = privilege::lacking();
    if let Some(proof) = &lacking {
        privilege::skipped(proof);
    }
    lacking.is_none()
}
