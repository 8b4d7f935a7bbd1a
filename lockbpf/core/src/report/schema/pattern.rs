//! Patterns of waiting that have names, and what each rests on. All counts are what there was at least.

use super::value::{Ns, ThreadId};
use serde::{Deserialize, Serialize};

/// One pattern at one lock or condition variable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PatternEntry {
    /// `PID:0xaddress` of the lock or condition variable, or what the input calls it.
    pub lock: String,
    /// Its name, as the table shows it.
    pub name: String,
    /// The waiting for locks that this rests on.
    pub wait_ns: Ns,
    /// Its part of all waiting for locks.
    pub share: f64,
    /// Which pattern, and its evidence.
    #[serde(flatten)]
    pub evidence: Evidence,
}

impl PatternEntry {
    /// Its name and that of its lock: `starvation at `table_lock``.
    #[must_use]
    pub fn title(&self) -> String {
        let pattern = match self.evidence {
            Evidence::Starvation(_) => "starvation",
            Evidence::ThunderingHerd(_) => "thundering herd",
            Evidence::Convoy(_) => "convoy",
            Evidence::LockStep(_) => "lock-step",
        };
        format!("{pattern} at `{}`", self.name)
    }
}

/// What a pattern is told by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "pattern", rename_all = "kebab-case")]
pub enum Evidence {
    /// Some wait far longer than others that want the lock as much.
    Starvation(Starvation),
    /// Many are woken, and nearly all go to sleep again.
    ThunderingHerd(ThunderingHerd),
    /// A queue that does not dissolve, since handing over takes longer than the sections.
    Convoy(Convoy),
    /// Threads that wait for one another at each step.
    LockStep(LockStep),
}

/// Who is overtaken, and by whom.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Starvation {
    /// Those who starve, longest wait first.
    pub starving: Vec<StarvingEntry>,
    /// Those who got the lock while others went on waiting, most often first.
    pub favoured: Vec<FavouredEntry>,
    /// How long who got the lock waited for it itself, Σ over the observation: the mean by how often each got it.
    pub favoured_wait_ns: Ns,
}

/// A thread that starves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StarvingEntry {
    /// The thread.
    pub tid: ThreadId,
    /// Σ wait for the lock.
    pub wait_ns: Ns,
    /// Its waits during which the others' acquisitions were seen.
    pub waits: u64,
    /// How often it was overtaken during these.
    pub overtaken: u64,
}

/// A thread that got the lock while others went on waiting.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FavouredEntry {
    /// The thread.
    pub tid: ThreadId,
    /// How often.
    pub taken: u64,
    /// Σ wait for the lock.
    pub wait_ns: Ns,
}

/// What became of those whom a condition variable woke.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThunderingHerd {
    /// Calls that woke somebody.
    pub wakes: u64,
    /// Threads that these woke.
    pub woken: u64,
    /// Returns from the condition of which it was seen what followed.
    pub returns: u64,
    /// How many of these were followed at once by another wait of the thread.
    pub in_vain: u64,
}

/// How a queue goes on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Convoy {
    /// Threads that waited for the lock.
    pub threads: u64,
    /// Threads that waited at a time, in the mean over the observation.
    pub queue: f64,
    /// The part of the time in which somebody waited in which two or more did.
    pub queued_share: f64,
    /// The part of the acquisitions while others went on waiting that had waited, too.
    pub handed_share: f64,
    /// The part of the time in which somebody waited in which nobody had the lock.
    pub free_share: f64,
}

/// How the rounds of a barrier go on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LockStep {
    /// Threads that meet.
    pub threads: u64,
    /// Arrivals.
    pub arrivals: u64,
    /// The part of all time of these threads that they waited for one another.
    pub waited_share: f64,
    /// The same of the thread that waited least.
    pub least_share: f64,
}
