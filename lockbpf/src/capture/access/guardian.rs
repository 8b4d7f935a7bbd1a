//! A process that outlives this one: if this one is killed while a thread of the target is kept on one CPU, it lets the thread run
//! where it was allowed to before.

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::Pid;
#[cfg(target_arch = "x86_64")]
use nix::unistd::setsid;
use std::io::{self, BufRead};
use std::process::ExitCode;
#[cfg(target_arch = "x86_64")]
use std::{
    io::Write,
    os::unix::process::CommandExt,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Mutex, PoisonError},
};

/// The subcommand that the process is.
pub const COMMAND: &str = "access-guardian";

/// The other end of that process.
#[cfg(target_arch = "x86_64")]
pub(super) struct Guardian {
    child: Child,
    to: Mutex<Option<ChildStdin>>,
}

#[cfg(target_arch = "x86_64")]
impl Guardian {
    /// Starts it.
    ///
    /// # Errors
    /// When this program cannot be started once more.
    pub(super) fn start() -> io::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.arg(COMMAND).stdin(Stdio::piped()).stdout(Stdio::null());
        // What is meant for this process's group is not meant for it.
        // SAFETY: setsid is async-signal-safe, which is all that may run between fork and exec.
        unsafe { command.pre_exec(|| setsid().map(drop).map_err(io::Error::from)) };
        let mut child = command.spawn()?;
        let to = Mutex::new(child.stdin.take());
        Ok(Self { child, to })
    }

    /// From now on the thread may be kept on one CPU; before, it may run on these. `None` if the guardian is gone.
    pub(super) fn remember(&self, tid: i32, before: &CpuSet) -> Option<()> {
        let cpus: Vec<String> =
            (0..CpuSet::count()).filter(|&cpu| before.is_set(cpu) == Ok(true)).map(|cpu| cpu.to_string()).collect();
        self.tell(&format!("{tid} {} {}\n", start(tid)?, cpus.join(",")))
    }

    /// It is restored.
    pub(super) fn forget(&self) {
        // If it is gone, the next thread is not pinned.
        let _ = self.tell("\n");
    }

    fn tell(&self, line: &str) -> Option<()> {
        let mut to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        to.as_mut()?.write_all(line.as_bytes()).ok()
    }
}

#[cfg(target_arch = "x86_64")]
impl Drop for Guardian {
    fn drop(&mut self) {
        self.to.lock().unwrap_or_else(PoisonError::into_inner).take();
        // It ends with its input.
        let _ = self.child.wait();
    }
}

/// What tells a thread from a later one of the same number.
fn start(tid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// The process itself: ends with its input.
#[must_use]
pub fn run() -> ExitCode {
    for kept_off in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGPIPE] {
        // SAFETY: they are ignored, no handler runs.
        let _ = unsafe { signal(kept_off, SigHandler::SigIgn) };
    }
    let mut last = String::new();
    for line in io::stdin().lock().lines() {
        match line {
            Ok(line) => last = line,
            Err(_) => break,
        }
    }
    restore(&last);
    ExitCode::SUCCESS
}

/// Does what the last line asks for; an empty one asks for nothing.
fn restore(line: &str) -> Option<()> {
    let mut words = line.split_whitespace();
    let tid: i32 = words.next()?.parse().ok()?;
    let began: u64 = words.next()?.parse().ok()?;
    let mut cpus = CpuSet::new();
    for cpu in words.next()?.split(',') {
        cpus.set(cpu.parse().ok()?).ok()?;
    }
    if start(tid)? != began {
        return None;
    }
    sched_setaffinity(Pid::from_raw(tid), &cpus).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sched::sched_getaffinity;
    use nix::unistd::gettid;

    #[test]
    fn a_thread_may_run_again_where_it_might() {
        let tid = gettid();
        let before = sched_getaffinity(tid).unwrap();
        let all: Vec<String> =
            (0..CpuSet::count()).filter(|&cpu| before.is_set(cpu).unwrap()).map(|cpu| cpu.to_string()).collect();
        let mut one = CpuSet::new();
        one.set(all[0].parse().unwrap()).unwrap();
        sched_setaffinity(tid, &one).unwrap();
        let began = start(tid.as_raw()).unwrap();
        for nothing in ["".to_owned(), "x".to_owned(), format!("{tid} {} {}", began + 1, all.join(","))] {
            assert_eq!(restore(&nothing), None);
            assert_eq!(sched_getaffinity(tid).unwrap(), one);
        }
        assert_eq!(restore(&format!("{tid} {began} {}", all.join(","))), Some(()));
        assert_eq!(sched_getaffinity(tid).unwrap(), before);
    }
}
