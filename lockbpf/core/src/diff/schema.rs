//! The comparison as JSON, schema `lockbpf.diff/1`.

use super::change::{Change, Thresholds};
use super::gate::Judged;
use serde::Serialize;

/// Value of [`Diff::schema`]: changes when a field changes its meaning or goes away.
pub const SCHEMA: &str = "lockbpf.diff/1";

/// What changed from recording A to recording B.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diff {
    /// [`SCHEMA`].
    pub schema: String,
    /// The first recording.
    pub a: RecordingEntry,
    /// The second recording.
    pub b: RecordingEntry,
    /// What a change must exceed to be called out.
    pub thresholds: Thresholds,
    /// Conditions on which the comparison fails, if any were given, and what became of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gate: Vec<Judged>,
    /// The changes that are called out, in words, most important first.
    pub findings: Vec<Finding>,
    /// Over all locks.
    pub overall: Overall,
    /// By lock: the greatest change of waiting first, then of holding, then by name.
    pub locks: Vec<LockDiff>,
    /// By static critical section: the greatest change of the waiting that it causes first, then by name.
    pub sites: Vec<SiteDiff>,
}

/// One of the recordings.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RecordingEntry {
    /// What was observed, in words.
    pub target: String,
    /// How long, ns: what rates refer to.
    pub observed_ns: f64,
    /// Threads seen.
    pub threads: u64,
    /// Whether anything is missing from it.
    pub incomplete: bool,
}

/// A change in words.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Finding {
    /// `lock`, `site` or `overall`.
    pub about: &'static str,
    /// Name of the lock, or symbol of the site.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The sentence.
    pub text: String,
}

/// LiMiT's longitudinal quantities.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Overall {
    /// Lock time: Σ wait of all threads over (threads × time).
    pub lock_time_share: Change,
    /// Threads waiting for a lock on average: Σ wait over time.
    pub waiting_threads: Change,
    /// Held time: Σ time with at least one lock held of all threads over (threads × time).
    pub held_share: Change,
    /// Threads holding a lock on average: the same sum over time.
    pub holding_threads: Change,
    /// Average held time of an acquisition, ns.
    pub mean_hold_ns: Change,
    /// Contended acquisitions of all.
    pub contended_share: Change,
    /// Static locks: distinct locks seen.
    pub static_locks: Change,
    /// Static locks per thread.
    pub static_locks_per_thread: Change,
    /// Dynamic locks: acquisitions per second.
    pub dynamic_locks_per_s: Change,
}

/// Where something was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Presence {
    /// In both recordings.
    #[default]
    Both,
    /// In B only.
    New,
    /// In A only.
    Vanished,
}

/// One lock.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LockDiff {
    /// Its name, with its process in front if the recordings have several; B's where they differ.
    pub name: String,
    /// A's name, where it differs: matched without line numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_a: Option<String>,
    /// `mutex`, …
    pub kind: String,
    /// Where it was seen.
    pub presence: Presence,
    /// Locks of that name in A and in B: several where processes of one name have it, and of locks without a symbol, all
    /// that were first requested at one site.
    pub instances: [u64; 2],
    /// Completed sections per second.
    pub acquisitions_per_s: Change,
    /// Contended acquisitions of all.
    pub contended_share: Change,
    /// Σ wait per second, of timed-out attempts and of waits that had not ended too, ns.
    pub wait_ns_per_s: Change,
    /// Mean hold, ns.
    pub mean_hold_ns: Change,
    /// Σ hold over time: the part of the time in which the lock is held (more than 1 for shared holders).
    pub held_share: Change,
    /// Waiting per second that its holders cause, ns.
    pub aplt_ns_per_s: Change,
}

/// One static critical section.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SiteDiff {
    /// Its symbol; B's where they differ.
    pub symbol: String,
    /// A's symbol, where it differs: matched without line numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub symbol_a: Option<String>,
    /// Name of its lock; of several, the one whose holding here causes most waiting.
    pub lock: String,
    /// Where it was seen.
    pub presence: Presence,
    /// Completed sections per second.
    pub instances_per_s: Change,
    /// Σ wait per second, ns.
    pub wait_ns_per_s: Change,
    /// Mean hold, ns.
    pub mean_hold_ns: Change,
    /// Waiting per second that its sections cause (APWT), ns.
    pub apwt_ns_per_s: Change,
}
