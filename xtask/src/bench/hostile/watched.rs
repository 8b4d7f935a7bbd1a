//! One run of lockbpf on something hostile: how it ended, how long it took, and what it used.

use std::{
    process::{Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use nix::unistd::Pid;

use crate::bench::{
    interrupt,
    usage::{Objects, cpu_time, peak_rss},
};
use crate::process::describe;

/// Memory that lockbpf and its maps may take, bytes.
pub(super) const MEMORY: u64 = 300 << 20;

/// What came of one run, or the worst of several.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run {
    /// Ended by a signal, a panic, or not in time.
    pub(super) failed: u32,
    /// Ended with an error message.
    pub(super) refused: u32,
    /// Ended well.
    pub(super) well: u32,
    /// Longest time.
    pub(super) took: Duration,
    /// Most memory of lockbpf, bytes.
    pub(super) rss: u64,
    /// Most memory of its maps, bytes.
    pub(super) maps: u64,
    /// Highest share of a CPU.
    pub(super) cpu: f64,
}

impl Run {
    /// Adds another one.
    pub(super) fn add(&mut self, other: Self) {
        self.failed += other.failed;
        self.refused += other.refused;
        self.well += other.well;
        self.took = self.took.max(other.took);
        self.rss = self.rss.max(other.rss);
        self.maps = self.maps.max(other.maps);
        self.cpu = self.cpu.max(other.cpu);
    }

    /// Whether nothing failed, and nothing was above its bound.
    pub(super) fn within(&self) -> bool {
        self.failed == 0 && self.rss + self.maps <= MEMORY
    }
}

/// Runs lockbpf to its end, or to the limit. Calls `begun` once, after its start.
///
/// # Errors
/// It cannot be started, `begun` fails, or the benchmark was interrupted.
pub(super) fn watch(
    command: &mut Command,
    limit: Duration,
    poll: Duration,
    begun: impl FnOnce() -> Result<()>,
) -> Result<Run> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let began = Instant::now();
    let mut child = command.spawn().with_context(|| format!("failed to start `{}`", describe(command)))?;
    let pid = Pid::from_raw(child.id().cast_signed());
    let mut run = Run::default();
    let mut cpu = Duration::ZERO;
    let mut begun = Some(begun);
    let status = loop {
        // It may be gone at any moment; what was seen last counts.
        cpu = cpu_time(pid).unwrap_or(cpu).max(cpu);
        run.rss = run.rss.max(peak_rss(pid).unwrap_or(0));
        if poll >= Duration::from_millis(50) {
            run.maps = run.maps.max(Objects::of(pid).map_or(0, |objects| objects.map_bytes()));
        }
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if began.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            break None;
        }
        // Its maps are there when it is about to observe.
        if (run.maps > 0 || began.elapsed() > limit / 2)
            && let Some(begun) = begun.take()
            && let Err(error) = begun()
        {
            child.kill()?;
            child.wait()?;
            return Err(error);
        }
        if let Err(error) = interrupt::sleep(poll) {
            child.kill()?;
            child.wait()?;
            return Err(error);
        }
    };
    run.took = began.elapsed();
    run.cpu = cpu.as_secs_f64() / run.took.as_secs_f64();
    match status.as_ref().and_then(ExitStatus::code) {
        Some(0) => run.well = 1,
        // As for wrong arguments and inputs; Rust's code for a panic is 101.
        Some(1..=3) => run.refused = 1,
        _ => run.failed = 1,
    }
    Ok(run)
}
