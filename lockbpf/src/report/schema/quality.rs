//! How far a report can be trusted.

use super::value::Ns;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How complete the observation was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QualityEntry {
    /// What was observed, in words.
    pub target: String,
    /// How long, ns.
    pub duration_ns: Ns,
    /// Part of that time in which the probes were on.
    pub observed_share: f64,
    /// Whether only the futex tier was on: no acquisitions, no holds.
    pub futex_only: bool,
    /// Processes seen.
    pub processes: u64,
    /// Waits shorter than this were summed only: nobody is blamed for them.
    pub min_wait_ns: Ns,
    /// Events that reached the analysis.
    pub events: u64,
    /// Records that were not made, since they have nothing to do with the locks in the focus: those are counted only.
    #[serde(default)]
    pub unfocused: u64,
    /// What is missing, by cause.
    pub lost: BTreeMap<String, u64>,
    /// Events that came too late to be put in order.
    pub late: u64,
    /// Transitions that a well-formed program cannot make, by kind.
    pub impossible: BTreeMap<String, u64>,
    /// Where the recording began or ended in the middle of something, by kind.
    pub edges: BTreeMap<String, u64>,
    /// Waits that had not ended.
    pub open_at_end: u64,
    /// Probes that failed.
    pub failed_probes: Vec<FailedProbeEntry>,
    /// Remarks, each a full sentence.
    pub notes: Vec<String>,
    /// Whether anything that should be in the report is missing from it.
    pub incomplete: bool,
}

/// A probe that was wanted and is not there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FailedProbeEntry {
    /// Function or tracepoint.
    pub probe: String,
    /// File it was to be placed in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Why.
    pub reason: String,
}
