//! One observation of a running process, from its start to its report, and what the observer itself used meanwhile.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use nix::unistd::Pid;
use serde::Serialize;
use serde_json::Value;

use super::{
    bpftrace,
    build::{FULL, Lockbpf},
    child::Child,
    usage::{Objects, cpu_time, peak_rss},
};

/// How a process is observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Mode {
    /// `lockbpf --pid P`.
    Full,
    /// As on kernels before 6.13: perf-event uprobes instead of sessions.
    PlainUprobes,
    /// Probes at the first instruction of each function.
    EntryPlacement,
    /// With a description of the workload's own lock.
    Described,
    /// Every section recorded.
    AllEvents,
    /// The clock counted in sections, and nothing else.
    Clock,
    /// Four events of the kernel's counted, beside the clock.
    Counters,
    /// The lock calls seen as calls of the C library as well.
    Functions,
    /// No uprobes.
    FutexOnly,
    /// Probes in place, but every thread filtered out: what a probe costs that does nothing.
    Empty,
    /// The classic script.
    Bpftrace,
}

impl Mode {
    /// How a table names it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Full => "lockbpf",
            Self::PlainUprobes => "lockbpf --plain-uprobes",
            Self::EntryPlacement => "lockbpf --placement entry",
            Self::Described => "lockbpf --locks",
            Self::AllEvents => "lockbpf --all-events",
            Self::Clock => "lockbpf --counters task-clock",
            Self::Counters => "lockbpf --counters, 4 events more",
            Self::Functions => "lockbpf --functions pthread",
            Self::FutexOnly => "lockbpf --futex-only",
            Self::Empty => "lockbpf --tid 1 (empty probes)",
            Self::Bpftrace => "bpftrace script",
        }
    }

    /// Whether it can be told only by the locks taken that its probes are in place.
    pub(super) fn shows_by_locks(self) -> bool {
        self == Self::Bpftrace
    }

    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Full | Self::Bpftrace => &[],
            Self::PlainUprobes => &["--plain-uprobes"],
            Self::EntryPlacement => &["--placement", "entry"],
            Self::Described => &["--locks", concat!(env!("CARGO_MANIFEST_DIR"), "/src/bench/own.toml")],
            Self::AllEvents => &["--all-events"],
            Self::Clock => &["--counters", "task-clock"],
            Self::Counters => &["--counters", "page-faults,minor-faults,context-switches,cpu-migrations"],
            Self::Functions => &["--functions", "pthread", "--counters", "task-clock"],
            Self::FutexOnly => &["--futex-only"],
            Self::Empty => &["--tid", "1"],
        }
    }
}

/// The programs that observe.
pub(super) struct Observers {
    /// The freshly built lockbpf.
    pub(super) lockbpf: Lockbpf,
    /// bpftrace, if installed.
    pub(super) bpftrace: Option<PathBuf>,
}

impl Observers {
    /// Whether a mode is possible here.
    pub(super) fn can(&self, mode: Mode) -> bool {
        mode != Mode::Bpftrace || self.bpftrace.is_some()
    }

    fn command(&self, mode: Mode, pid: Pid) -> Result<Command> {
        let number = pid.to_string();
        if mode == Mode::Bpftrace {
            let mut command = Command::new(self.bpftrace.as_deref().unwrap_or(Path::new("bpftrace")));
            command.args(["-p", &number, "-e", &bpftrace::script(pid)?]);
            return Ok(command);
        }
        let mut command = Command::new(&self.lockbpf.program);
        // The sums are over all locks, however few are listed.
        command.args(["--pid", &number, "--format", "json", "--top", "1"]).args(mode.options());
        if !matches!(mode, Mode::FutexOnly | Mode::AllEvents | Mode::Clock | Mode::Counters | Mode::Functions) {
            command.args(FULL);
        }
        Ok(command)
    }
}

/// A running observation. Ended when dropped.
pub(super) struct Observation {
    child: Child,
    mode: Mode,
    attach: Duration,
}

/// How much an observer has used so far.
pub(super) struct Reading {
    at: Instant,
    cpu: Duration,
}

/// What one observation cost beside the target's time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// The observer's own CPU time while it observed, % of one core.
    pub(super) cpu_percent: f64,
    /// Its resident memory at most, bytes.
    pub(super) rss_bytes: u64,
    /// Kernel memory of its maps, bytes.
    pub(super) map_bytes: u64,
    /// From its start until it observed, s.
    pub(super) attach_s: f64,
    /// From its interruption until its exit, s.
    pub(super) detach_s: f64,
}

