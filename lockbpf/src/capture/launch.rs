//! Starting a command so that its probes are in place before its first instruction: the child stops at exec under
//! ptrace, and is let go, untraced, once the probes are there. If lockbpf dies in between, the kernel kills it.

use super::user::User;
use crate::rights;
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The command that runs, has not been waited for and was not asked to end.
static RUNNING: Mutex<Option<Pid>> = Mutex::new(None);
/// Commands that did not end when they were asked to.
static LEAVING: Mutex<Vec<Launched>> = Mutex::new(Vec::new());
/// For so long a command may take to end before its results are told without it, and before it is said to go on.
const TIDY: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(1);
/// How often it is looked whether it has ended.
const LOOK: Duration = Duration::from_millis(5);

/// Why a command could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// It could not be executed.
    #[error("failed to start {command}{}", as_whom(user))]
    Spawn {
        /// The command.
        command: String,
        /// As whom, if somebody was named.
        user: Option<String>,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It did not stop at its exec.
    #[error("failed to stop {command} at its start")]
    Stop {
        /// The command.
        command: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

fn as_whom(user: &Option<String>) -> String {
    user.as_ref().map_or_else(String::new, |user| format!(" as {user}"))
}

/// How a command is started, and ended.
#[derive(Clone, Debug, Default)]
pub struct How {
    /// It reads nothing, and what it writes to standard output is dropped.
    pub silent: bool,
    /// What it writes goes there, and it reads nothing.
    pub output: Option<Arc<File>>,
    /// As whom it runs; `None` for the user who runs this program.
    pub user: Option<User>,
    /// When it is killed if it does not end by itself; `None` for never.
    pub kill_after: Option<Duration>,
}

/// A command that was started by lockbpf. If dropped, it is killed if it was not let go yet, and asked to end if it was.
#[derive(Debug)]
pub struct Launched {
    child: Child,
    command: String,
    stopped: bool,
    kill_after: Option<Duration>,
    /// When it was asked to end.
    asked: Option<Instant>,
}

impl Launched {
    /// Starts a command and stops it right after its exec. Must be let go by the same thread.
    ///
    /// # Errors
    /// When it cannot be executed, or does not stop.
    pub fn stopped(command: &[OsString], how: &How) -> Result<Self, LaunchError> {
        let name = command.first().map(|c| c.to_string_lossy().into_owned()).unwrap_or_default();
        let mut child = Command::new(command.first().cloned().unwrap_or_default());
        child.args(command.iter().skip(1));
        if how.silent {
            child.stdin(Stdio::null()).stdout(Stdio::null());
        }
        if let Some(output) = &how.output {
            let to = || output.try_clone().map_or_else(|_| Stdio::null(), Stdio::from);
            child.stdin(Stdio::null()).stdout(to()).stderr(to());
        }
        if let Some(user) = &how.user {
            user.apply(&mut child);
        }
        // SAFETY: ptrace(PTRACE_TRACEME) is async-signal-safe, which is all that may run between fork and exec.
        unsafe { child.pre_exec(|| ptrace::traceme().map_err(io::Error::from)) };
        // A command that changes its user may do so while it is traced only by who has the right to trace others.
        let child = rights::reach(|| child.spawn()).map_err(|source| LaunchError::Spawn {
            command: name.clone(),
            user: how.user.as_ref().map(|user| user.name().to_owned()),
            source,
        })?;
        let launched = Self { child, command: name, stopped: true, kill_after: how.kill_after, asked: None };
        match waitpid(launched.pid(), Some(WaitPidFlag::__WALL)) {
            Ok(WaitStatus::Stopped(_, Signal::SIGTRAP)) => {}
            Ok(other) => return Err(launched.stop_error(io::Error::other(format!("{other:?}")))),
            Err(errno) => return Err(launched.stop_error(errno.into())),
        }
        let options = ptrace::Options::PTRACE_O_EXITKILL;
        ptrace::setoptions(launched.pid(), options).map_err(|errno| launched.stop_error(errno.into()))?;
        Ok(launched)
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Lets it run, no longer traced.
    ///
    /// # Errors
    /// When it is gone.
    pub fn release(&mut self) -> Result<(), LaunchError> {
        ptrace::detach(self.pid(), None).map_err(|errno| self.stop_error(errno.into()))?;
        self.stopped = false;
        *running() = Some(self.pid());
        Ok(())
    }

    /// Its exit status, once it has exited.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        let mut running = running();
        let status = self.child.try_wait().ok().flatten();
        if status.is_some() {
            // Its number may soon be another's.
            *running = None;
        }
        status
    }

    /// Asks it to end if it still runs, as a terminal would: it was started for this observation. One that does not end at once is left to
    /// [`see_off`]. Returns how it ended by itself.
    pub fn end(mut self) -> Option<ExitStatus> {
        let status = self.exited();
        if status.is_none() && !self.stopped {
            ask_to_end();
            self.asked = Some(Instant::now());
            if !self.ends_by(TIDY) {
                LEAVING.lock().unwrap_or_else(PoisonError::into_inner).push(self);
            }
        }
        status
    }

    /// Waits for its end until so long after it was asked to. Returns whether it has ended.
    fn ends_by(&mut self, limit: Duration) -> bool {
        let asked = self.asked.unwrap_or_else(Instant::now);
        loop {
            if self.exited().is_some() {
                return true;
            }
            let left = limit.saturating_sub(asked.elapsed());
            if left.is_zero() {
                return false;
            }
            thread::sleep(left.min(LOOK));
        }
    }

    fn kill(&mut self) {
        // Both fail only if it has exited, which is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    fn stop_error(&self, source: io::Error) -> LaunchError {
        LaunchError::Stop { command: self.command.clone(), source }
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        if self.stopped {
            // It never ran an instruction of its own program.
            self.kill();
        } else if self.asked.is_none() {
            ask_to_end();
        }
    }
}

fn running() -> MutexGuard<'static, Option<Pid>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks the command that runs to end, if it was not asked before.
pub fn ask_to_end() {
    if let Some(pid) = running().take() {
        // It may be gone by now, which is what is wanted.
        let _ = kill(pid, Signal::SIGTERM);
    }
}

/// Waits for commands that were asked to end, and kills them if and when that was asked for. Of those that go on `tell` is called with a
/// sentence. To be called before the program ends, when all has been printed.
pub fn see_off(tell: impl Fn(&str)) {
    for mut command in std::mem::take(&mut *LEAVING.lock().unwrap_or_else(PoisonError::into_inner)) {
        if command.ends_by(command.kill_after.unwrap_or(PATIENCE)) {
            continue;
        }
        let (name, pid) = (&command.command, command.pid());
        match command.kill_after {
            Some(_) => {
                tell(&format!("{name} (pid {pid}) did not end at SIGTERM: it is killed"));
                command.kill();
            }
            None => tell(&format!("{name} (pid {pid}) did not end at SIGTERM, and goes on: see --kill-after")),
        }
    }
}
