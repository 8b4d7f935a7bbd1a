//! Where alerts go beside stderr: a file, a command. Each has a thread of its own, so that a reader that is slow, or a command that hangs,
//! keeps no observation waiting.

use crate::cli::destination::{Growing, told};
use anyhow::{Context, Result};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Seek, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Alerts that wait to be written.
const QUEUE: usize = 256;
/// How long a command may run.
const LIMIT: Duration = Duration::from_secs(10);
/// How long the end of an observation waits for what is still being written, or for a command.
const FAREWELL: Duration = Duration::from_secs(2);
/// How often it is looked whether a command has ended.
const LOOK: Duration = Duration::from_millis(20);

/// One outlet.
pub(super) struct Outlet {
    /// `None` when no more is to come.
    alerts: Option<SyncSender<String>>,
    /// Closed when the thread has ended.
    over: Receiver<()>,
    shared: Arc<Shared>,
    /// What did not go out, in words.
    missed: &'static str,
}

/// What an outlet and its thread know of each other.
#[derive(Default)]
struct Shared {
    /// Until when a command may run, once the observation has ended.
    ends: OnceLock<Instant>,
    /// Alerts for which there was no room.
    missed: AtomicU64,
    /// Commands that failed.
    failed: AtomicU64,
    /// Why something failed last.
    why: Mutex<Option<String>>,
}

impl Shared {
    fn fails(&self, why: String) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        *self.why.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }
}

impl Outlet {
    /// A file, which is opened now; `-` is standard output.
    ///
    /// # Errors
    /// When it cannot be opened, or there is no thread for it.
    pub(super) fn file(path: &Path) -> Result<Self> {
        let mut out = Growing::open(path)?;
        let name = told(path);
        Self::start("alerts", QUEUE, "alerts came faster than they could be written", move |alerts, shared| {
            for alert in alerts {
                let written = out.write_all((alert + "\n").as_bytes()).and_then(|()| out.flush());
                match written {
                    Ok(()) => {}
                    // Whoever reads has had enough.
                    Err(error) if error.kind() == ErrorKind::BrokenPipe => return,
                    Err(error) => shared.fails(format!("failed to write to {name}: {error}")),
                }
            }
        })
    }

    /// A command of the shell: one runs, one alert waits for the next.
    ///
    /// # Errors
    /// When there is no thread for it.
    pub(super) fn command(command: OsString) -> Result<Self> {
        Self::start("on-alert", 1, "alerts came while the command was running", move |alerts, shared| {
            for alert in alerts {
                if shared.ends.get().is_some_and(|ends| Instant::now() >= *ends) {
                    shared.missed.fetch_add(1, Ordering::Relaxed);
                } else if let Err(why) = run(&command, &alert, &shared.ends) {
                    shared.fails(why);
                }
            }
        })
    }

    fn start(
        name: &str,
        queue: usize,
        missed: &'static str,
        work: impl FnOnce(Receiver<String>, &Shared) + Send + 'static,
    ) -> Result<Self> {
        let (alerts, coming) = sync_channel(queue);
        let (end, over) = channel::<()>();
        let shared = Arc::new(Shared::default());
        let its = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            work(coming, &its);
            drop(end);
        });
        thread.context("failed to start a thread for alerts")?;
        Ok(Self { alerts: Some(alerts), over, shared, missed })
    }

    /// Takes an alert, if there is room for it.
    pub(super) fn take(&self, alert: &str) {
        use std::sync::mpsc::TrySendError;
        match self.alerts.as_ref().map(|alerts| alerts.try_send(alert.to_owned())) {
            Some(Err(TrySendError::Full(_))) => _ = self.shared.missed.fetch_add(1, Ordering::Relaxed),
            // A reader that has had enough.
            Some(Err(TrySendError::Disconnected(_)) | Ok(())) | None => {}
        }
    }

    /// Lets what is there go out, for a short time. Returns what has gone wrong, in words.
    pub(super) fn end(&mut self) -> Vec<String> {
        self.alerts = None;
        // It is said once.
        let _ = self.shared.ends.set(Instant::now() + FAREWELL);
        let in_time = !matches!(self.over.recv_timeout(FAREWELL * 2), Err(RecvTimeoutError::Timeout));
        let mut words = Vec::new();
        let missed = self.shared.missed.load(Ordering::Relaxed);
        if missed > 0 {
            words.push(format!("{missed} {}", self.missed));
        }
        let failed = self.shared.failed.load(Ordering::Relaxed);
        let why = self.shared.why.lock().unwrap_or_else(PoisonError::into_inner).take();
        words.extend(why.map(|why| if failed == 1 { why } else { format!("{why} (the last of {failed} failures)") }));
        if !in_time {
            words.push("the last alerts may not have gone out: nobody took them".to_owned());
        }
        words
    }
}

/// Runs a command to its end, or that of its time.
fn run(command: &OsStr, alert: &str, ends: &OnceLock<Instant>) -> Result<(), String> {
    let failed = |error: io::Error| format!("failed to run the command for alerts: {error}");
    let mut child = Command::new("/bin/sh")
        .arg("-c")
        .arg(command)
        .stdin(Stdio::from(in_memory(alert).map_err(failed)?))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // What it starts ends with it.
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return if status.success() { Ok(()) } else { Err(format!("the command for alerts {}", ended(status))) };
        }
        if began.elapsed() >= LIMIT || ends.get().is_some_and(|ends| Instant::now() >= *ends) {
            // It is gone if this fails; its status is fetched in any case.
            let _ = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
            child.wait().map_err(failed)?;
            return Err(format!("the command for alerts was killed after {:.1} s", began.elapsed().as_secs_f64()));
        }
        std::thread::sleep(LOOK);
    }
}

fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit status {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// A file that is nowhere but in memory: a command that does not read it keeps nobody waiting.
fn in_memory(text: &str) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"alert", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    file.write_all(b"\n")?;
    file.rewind()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(command: &str, alerts: &[&str]) -> Vec<String> {
        let mut outlet = Outlet::command(command.into()).unwrap();
        alerts.iter().for_each(|alert| outlet.take(alert));
        outlet.end()
    }

    #[test]
    fn a_command_reads_the_alert() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("got");
        assert_eq!(after(&format!("cat > '{}'", to.display()), &["{}"]), [""; 0]);
        assert_eq!(std::fs::read_to_string(to).unwrap(), "{}\n");
    }

    #[test]
    fn what_goes_wrong_is_told() {
        assert_eq!(after("exit 3", &["{}"]), ["the command for alerts ended with exit status 3"]);
        let many = after("sleep 100", &["1", "2", "3", "4", "5", "6"]);
        assert!(many[0].ends_with(" alerts came while the command was running"), "{many:?}");
        assert!(many[1].starts_with("the command for alerts was killed after "), "{many:?}");
    }

    #[test]
    fn a_file_has_a_line_for_each() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("alerts.jsonl");
        let mut outlet = Outlet::file(&path).unwrap();
        outlet.take("{\"a\":1}");
        outlet.take("{\"b\":2}");
        assert_eq!(outlet.end(), [""; 0]);
        assert_eq!(std::fs::read_to_string(path).unwrap(), "{\"a\":1}\n{\"b\":2}\n");
        assert!(Outlet::file(Path::new("/nonexistent/alerts")).is_err());
        let mut full = Outlet::file(Path::new("/dev/full")).unwrap();
        full.take("{}");
        assert!(full.end()[0].starts_with("failed to write to /dev/full"));
    }
}
