//! The wait graph itself, and its critical path.

use super::value::{Ns, ThreadId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Dynamic critical sections and who waits because of whom.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GraphEntry {
    /// In the order of their attempts.
    pub nodes: Vec<NodeEntry>,
    /// By target. The costs into a node and its `unattributed_ns` add up to its wait (except with overlapping barriers).
    pub edges: Vec<EdgeEntry>,
    /// Waiting without anybody to blame, by node; nodes without are left out.
    pub unattributed_ns: BTreeMap<String, Ns>,
    /// Connected components that end on the thread that finished last, by node.
    pub critical_components: Vec<Vec<String>>,
    /// The thread that finished last.
    pub last_thread: Option<ThreadId>,
}

/// A dynamic critical section.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeEntry {
    /// `d1`, `d2`, … in the order of attempts.
    pub id: String,
    /// Static critical section; `null` if that was not seen.
    pub site: Option<String>,
    /// The thread.
    pub tid: ThreadId,
    /// The lock or barrier.
    pub lock: String,
    /// On the clock of the input; `null` if it was before the recording.
    pub attempt_ns: Option<Ns>,
    /// `null` if it was not obtained.
    pub acquire_ns: Option<Ns>,
    /// `null` if it was not given back.
    pub release_ns: Option<Ns>,
}

/// One waits because of the other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EdgeEntry {
    /// The node to blame.
    pub from: String,
    /// The node that waits.
    pub to: String,
    /// `direct`, `indirect`, `nested` or `barrier`.
    pub kind: String,
    /// For how long.
    pub cost_ns: Ns,
    /// Whether it rests on something less than the recorded order of holders.
    pub inferred: bool,
}

/// The longest dependent chain through the recording, from its end back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CriticalPathEntry {
    /// Where it begins, on the clock of the input.
    pub start_ns: Ns,
    /// Where it ends.
    pub end_ns: Ns,
    /// `end_ns − start_ns`.
    pub length_ns: Ns,
    /// The part of it that passed while the thread that follows on the path waited for a lock.
    pub waiting_ns: Ns,
    /// `waiting_ns` as part of `length_ns`.
    pub waiting_share: f64,
    /// `waiting_ns` by lock, longest first.
    pub locks: Vec<PathLockEntry>,
    /// Changes of thread.
    pub hops: u64,
    /// The thread that it ends on.
    #[serde(default)]
    pub last_thread: Option<ThreadId>,
    /// Whether that thread ended the program: it called `exit`, or returned from `main`. Else the program went on, and the path is
    /// that to the last event.
    #[serde(default)]
    pub ended: bool,
    /// If it did not: threads from whose last event the path was followed as well.
    #[serde(default)]
    pub ends: u64,
    /// How many of these wait for the same lock the longest.
    #[serde(default)]
    pub agreeing: u64,
    /// Whether earlier waits were forgotten.
    pub truncated: bool,
}

/// The part of the critical path that passed in waiting for one lock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathLockEntry {
    /// The lock.
    pub lock: String,
    /// Its name, as the table shows it.
    pub name: String,
    /// How long.
    pub wait_ns: Ns,
    /// Part of the path's length.
    pub share: f64,
    /// How often.
    pub hops: u64,
}
