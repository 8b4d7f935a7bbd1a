//! Waiting for the threads that a tracing thread traces: what is not its own business goes on as if nobody traced.

use super::tracee::{self, Stop};
use crate::capture::{guardian, suspend};
use nix::errno::Errno;
use nix::sys::signal::{SaFlags, SigAction, SigEvent, SigHandler, SigSet, SigevNotify, Signal, sigaction};
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;
use nix::unistd::gettid;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a wait looks at the time.
const TICK: Duration = Duration::from_millis(5);

/// What became of a wait for one of some threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// A thread has stopped because a program in the kernel wanted it.
    Stopped {
        /// Which thread.
        tid: i32,
    },
    /// The thread that was waited for is about to receive another signal.
    Signal(i32),
    /// It has ended.
    Ended,
    /// It stops with its whole process.
    Group,
    /// The time is over.
    TimedOut,
    /// The user wants this process to be stopped.
    Suspended,
}

/// The traced threads of this thread.
pub(super) struct Tracer<'a> {
    /// The signal by which programs stop threads.
    signal: i32,
    traced: HashSet<i32>,
    /// Signals of the threads' own that were passed on.
    pub(super) passed_on: u64,
    interrupted: &'a AtomicBool,
    _timer: Timer,
}

/// Lets waits look at the time, and the guardian know that the thread which traces gets to run. For the whole process, once.
///
/// # Errors
/// When the kernel refuses.
pub(super) fn install_tick() -> nix::Result<()> {
    extern "C" fn beat(_signal: libc::c_int) {
        guardian::beat_in_handler();
    }
    let action = SigAction::new(SigHandler::Handler(beat), SaFlags::empty(), SigSet::empty());
    // SAFETY: what the handler does is async-signal-safe.
    unsafe { sigaction(Signal::SIGALRM, &action) }.map(drop)
}

impl<'a> Tracer<'a> {
    /// Traces nobody yet.
    ///
    /// # Errors
    /// When the kernel has no timer for it.
    pub(super) fn new(signal: i32, interrupted: &'a AtomicBool) -> nix::Result<Self> {
        let notify = SigevNotify::SigevThreadId { signal: Signal::SIGALRM, thread_id: gettid().as_raw(), si_value: 0 };
        let mut timer = Timer::new(ClockId::CLOCK_MONOTONIC, SigEvent::new(notify))?;
        timer.set(Expiration::Interval(TICK.into()), TimerSetTimeFlags::empty())?;
        Ok(Self { signal, traced: HashSet::new(), passed_on: 0, interrupted, _timer: timer })
    }

    /// Traces a thread, too.
    ///
    /// # Errors
    /// When the kernel does not allow it.
    pub(super) fn seize(&mut self, tid: i32) -> nix::Result<()> {
        tracee::seize(tid)?;
        self.traced.insert(tid);
        Ok(())
    }

    /// Whether the user wants an end, or this process to be stopped.
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed) || suspend::asked()
    }

    /// Waits until a program stops a thread; all other signals go where they should.
    pub(super) fn any(&mut self, deadline: Instant) -> Awaited {
        self.wait(None, deadline)
    }

    /// Waits for one thread; of the others all signals go where they should.
    pub(super) fn one(&mut self, tid: i32, deadline: Instant) -> Awaited {
        self.wait(Some(tid), deadline)
    }

    fn wait(&mut self, only: Option<i32>, deadline: Instant) -> Awaited {
        loop {
            let stop = match tracee::wait(false) {
                Ok(stop) => stop,
                Err(Errno::EINTR) => {
                    if suspend::asked() {
                        return Awaited::Suspended;
                    }
                    if tracee::is_over(deadline) || only.is_none() && self.is_interrupted() {
                        return Awaited::TimedOut;
                    }
                    continue;
                }
                // Nobody is left.
                Err(_) => return Awaited::Ended,
            };
            match stop {
                Stop::Signal { tid, signal } if signal == self.signal && tracee::is_from_kernel(tid) => {
                    if only.is_none_or(|only| only == tid) {
                        return Awaited::Stopped { tid };
                    }
                    self.go_on(tid, 0);
                }
                Stop::Signal { tid, signal: libc::SIGTRAP } if tracee::is_stray_trap(tid) => self.go_on(tid, 0),
                Stop::Signal { tid, signal } if only == Some(tid) => return Awaited::Signal(signal),
                Stop::Signal { tid, signal } => {
                    self.passed_on += 1;
                    self.go_on(tid, signal);
                }
                Stop::Group { tid } if only == Some(tid) => return Awaited::Group,
                Stop::Group { tid } => {
                    // If it is gone, its end is told by the next wait.
                    let _ = tracee::listen(tid);
                }
                Stop::Other { tid } => self.go_on(tid, 0),
                Stop::Ended { tid } => {
                    self.traced.remove(&tid);
                    if only == Some(tid) || self.traced.is_empty() {
                        return Awaited::Ended;
                    }
                }
                Stop::Nothing => {}
            }
        }
    }

    fn go_on(&self, tid: i32, signal: i32) {
        // If it is gone, its end is told by the next wait.
        let _ = tracee::resume(tid, signal);
    }
}
