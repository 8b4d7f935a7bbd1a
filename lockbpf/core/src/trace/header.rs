//! What a recording says of itself.

use crate::perturbation::Perturbation;
use crate::quality::{FailedProbe, Quality, Throttled, Unobserved, Unwatched};
use crate::units::Nanos;
use lockbpf_common::counter::Counter;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Who recorded what, where, when and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// Version of lockbpf that wrote it.
    pub lockbpf: String,
    /// Name of the machine.
    pub host: String,
    /// Release of its kernel.
    pub kernel: String,
    /// Its architecture.
    pub arch: String,
    /// What was observed, in words.
    pub target: String,
    /// The clock of all times: `CLOCK_MONOTONIC`, or empty if they came from elsewhere.
    pub clock: String,
    /// When the recording began, on that clock, in units of 1/`ticks_per_ns` ns.
    pub start: u64,
    /// The same moment in ns since 1970 (UTC), if known.
    pub wall_ns: Option<u64>,
    /// Units of time per ns; 0 means 1.
    pub ticks_per_ns: u64,
    /// How it was captured; `None` if it was converted from event lines.
    pub capture: Option<Capture>,
    /// If a flight recorder wrote it: what came before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<Kept>,
}

/// Which part of an observation a flight recorder's segment is, or what was made of segments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Kept {
    /// Number of the segment, from 0: so many came before it.
    pub number: u64,
    /// When the observation began, on the clock of [`Header::start`].
    pub observed_since: u64,
    /// Events before it.
    pub events_before: u64,
    /// The time that the flight recorder was asked to keep, ns.
    pub keep_ns: u64,
    /// The bytes that it may have.
    pub keep_bytes: u64,
}

/// How a recording was captured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Capture {
    /// Contended sections that waited less, ns, were summed up but not recorded.
    pub min_wait_ns: u64,
    /// Whether every section was recorded, and not only contended ones and those that made them wait.
    pub all_events: bool,
    /// Whether transitions from lock to lock were summed up.
    pub transitions: bool,
    /// Whether no uprobes were placed.
    pub futex_only: bool,
    /// Whether waits for kernel locks were recorded.
    pub kernel_locks: bool,
    /// Names of the events counted in sections, the clock first; none if none were.
    pub counters: Vec<String>,
    /// CPUs that the observed processes could use; 0 if that is not known.
    pub cpus: u32,
    /// Only threads with this name.
    pub comm: Option<String>,
    /// Only these threads, if any.
    pub tids: Vec<u32>,
    /// The uprobes.
    pub probes: Vec<Probe>,
}

/// A uprobe in place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Probe {
    /// The function.
    pub function: String,
    /// The file, as its users see it.
    pub file: String,
    /// Offset of the probed instruction in the file.
    pub offset: u64,
    /// How it was placed: `session` or `perf_event`.
    pub how: String,
}

/// What a process is beside its name: the files that it has mapped, and its cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Modules {
    /// Number of the process.
    pub process: u32,
    /// Its files; none where no event names the process.
    pub modules: Vec<Module>,
    /// Path of its cgroup when it was first seen, if that is known and not the root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
}

/// A file in the memory of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Module {
    /// Last component of its path.
    pub file: String,
    /// GNU build id, in hexadecimal.
    pub build_id: Option<String>,
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// What is added to an address in the file to get one in memory.
    pub bias: u64,
}

/// A complete snapshot: when, and the losses up to then.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Checkpoint {
    pub time: u64,
    pub events: u64,
    /// Of locks, since the beginning.
    pub acquisitions: u64,
    /// Lines of access records.
    pub accesses: u64,
    pub quality: Losses,
}

/// [`Quality`] as it is written.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Losses {
    counters: BTreeMap<String, u64>,
    undecodable: BTreeMap<String, u64>,
    late: u64,
    paused_ns: u64,
    failed_probes: Vec<Failed>,
    perturbation: Option<Perturbation>,
    unobserved: Vec<Unobserved>,
    throttled: Vec<Throttled>,
    unwatched: Vec<Unwatched>,
    virtual_threads: BTreeSet<u32>,
    notes: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Failed {
    probe: String,
    file: Option<String>,
    reason: String,
}

