//! One run of lockbpf on something hostile: how it ended, how long it took, and what it used.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::Path,
    process::{Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use nix::unistd::Pid;
use serde::{Serialize, de::IgnoredAny};

use crate::bench::{
    child::Child,
    interrupt,
    usage::{Objects, children, cpu_time, own_share, rss_beside_maps},
};
use crate::process::describe;

/// Memory that lockbpf, its helpers and its maps may take, bytes.
pub(super) const MEMORY: u64 = 300 << 20;
/// Share of a CPU that lockbpf and its helpers may take while they observe.
pub(super) const CPU: f64 = 0.05;
/// CPU time beyond that, once for each observation: what lockbpf allows itself at the beginning, what its helpers take, the last thing done.
const BURST: Duration = Duration::from_secs(1);
/// How long a report may take: from its input, or from the end of what is observed.
pub(super) const REPORT: Duration = Duration::from_secs(10);
/// After so long, whatever it does, it hangs.
const HANGS: Duration = Duration::from_secs(400);

/// What lockbpf is run on.
pub(super) enum Subject<'a> {
    /// A file.
    Input,
    /// A program, for so long.
    For(Duration),
    /// A program, from before it begins until it ends.
    Whole(&'a mut Child),
}

/// What came of one run, or the worst of several.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Run {
    /// Ended by a signal, a panic, not in time, or with something that is no report.
    pub(super) failed: u32,
    /// Ended with an error message.
    pub(super) refused: u32,
    /// Ended with a report.
    pub(super) well: u32,
    /// Longest time until its report, s: from its start, or from the end of what it observed.
    pub(super) report_s: f64,
    /// Most memory of lockbpf, without its maps, bytes.
    pub(super) rss_bytes: u64,
    /// Most memory of its helpers together, bytes: of pages that several have, such as lockbpf's own file, their parts.
    pub(super) helpers_bytes: u64,
    /// Most memory of its maps, bytes.
    pub(super) map_bytes: u64,
    /// Most memory of all three at one time, bytes; of lockbpf itself what it had at most until then.
    pub(super) together_bytes: u64,
    /// Highest share of a CPU, helpers included, from the beginning of an observation to its end.
    pub(super) cpu: Option<f64>,
    /// Whether that was above the bound.
    pub(super) busy: bool,
}

impl Run {
    /// Adds another one.
    pub(super) fn add(&mut self, other: Self) {
        self.failed += other.failed;
        self.refused += other.refused;
        self.well += other.well;
        self.report_s = self.report_s.max(other.report_s);
        self.rss_bytes = self.rss_bytes.max(other.rss_bytes);
        self.helpers_bytes = self.helpers_bytes.max(other.helpers_bytes);
        self.map_bytes = self.map_bytes.max(other.map_bytes);
        self.together_bytes = self.together_bytes.max(other.together_bytes);
        self.cpu = self.cpu.into_iter().chain(other.cpu).reduce(f64::max);
        self.busy |= other.busy;
    }

    /// Whether nothing failed, and nothing was above its bound. An input may be refused, a program may not.
    pub(super) fn within(&self) -> bool {
        self.failed == 0
            && (self.refused == 0 || self.cpu.is_none())
            && self.report_s <= REPORT.as_secs_f64()
            && self.together_bytes <= MEMORY
            && !self.busy
    }
}

/// Runs lockbpf to its end, or until it is late. Its output is left in two files of the folder, `out` and `err`.
///
/// # Errors
/// It cannot be started, the target is not there any more, or the benchmark was interrupted.
pub(super) fn watch(command: &mut Command, dir: &Path, mut subject: Subject<'_>) -> Result<Run> {
    let (out, err) = (dir.join("out"), dir.join("err"));
    let create = |path: &Path| File::create(path).with_context(|| format!("failed to create {}", path.display()));
    command.stdin(Stdio::null()).stdout(create(&out)?).stderr(create(&err)?);
    let began = Instant::now();
    let child = command.spawn().with_context(|| format!("failed to start `{}`", describe(command)))?;
    let mut child = Ended(child);
    let is_input = matches!(subject, Subject::Input);
    let mut usage = Usage::of(child.0.id().cast_signed());
    let mut observing: Option<(Instant, Duration)> = None;
    let mut used = None;
    // When its report was due at the earliest.
    let mut due = is_input.then_some(began);
    let status = loop {
        if let Some(status) = child.0.try_wait()? {
            break Some(status);
        }
        usage.look(!is_input);
        if due.is_some_and(|due| due.elapsed() > REPORT) || began.elapsed() > HANGS {
            break None;
        }
        if let Some((from, before)) = observing
            && due.is_none_or(|due| due > Instant::now())
        {
            used = Some((usage.cpu().saturating_sub(before), from.elapsed()));
        }
        match (&mut subject, observing) {
            (Subject::Input, _) => {}
            (_, None) => {
                if fs::read_to_string(&err).is_ok_and(|text| text.contains("observing ")) {
                    observing = Some((Instant::now(), usage.cpu()));
                    if let Subject::Whole(target) = &mut subject {
                        target.tell("go")?;
                    }
                }
            }
            (Subject::For(time), Some((from, _))) => due = Some(from + *time),
            (Subject::Whole(target), Some(_)) => {
                if due.is_none() && target.has_exited()? {
                    due = Some(Instant::now());
                }
            }
        }
        interrupt::sleep(if is_input { Duration::from_millis(2) } else { Duration::from_millis(50) })?;
    };
    let mut run = Run {
        report_s: due.map_or(0.0, |due| due.elapsed().as_secs_f64()),
        rss_bytes: usage.rss,
        helpers_bytes: usage.helpers_rss,
        map_bytes: usage.maps,
        together_bytes: usage.together,
        cpu: used.map(|(cpu, time)| cpu.as_secs_f64() / time.as_secs_f64().max(f64::MIN_POSITIVE)),
        busy: used.is_some_and(|(cpu, time)| cpu > BURST + time.mul_f64(CPU)),
        ..Run::default()
    };
    let reported = || fs::read(&out).is_ok_and(|text| serde_json::from_slice::<IgnoredAny>(&text).is_ok());
    match status.as_ref().and_then(ExitStatus::code) {
        Some(0) if reported() => run.well = 1,
        Some(2) => run.refused = 1,
        _ => run.failed = 1,
    }
    Ok(run)
}