/// What lockbpf saw, out of its report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Seen {
    /// Completed acquisitions.
    pub(super) acquisitions: u64,
    /// Contended ones.
    pub(super) contended: u64,
    /// Records that reached it.
    pub(super) events: u64,
    /// What was lost, over all causes.
    pub(super) lost: u64,
}

impl Observation {
    /// Starts observing a process, and returns when the probes are in place. Where that [shows by
    /// locks](Mode::shows_by_locks) the process must be at work.
    ///
    /// # Errors
    /// The observer cannot be started or gives up, or the benchmark was interrupted.
    pub(super) fn start(observers: &Observers, mode: Mode, pid: Pid) -> Result<Self> {
        let begin = Instant::now();
        let mut child = Child::start(&mut observers.command(mode, pid)?)?;
        if mode.shows_by_locks() {
            child.expect_out(|line| bpftrace::sees_sections(line).then_some(()))?;
        } else {
            child.expect_err(|line| line.starts_with("observing ").then_some(()))?;
        }
        Ok(Self { child, mode, attach: begin.elapsed() })
    }

    /// Reads what the observer has used.
    ///
    /// # Errors
    /// It has exited.
    pub(super) fn read(&self) -> Result<Reading> {
        Ok(Reading { at: Instant::now(), cpu: cpu_time(self.child.pid())? })
    }

    /// Its eBPF objects.
    ///
    /// # Errors
    /// It has exited.
    pub(super) fn objects(&self) -> Result<Objects> {
        Objects::of(self.child.pid())
    }

    /// Ends the observation; `cpu_percent` is what the observer used while it observed. What it saw is known of lockbpf
    /// alone.
    ///
    /// # Errors
    /// The observer fails, or its report cannot be understood.
    pub(super) fn stop(mut self, cpu_percent: f64) -> Result<(Cost, Option<Seen>)> {
        let (rss_bytes, map_bytes) = (peak_rss(self.child.pid())?, self.objects()?.map_bytes());
        let begin = Instant::now();
        self.child.interrupt()?;
        let (attach_s, detach_s) = (self.attach.as_secs_f64(), begin.elapsed().as_secs_f64());
        let seen = match self.mode {
            Mode::Bpftrace => None,
            _ => Some(seen(&self.child.out.rest())?),
        };
        Ok((Cost { cpu_percent, rss_bytes, map_bytes, attach_s, detach_s }, seen))
    }
}

impl Reading {
    /// CPU time used until a later reading, % of one core.
    pub(super) fn percent_until(&self, later: &Self) -> f64 {
        100.0 * later.cpu.saturating_sub(self.cpu).as_secs_f64() / (later.at - self.at).as_secs_f64()
    }
}

/// What lockbpf says in a report that it saw.
fn seen(report: &str) -> Result<Seen> {
    let report: Value = serde_json::from_str(report).context("failed to read lockbpf's report")?;
    let number = |pointer: &str| {
        let found = report.pointer(pointer).and_then(Value::as_u64);
        found.with_context(|| format!("lockbpf's report has no number at {pointer}"))
    };
    let lost = report.pointer("/quality/lost").and_then(Value::as_object);
    Ok(Seen {
        acquisitions: number("/totals/acquisitions")?,
        contended: number("/totals/contended")?,
        events: number("/quality/events")?,
        lost: lost.into_iter().flatten().filter_map(|(_, count)| count.as_u64()).sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_tells_what_was_seen() {
        let report = r#"{"schema": "lockbpf.report/1", "totals": {"acquisitions": 20, "contended": 3},
            "quality": {"events": 9, "lost": {"ring_full": 4, "sums_full": 1}}}"#;
        let expected = Seen { acquisitions: 20, contended: 3, events: 9, lost: 5 };
        assert_eq!(seen(report).unwrap(), expected);
    }

    #[test]
    fn a_report_without_its_totals_is_an_error_that_names_them() {
        let error = seen(r#"{"quality": {"events": 1}}"#).unwrap_err();
        assert!(error.to_string().contains("/totals/acquisitions"), "{error}");
        assert!(seen("").is_err());
    }
}
