//! lockbpf, run as a user runs it.

use super::build::Variant;
use super::process::Running;
use super::report::Report;
use super::workload::{Truth, Workload};
use nix::sys::signal::Signal;
use std::process::Command;

/// Observations at most until one is not starved.
const ATTEMPTS: usize = 10;
/// What lockbpf then says.
const STARVED: &str = "did not get to run";
/// What its guardian says when it has ended it, so that no thread of the target is held up meanwhile.
pub(crate) const ENDED: &str = "was ended, so that the target runs on";

/// A running `lockbpf` whose probes are in place.
pub(crate) struct Observer {
    /// The process.
    pub(crate) running: Running,
}

/// How a run of `lockbpf` ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Exit status; `None` after a signal.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Observer {
    /// Starts `lockbpf ARGS…` and returns when it observes.
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::launch(lockbpf().args(args))
    }

    /// Observes one process, with the report in JSON, and further options.
    pub(crate) fn of(pid: u32, options: &[&str]) -> Self {
        Self::launch(lockbpf().args(["--pid", &pid.to_string(), "--format", "json"]).args(options))
    }

    /// The same, by a command of its own.
    pub(crate) fn launch(command: &mut Command) -> Self {
        let mut running = Running::start(command);
        if running.err.find(|line| line.starts_with("observing ")).is_none() {
            let status = running.wait();
            panic!("{command:?} ended before it observed ({status}): {}", running.err.rest());
        }
        Self { running }
    }

    /// Ctrl-C.
    pub(crate) fn interrupt(&self) {
        self.running.signal(Signal::SIGINT);
    }

    /// Waits for the end of the observation.
    pub(crate) fn outcome(mut self) -> Outcome {
        let stdout = self.running.out.rest();
        let stderr = self.running.err.rest();
        Outcome { code: self.running.wait().code(), stdout, stderr }
    }

    /// Waits for the end of the observation and its report.
    pub(crate) fn report(self) -> Report {
        self.outcome().report()
    }
}

impl Outcome {
    /// The report of an observation that went well.
    pub(crate) fn report(&self) -> Report {
        assert_eq!(self.code, Some(0), "lockbpf failed: {}", self.stderr);
        Report::parse(&self.stdout)
    }

    /// Demands an error that names all of this (in any case) on stderr, one sentence of it, and prints no table.
    pub(crate) fn assert_error(&self, names: &[&str]) {
        assert_eq!(self.code, Some(2), "exit status; stderr: {}", self.stderr);
        assert_eq!(self.stdout, "", "an error prints nothing on stdout");
        let stderr = self.stderr.to_lowercase();
        for name in names {
            assert!(stderr.contains(&name.to_lowercase()), "the error does not name {name:?}: {}", self.stderr);
        }
        assert!(!stderr.contains("panicked"), "a panic is not an error message: {}", self.stderr);
    }
}

/// The command `lockbpf`, without a budget unless it is asked for: what is compared with exact counts must see them all.
/// It has no calibration, whatever the user who runs the tests has: models of recordings would change with it.
pub(crate) fn lockbpf() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockbpf"));
    command.env("LOCKBPF_BUDGET", "off").env("LOCKBPF_CALIBRATE", "never").env("XDG_STATE_HOME", "/nonexistent");
    command
}

/// Runs `lockbpf ARGS…` to its end, with stdin closed.
pub(crate) fn run(args: &[&str]) -> Outcome {
    run_command(lockbpf().args(args))
}

/// Runs a command to its end, with stdin closed.
pub(crate) fn run_command(command: &mut Command) -> Outcome {
    let mut running = Running::start(command);
    running.close_stdin();
    Observer { running }.outcome()
}

/// The usual course: a workload is started, observed from before its work until its exit, and reported.
pub(crate) fn observe(line: &str) -> (Truth, Report) {
    observe_as(line, Variant::Plain, &[])
}

/// The usual course, with a workload linked in a certain way and further options.
///
/// Where lockbpf says that it did not get to run for a moment, and so did not see everything, its figures cannot be compared with the truth:
/// it observes again.
pub(crate) fn observe_as(line: &str, variant: Variant, options: &[&str]) -> (Truth, Report) {
    let once = || {
        let mut workload = Workload::start_as(line, variant);
        let observer = Observer::of(workload.pid(), options);
        workload.go();
        let truth = workload.finish();
        (truth, observer.report())
    };
    not_starved(once, |(_, report)| report)
}

/// Runs lockbpf where it traces threads, again while its guardian ends it: on a busy machine it may not get to run for the 50 ms that it is given.
pub(crate) fn run_traced(args: &[&str]) -> Outcome {
    not_ended(|| run(args), |outcome| outcome)
}

/// The same of whatever has such an outcome.
pub(crate) fn not_ended<T>(once: impl Fn() -> T, outcome: impl Fn(&T) -> &Outcome) -> T {
    again_while(once, |done| outcome(done).stderr.contains(ENDED), "ended")
}

/// What is done again while lockbpf was starved, as the report on it says.
pub(crate) fn not_starved<T>(once: impl Fn() -> T, report: impl Fn(&T) -> &Report) -> T {
    again_while(once, |done| report(done).quality.notes.iter().any(|note| note.contains(STARVED)), "starved")
}

fn again_while<T>(once: impl Fn() -> T, is_in_vain: impl Fn(&T) -> bool, how: &str) -> T {
    let done = (0..ATTEMPTS).map(|_| once()).find(|done| !is_in_vain(done));
    done.unwrap_or_else(|| panic!("lockbpf was {how} {ATTEMPTS} times"))
}
