//! Ctrl-C ends a benchmark as an error does: every value is dropped, so that no child and no setting stays behind.

use std::{
    sync::{Condvar, Mutex, PoisonError},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use tokio::signal::unix::{SignalKind, signal};

static INTERRUPTED: Mutex<bool> = Mutex::new(false);
static CHANGED: Condvar = Condvar::new();

/// From now on the signals that end a program are only noted, and [`sleep`] returns an error once one has come. They
/// are handled, not blocked: a blocked signal would stay blocked in children.
///
/// # Errors
/// The signals cannot be handled.
pub(super) fn watch() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listen = |kind| {
        let _in_runtime = runtime.enter();
        signal(kind).context("failed to handle signals")
    };
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hangup = listen(SignalKind::hangup())?;
    thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
        });
        *INTERRUPTED.lock().unwrap_or_else(PoisonError::into_inner) = true;
        CHANGED.notify_all();
    });
    Ok(())
}

/// Waits, but not beyond an interruption.
///
/// # Errors
/// The benchmark was interrupted.
pub(super) fn sleep(time: Duration) -> Result<()> {
    let interrupted = INTERRUPTED.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = CHANGED.wait_timeout_while(interrupted, time, |interrupted| !*interrupted);
    let (interrupted, _) = waited.unwrap_or_else(PoisonError::into_inner);
    if *interrupted {
        bail!("interrupted");
    }
    Ok(())
}

/// Fails once the benchmark was interrupted.
///
/// # Errors
/// The benchmark was interrupted.
pub(super) fn check() -> Result<()> {
    sleep(Duration::ZERO)
}
