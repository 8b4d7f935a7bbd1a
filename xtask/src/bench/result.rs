//! What a run found: the shape of its JSON.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::{
    kinds::Kind,
    machine::Machine,
    observer::{Cost, Mode},
    pairs::Pairs,
    server::Server,
    stats::Spread,
    verdict::Verdict,
};

/// Value of [`Results::schema`]: changes when a field changes its meaning or goes away.
pub(super) const SCHEMA: &str = "lockbpf.bench-overhead/1";

/// Everything that a run found.
#[derive(Debug, Serialize)]
pub(super) struct Results {
    /// [`SCHEMA`].
    pub(super) schema: &'static str,
    /// What it was measured on.
    pub(super) machine: Machine,
    /// Whether windows were short and few.
    pub(super) quick: bool,
    /// An uncontended lock.
    pub(super) pairs: Option<Pairs>,
    /// Each kind of lock.
    pub(super) kinds: Vec<Kind>,
    /// Servers under load.
    pub(super) servers: Vec<Server>,
    /// What is not possible on this machine, and why.
    pub(super) skipped: Vec<String>,
    /// What failed to be measured, and why.
    pub(super) failed: Vec<String>,
    /// The figures to reach, and whether they are.
    pub(super) verdicts: Vec<Verdict>,
}

/// What the observer itself used in one mode.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct ObserverUse {
    /// Its CPU time, % of one core.
    pub(super) cpu_percent: Spread,
    /// Its resident memory at most, bytes.
    pub(super) peak_rss_bytes: u64,
    /// Kernel memory of its maps, bytes.
    pub(super) map_bytes: u64,
    /// From its start until it observes, s.
    pub(super) attach_s: Spread,
    /// From its interruption until its exit, s.
    pub(super) detach_s: Spread,
}

impl ObserverUse {
    /// The use of several observations; `None` if there was none.
    pub(super) fn of(costs: &[Cost]) -> Option<Self> {
        Some(Self {
            cpu_percent: Spread::of(costs.iter().map(|cost| cost.cpu_percent))?,
            peak_rss_bytes: costs.iter().map(|cost| cost.rss_bytes).max()?,
            map_bytes: costs.iter().map(|cost| cost.map_bytes).max()?,
            attach_s: Spread::of(costs.iter().map(|cost| cost.attach_s))?,
            detach_s: Spread::of(costs.iter().map(|cost| cost.detach_s))?,
        })
    }
}

/// What was measured in a mode.
#[derive(Debug, Serialize)]
pub(super) struct InMode<T> {
    /// How it was observed.
    pub(super) mode: Mode,
    /// What was measured.
    #[serde(flatten)]
    pub(super) row: T,
}

/// The row of a mode, if that was measured.
pub(super) fn of_mode<T>(rows: &[InMode<T>], mode: Mode) -> Option<&T> {
    rows.iter().find(|row| row.mode == mode).map(|row| &row.row)
}

/// Where the figures go besides the terminal.
#[derive(clap::Args)]
pub(super) struct Output {
    /// Write the figures to this file, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Output {
    /// Writes what a run found, as JSON, if that is wanted.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn write(&self, results: &impl Serialize) -> Result<()> {
        let Some(path) = &self.json else { return Ok(()) };
        let json = serde_json::to_string_pretty(results)? + "\n";
        fs::write(path, json).with_context(|| format!("failed to write {}", path.display()))
    }
}
