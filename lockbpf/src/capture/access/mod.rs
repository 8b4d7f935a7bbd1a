//! The access profiler: follows threads of a running process through sampled critical sections, and harms nobody.
//!
//! A thread is stopped where [`crate::access::walk`] wants it, by a breakpoint of the processor. A program in the kernel then sends it
//! a signal that means nothing to it, which ptrace turns into a stop. Both the breakpoints and the tracing belong to one thread of this
//! process: when it dies, at whatever moment, the kernel removes the breakpoints first, then lets the traced thread go, and the signal,
//! if one is on its way, is ignored. Single-stepping by ptrace has no such end: the processor's flag for it stays set, and the next
//! instruction kills the thread.
//!
//! Only threads that a sample waits for are traced, and only until one of them has come.

#[cfg(target_arch = "x86_64")]
mod breakpoints;
#[cfg(target_arch = "x86_64")]
mod descriptors;
#[cfg(target_arch = "x86_64")]
mod follow;
#[cfg(target_arch = "x86_64")]
mod functions;
#[cfg(target_arch = "x86_64")]
mod memory;
#[cfg(target_arch = "x86_64")]
mod pace;
#[cfg(target_arch = "x86_64")]
mod pin;
#[cfg(target_arch = "x86_64")]
mod profile;
#[cfg(target_arch = "x86_64")]
mod sample;
mod signals;
mod target;
#[cfg(target_arch = "x86_64")]
mod tracee;
#[cfg(target_arch = "x86_64")]
mod tracer;
#[cfg(target_arch = "x86_64")]
mod xstate;

#[cfg(target_arch = "x86_64")]
pub use profile::profile;
pub use target::AccessError;

use crate::access::section::{Abandoned, Section};
use crate::governor::Budget;
use lockbpf_common::via::Via;
use std::collections::BTreeMap;
use std::time::Duration;

/// What to sample.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The process.
    pub pid: u32,
    /// Locks, and by which calls they are requested.
    pub locks: Vec<(u64, Vec<Via>)>,
    /// Sections of each lock.
    pub samples: u64,
    /// Share of the threads' time for which they may be held up.
    pub budget: Budget,
    /// Threads that are known to use locks.
    pub threads: usize,
    /// Longest duration of the pass.
    pub at_most: Duration,
    /// Instructions that a section is followed over.
    pub instructions: u64,
}

/// What a pass yielded.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// Sections, in the order of acquisition; nested ones after the one that they are in.
    pub sections: Vec<Section>,
    /// Sections begun, but not recorded.
    pub abandoned: BTreeMap<Abandoned, u64>,
    /// Times that nobody asked for a chosen lock while it was waited for.
    pub nobody: u64,
    /// Attempts on chosen locks that were seen, the sampled ones included.
    pub seen: u64,
    /// Stops that the kernel did not make.
    pub refused: u64,
    /// Signals of the process that were passed on to it.
    pub passed_on: u64,
    /// Threads that were never waited for, since they block the signal that stops.
    pub blocking: usize,
    /// For how long threads were held up, in all.
    pub held_up: Duration,
    /// Duration of the pass.
    pub duration: Duration,
    /// Threads that use locks, as far as is known by now.
    pub threads: usize,
    /// Share of the duration that the budget allowed for it.
    pub allowed: f64,
    /// How it ended.
    pub end: PassEnd,
}

/// How a pass ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PassEnd {
    /// With all the samples that were asked for.
    #[default]
    Complete,
    /// Its time was over.
    Time,
    /// By the user.
    Interrupted,
    /// The process exited.
    Exited,
    /// The process has taken a handler for the signal that stops its threads.
    SignalTaken,
}

/// Checks whether the accesses of a process can be profiled.
///
/// # Errors
/// When not, with what the user can do.
pub fn check(pid: u32) -> Result<(), AccessError> {
    if cfg!(target_arch = "x86_64") { target::check(pid).map(drop) } else { Err(AccessError::Processor) }
}

/// Profiles the accesses of a process.
///
/// # Errors
/// Always: this processor's instructions are not followed yet.
#[cfg(not(target_arch = "x86_64"))]
pub fn profile(_wanted: &Wanted) -> Result<Profile, AccessError> {
    Err(AccessError::Processor)
}
