//! What the screen shows of one moment: small enough to keep those of ten minutes, and what is exported.

use crate::alert::HeldFor;
use crate::report::histograms::Bar;
use serde::Serialize;
use std::collections::BTreeMap;

/// One snapshot, ready to be shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Frame {
    /// When it was taken, from the beginning of the observation.
    pub at_ns: u64,
    /// How long the spans are that are called the last second and the last ten: to a snapshot, which may be rarer.
    pub spans_ns: [u64; 2],
    /// What is observed, in words.
    pub target: String,
    /// The report so far in a few sentences.
    pub verdict: Vec<String>,
    /// How much of the time was observed, in words.
    pub coverage: String,
    /// What observing costs, in words.
    pub cost: String,
    /// What is to be noticed.
    pub warnings: Vec<String>,
    /// By lock.
    pub locks: Vec<Row>,
    /// By critical section: the waiting that it caused.
    pub culprits: Vec<Row>,
    /// By waiting thread.
    pub threads: Vec<Row>,
    /// By process.
    pub processes: Vec<Row>,
    /// The locks that matter most, and those that are waited for now, closely.
    pub details: BTreeMap<String, Detail>,
}

/// A line of a list.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Row {
    /// By what it is known from one frame to the next.
    pub id: String,
    /// What it is called.
    pub name: String,
    /// What else there is to know: a kind, a lock, a process.
    pub about: String,
    /// Its process, if it has one.
    pub pid: Option<u32>,
    /// The lock that it leads to.
    pub lock: Option<String>,
    /// How many threads waited on average: in the last second, in the last ten, since the start.
    pub waiting: [f64; 3],
    /// All waiting since the start.
    pub wait_ns: u64,
    /// Whether these rest on estimates.
    pub estimated: bool,
    /// Threads that wait now; `None` where that is not told.
    pub waiting_now: Option<u64>,
    /// How many threads waited on average, from snapshot to snapshot, oldest first.
    pub spark: Vec<f64>,
}

/// A lock, closely.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Detail {
    /// What it is called.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Its process, in words.
    pub process: String,
    /// Who holds it now.
    pub holder: HolderNow,
    /// Who waits for it now, longest first.
    pub waiters: Vec<WaiterNow>,
    /// How many more wait.
    pub more_waiters: u64,
    /// What its holder waits for, and so on.
    pub chain: Vec<LinkNow>,
    /// How its waiting came about through other locks since the start, heaviest first.
    pub chains: Vec<Part>,
    /// Acquisitions since the start, if they are seen.
    pub acquisitions: Option<u64>,
    /// Contended ones.
    pub contended: u64,
    /// How long waits were, by powers of two.
    pub waits: Vec<Bar>,
    /// Who made others wait for it, since the start.
    pub blamed: Vec<Part>,
    /// Where it was waited for, since the start.
    pub waited_at: Vec<Part>,
}

/// A part of a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Part {
    /// What.
    pub what: String,
    /// A part of 1.
    pub share: f64,
    /// Whether it is inferred.
    pub inferred: bool,
}

/// Who holds a lock.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum HolderNow {
    /// That is not known, and why.
    Unknown(&'static str),
    /// This thread.
    Thread(Box<HolderThread>),
}

impl Default for HolderNow {
    fn default() -> Self {
        Self::Unknown("nobody has looked")
    }
}

/// A thread that holds a lock.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct HolderThread {
    /// Its number, or what its runtime calls it.
    pub tid: String,
    /// Its name.
    pub comm: String,
    /// What it does.
    pub doing: String,
    /// For how long it is off the CPU, if that is known.
    pub off_ns: Option<u64>,
    /// For how long it holds the lock, if that is known.
    pub held: Option<HeldFor>,
    /// Where it got it, if that is known.
    pub taken_at: Option<String>,
    /// In which function of the program it sleeps, if it does and that is known.
    pub is_in: Option<String>,
    /// The lock that it waits for itself.
    pub waits_for: Option<String>,
}

/// A thread that waits for a lock.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct WaiterNow {
    /// Its number, or what its runtime calls it.
    pub tid: String,
    /// Its name.
    pub comm: String,
    /// For how long.
    pub waited_ns: u64,
    /// Whether it waited already when the observation began: then it is longer.
    pub at_least: bool,
    /// Where it asked, if that is known.
    pub place: Option<String>,
}

/// A lock of a chain, and its holder.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct LinkNow {
    /// The lock's name.
    pub lock: String,
    /// Who holds it.
    pub holder: HolderNow,
}

/// Whom or what a frame is looked at by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum View {
    /// By lock.
    #[default]
    Locks,
    /// By critical section that made others wait.
    Culprits,
    /// By thread that waited.
    Threads,
    /// By process.
    Processes,
}

impl View {
    /// All, in order.
    pub const ALL: [Self; 4] = [Self::Locks, Self::Culprits, Self::Threads, Self::Processes];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Locks => "Locks",
            Self::Culprits => "Culprits",
            Self::Threads => "Threads",
            Self::Processes => "Processes",
        }
    }
}

impl Frame {
    /// The lines of a view.
    pub fn rows(&self, view: View) -> &[Row] {
        match view {
            View::Locks => &self.locks,
            View::Culprits => &self.culprits,
            View::Threads => &self.threads,
            View::Processes => &self.processes,
        }
    }
}
