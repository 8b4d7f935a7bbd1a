//! Being stopped by Ctrl-Z (`SIGTSTP`): not before the target depends on nothing any more.

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction};
use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);

/// While this exists, Ctrl-Z only asks ([`asked`]); whoever looks then stops this process ([`stop`]).
#[derive(Debug)]
pub struct Suspendable(Option<SigAction>);

impl Suspendable {
    /// Unless the signal is ignored, as by who was started without job control. If the kernel refuses, Ctrl-Z stops at once, as always.
    #[must_use]
    pub fn install() -> Self {
        extern "C" fn ask(_signal: libc::c_int) {
            ASKED.store(true, Ordering::Relaxed);
        }
        ASKED.store(false, Ordering::Relaxed);
        let action = SigAction::new(SigHandler::Handler(ask), SaFlags::SA_RESTART, SigSet::empty());
        // SAFETY: the handler stores to an atomic, which is async-signal-safe.
        let Ok(before) = (unsafe { sigaction(Signal::SIGTSTP, &action) }) else { return Self(None) };
        // Undone at once if it was ignored.
        let suspendable = Self(Some(before));
        if before.handler() == SigHandler::SigIgn { Self(None) } else { suspendable }
    }
}

impl Drop for Suspendable {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // SAFETY: what was installed before.
            let _ = unsafe { sigaction(Signal::SIGTSTP, before) };
        }
    }
}

/// Whether the user wants this process to be stopped.
#[must_use]
pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// Stops this process as if the signal were not caught, and returns when it is continued.
pub fn stop() {
    ASKED.store(false, Ordering::Relaxed);
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: no handler.
    if let Ok(before) = unsafe { sigaction(Signal::SIGTSTP, &default) } {
        let _ = raise(Signal::SIGTSTP);
        // SAFETY: what was installed before.
        let _ = unsafe { sigaction(Signal::SIGTSTP, &before) };
    }
}
