//! A running workload and the truth it prints. The protocol is described in `tests/workloads/truth.h`.

use super::build::{Variant, compile};
use super::process::Running;
use serde::Deserialize;
use std::collections::HashMap;
use std::process::Command;

/// What a workload says of itself.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Truth {
    /// Process id in the workload's own pid namespace.
    pub(crate) pid: u32,
    pub(crate) locks: Vec<LockTruth>,
    pub(crate) threads: Vec<ThreadTruth>,
    facts: HashMap<String, u64>,
}

/// What is true of one lock; times as explained in `truth.h`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct LockTruth {
    pub(crate) symbol: Option<String>,
    pub(crate) addr: String,
    pub(crate) acquisitions: u64,
    pub(crate) contended: u64,
    pub(crate) try_failures: u64,
    pub(crate) timeouts: u64,
    pub(crate) errors: u64,
    pub(crate) call_ns: u64,
    pub(crate) hold_ns: u64,
    pub(crate) span_ns: u64,
    pub(crate) wait_min_ns: u64,
}

/// What is true of one thread.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ThreadTruth {
    pub(crate) tid: u32,
    pub(crate) acquisitions: u64,
}

impl Truth {
    /// The truth in a line of output, if it is that line.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        line.starts_with("{\"workload\"")
            .then(|| serde_json::from_str(line).unwrap_or_else(|error| panic!("bad truth ({error}): {line}")))
    }

    /// A number of the workload's own.
    pub(crate) fn fact(&self, name: &str) -> u64 {
        *self.facts.get(name).unwrap_or_else(|| panic!("the workload states no {name}"))
    }

    /// The numbers whose names are this and a pid.
    pub(crate) fn facts_about(&self, prefix: &str) -> Vec<(u32, u64)> {
        let pid = |name: &str| name.strip_prefix(prefix)?.parse().ok();
        self.facts.iter().filter_map(|(name, &value)| Some((pid(name)?, value))).collect()
    }

    /// The lock with this symbol.
    pub(crate) fn lock(&self, symbol: &str) -> &LockTruth {
        let found = self.locks.iter().find(|lock| lock.symbol.as_deref() == Some(symbol));
        found.unwrap_or_else(|| panic!("the workload has no {symbol}"))
    }
}

/// A running workload.
pub(crate) struct Workload {
    /// The process.
    pub(crate) running: Running,
}

impl Workload {
    /// Starts a workload, `NAME ARGS…`, and returns when it is ready.
    pub(crate) fn start(line: &str) -> Self {
        Self::start_as(line, Variant::Plain)
    }

    /// Starts a workload linked in a certain way.
    pub(crate) fn start_as(line: &str, variant: Variant) -> Self {
        Self::launch(&mut command(line, variant))
    }

    /// Starts a workload that stays alive after its work until it is dismissed.
    pub(crate) fn start_lingering(line: &str) -> Self {
        Self::launch(command(line, Variant::Plain).env("LINGER", "1"))
    }

    /// Starts a workload by a command of its own, and returns when it is ready.
    pub(crate) fn launch(command: &mut Command) -> Self {
        let mut running = Running::start(command);
        if running.out.find(|line| line == "ready").is_none() {
            panic!("{command:?} did not get ready: {}", running.err.rest());
        }
        Self { running }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Lets it begin its work.
    pub(crate) fn go(&mut self) {
        self.running.tell("g");
    }

    /// Waits for the end of its work.
    pub(crate) fn truth(&mut self) -> Truth {
        match self.running.out.find(|line| Truth::parse(line).is_some()) {
            Some(line) => Truth::parse(&line).expect("the line was found for being the truth"),
            None => {
                let status = self.running.wait();
                panic!("a workload ended without its truth ({status}): {}", self.running.err.rest());
            }
        }
    }

    /// Waits for the end of its work and for its exit, which must be a clean one.
    pub(crate) fn finish(&mut self) -> Truth {
        let truth = self.truth();
        self.end();
        truth
    }

    /// Waits for its exit, which must be a clean one.
    pub(crate) fn end(&mut self) {
        self.running.close_stdin();
        let status = self.running.wait();
        assert!(status.success(), "a workload failed after its work: {status}");
    }
}

/// The command for a workload, `NAME ARGS…`.
pub(crate) fn command(line: &str, variant: Variant) -> Command {
    let mut words = line.split_whitespace();
    let name = words.next().expect("a workload has a name");
    let mut command = Command::new(compile(name, variant));
    command.args(words);
    command
}

/// Runs a workload alone, unobserved.
pub(crate) fn run_alone(line: &str) -> Truth {
    let mut workload = Workload::start(line);
    workload.go();
    workload.finish()
}
