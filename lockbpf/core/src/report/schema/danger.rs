//! Deadlocks, and orders of locking that could lead there.

use super::place::StackFrame;
use super::value::{Ns, ThreadId};
use serde::{Deserialize, Serialize};

/// Threads that wait for one another in a circle.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeadlockEntry {
    /// When it was found, on the clock of the input.
    pub found_ns: Ns,
    /// When it was over, on the clock of the input; `null` if it stood to the end.
    #[serde(default)]
    pub ended_ns: Option<Ns>,
    /// For how long it stood, as far as was seen: from its last wait's beginning to its end, or to when it was looked at last.
    #[serde(default)]
    pub lasted_ns: Ns,
    /// Whether its process ended before the observation did.
    #[serde(default)]
    pub exited: bool,
    /// Whether it will never go on: it stood at the end, and only its own threads could give back its locks.
    #[serde(default)]
    pub for_ever: bool,
    /// Whether it was there before the observation began.
    pub before_start: bool,
    /// Each waits for a lock that the next one holds, the last for one of the first.
    pub threads: Vec<BlockedEntry>,
}

/// One thread of a deadlock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BlockedEntry {
    /// The thread.
    pub tid: ThreadId,
    /// Its name, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comm: Option<String>,
    /// The lock that it waits for.
    pub lock: String,
    /// The name of that lock, as the table shows it.
    pub name: String,
    /// The lock that it holds and the previous one waits for.
    pub holds: String,
    /// The name of that lock.
    pub holds_name: String,
    /// Where it asked; `null` if that was before the observation.
    pub site: Option<String>,
    /// `function (file:line)` of that place.
    pub symbol: Option<String>,
    /// Since when it waits, as far as was seen, on the clock of the input.
    pub since_ns: Ns,
    /// Its stack when it asked, innermost first.
    pub stack: Vec<StackFrame>,
}

/// Locks that are taken in orders that can lead to a deadlock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InversionEntry {
    /// Each lock is held while the next one is taken, the last while the first is.
    pub orders: Vec<OrderEntry>,
}

/// That a lock was taken while another was held.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OrderEntry {
    /// The lock held.
    pub outer: String,
    /// Its name, as the table shows it.
    pub outer_name: String,
    /// Where it had been requested.
    pub outer_site: Option<String>,
    /// `function (file:line)` of that place.
    pub outer_symbol: String,
    /// The lock taken.
    pub inner: String,
    /// Its name, as the table shows it.
    pub inner_name: String,
    /// Where it was requested.
    pub inner_site: Option<String>,
    /// `function (file:line)` of that place.
    pub inner_symbol: String,
    /// A thread that did so.
    pub tid: ThreadId,
    /// Whether other threads did so, too.
    pub other_threads: bool,
    /// How often.
    pub count: u64,
}
