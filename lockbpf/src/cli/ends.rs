//! How a user ends an observation: the first SIGINT, SIGTERM or SIGHUP ends it with its report, a second SIGINT or SIGTERM ends the program
//! at once, without one. A service is asked by SIGHUP to read its configuration again, a flight recorder by SIGUSR1 for what it has kept. A thread of its own listens, since everything after the observation takes its time.

use crate::capture::{edits, launch};
use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::Instant;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

static BEFORE_EXIT: OnceLock<fn()> = OnceLock::new();
static LISTENING: Mutex<Option<Ends>> = Mutex::new(None);
/// Whether a service has been asked to read its configuration again.
static RELOAD: AtomicBool = AtomicBool::new(false);
/// Whether somebody has asked for what the flight recorder has kept.
static DUMP: AtomicBool = AtomicBool::new(false);

/// What the user wants.
#[derive(Clone)]
pub(super) struct Ends(watch::Receiver<Option<Signal>>);

impl Ends {
    /// Listens from now on, until the end of the program.
    ///
    /// # Errors
    /// When no thread can be started, or no handler be installed.
    pub(super) fn listen() -> Result<Self> {
        Self::listen_as(false)
    }

    /// The same, as a service: SIGHUP does not end it.
    ///
    /// # Errors
    /// As above.
    pub(super) fn of_service() -> Result<Self> {
        Self::listen_as(true)
    }

    fn listen_as(service: bool) -> Result<Self> {
        let mut listening = LISTENING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ends) = &*listening {
            return Ok(ends.clone());
        }
        let (tell, told) = watch::channel(None);
        let (begun, begins) = mpsc::channel();
        let hear = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
            let heard = runtime.and_then(|runtime| runtime.block_on(hear(&tell, &begun, service)));
            if let Err(error) = heard {
                let _ = begun.send(Err(error));
            }
        };
        let failed = "failed to listen for signals";
        thread::Builder::new().name("signals".to_owned()).spawn(hear).context(failed)?;
        begins.recv().context(failed)?.context(failed)?;
        let ends = Self(told);
        *listening = Some(ends.clone());
        Ok(ends)
    }

    /// Whether there is to be an observation at all.
    ///
    /// # Errors
    /// When the user has ended it.
    pub(super) fn check(&self) -> Result<()> {
        match *self.0.borrow() {
            Some(signal) => bail!("ended by {signal} before anything was observed"),
            None => Ok(()),
        }
    }

    /// Whether the user wants it to end.
    pub(super) fn is_asked(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Whether a service was asked, since the last call, to read its configuration again.
    pub(super) fn reload_asked() -> bool {
        RELOAD.swap(false, Ordering::Relaxed)
    }

    /// Whether the flight recorder was asked by SIGUSR1, since the last call, for what it has kept.
    pub(super) fn dump_asked() -> bool {
        DUMP.swap(false, Ordering::Relaxed)
    }

    /// Waits until the observation is to end.
    pub(super) async fn asked(&mut self) {
        if self.0.wait_for(Option::is_some).await.is_err() {
            // Nobody listens any more, so nobody can ask.
            std::future::pending().await
        }
    }
}

/// Tells the first signal, and ends the program at the second.
async fn hear(
    tell: &watch::Sender<Option<Signal>>,
    begun: &mpsc::Sender<io::Result<()>>,
    service: bool,
) -> io::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    // Who has it ignored, like nohup, wants to outlive the terminal.
    let mut hangup = if is_ignored(Signal::SIGHUP) && !service { None } else { Some(signal(SignalKind::hangup())?) };
    let mut user = signal(SignalKind::user_defined1())?;
    let _ = begun.send(Ok(()));
    let mut first = None;
    loop {
        let hung_up = async {
            match &mut hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        let heard = tokio::select! {
            _ = interrupt.recv() => Signal::SIGINT,
            _ = terminate.recv() => Signal::SIGTERM,
            _ = hung_up => Signal::SIGHUP,
            _ = user.recv() => {
                DUMP.store(true, Ordering::Relaxed);
                continue;
            }
        };
        if service && heard == Signal::SIGHUP {
            RELOAD.store(true, Ordering::Relaxed);
            continue;
        }
        let since = *first.get_or_insert_with(Instant::now);
        if heard != Signal::SIGHUP && since.elapsed() >= edits::SECOND_SIGNAL {
            end_at_once(heard);
        }
        tell.send_if_modified(|told| {
            let first = told.is_none();
            told.get_or_insert(heard);
            first
        });
    }
}

/// Has something done before the program ends at once: what the user would miss.
pub(super) fn before_exit(act: fn()) {
    // There is one such thing.
    let _ = BEFORE_EXIT.set(act);
}

fn end_at_once(signal: Signal) -> ! {
    if let Some(act) = BEFORE_EXIT.get() {
        act();
    }
    launch::ask_to_end();
    say!("lockbpf: ended at once by a second signal, {signal}");
    // As a shell tells of who died of it.
    edits::exit(128 + signal as i32)
}

/// Whether this program was started with a signal ignored.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal as u32 - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_known() {
        // Rust programs ignore it.
        assert!(is_ignored(Signal::SIGPIPE));
        assert!(!is_ignored(Signal::SIGSEGV));
    }
}
