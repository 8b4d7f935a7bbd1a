//! From which lock to which one threads went, as the kernel side summed it up.

use crate::id::{Lock, Process, Tid};
use crate::units::{Nanos, Time};
use lockbpf_common::transition::TransitionSums;

/// A transition of one thread. A *visit* of a lock begins when the thread takes it while it holds no other, and ends when it holds
/// none any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The thread's process.
    pub process: Process,
    /// The thread.
    pub tid: Tid,
    /// The lock visited before; `None` if that was not seen.
    pub from: Option<Lock>,
    /// The lock visited; `None` if the thread was not watched any more.
    pub to: Option<Lock>,
    /// When this was first seen.
    pub first: Time,
    /// How often.
    pub count: u64,
    /// Σ time from the end of the visit before to the attempt (or until the thread was not watched any more), but for waits for other
    /// threads at conditions and barriers.
    pub local: Nanos,
    /// Visits that it led to and that have ended.
    pub visits: u64,
    /// Σ of their lengths, without waits inside of them.
    pub hold: Nanos,
    /// The same of visits that a window's end has cut, as far as it was seen.
    pub cut: Nanos,
    /// Σ of the squares of the lengths of those that have ended, ns².
    pub squares: u128,
}

impl From<&TransitionSums> for Transition {
    fn from(sums: &TransitionSums) -> Self {
        let process = Process(sums.key.process);
        let lock = |addr: u64| (addr != 0).then_some(Lock { process, addr });
        Self {
            process,
            tid: Tid(sums.key.tid),
            from: lock(sums.key.from),
            to: lock(sums.key.to),
            first: Time(sums.first_ns),
            count: sums.count,
            local: Nanos(sums.local_ns),
            visits: sums.visits,
            hold: Nanos(sums.hold_ns),
            cut: Nanos(sums.cut_ns),
            squares: sums.squares(),
        }
    }
}
