//! The guardian itself.

use super::page::Page;
use crate::capture::cgroup::leave_all;
use crate::capture::session::now;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::getppid;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::process::ExitCode;
use std::time::Duration;

/// Signals that are not for helpers: they end with the process that they help.
const KEPT_OFF: [Signal; 8] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGPIPE,
    Signal::SIGTSTP,
    Signal::SIGTTIN,
    Signal::SIGTTOU,
];
/// Looks within the strictest limit, and the longest time between two.
const LOOKS: u32 = 7;
const SELDOM: Duration = Duration::from_millis(100);
/// A look that is later than so many times what it should be says that the guardian did not get to run, either.
const LATE: u32 = 3;

/// Whether a process that gave its last sign of life then is to be ended now. A guardian that was not awake all the time starts
/// anew when it wakes: the whole machine may have stood still.
fn is_stalled(now_ns: u64, awake_since_ns: u64, beat_ns: u64, limit_ns: u64) -> bool {
    now_ns.saturating_sub(beat_ns.max(awake_since_ns)) > limit_ns
}

/// Guards the process of this number, which is the parent; the shared page is in place of standard output.
#[must_use]
pub fn run(parent: i32) -> ExitCode {
    match guard(parent) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lockbpf: nobody guards the target against lockbpf being stopped: {error}");
            ExitCode::FAILURE
        }
    }
}

fn guard(parent: i32) -> io::Result<()> {
    let process = match open_process(parent) {
        // Nothing is to be guarded any more.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
        process => process?,
    };
    let page = Page::map(io::stdout().as_fd().try_clone_to_owned()?)?;
    let strict = page.strictest() < Duration::from_millis(500);
    be_prompt(strict);
    for (place, error) in leave_all() {
        log::info!("the guardian shares lockbpf's cgroup {}: {error}", place.display());
    }
    let tick = (page.strictest() / LOOKS).min(SELDOM);
    let mut last = now();
    let mut awake_since = last;
    loop {
        if hears_its_end(tick)? {
            return Ok(());
        }
        let time = now();
        if Duration::from_nanos(time.since(last).0) > tick * LATE {
            awake_since = time;
        }
        last = time;
        if let Some((beat_ns, limit_ns)) = page.expected()
            && is_stalled(time.0, awake_since.0, beat_ns, limit_ns)
        {
            end(&process)?;
            let ms = time.0.saturating_sub(beat_ns) / 1_000_000;
            // Whoever has closed stderr does not want to know.
            use io::Write as _;
            let text = format!(
                "lockbpf: it was stopped, or did not get to run, for {ms} ms while {}; it was ended, so that the target runs on. There is \
                 no report.\n",
                if strict { "a thread of the target depended on it" } else { "its probes were in place" }
            );
            let _ = io::stderr().write_all(text.as_bytes());
            return Ok(());
        }
    }
}

/// Waits; whether the pipe of the guarded process is closed meanwhile.
fn hears_its_end(at_most: Duration) -> io::Result<bool> {
    let stdin = io::stdin();
    let mut pipe = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::MAX);
    match poll(&mut pipe, timeout) {
        Ok(_) => Ok(pipe[0].any().unwrap_or(true)),
        Err(Errno::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Keeps off what is meant for the process that started this one, with which it ends.
pub fn ignore_signals() {
    for kept_off in KEPT_OFF {
        // SAFETY: they are ignored, no handler runs.
        let _ = unsafe { signal(kept_off, SigHandler::SigIgn) };
    }
}

/// A descriptor of the parent (kernel 5.3): its number may be another's later.
///
/// # Errors
/// When it is gone.
pub(in crate::capture) fn open_process(parent: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes a number and flags.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, parent, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned it.
    let process = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    if getppid().as_raw() != parent {
        // The number may be another's.
        return Err(Errno::ESRCH.into());
    }
    Ok(process)
}

/// A signal that also ends who is stopped, or frozen by a cgroup of version 2.
fn end(process: &impl AsFd) -> io::Result<()> {
    let process: BorrowedFd<'_> = process.as_fd();
    let nothing = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: a descriptor of a process, a signal, and no further information.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), libc::SIGKILL, nothing, 0) };
    match Errno::result(result) {
        Ok(_) | Err(Errno::ESRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// It needs next to nothing, but that in time; where a thread of the target depends on it, before all others, as who traces that.
fn be_prompt(strict: bool) {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: for this process; the parameters live.
    if strict && unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) } == 0 {
        return;
    }
    // SAFETY: no memory is passed. Without the right to it, it may be late.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -10) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_was_awake_may_judge() {
        let limit = 1_000;
        assert!(!is_stalled(10_000, 0, 9_500, limit));
        assert!(is_stalled(10_000, 0, 8_999, limit));
        // The last look came late: it waits as long again.
        assert!(!is_stalled(10_000, 9_500, 1_000, limit));
        assert!(is_stalled(10_501, 9_500, 1_000, limit));
        assert!(!is_stalled(10_000, 0, 10_001, limit), "a sign of life since the clock was asked");
    }
}
