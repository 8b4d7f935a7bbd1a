//! Starting a command so that its probes are in place before its first instruction: the child stops at exec under
//! ptrace, and is let go, untraced, once the probes are there. If lockbpf dies in between, the kernel lets it go.

use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};

/// Why a command could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// It could not be executed.
    #[error("failed to start {command}")]
    Spawn {
        /// The command.
        command: String,
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

/// A command that was started by lockbpf. Killed if dropped before it was let go.
#[derive(Debug)]
pub struct Launched {
    child: Child,
    command: String,
    stopped: bool,
}

impl Launched {
    /// Starts a command and stops it right after its exec. Must be let go by the same thread. A `silent` one reads
    /// nothing, and what it writes to standard output is dropped.
    ///
    /// # Errors
    /// When it cannot be executed, or does not stop.
    pub fn stopped(command: &[OsString], silent: bool) -> Result<Self, LaunchError> {
        let name = command.first().map(|c| c.to_string_lossy().into_owned()).unwrap_or_default();
        let mut child = Command::new(command.first().cloned().unwrap_or_default());
        child.args(command.iter().skip(1));
        if silent {
            child.stdin(Stdio::null()).stdout(Stdio::null());
        }
        // SAFETY: ptrace(PTRACE_TRACEME) is async-signal-safe, which is all that may run between fork and exec.
        unsafe { child.pre_exec(|| ptrace::traceme().map_err(io::Error::from)) };
        let child = child.spawn().map_err(|source| LaunchError::Spawn { command: name.clone(), source })?;
        let launched = Self { child, command: name, stopped: true };
        match waitpid(launched.pid(), Some(WaitPidFlag::__WALL)) {
            Ok(WaitStatus::Stopped(_, Signal::SIGTRAP)) => Ok(launched),
            Ok(other) => Err(launched.stop_error(io::Error::other(format!("{other:?}")))),
            Err(errno) => Err(launched.stop_error(errno.into())),
        }
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
        Ok(())
    }

    /// Its exit status, once it has exited.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Ends it if it still runs, as a terminal would: it was started for this observation. Returns how it ended by itself.
    pub fn end(&mut self) -> Option<ExitStatus> {
        let status = self.exited();
        if status.is_none() {
            // It may be gone by now, which is what is wanted.
            let _ = nix::sys::signal::kill(self.pid(), Signal::SIGTERM);
            let _ = self.child.wait();
        }
        status
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    fn stop_error(&self, source: io::Error) -> LaunchError {
        LaunchError::Stop { command: self.command.clone(), source }
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        if self.stopped {
            // It never ran an instruction of its own program.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
