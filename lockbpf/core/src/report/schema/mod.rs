//! The report as JSON, schema `lockbpf.report/1`. Times are in ns, as decimals only where the input had them; a field that
//! an observation cannot know is left out or `null`, never guessed. Shares are fractions of 1.

mod blame;
mod caller;
mod counters;
mod danger;
mod functions;
mod graph;
mod lock;
mod pattern;
mod place;
mod quality;
mod runs;
mod section;
mod value;
mod word;

pub use blame::{
    AttributionEntry, BlameEntry, CausesEntry, ChainEntry, CulpritEntry, HolderEntry, LinkEntry, OffStackEntry,
    WaiterEntry,
};
pub use caller::{CallerEntry, CallersEntry};
pub use counters::{BucketEntry, CountedEntry, CounterTotals, CountersEntry, EventEntry, PartHistograms, RegionsEntry};
pub use danger::{BlockedEntry, DeadlockEntry, InversionEntry, OrderEntry};
pub use functions::{CallsEntry, FunctionsEntry, LeftOutEntry, ThreadCallsEntry};
pub use graph::{CriticalPathEntry, EdgeEntry, GraphEntry, NodeEntry, PathLockEntry};
pub use lock::{CorrectedEntry, LockEntry, PairEntry, WaitingNow, WaitingPlace};
pub use pattern::{Convoy, Evidence, FavouredEntry, LockStep, PatternEntry, Starvation, StarvingEntry, ThunderingHerd};
pub use place::{Place, StackFrame};
pub use quality::{
    CoverageEntry, DistrustEntry, FailedProbeEntry, FileHolderEntry, LengthenedEntry, ObservedEntry, PerturbationEntry,
    ProcessCoverageEntry, QualityEntry, SleepEntry, SleepPlace, ThrottledEntry, UnobservedEntry, UnwatchedEntry,
};
pub use runs::{LockSpread, RunsEntry, SiteSpread};
pub use section::{SiteEntry, ThreadEntry};
pub(crate) use value::Unit;
pub use value::{Durations, Ns, ThreadId};
pub use word::{ConditionEntry, FutexCounts, FutexEntry, ThreadWait};

use serde::{Deserialize, Serialize};

/// Value of [`Report::schema`]: changes when a field changes its meaning or goes away.
pub const SCHEMA: &str = "lockbpf.report/1";

/// Everything that an observation says about the locks of its target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// The report in a few sentences, no surer of itself than the data allows.
    pub verdict: Vec<String>,
    /// In a report on several runs, what they are. Figures are then means over the runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs: Option<RunsEntry>,
    /// What the report was restricted to, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selection: Option<Selection>,
    /// Over all locks (of the selection), those left out of `locks` included.
    pub totals: Totals,
    /// Threads that wait for one another in a circle, and did so to the end.
    pub deadlocks: Vec<DeadlockEntry>,
    /// The same of those that went on: they were no deadlocks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended_circles: Vec<DeadlockEntry>,
    /// Patterns of waiting that have names: starvation, thundering herds, convoys, lock-step; those with most waiting first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<PatternEntry>,
    /// Who causes most waiting, over all locks (of the selection).
    pub culprits: Vec<CulpritEntry>,
    /// Most harmful first: by `harm_ns`, then by name.
    pub locks: Vec<LockEntry>,
    /// Static critical sections of `locks`, by rank.
    pub sites: Vec<SiteEntry>,
    /// Events counted in sections, if any were (`--counters`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counters: Option<CountersEntry>,
    /// Calls of the C library, if they were asked for (`--functions`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub functions: Option<FunctionsEntry>,
    /// Longest wait first, then by tid.
    pub threads: Vec<ThreadEntry>,
    /// The longest dependent chain; `null` if no wait is known.
    pub critical_path: Option<CriticalPathEntry>,
    /// Lock orders that could deadlock.
    pub inversions: Vec<InversionEntry>,
    /// The wait graph, if it was asked for; always the whole of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graph: Option<GraphEntry>,
    /// Condition variables: waiting for a condition is idleness, not contention.
    pub conditions: Vec<ConditionEntry>,
    /// Futex words that are no known lock.
    pub futexes: Vec<FutexEntry>,
    /// How far all this can be trusted.
    pub quality: QualityEntry,
}

/// What a report is restricted to: parts of names, symbols or identities.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// Parts that are locks.
    #[serde(default, skip_serializing_if = "Parts::is_empty")]
    pub lock: Parts,
    /// Parts that are static critical sections.
    #[serde(default, skip_serializing_if = "Parts::is_empty")]
    pub site: Parts,
}

/// Parts of names, of which one must match; none of them lets everything pass. One is a string, several are a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "OneOrMore", into = "OneOrMore")]
pub struct Parts(pub Vec<String>);

impl Parts {
    /// Whether everything passes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl From<OneOrMore> for Parts {
    fn from(parts: OneOrMore) -> Self {
        match parts {
            OneOrMore::One(part) => Self(vec![part]),
            OneOrMore::More(parts) => Self(parts),
        }
    }
}

impl From<Parts> for OneOrMore {
    fn from(Parts(mut parts): Parts) -> Self {
        match (parts.pop(), parts.is_empty()) {
            (Some(only), true) => Self::One(only),
            (last, _) => Self::More(parts.into_iter().chain(last).collect()),
        }
    }
}

/// Sums over all locks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Locks seen.
    pub locks: u64,
    /// How many of these were left out of [`Report::locks`] because fewer were asked for.
    pub locks_omitted: u64,
    /// Acquisitions seen.
    pub acquisitions: u64,
    /// Contended ones.
    pub contended: u64,
    /// Σ wait of the contended acquisitions.
    pub wait_ns: Ns,
    /// Σ harm, of the omitted locks too.
    pub harm_ns: Ns,
    /// Σ recorded wait: what is divided among those to blame.
    pub recorded_wait_ns: Ns,
    /// The part of `recorded_wait_ns` for which nobody is to blame, or nobody is known.
    pub unattributed_ns: Ns,
    /// `harm_ns` by how surely it is charged to somebody.
    #[serde(default)]
    pub attribution: AttributionEntry,
    /// Waits that had not ended.
    pub waiting_now: u64,
}
