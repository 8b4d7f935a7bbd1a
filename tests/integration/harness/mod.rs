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

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static TURN: RwLock<()> = RwLock::new(());

/// While this exists, no test observes that could be disturbed by this one.
pub(crate) enum Turn {
    /// None at all.
    Alone(#[expect(dead_code, reason = "held until it is dropped")] RwLockWriteGuard<'static, ()>),
    /// None that observes more than its own processes, or compares speeds.
    Beside(#[expect(dead_code, reason = "held until it is dropped")] RwLockReadGuard<'static, ()>),
}

/// One test at a time: an observation of one would slow down, or be seen by, another.
pub(crate) fn turn() -> Turn {
    Turn::Alone(TURN.write().unwrap_or_else(PoisonError::into_inner))
}

/// The turn of a test that loads eBPF programs; `None`, with the proof printed, where the rights for it are missing.
pub(crate) fn may_observe() -> Option<Turn> {
    with_rights(turn)
}

/// The same for a test that observes processes of its own only, and compares counts, not speeds: others of the kind may run beside it.
pub(crate) fn may_observe_beside_others() -> Option<Turn> {
    with_rights(|| Turn::Beside(TURN.read().unwrap_or_else(PoisonError::into_inner)))
}

fn with_rights(turn: impl FnOnce() -> Turn) -> Option<Turn> {
    match privilege::lacking() {
        None => Some(turn()),
        Some(proof) => {
            privilege::skipped(&proof);
            None
        }
    }
}
