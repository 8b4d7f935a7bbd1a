//! How far a report can be trusted.

use super::value::Ns;
use crate::estimate::Interval;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

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
    /// Waits seen by futex calls alone that were not recorded, to keep the budget: those that were stand for them, too.
    #[serde(default)]
    pub thinned: u64,
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
    /// When processes ran and used their locks, and their probes saw nothing of it: what is told of them is of other times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unobserved: Vec<UnobservedEntry>,
    /// Cgroups of observed processes that used up their quotas of CPU time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub throttled: Vec<ThrottledEntry>,
    /// Waiting for locks of kinds that are not observed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unwatched: Vec<UnwatchedEntry>,
    /// Processes in which Java's virtual threads run whose waits for locks of `java.util.concurrent` are not seen: meanwhile no thread sleeps.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub virtual_threads: BTreeSet<u32>,
    /// Which figures are lockbpf's own doing rather than the target's; left out where observing changed little.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distrust: Option<DistrustEntry>,
    /// In what threads slept, by kind; left out where nobody slept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sleep: Option<SleepEntry>,
    /// Waits that had not ended.
    pub open_at_end: u64,
    /// Probes that failed.
    pub failed_probes: Vec<FailedProbeEntry>,
    /// Remarks, each a full sentence.
    pub notes: Vec<String>,
    /// Whether anything that should be in the report is missing from it.
    pub incomplete: bool,
}

/// Where threads of a process wait for locks that are not observed: in a system call for locks of files (`flock`, `fcntl`) or for semaphores of
/// System V (`semop`), or for the kernel's own (`kernel lock`). It is what looks at its threads have found, a few in each second at most.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UnwatchedEntry {
    /// The process.
    pub pid: u32,
    /// Its name, if that is known.
    pub comm: Option<String>,
    /// The call, or `kernel lock`.
    pub call: String,
    /// How often its threads were looked at.
    pub looks: u64,
    /// Threads found in the call, summed over the looks.
    pub found: u64,
    /// The mean number of threads that waited there: `found` divided by `looks`.
    pub threads: f64,
    /// The file whose lock they waited for, if it is one's and could be found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Who had that lock most often, if that could be found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<FileHolderEntry>,
}

/// A process that had the lock of a file when threads were found to wait for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FileHolderEntry {
    /// The process.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// The part of the looks at which it had the lock.
    pub share: f64,
}

/// A time in which a process was not observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UnobservedEntry {
    /// The process.
    pub pid: u32,
    /// Its name, if that is known.
    pub comm: Option<String>,
    /// Since when, from the beginning of the observation.
    pub from_ns: Ns,
    /// Until when; `null` for the end.
    pub to_ns: Option<Ns>,
}

/// A cgroup whose threads the kernel kept off the CPUs, since its quota was used up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThrottledEntry {
    /// Its path in the hierarchy.
    pub cgroup: String,
    /// The observed processes in it, or below it.
    pub pids: Vec<u32>,
    /// Their names, each once.
    pub comms: Vec<String>,
    /// CPUs that it may use.
    pub quota_cpus: f64,
    /// Periods of the observation in which its threads were ready to run.
    pub periods: u64,
    /// Those in which the quota was used up.
    pub throttled_periods: u64,
    /// How long its threads were kept off, summed over CPUs.
    pub throttled_ns: Ns,
}

/// What observing took of the target's threads, each event priced by what it costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PerturbationEntry {
    /// Hits of probes.
    pub hits: u64,
    /// How many of these were hits that the kernel had to single-step.
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
    /// What observing adds to a hold, ns.
    #[serde(default)]
    pub hold_bias_ns: Ns,
    /// That by the CPU time that the target used; `null` if it is not known.
    pub cost_share: Option<f64>,
    /// The part of this share that seeing futex calls cost, which no budget bounds; `null` likewise.
    #[serde(default)]
    pub futex_cost_share: Option<f64>,
    /// Whether the prices were measured on this machine; else they are cautious ones.
    pub measured: bool,
    /// Processes that the observed ones started while probes were in place in them.
    #[serde(default)]
    pub children: u64,
    /// What those paid at most until the probes were out of their memory: the time that they used until then.
    #[serde(default)]
    pub children_cost_at_most_ns: Ns,
}

/// What observing did to the figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DistrustEntry {
    /// What observing cost, of the target's CPU time, if that is much: contention and waiting for short sections are then
    /// lockbpf's own, unless `times_waited` or `off_cpu_share` says otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_share: Option<f64>,
    /// How many times as long as that threads waited, if it is so many that observing cannot have made them wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times_waited: Option<u64>,
    /// The part of all waiting during which whoever is to blame slept or was blocked, if that is nine tenths or more and `times_waited` is not
    /// known: observing cannot have caused that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off_cpu_share: Option<f64>,
    /// Whether that is so much that critical sections have no rank that would mean anything.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unranked: bool,
    /// What observing adds to each hold, ns.
    pub hold_bias_ns: Ns,
    /// Locks whose holds it lengthens by much of their median: these holds, and the contention that comes of them, are in part
    /// lockbpf's own. Estimates are corrected for it, and not among them.
    pub lengthened: Vec<LengthenedEntry>,
}

/// All sleep in futex calls that was seen, of all threads, by what it was for. Waits that have not ended are included.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SleepEntry {
    /// Waiting for locks (and barriers), that for locks of the kernel included: [`super::Totals::harm_ns`].
    pub locks_ns: Ns,
    /// In condition variables: idle, as far as can be told.
    pub conditions_ns: Ns,
    /// For the end of other threads.
    pub joins_ns: Ns,
    /// Parked by a runtime that has locks of its own (`java.util.concurrent`): for a lock, or idle.
    pub parked_ns: Ns,
    /// For locks of a runtime's whose waiters sleep on words of their own: which lock, futex calls do not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtimes_ns: Option<Ns>,
    /// On words of which it is not known what they are for, or that are locks of libraries.
    pub unknown_ns: Ns,
    /// Where most of the last three was slept, longest first.
    pub places: Vec<SleepPlace>,
}

/// A place in which threads slept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SleepPlace {
    /// The function, else the name of the word.
    pub symbol: String,
    /// How long.
    pub slept_ns: Ns,
}

/// A lock whose holds observing lengthened by much.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LengthenedEntry {
    /// As in [`super::LockEntry::lock`].
    pub lock: String,
    /// Its name, as the table shows it.
    pub name: String,
    /// The median hold without what observing added.
    pub median_hold_ns: Ns,
    /// Whether observing may have caused more than a tenth of the waiting for it.
    pub may_make_wait: bool,
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
    /// The share of the time.
    pub time_share: f64,
    /// The share of the CPU time that the target itself used.
    pub cpu_share: f64,
    /// In how many windows.
    pub windows: u64,
    /// What observing cost, of the CPU time that was used.
    pub cost_share: f64,
    /// The same in CPUs: in CPU time for the time in which it was observed.
    #[serde(default)]
    pub cost_cpus: f64,
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
