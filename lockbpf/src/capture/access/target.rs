//! Whether a process can be profiled, and if not, what the user can do.

use super::signals::{self, Signals};
use crate::proc;
use crate::untrusted::shown_bytes;
#[cfg(target_arch = "x86_64")]
use nix::errno::Errno;
use nix::sys::signal::Signal;
use std::fs;
use std::io;
use std::time::Duration;

/// How often a process's signals are looked at: while a thread is created, or exits, it blocks them all for a moment.
const LOOKS: u32 = 5;
/// Time between two looks.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Why the accesses of a process are not profiled.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// Only on x86-64 so far.
    #[error("failed to profile accesses: on this processor lockbpf cannot do that yet, only on x86-64")]
    Processor,
    /// Another tracer.
    #[error(
        "failed to profile pid {pid}: thread {tid} is being traced by process {tracer} ({name}), and a thread has one tracer only; \
         end that, or wait for it"
    )]
    Traced {
        /// The process.
        pid: u32,
        /// Its thread.
        tid: i32,
        /// Who traces it.
        tracer: i32,
        /// Its name.
        name: String,
    },
    /// The kernel does not let this process trace it.
    #[error("failed to profile pid {pid}: the kernel does not let it be traced ({source}){remedy}")]
    NotPermitted {
        /// The process.
        pid: u32,
        /// Why.
        #[source]
        source: io::Error,
        /// What the user can do.
        remedy: String,
    },
    /// No signal is left.
    #[error(
        "failed to profile pid {pid}: each of its threads blocks or catches both SIGURG and SIGWINCH, one of which must mean nothing to \
         a thread that is stopped by it"
    )]
    NoSignal {
        /// The process.
        pid: u32,
    },
    /// No pthread function in memory.
    #[error(
        "failed to profile pid {pid}: none of the C library's lock functions was found in its memory; only sections of pthread mutexes, \
         read-write locks and spin locks can be followed"
    )]
    NoFunctions {
        /// The process.
        pid: u32,
    },
    /// Breakpoints.
    #[error(
        "failed to profile pid {pid}: the kernel refuses a breakpoint ({source}); the processor has four, which a debugger or another \
         profiler may have taken"
    )]
    Breakpoint {
        /// The process.
        pid: u32,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is gone.
    #[error("failed to profile pid {pid}: it has exited")]
    Gone {
        /// The process.
        pid: u32,
    },
    /// Something that has nothing to do with the process.
    #[error("failed to profile accesses: {what}: {source}")]
    System {
        /// What failed.
        what: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The kernel side.
    #[error(transparent)]
    Capture(#[from] crate::capture::CaptureError),
}

/// Threads of a process.
pub(super) fn threads(pid: u32) -> Vec<i32> {
    proc::threads(pid).unwrap_or_default().into_iter().map(u32::cast_signed).collect()
}

/// Checks a process, and chooses the signal by which its threads are stopped.
///
/// # Errors
/// When it cannot be profiled.
pub(super) fn check(pid: u32) -> Result<Signal, AccessError> {
    for look in 0..LOOKS {
        if look > 0 {
            std::thread::sleep(BETWEEN_LOOKS);
        }
        let threads = threads(pid);
        if let Some(traced) = threads.iter().find_map(|&tid| traced(pid, tid)) {
            return Err(traced);
        }
        let known: Vec<Signals> = threads.iter().filter_map(|&tid| Signals::of(pid.cast_signed(), tid)).collect();
        if known.is_empty() {
            return Err(AccessError::Gone { pid });
        }
        if let Some(signal) = signals::choose(&known) {
            return Ok(signal);
        }
    }
    Err(AccessError::NoSignal { pid })
}

/// The error that it is, if a thread has a tracer.
fn traced(pid: u32, tid: i32) -> Option<AccessError> {
    let tracer = field(pid, tid, "TracerPid")?.parse().ok().filter(|&tracer: &i32| tracer != 0)?;
    let name = shown_bytes(proc::read(format!("/proc/{tracer}/comm")).unwrap_or_default().trim_ascii_end());
    Some(AccessError::Traced { pid, tid, tracer, name })
}

fn field(pid: u32, tid: i32, key: &str) -> Option<String> {
    let status = proc::text(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    Some(line.trim().to_owned())
}

/// What it means that a thread may not be traced; `None` if it has ended.
#[cfg(target_arch = "x86_64")]
pub(super) fn refused(pid: u32, tid: i32, error: Errno) -> Option<AccessError> {
    if field(pid, tid, "State")?.starts_with(['Z', 'X']) {
        return None;
    }
    if let Some(traced) = traced(pid, tid) {
        return Some(traced);
    }
    let yama = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let remedy = match yama.trim() {
        "1" | "2" => {
            format!("; kernel.yama.ptrace_scope is {}: that needs CAP_SYS_PTRACE, run lockbpf with sudo", yama.trim())
        }
        "3" => "; kernel.yama.ptrace_scope is 3: nobody may trace until the machine is booted without it".to_owned(),
        _ => "; run lockbpf with sudo, in a container with --cap-add SYS_PTRACE".to_owned(),
    };
    Some(AccessError::NotPermitted { pid, source: error.into(), remedy })
}
