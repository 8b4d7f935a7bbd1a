//! Per-thread and per-lock machines: steps in order of time in, dynamic critical sections out, with explicit unknown
//! states, since a recording starts and ends in the middle. Impossible transitions are counted by kind, never hidden.
#![forbid(unsafe_code)]

use crate::id::{Lock, Process, Site, StackId, Tid};
use crate::op::{Failure, LockKind, Released};
use crate::units::Time;

/// One dynamic critical section: an attempt, what became of it, and the release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance {
    /// d1, d2, …: 1 for the first attempt of the recording. An attempt that fails keeps its number.
    pub number: u64,
    /// The thread.
    pub tid: Tid,
    /// Its process.
    pub process: Process,
    /// The lock.
    pub lock: Lock,
    /// Sort of lock.
    pub kind: LockKind,
    /// Static critical section; `None` if the attempt was before the recording.
    pub site: Option<Site>,
    /// Whether it is a shared (read) acquisition.
    pub shared: bool,
    /// Whether the thread waited for a holder.
    pub contended: bool,
    /// `None` if it was before the recording.
    pub attempt: Option<Time>,
    /// `None` if it was before the recording, or not (yet) obtained.
    pub acquire: Option<Time>,
    /// Stack at the attempt.
    pub stack: Option<StackId>,
}

/// Follows the machines: what the totals and the wait graph are built from.
pub trait Observer {
    /// A lock was acquired; the instance has its `acquire`.
    fn acquired(&mut self, _instance: &Instance) {}
    /// A section ended. `acquire` is `None` only if that was before the recording.
    fn released(&mut self, instance: &Instance, at: Time, how: Released);
    /// An attempt failed.
    fn failed(&mut self, instance: &Instance, at: Time, how: Failure);
}