/// Names of defects of records ([`crate::decode::DecodeError::name`]).
const UNDECODABLE: [&str; 3] = ["truncated", "unknown_tag", "unknown_value"];

impl From<&Quality> for Losses {
    fn from(q: &Quality) -> Self {
        let named = |counts: &BTreeMap<&'static str, u64>| counts.iter().map(|(&k, &n)| (k.to_owned(), n)).collect();
        let failed =
            |f: &FailedProbe| Failed { probe: f.probe.clone(), file: f.file.clone(), reason: f.reason.clone() };
        Self {
            counters: named(&q.counters),
            undecodable: named(&q.undecodable),
            late: q.late,
            paused_ns: q.paused.0,
            failed_probes: q.failed_probes.iter().map(failed).collect(),
            perturbation: q.perturbation,
            unobserved: q.unobserved.clone(),
            throttled: q.throttled.clone(),
            unwatched: q.unwatched.clone(),
            virtual_threads: q.virtual_threads.clone(),
            notes: q.notes.clone(),
        }
    }
}

impl Losses {
    /// Adds a remark.
    pub(super) fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// The losses as they were told. What this version has no name for is put in words.
    pub(super) fn quality(self) -> Quality {
        let mut quality = Quality {
            late: self.late,
            paused: Nanos(self.paused_ns),
            perturbation: self.perturbation,
            unobserved: self.unobserved,
            throttled: self.throttled,
            unwatched: self.unwatched,
            virtual_threads: self.virtual_threads,
            notes: self.notes,
            ..Quality::default()
        };
        for (name, count) in self.counters {
            match Counter::ALL.iter().find(|c| c.name() == name) {
                Some(counter) => drop(quality.counters.insert(counter.name(), count)),
                None => quality.notes.push(format!("the recorder also counted {count} {name}.")),
            }
        }
        for (name, count) in self.undecodable {
            match UNDECODABLE.iter().find(|&&known| known == name) {
                Some(&known) => drop(quality.undecodable.insert(known, count)),
                None => {
                    let others = quality.undecodable.entry("other").or_default();
                    *others = others.saturating_add(count);
                }
            }
        }
        let failed = self.failed_probes.into_iter();
        quality.failed_probes.extend(failed.map(|f| FailedProbe { probe: f.probe, file: f.file, reason: f.reason }));
        quality
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_name_here_is_counted_whatever_a_file_says() {
        let undecodable = [("new", u64::MAX), ("newer", 2), ("truncated", 3)];
        let losses = Losses {
            undecodable: undecodable.map(|(name, count)| (name.to_owned(), count)).into(),
            ..Losses::default()
        };
        let quality = losses.quality();
        assert_eq!((quality.undecodable["other"], quality.undecodable["truncated"]), (u64::MAX, 3));
    }

    #[test]
    fn quotas_that_were_used_up_survive() {
        let cgroup = "/a\u{1b}".to_owned();
        let group =
            Throttled { cgroup, pids: vec![3], millicpus: 500, periods: 9, throttled_periods: 8, throttled_ns: 7 };
        let unwatched =
            vec![Unwatched { pid: 3, call: "flock".to_owned(), looks: 4, threads: 9, ..Unwatched::default() }];
        let quality = Quality {
            throttled: vec![group.clone()],
            unwatched: unwatched.clone(),
            virtual_threads: BTreeSet::from([7]),
            ..Quality::default()
        };
        let written = serde_json::to_string(&Losses::from(&quality)).unwrap();
        let read = serde_json::from_str::<Losses>(&written).unwrap().quality();
        assert_eq!((read.unwatched, read.virtual_threads), (unwatched, BTreeSet::from([7])));
        assert_eq!(read.throttled, [Throttled { cgroup: "/a\\u{1b}".to_owned(), ..group }]);
    }

    #[test]
    fn cgroups_may_be_missing() {
        let before = r#"{"process":3,"modules":[]}"#;
        let told: Modules = serde_json::from_str(before).unwrap();
        assert_eq!(told, Modules { process: 3, ..Modules::default() });
        assert_eq!(serde_json::to_string(&told).unwrap(), before);
    }
}
