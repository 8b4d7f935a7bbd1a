//! Events counted in sections (`--counters`).

use super::value::Ns;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What was counted, and what lock profilers make of it. "Clock" is the first event: `cycles`, or `task-clock`, ns on a CPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CountersEntry {
    /// The events, the clock first.
    pub events: Vec<EventEntry>,
    /// What the clock counts: `cycles`, or `ns`.
    pub unit: String,
    /// Over all threads.
    pub totals: CounterTotals,
    /// Shares of the execution.
    pub regions: RegionsEntry,
    /// The three parts of sections, by the clock: one count per acquisition.
    pub dynamic: PartHistograms,
    /// The same with one count per lock, at its mean.
    #[serde(rename = "static")]
    pub of_means: PartHistograms,
    /// By lock, those held longest (by the clock) first.
    pub locks: Vec<CountedEntry>,
    /// By lock and site likewise.
    pub sites: Vec<CountedEntry>,
}

/// An event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EventEntry {
    /// Its name.
    pub name: String,
    /// Share of the time in which it was counted: less than 1 where events took turns. Counts are scaled by it; `null` if it never
    /// was.
    pub counted_share: Option<f64>,
    /// In all threads, since they first locked something.
    pub execution: Option<f64>,
}

/// Sums over all threads, by the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CounterTotals {
    /// Threads counted.
    pub threads: u64,
    /// Distinct locks.
    pub locks: u64,
    /// Sections counted.
    pub sections: u64,
    /// Sections not counted: their CPU could not be read.
    pub sections_uncounted: u64,
    /// Everything since the threads first locked something.
    pub execution: f64,
    /// Inside of lock calls that waited.
    pub lock: f64,
    /// Inside of unlock calls that woke somebody.
    pub unlock: f64,
    /// With at least one lock held: nested holds count once.
    pub held_union: f64,
    /// Summed over locks: nested holds count for each.
    pub held_sum: f64,
    /// `held_sum` / `sections`.
    pub average_held: f64,
    /// 10,000 · `sections` / `execution`.
    pub dynamic_locks_per_10k: f64,
    /// `locks` / `threads`.
    pub static_locks_per_thread: f64,
}

/// HaLock's regions, as shares of the execution. `hold` counts nested holds for each lock, so they may add up to more than 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RegionsEntry {
    /// What has nothing to do with locks.
    pub free: f64,
    /// Inside of lock calls that waited.
    pub lock: f64,
    /// Summed over the locks held.
    pub hold: f64,
    /// Inside of unlock calls that woke somebody.
    pub unlock: f64,
    /// Sections of which the counts are not known, as a share of all sections.
    pub unknown: f64,
}

/// Histograms of acquire (attempt to acquire), release (to the end of its wake-up) and hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PartHistograms {
    /// Attempt to acquire; without a wait 0.
    pub acquire: Vec<BucketEntry>,
    /// Release to the end of the wake-up that it takes; without one 0.
    pub release: Vec<BucketEntry>,
    /// Acquire to release.
    pub hold: Vec<BucketEntry>,
}

/// A bucket of a histogram that is not empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketEntry {
    /// From this on; the first one from 0 on.
    pub from: u64,
    /// Up to less than this; the last one has no end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub below: Option<u64>,
    /// How many.
    pub count: u64,
}

/// What was counted of a lock, or of one of its sites.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CountedEntry {
    /// As in [`super::LockEntry::lock`].
    pub lock: String,
    /// The lock's name, as the table shows it.
    pub label: String,
    /// As in [`super::SiteEntry::site`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// `function (file:line)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub symbol: Option<String>,
    /// Sections counted.
    pub sections: u64,
    /// Share of the holds of all locks, by the clock.
    pub hold_share: f64,
    /// Hold by the wall clock of as many sections, ns.
    pub hold_ns: Ns,
    /// The part of that on a CPU.
    pub on_cpu_ns: Ns,
    /// The part of that without a CPU, though it could have run.
    pub preempted_ns: Ns,
    /// Counts inside of the sections, by event, scaled; an event that was never counted is missing.
    pub hold: BTreeMap<String, f64>,
    /// Counts inside of the waits for it.
    pub wait: BTreeMap<String, f64>,
    /// Waits counted.
    pub waits: u64,
    /// Instructions a cycle, inside of the sections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipc: Option<f64>,
    /// The same of the program's own code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipc_user: Option<f64>,
    /// The same of the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipc_kernel: Option<f64>,
    /// Cache misses per thousand instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub misses_per_kilo_instruction: Option<f64>,
    /// Branch misses per thousand instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch_misses_per_kilo_instruction: Option<f64>,
    /// Share of the cycles, else of the instructions, in the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_share: Option<f64>,
    /// `preempted`, `asleep`, `kernel-bound`, `memory-bound`, `compute`, or `running` where the events counted do not tell.
    pub why: String,
}
