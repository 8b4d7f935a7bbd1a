//! One run of a machine: watched until it ends or its time is up.

use std::{
    fs::{self, File},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use vm_tests::event::Event;

use super::verdict::{Ending, Log};
use crate::process;

/// How often the results are looked at.
const POLL: Duration = Duration::from_millis(50);

/// How long a machine may take.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// Until its init has started.
    pub(crate) boot: Duration,
    /// From its start to its end.
    pub(crate) whole: Duration,
}

/// Runs the machine that `command` boots, which writes to the file `results`; each event is handed to `show` when it
/// comes.
///
/// # Errors
/// QEMU cannot be started, or the file not be read.
pub(crate) fn watch(
    command: &mut Command,
    results: &Path,
    limits: Limits,
    mut show: impl FnMut(&Event),
) -> Result<Log> {
    // An earlier run's results are not this one's.
    File::create(results).with_context(|| format!("failed to create {}", results.display()))?;
    let began = Instant::now();
    let mut machine = Machine::start(command)?;
    let mut shown = 0;
    loop {
        // Asked before reading: what was written before the end is then read.
        let status = machine.0.try_wait()?;
        let text = fs::read(results).with_context(|| format!("failed to read {}", results.display()))?;
        let mut log = Log::read(&String::from_utf8_lossy(&text));
        log.events.iter().skip(shown).for_each(&mut show);
        shown = log.events.len();
        let limit = if log.started() { limits.whole } else { limits.boot };
        log.ending = match status {
            Some(status) => Ending::Ended(status.to_string()),
            None if began.elapsed() > limit => Ending::TimeUp(limit),
            None => {
                thread::sleep(POLL);
                continue;
            }
        };
        return Ok(log);
    }
}

/// A running QEMU, which does not outlive its handle.
struct Machine(Child);

impl Machine {
    fn start(command: &mut Command) -> Result<Self> {
        let child = command.stdin(Stdio::null()).spawn();
        child.map(Self).with_context(|| format!("failed to start `{}`", process::describe(command)))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, limits: Limits) -> (Log, Vec<Event>) {
        let results = tempfile::NamedTempFile::new().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]).env("RESULTS", results.path());
        let mut shown = Vec::new();
        let log = watch(&mut command, results.path(), limits, |event| shown.push(event.clone())).unwrap();
        (log, shown)
    }

    const LONG: Duration = Duration::from_secs(600);
    const INIT: &str = r#"echo '{"event":"init","kernel":"6.1"}' > $RESULTS"#;

    #[test]
    fn what_is_written_last_is_read() {
        let script = format!(r#"{INIT}; echo '{{"event":"done","tests":1}}' >> $RESULTS"#);
        let (log, shown) = run(&script, Limits { boot: LONG, whole: LONG });
        assert_eq!(log.events, shown);
        assert_eq!(shown, [Event::Init { kernel: "6.1".into() }, Event::Done { tests: 1 }]);
        assert!(matches!(log.ending, Ending::Ended(_)));
    }

    #[test]
    fn a_machine_that_hangs_is_ended() {
        let short = Duration::from_millis(300);
        let (log, _) = run("exec sleep 600", Limits { boot: short, whole: LONG });
        assert!(!log.started() && matches!(log.ending, Ending::TimeUp(limit) if limit == short));
        let (log, _) = run(&format!("{INIT}; exec sleep 600"), Limits { boot: LONG, whole: short });
        assert!(matches!(log.ending, Ending::TimeUp(limit) if limit == short));
    }
}
