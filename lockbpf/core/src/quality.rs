//! How complete an observation is: every loss by its cause, every probe that failed, and what that means for a reader.

use crate::perturbation::Perturbation;
use crate::units::Nanos;
use crate::untrusted;
use lockbpf_common::counter::{Class, Counter};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A probe that was wanted and is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedProbe {
    /// Function or tracepoint.
    pub probe: String,
    /// File it was to be placed in; `None` for tracepoints.
    pub file: Option<String>,
    /// Why, in one line.
    pub reason: String,
}

/// A time in which a process ran, and its probes saw nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unobserved {
    /// The process.
    pub pid: u32,
    /// Since when, ns from the beginning of the observation.
    pub from_ns: u64,
    /// Until when, likewise; `None` for the end.
    pub to_ns: Option<u64>,
}

/// A cgroup that used up its quota of CPU time: the kernel then keeps all of its threads off the CPUs to the end of a period, whatever locks
/// they hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Throttled {
    /// Its path in the hierarchy.
    #[serde(deserialize_with = "untrusted::read")]
    pub cgroup: String,
    /// The observed processes in it, or below it.
    pub pids: Vec<u32>,
    /// Thousandths of a CPU that it may use.
    pub millicpus: u64,
    /// Periods of the observation in which its threads were ready to run.
    pub periods: u64,
    /// Those in which the quota was used up.
    pub throttled_periods: u64,
    /// How long its threads were kept off, summed over CPUs.
    pub throttled_ns: u64,
}

/// [`Unwatched::call`] of whoever waits for a lock of the kernel's own, whatever it had called.
pub const KERNEL_LOCK: &str = "kernel lock";

/// Where threads of a process were found, asleep for a lock of a kind that is not observed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Unwatched {
    /// The process.
    pub pid: u32,
    /// The system call, `flock`, `fcntl` or `semop`; or [`KERNEL_LOCK`].
    #[serde(deserialize_with = "untrusted::read")]
    pub call: String,
    /// How often its threads were looked at.
    pub looks: u64,
    /// Threads found there, summed over the looks.
    pub threads: u64,
    /// The file whose lock they waited for; `None` if that could not be found, or it is no file's.
    #[serde(deserialize_with = "untrusted::read_some")]
    pub file: Option<String>,
    /// Who had that lock most often.
    pub holder: Option<FileHolder>,
}

/// A process that had the lock of a file when others were found to wait for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileHolder {
    /// The process.
    pub pid: u32,
    /// Its name.
    #[serde(deserialize_with = "untrusted::read")]
    pub comm: String,
    /// How often it had the lock when it was looked who has.
    pub looks: u64,
    /// How often it was looked.
    pub of_looks: u64,
}

/// Everything that bears on how far a report can be trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quality {
    /// Kernel-side counters that are not zero.
    pub counters: BTreeMap<&'static str, u64>,
    /// Records that user space could not make sense of, by kind of defect.
    pub undecodable: BTreeMap<&'static str, u64>,
    /// Events that came too late to be merged in order.
    pub late: u64,
    /// Events that reached the analysis.
    pub events: u64,
    /// Time between start and end during which the probes were off.
    pub paused: Nanos,
    /// When processes were not observed although their gates were open.
    pub unobserved: Vec<Unobserved>,
    /// Cgroups that used up their quotas.
    pub throttled: Vec<Throttled>,
    /// Waiting for locks of kinds that are not observed.
    pub unwatched: Vec<Unwatched>,
    /// Processes in which Java's virtual threads run whose waits for locks of `java.util.concurrent` are not seen.
    pub virtual_threads: BTreeSet<u32>,
    /// Probes that failed.
    pub failed_probes: Vec<FailedProbe>,
    /// What observing took of the target; `None` where that was not measured.
    pub perturbation: Option<Perturbation>,
    /// Remarks for the reader, each a full sentence.
    pub notes: Vec<String>,
}

impl Quality {
    /// Sum of the kernel counters of one class.
    #[must_use]
    pub fn total(&self, class: Class) -> u64 {
        self.of_class(class).map(|(_, n)| n).sum()
    }

    /// The non-zero kernel counters of one class.
    pub fn of_class(&self, class: Class) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Counter::ALL
            .iter()
            .filter(move |c| c.class() == class)
            .filter_map(|c| self.counters.get(c.name()).map(|&n| (c.name(), n)))
            .filter(|&(_, n)| n > 0)
    }

    /// Whether anything that should be in the report is missing from it (exit status 1 under `--strict`). Late events
    /// are not: they reach the analysis, out of order.
    #[must_use]
    pub fn incomplete(&self) -> bool {
        self.total(Class::Lost) > 0
            || !self.undecodable.is_empty()
            || !self.failed_probes.is_empty()
            || !self.unobserved.is_empty()
    }
}
