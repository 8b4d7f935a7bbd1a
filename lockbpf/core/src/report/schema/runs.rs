//! What a report on several runs says beyond one on a single run.

use super::value::Ns;
use serde::{Deserialize, Serialize};

/// Several runs in one report. Means are over all runs: what a run did not see counts 0 there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunsEntry {
    /// How many.
    pub count: u64,
    /// Standard deviation as part of the mean above which a figure is inconclusive.
    pub bound: f64,
    /// Whether a site that causes waiting is inconclusive.
    pub inconclusive: bool,
    /// What was observed in each, in words.
    pub targets: Vec<String>,
}

/// How far the runs agree on a lock. Deviations are those of the sample (n − 1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LockSpread {
    /// Runs in which it was seen.
    pub runs: u64,
    /// Standard deviation of `aplt_ns`.
    pub aplt_sd_ns: Ns,
    /// Standard deviation of Σ wait.
    pub wait_sd_ns: Ns,
    /// Whether a deviation exceeds the bound.
    pub inconclusive: bool,
}

/// How far the runs agree on a static critical section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SiteSpread {
    /// Runs in which it was seen.
    pub runs: u64,
    /// Standard deviation of `apwt_ns`.
    pub apwt_sd_ns: Ns,
    /// Standard deviation of `cpwt_ns`; `null` if no run has one.
    pub cpwt_sd_ns: Option<Ns>,
    /// Standard deviation of `wait_ns`.
    pub wait_sd_ns: Ns,
    /// Whether the deviation of `apwt_ns` or `cpwt_ns` exceeds the bound.
    pub inconclusive: bool,
}
