//! One sample: some threads are traced until one of them asks for a chosen lock, and that one is followed.
//!
//! It takes place in a thread of its own. When that ends, the kernel ends the tracing of the other threads without stopping them.

use super::breakpoints::Breakpoint;
use super::descriptors;
use super::follow::{Followed, Follower, Limits};
use super::functions::Functions;
use super::target::{AccessError, refused};
use super::tracee;
use super::tracer::{Awaited, Tracer};
use super::xstate::Layout;
use crate::access::classify::Own;
use crate::access::section::{Abandoned, Section};
use crate::capture::guardian::{self, Guardian};
use crate::capture::maps;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// What all samples have in common.
pub(super) struct Setting<'a> {
    pub(super) pid: u32,
    pub(super) signal: Signal,
    pub(super) functions: &'a Functions,
    /// Where the chosen locks are requested: four functions at most.
    pub(super) entries: &'a [u64],
    /// Stops the thread that asks for a chosen lock.
    pub(super) attempt: BorrowedFd<'a>,
    /// Stops the thread that is followed.
    pub(super) stop: BorrowedFd<'a>,
    pub(super) guardian: &'a Guardian,
    pub(super) limits: Limits,
    pub(super) interrupted: &'a AtomicBool,
}

/// What came of a sample.
#[derive(Default)]
pub(super) struct Sample {
    /// The thread that came, if one did.
    pub(super) tid: Option<i32>,
    /// What it did.
    pub(super) sections: Option<Result<Vec<Section>, Abandoned>>,
    /// For how long it was held up.
    pub(super) held_up: Duration,
    /// Threads that were waited for.
    pub(super) armed: Vec<i32>,
    /// Signals of the threads that were passed on.
    pub(super) passed_on: u64,
    /// Whether no thread of those that were given is there any more.
    pub(super) all_gone: bool,
}

/// Waits for one of these threads, and follows it.
///
/// # Errors
/// When the process cannot be profiled at all.
pub(super) fn take(setting: &Setting<'_>, threads: &[i32], at_most: Duration) -> Result<Sample, AccessError> {
    // Before and after everything else: the guardian takes it for stalled if one of both threads waits for a CPU meanwhile.
    let _prompt = Prompt::be();
    // Until the thread is gone, and with it what it traces.
    let _armed = setting.guardian.armed(guardian::TRACED);
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("access".to_owned());
        let thread = thread.spawn_scoped(scope, || one(setting, threads, at_most));
        let thread = thread.map_err(|source| AccessError::System { what: "no thread for it", source })?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn one(setting: &Setting<'_>, threads: &[i32], at_most: Duration) -> Result<Sample, AccessError> {
    setting.guardian.beat();
    let pid = setting.pid;
    let system = |what| move |source| AccessError::System { what, source };
    // Whoever ends this process ends the breakpoints, and only then the tracing, which keeps off the signals that they may cause.
    descriptors::keep_only(&[setting.attempt, setting.stop]).map_err(system("no descriptors of its own"))?;
    let tracer = Tracer::new(setting.signal as i32, setting.interrupted).map_err(io::Error::from);
    let mut tracer = tracer.map_err(system("no timer for it"))?;
    let mut sample = Sample::default();
    let mut armed = Vec::new();
    let mut gone = 0;
    for &tid in threads {
        match tracer.seize(tid) {
            Ok(()) => {}
            Err(Errno::ESRCH) => {
                gone += 1;
                continue;
            }
            Err(error) => match refused(pid, tid, error) {
                Some(refused) => return Err(refused),
                // It is just exiting, or the first thread that is no more while others go on.
                None => {
                    gone += 1;
                    continue;
                }
            },
        }
        for &entry in setting.entries {
            match Breakpoint::set(tid, entry, setting.attempt) {
                Ok(breakpoint) => armed.push(breakpoint),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => break,
                Err(source) => return Err(AccessError::Breakpoint { pid, source }),
            }
        }
        sample.armed.push(tid);
    }
    sample.all_gone = gone == threads.len();
    let came = tracer.any(Instant::now() + at_most);
    // The others go on at full speed.
    drop(armed);
    if let Awaited::Stopped { tid } = came {
        sample.tid = Some(tid);
        let stopped = Instant::now();
        let followed = follow(setting, &mut tracer, tid);
        if followed.is_stopped {
            // If it is gone, it needs nothing.
            let _ = tracee::detach(tid, followed.signal);
            sample.passed_on += u64::from(followed.signal != 0);
        }
        sample.held_up = stopped.elapsed().saturating_sub(followed.own_time);
        sample.sections = Some(followed.sections);
    }
    sample.passed_on += tracer.passed_on;
    Ok(sample)
}

fn follow(setting: &Setting<'_>, tracer: &mut Tracer<'_>, tid: i32) -> Followed {
    let entry = tracee::registers(tid).map_err(io::Error::from);
    let known = entry.and_then(|entry| Ok((own(tid, entry.sp(), entry.fs_base)?, entry)));
    let Ok((own, entry)) = known else {
        let sections = Err(Abandoned::Exited);
        return Followed { sections, own_time: Duration::ZERO, is_stopped: true, signal: 0 };
    };
    let mut follower = Follower {
        tid,
        tracer,
        functions: setting.functions,
        program: setting.stop,
        layout: Layout::of_this_processor(),
        own,
        limits: setting.limits,
    };
    follower.follow(&entry)
}

/// The memory that a thread has for itself.
fn own(tid: i32, sp: u64, thread_base: u64) -> io::Result<Own> {
    let mappings = maps::read(tid.cast_unsigned())?;
    let stack = mappings.iter().find(|mapping| mapping.range.contains(&sp));
    let of_kernel = |name: &str| name.starts_with("[vvar") || name == "[vdso]" || name == "[vsyscall]";
    Ok(Own {
        stack: stack.map_or(0..0, |mapping| mapping.range.clone()),
        thread_base,
        kernel: mappings.iter().filter(|m| of_kernel(&m.path)).map(|m| m.range.clone()).collect(),
    })
}

/// While this exists, this thread and those that it starts run before all others: a thread that is stopped should not have to wait until they
/// get a CPU.
struct Prompt {
    /// What the thread was scheduled by before; `None` if it has no right to be prompt: it is only slower.
    before: Option<(libc::c_int, libc::sched_param)>,
}

impl Prompt {
    fn be() -> Self {
        let mut before = libc::sched_param { sched_priority: 0 };
        let first = libc::sched_param { sched_priority: 1 };
        // SAFETY: for this thread; all parameters live.
        let (policy, given) = unsafe {
            let policy = libc::sched_getscheduler(0);
            let known = policy >= 0 && libc::sched_getparam(0, &raw mut before) == 0;
            (policy, known && libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const first) == 0)
        };
        Self { before: given.then_some((policy, before)) }
    }
}

impl Drop for Prompt {
    fn drop(&mut self) {
        if let Some((policy, parameters)) = &self.before {
            // SAFETY: for this thread; the parameters live. Back to what it was is always allowed.
            unsafe { libc::sched_setscheduler(0, *policy, parameters) };
        }
    }
}
