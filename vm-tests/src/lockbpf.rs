//! lockbpf, run as a user runs it.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::Deserialize;
use serde_json::Value;
use vm_tests::place::LOCKBPF;

/// What of a report is compared.
#[derive(Debug, Deserialize)]
pub(crate) struct Report {
    pub(crate) locks: Vec<Lock>,
    /// Events counted in sections, if any were.
    #[serde(default)]
    pub(crate) counters: Counters,
    /// Calls of the C library, if they were asked for.
    #[serde(default)]
    pub(crate) functions: Option<Functions>,
    pub(crate) quality: Quality,
}

/// Events counted in sections.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Counters {
    pub(crate) events: Vec<Event>,
    /// The unit of the clock.
    pub(crate) unit: String,
    pub(crate) totals: CounterTotals,
    /// By lock and site.
    pub(crate) sites: Vec<Counted>,
}

/// An event that was counted.
#[derive(Debug, Deserialize)]
pub(crate) struct Event {
    pub(crate) name: String,
    /// Share of the time in which it was; `None` if it never was.
    pub(crate) counted_share: Option<f64>,
}

/// Sums over all threads.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct CounterTotals {
    pub(crate) sections_uncounted: u64,
}

/// What was counted in the sections of a lock at a site.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Counted {
    /// Function and line.
    pub(crate) symbol: String,
    pub(crate) sections: u64,
    pub(crate) hold_ns: f64,
    pub(crate) on_cpu_ns: f64,
    pub(crate) preempted_ns: f64,
    /// By event.
    pub(crate) hold: BTreeMap<String, f64>,
    /// Instructions per cycle in user mode, where both were counted.
    pub(crate) ipc_user: Option<f64>,
}

/// Calls of the C library.
#[derive(Debug, Deserialize)]
pub(crate) struct Functions {
    /// The unit of the clock.
    pub(crate) unit: String,
    pub(crate) library_share: f64,
    pub(crate) program_share: f64,
    pub(crate) categories: Vec<Calls>,
    pub(crate) functions: Vec<Calls>,
    /// Functions of which calls are only counted.
    #[serde(default)]
    pub(crate) endless: Vec<String>,
    #[serde(default)]
    pub(crate) left_out: Vec<Value>,
}

/// Calls of a function or of a category.
#[derive(Debug, Deserialize)]
pub(crate) struct Calls {
    pub(crate) function: Option<String>,
    pub(crate) category: String,
    pub(crate) calls: u64,
    pub(crate) nested: u64,
    pub(crate) ended: u64,
    pub(crate) uncounted: u64,
    /// By event.
    pub(crate) counts: BTreeMap<String, f64>,
    pub(crate) share: f64,
    pub(crate) share_user: Option<f64>,
    pub(crate) share_kernel: Option<f64>,
}

/// A lock in the report.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Lock {
    /// `PID:0xADDR`
    pub(crate) lock: String,
    pub(crate) name: String,
    /// `None` where only waits were watched.
    pub(crate) acquisitions: Option<u64>,
    pub(crate) contended: u64,
    pub(crate) try_failures: u64,
    pub(crate) timeouts: u64,
    pub(crate) errors: u64,
}

/// How complete the report is.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Quality {
    pub(crate) lost: BTreeMap<String, u64>,
    pub(crate) late: u64,
    pub(crate) impossible: BTreeMap<String, u64>,
    pub(crate) failed_probes: Vec<Value>,
    pub(crate) notes: Vec<String>,
}

/// What a finished run left.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `lockbpf ARGS…` to its end.
pub(crate) fn run(args: &[&str]) -> Result<Finished> {
    let output = command(args).output().with_context(|| format!("failed to run {LOCKBPF}"))?;
    Ok(Finished {
        status: output.status,
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(LOCKBPF);
    // Compared with exact counts.
    command.env("LOCKBPF_BUDGET", "off");
    command.args(args).stdin(Stdio::null()).env("RUST_BACKTRACE", "1").env("LOCKBPF_LOG", "info");
    command
}

/// A lockbpf that observes.
pub(crate) struct Observer {
    child: Child,
    stderr: BufReader<ChildStderr>,
    said: String,
}

impl Observer {
    /// Starts `lockbpf --format json ARGS…` and returns when its probes are in place.
    pub(crate) fn start(args: &[&str]) -> Result<Self> {
        let mut command = command(&["--format", "json"]);
        command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("failed to start {LOCKBPF}"))?;
        let stderr = BufReader::new(child.stderr.take().context("lockbpf has no stderr")?);
        let mut observer = Self { child, stderr, said: String::new() };
        observer.listen_for("observing ")?;
        Ok(observer)
    }

    /// Returns when it has said a line that begins like this.
    pub(crate) fn listen_for(&mut self, beginning: &str) -> Result<()> {
        self.listen_until(beginning, |line| line.starts_with(beginning))
    }

    /// Returns when its log has a line that ends like this.
    pub(crate) fn listen_for_log(&mut self, ending: &str) -> Result<()> {
        self.listen_until(ending, |line| line.ends_with(ending))
    }

    fn listen_until(&mut self, awaited: &str, is_it: impl Fn(&str) -> bool) -> Result<()> {
        while !self.said.lines().any(&is_it) {
            if self.stderr.read_line(&mut self.said).context("failed to read what lockbpf says")? == 0 {
                bail!("lockbpf ended ({}) without {awaited:?}: {}", self.child.wait()?, self.said.trim_end());
            }
        }
        Ok(())
    }

    /// The line in which it tells what it observes, and how.
    pub(crate) fn summary(&self) -> Option<&str> {
        self.said.split_inclusive('\n').find(|line| line.starts_with("observing "))
    }

    /// Everything that it has said so far.
    pub(crate) fn said(&self) -> &str {
        &self.said
    }

    /// Ctrl-C.
    pub(crate) fn interrupt(&self) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).context("a process id is out of range")?);
        kill(pid, Signal::SIGINT).context("failed to interrupt lockbpf")
    }

    /// Waits for the end of the observation and its report.
    pub(crate) fn report(mut self) -> Result<Report> {
        let mut stdout = String::new();
        self.child.stdout.take().context("lockbpf has no stdout")?.read_to_string(&mut stdout)?;
        self.stderr.read_to_string(&mut self.said)?;
        let status = self.child.wait().context("failed to wait for lockbpf")?;
        ensure!(status.success(), "lockbpf ended with {status}: {}", self.said.trim_end());
        serde_json::from_str(&stdout).with_context(|| format!("failed to read the report {stdout:?}"))
    }
}
