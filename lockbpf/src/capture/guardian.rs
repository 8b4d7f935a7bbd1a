//! A process beside this one: if this one is stopped, frozen or kept from the CPU while the target depends on it, the guardian ends it, and
//! the kernel removes every probe and breakpoint and lets traced threads go. Nothing else has to be undone.
//!
//! Both share a page, to which this process writes the time again and again, and a pipe, which tells the guardian of this one's end.

mod page;
mod watch;

pub(super) use watch::open_process;
pub use watch::{ignore_signals, run};

use crate::helper;
use page::Page;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The helper that the process is.
pub const COMMAND: &str = "guard";

/// How long probes may be in place without a sign of life. With a look of the guardian's, and the kernel's work, it is less than 2 s. Less would
/// end an observation, and lose its report, on a machine that is only very busy: in an emulated one lockbpf did not get to run for 1,076 ms.
pub const PROBES: Duration = Duration::from_millis(1500);
/// How long a thread may be traced without one. With a look of the guardian's, and the kernel's work, it is less than 100 ms.
pub const TRACED: Duration = Duration::from_millis(50);

/// The number of the guardian started last; 0 for none.
static PID: AtomicU32 = AtomicU32::new(0);

/// This process's guardian, which nobody wants to observe.
#[must_use]
pub fn pid() -> Option<u32> {
    Some(PID.load(Ordering::Relaxed)).filter(|&pid| pid != 0)
}

/// The other end of that process, which ends with this.
#[derive(Debug)]
pub struct Guardian {
    page: Page,
    process: Mutex<Running>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    /// Its closing tells of this process's end.
    _pipe: Option<ChildStdin>,
}

/// While this exists, a sign of life is expected so often.
#[derive(Debug)]
pub struct Armed<'a>(&'a Guardian);

impl Drop for Armed<'_> {
    fn drop(&mut self) {
        self.0.disarm();
    }
}

impl Guardian {
    /// Starts it. It expects nothing yet, but looks often enough to keep to this limit.
    ///
    /// # Errors
    /// When this program cannot be started once more, or there is no memory to share.
    pub fn start(strictest: Duration) -> io::Result<Self> {
        let page = Page::new(strictest)?;
        let process = Mutex::new(Running::start(&page)?);
        Ok(Self { page, process })
    }

    /// A sign of life is expected from now on, so often.
    pub fn arm(&self, limit: Duration) {
        self.page.beat();
        self.page.set_limit(limit);
    }

    /// The same, until what is returned is dropped.
    #[must_use]
    pub fn armed(&self, limit: Duration) -> Armed<'_> {
        self.arm(limit);
        Armed(self)
    }

    /// None is expected any more.
    pub fn disarm(&self) {
        self.page.set_limit(Duration::ZERO);
    }

    /// A sign of life.
    pub fn beat(&self) {
        self.page.beat();
    }

    /// Has the calling thread's signal handlers give signs of life, by [`beat_in_handler`].
    pub fn hear_handlers(&self) {
        self.page.make_known();
    }

    /// Starts it anew if it is gone; returns whether that was so.
    ///
    /// # Errors
    /// When it cannot be started: nobody guards any more.
    pub fn look_after(&self) -> io::Result<bool> {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        if process.child.try_wait()?.is_none() {
            return Ok(false);
        }
        *process = Running::start(&self.page)?;
        Ok(true)
    }
}

/// A sign of life of the guardian that hears handlers, if there is one. May be called in a signal handler.
pub fn beat_in_handler() {
    page::beat_known();
}

impl Running {
    fn start(page: &Page) -> io::Result<Self> {
        let mut command = helper::command(COMMAND);
        command.arg(std::process::id().to_string()).stdin(Stdio::piped()).stdout(page.as_stdio()?);
        // What is meant for this process's group is not meant for it.
        // SAFETY: setsid is async-signal-safe, which is all that may run between fork and exec.
        unsafe { command.pre_exec(|| nix::unistd::setsid().map(drop).map_err(io::Error::from)) };
        let mut child = command.spawn()?;
        PID.store(child.id(), Ordering::Relaxed);
        let pipe = child.stdin.take();
        Ok(Self { child, _pipe: pipe })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has nothing left to do, and may be stopped itself.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}