/// A child that does not stay behind.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // Both fail only if it has ended, which is as well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a run has used so far. Processes may be gone at any moment; what was seen last counts.
struct Usage {
    pid: Pid,
    cpu: Duration,
    rss: u64,
    maps: u64,
    /// CPU time of each helper that there was.
    helpers: BTreeMap<i32, Duration>,
    /// Memory of those that there were at one time, at most.
    helpers_rss: u64,
    /// Most memory of all at one time.
    together: u64,
}

impl Usage {
    fn of(pid: i32) -> Self {
        let (cpu, helpers) = (Duration::ZERO, BTreeMap::new());
        Self { pid: Pid::from_raw(pid), cpu, rss: 0, maps: 0, helpers, helpers_rss: 0, together: 0 }
    }

    fn look(&mut self, observes: bool) {
        self.cpu = cpu_time(self.pid).unwrap_or_default().max(self.cpu);
        self.rss = rss_beside_maps(self.pid).unwrap_or_default().max(self.rss);
        let (mut maps, mut helpers) = (0, 0);
        if observes {
            maps = Objects::of(self.pid).map_or(0, |objects| objects.map_bytes());
            for pid in children(self.pid) {
                let cpu = self.helpers.entry(pid.as_raw()).or_default();
                *cpu = cpu_time(pid).unwrap_or_default().max(*cpu);
                helpers += own_share(pid).unwrap_or_default();
            }
        }
        self.maps = self.maps.max(maps);
        self.helpers_rss = self.helpers_rss.max(helpers);
        self.together = self.together.max(self.rss + maps + helpers);
    }

    fn cpu(&self) -> Duration {
        self.cpu + self.helpers.values().sum::<Duration>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Run {
        let dir = tempfile::tempdir().unwrap();
        watch(Command::new("sh").args(["-c", script]), dir.path(), Subject::Input).unwrap()
    }

    #[test]
    fn an_end_is_a_report_a_refusal_or_a_failure() {
        let ends = |run: Run| [run.well, run.refused, run.failed];
        assert_eq!(ends(shell("echo {}")), [1, 0, 0]);
        assert_eq!(ends(shell("echo '{'")), [0, 0, 1]);
        assert_eq!(ends(shell("exit 2")), [0, 1, 0]);
        // As Rust's panics do.
        assert_eq!(ends(shell("exit 101")), [0, 0, 1]);
        assert_eq!(ends(shell("kill -SEGV $$")), [0, 0, 1]);
    }

    #[test]
    fn what_a_program_used_is_seen() {
        // Memory is known of a program that runs, and whoever looks may wait long for a CPU.
        let run = shell("sleep 3; echo {}");
        assert!(run.rss_bytes > 500_000 && run.report_s > 0.0 && run.cpu.is_none(), "{run:?}");
    }

    #[test]
    fn an_observation_may_refuse_nothing_and_each_bound_counts() {
        let well = Run { well: 1, together_bytes: 300 << 20, cpu: Some(0.01), ..Run::default() };
        assert!(well.within());
        assert!(Run { refused: 1, cpu: None, ..well }.within());
        for above in [
            Run { refused: 1, ..well },
            Run { failed: 1, ..well },
            Run { together_bytes: 301 << 20, ..well },
            Run { busy: true, ..well },
            Run { report_s: 10.1, ..well },
        ] {
            assert!(!above.within(), "{above:?}");
            let mut both = well;
            both.add(above);
            assert!(!both.within() && both.well == 2, "{both:?}");
        }
    }
}
