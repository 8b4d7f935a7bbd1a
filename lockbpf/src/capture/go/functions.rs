//! Which functions of Go's library are probed. Adding one is adding a row.

use crate::capture::probe_table::{By, Function, Runtime};
use lockbpf_common::function::{
    GO_LOCK_SLOW, GO_LOCKED, GO_SLEEP, GO_WAIT_ANY, GO_WAIT_READ, GO_WAIT_WRITE, GO_WAITED, GO_WAKE, GO_WRITE_LOCK,
};

/// Where in a function a row's probes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// Where it begins.
    Entry,
    /// Where it ends.
    Exits,
    /// Where it begins, in programs that lack a function which newer releases have for this.
    EntryBefore(&'static str),
    /// Where it ends, likewise.
    ExitsBefore(&'static str),
}

const READERS_OWN: &str = "sync.runtime_SemacquireRWMutexR";
const WRITERS_OWN: &str = "sync.runtime_SemacquireRWMutex";

/// Every probed function. `internal/sync` is where the mutex is from Go 1.24 on. Until 1.19 readers and writers of read-write
/// locks wait as a mutex's lockers do.
pub(super) const FUNCTIONS: &[(Function, At)] = &[
    row("internal/sync.(*Mutex).lockSlow", GO_LOCK_SLOW, At::Entry),
    row("internal/sync.(*Mutex).lockSlow", GO_LOCKED, At::Exits),
    row("sync.(*Mutex).lockSlow", GO_LOCK_SLOW, At::Entry),
    row("sync.(*Mutex).lockSlow", GO_LOCKED, At::Exits),
    row("sync.(*RWMutex).Lock", GO_WRITE_LOCK, At::Entry),
    row(READERS_OWN, GO_WAIT_READ, At::Entry),
    row(READERS_OWN, GO_WAITED, At::Exits),
    row(WRITERS_OWN, GO_WAIT_WRITE, At::Entry),
    row(WRITERS_OWN, GO_WAITED, At::Exits),
    row("sync.runtime_SemacquireMutex", GO_WAIT_ANY, At::EntryBefore(READERS_OWN)),
    row("sync.runtime_SemacquireMutex", GO_WAITED, At::ExitsBefore(READERS_OWN)),
    row("internal/sync.runtime_Semrelease", GO_WAKE, At::Entry),
    row("sync.runtime_Semrelease", GO_WAKE, At::Entry),
    row("time.Sleep", GO_SLEEP, At::Entry),
];

/// The probed functions, in the order of the rows.
pub(in crate::capture) fn rows() -> impl ExactSizeIterator<Item = Function> {
    FUNCTIONS.iter().map(|(function, _)| *function)
}

const fn row(symbol: &'static str, code: u64, at: At) -> (Function, At) {
    let essential = code == GO_LOCK_SLOW;
    (Function { symbol, runtime: Runtime::Go, args: 1, code, by: By::Go, essential }, at)
}

/// Whether a row is one of a function's end.
pub(super) fn ends(function: &Function) -> bool {
    matches!(function.code, GO_LOCKED | GO_WAITED)
}
