//! How far a report can be trusted.

use super::value::Ns;
use crate::estimate::Interval;
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
    /// Waits for kernel spin locks in interrupts on top of the observed threads: of nobody's doing, and in no other figure.
    #[serde(default)]
    pub kernel_in_interrupts: u64,
    /// What is missing, by cause.
    pub lost: BTreeMap<String, u64>,
    /// Events that came too late to be put in order.
    pub late: u64,
    /// Transitions that a well-formed program cannot make, by kind.
    pub impossible: BTreeMap<String, u64>,
    /// Where the recording began or ended in the middle of something, by kind.
    pub edges: BTreeMap<String, u64>,
    /// How much of the time every lock operation was observed, and at what cost; left out where that was not governed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed: Option<ObservedEntry>,
    /// What observing took of the target; left out where that was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub perturbation: Option<PerturbationEntry>,
    /// Waits that had not ended.
    pub open_at_end: u64,
    /// Probes that failed.
    pub failed_probes: Vec<FailedProbeEntry>,
    /// Remarks, each a full sentence.
    pub notes: Vec<String>,
    /// Whether anything that should be in the report is missing from it.
    pub incomplete: bool,
}

/// What observing took of the target's threads, each event priced by what it costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PerturbationEntry {
    /// Hits of probes.
    pub hits: u64,
    /// Of these, hits that the kernel had to single-step.
    pub stepped_hits: u64,
    /// Futex calls seen.
    pub futex_calls: u64,
    /// Switches away from threads that held locks.
    pub switches: u64,
    /// Records written.
    pub records: u64,
    /// Bytes of memory written for them.
    pub record_bytes: u64,
    /// Bytes of memory written for copies of stacks.
    #[serde(default)]
    pub stack_bytes: u64,
    /// What all that cost, ns of CPU time.
    pub cost_ns: Ns,
    /// That by the CPU time that the target used; `null` if it is not known.
    pub cost_share: Option<f64>,
    /// Whether the prices were measured on this machine; else they are cautious ones.
    pub measured: bool,
}

/// How much was fully observed, and what observing cost. Shares are fractions of 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ObservedEntry {
    /// Share of the target's CPU time that observing was allowed to cost; `null` without a bound.
    pub budget: Option<f64>,
    /// What observing adds to a hold, ns. Estimates are without it, exact figures are not.
    pub hold_bias_ns: Interval,
    /// Over all processes.
    #[serde(flatten)]
    pub overall: CoverageEntry,
    /// Each process.
    pub processes: Vec<ProcessCoverageEntry>,
}

/// How much was fully observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CoverageEntry {
    /// Of the time.
    pub time_share: f64,
    /// Of the CPU time that the target itself used.
    pub cpu_share: f64,
    /// In how many windows.
    pub windows: u64,
    /// What observing cost, of the CPU time that was used.
    pub cost_share: f64,
    /// Whether some of it was observed in windows only: its counts are estimates.
    pub estimated: bool,
}

/// How much of a process was fully observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessCoverageEntry {
    /// Process id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Process name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comm: Option<String>,
    /// How much.
    #[serde(flatten)]
    pub coverage: CoverageEntry,
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
