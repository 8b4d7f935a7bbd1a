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

static TURNS: RwLock<()> = RwLock::new(());

/// The turn of a test that may run beside others, as an observed program runs beside others.
pub(crate) type Turn = RwLockReadGuard<'static, ()>;

/// The turn of a test beside which no other observes, or is observed.
pub(crate) type TurnAlone = RwLockWriteGuard<'static, ()>;

/// Waits until this test may run, if it need not run alone.
pub(crate) fn turn() -> Turn {
    TURNS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until this test may run, and until then lets no other one begin: it measures, or what others observe would be seen by it.
pub(crate) fn turn_alone() -> TurnAlone {
    TURNS.write().unwrap_or_else(PoisonError::into_inner)
}

/// The turn of a test that loads eBPF programs; `None`, with the proof printed, where the rights for it are missing.
pub(crate) fn may_observe() -> Option<Turn> {
    where_possible(turn)
}

/// The same for a test beside which no other observes.
pub(crate) fn may_observe_alone() -> Option<TurnAlone> {
    where_possible(turn_alone)
}

fn where_possible<T>(turn: fn() -> T) -> Option<T> {
    match privilege::lacking() {
        None => Some(turn()),
        Some(proof) => {
            privilege::skipped(&proof);
            None
        }
    }
}
