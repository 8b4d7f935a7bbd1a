//! Processes whose main thread has ended while others go on: under their own number the kernel then shows neither memory nor files, and
//! what is tied to their memory by the main thread is tied to nothing. A thread that goes on stands in for it.

use crate::proc;
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;

/// Whether no process has this number any more: whoever had it has exited, and its parent knows.
#[must_use]
pub fn is_gone(pid: u32) -> bool {
    clock_getcpuclockid(Pid::from_raw(pid.cast_signed())).is_err()
}

/// Whether a thread is there, and has not ended.
pub(super) fn runs(pid: u32, tid: u32) -> bool {
    let stat = proc::text(format!("/proc/{pid}/task/{tid}/stat")).unwrap_or_default();
    is_running(&stat)
}

/// A thread that goes on, the oldest, where the main thread has ended; `None` while that runs, and of a process that has ended.
#[must_use]
pub fn stand_in(pid: u32) -> Option<u32> {
    find(pid).filter(|&tid| tid != pid)
}

/// The main thread, or the one that stands in for it; `None` of a process that has ended.
#[must_use]
pub fn find(pid: u32) -> Option<u32> {
    if runs(pid, pid) {
        return Some(pid);
    }
    let threads = proc::threads(pid).ok()?;
    threads.into_iter().filter(|&tid| tid != pid && runs(pid, tid)).min()
}

/// The number under which `/proc` shows a process's memory and files.
#[must_use]
pub fn face(pid: u32) -> u32 {
    stand_in(pid).unwrap_or(pid)
}

/// Whether a line of `/proc/PID/stat` is of a thread that has not ended.
fn is_running(stat: &str) -> bool {
    // A name may have any character in it.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X' | 'x'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_behind_names() {
        assert!(is_running("7 (a) Z b) S 1 7 7"));
        assert!(!is_running("7 (a) Z 1 7 7"));
        assert!(!is_running("7 (a) X 1 7 7"));
        assert!(!is_running(""));
    }

    #[test]
    fn nobody_stands_in_for_a_main_thread_that_runs() {
        let pid = std::process::id();
        assert!(runs(pid, pid));
        assert_eq!((stand_in(pid), find(pid), face(pid)), (None, Some(pid), pid));
        assert_eq!((find(u32::MAX), runs(u32::MAX, u32::MAX)), (None, false));
        assert!(!is_gone(pid) && is_gone(1 << 25));
    }
}
