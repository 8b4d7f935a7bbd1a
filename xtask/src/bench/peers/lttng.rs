//! LTTng's daemons with a session that records pthread mutexes, in a directory of its own.

use std::{
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use nix::unistd::Pid;

use crate::{
    bench::{
        child::Child,
        interrupt,
        usage::{children, cpu_time, peak_rss},
    },
    process, workspace,
};

const SESSION: &str = "lockbpf-bench";
/// How long a command to the daemon may take.
const LIMIT: Duration = Duration::from_secs(20);
/// How long and how often the daemon is asked whether it listens.
const START_LIMIT: Duration = Duration::from_secs(15);
const RETRY: Duration = Duration::from_millis(100);

/// A recording session. Its daemons end when it is dropped.
pub(super) struct Lttng {
    daemon: Child,
}

/// CPU time used by the daemons until some moment.
pub(super) struct Reading {
    at: Instant,
    cpu: Duration,
}

impl Reading {
    /// CPU time used since an earlier reading, % of one core.
    pub(super) fn percent_since(&self, earlier: &Self) -> f64 {
        100.0 * self.cpu.saturating_sub(earlier.cpu).as_secs_f64() / (self.at - earlier.at).as_secs_f64()
    }
}

impl Lttng {
    /// Starts the daemons and records below `dir` what programs started from now on do.
    ///
    /// # Errors
    /// They cannot be started, one runs already, or a command fails.
    pub(super) fn start(dir: &Path) -> Result<Self> {
        let program = workspace::find_program("lttng-sessiond").context("lttng-sessiond is not installed")?;
        let mut lttng = Self { daemon: Child::start(Command::new(program).arg("--no-kernel").env("LTTNG_HOME", dir))? };
        let begin = Instant::now();
        let to = format!("--output={}", dir.join("trace").display());
        while let Err(error) = tell(&["create", SESSION, &to]) {
            lttng.daemon.check_alive()?;
            if begin.elapsed() > START_LIMIT {
                bail!(error);
            }
            interrupt::sleep(RETRY)?;
        }
        tell(&["enable-channel", "--userspace", "c", "--subbuf-size=1M", "--num-subbuf=4"])?;
        tell(&["enable-event", "--userspace", "--channel=c", "lttng_ust_pthread:*"])?;
        tell(&["add-context", "--userspace", "--type=vtid"])?;
        tell(&["start"])?;
        Ok(lttng)
    }

    /// Reads what the daemons have used.
    ///
    /// # Errors
    /// They have exited.
    pub(super) fn read(&self) -> Result<Reading> {
        let mut cpu = Duration::ZERO;
        for pid in self.processes() {
            cpu += cpu_time(pid)?;
        }
        Ok(Reading { at: Instant::now(), cpu })
    }

    /// Their resident memory at most, bytes.
    ///
    /// # Errors
    /// They have exited.
    pub(super) fn memory(&self) -> Result<u64> {
        self.processes().into_iter().map(peak_rss).sum()
    }

    /// The daemon and all processes that it has started.
    fn processes(&self) -> Vec<Pid> {
        let mut family = vec![self.daemon.pid()];
        let mut next = 0;
        while let Some(&pid) = family.get(next) {
            family.extend(children(pid));
            next += 1;
        }
        family
    }
}

impl Drop for Lttng {
    fn drop(&mut self) {
        // What was recorded is thrown away; the daemon takes its consumers with it.
        let _ = tell(&["destroy", "--no-wait", SESSION]);
        let _ = self.daemon.interrupted_status();
    }
}

/// Gives the daemon a command.
fn tell(words: &[&str]) -> Result<()> {
    let program = workspace::find_program("lttng").context("lttng is not installed")?;
    process::output(Command::new(program).arg("--no-sessiond").args(words), LIMIT).map(drop)
}
