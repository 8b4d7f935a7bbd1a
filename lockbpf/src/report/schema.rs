//! The report as JSON, schema `lockbpf.report/1`. Times are in ns; a field that an observation cannot know is left out,
//! never guessed. Shares are fractions of 1.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Value of [`Report::schema`]: changes when a field changes its meaning or goes away.
pub const SCHEMA: &str = "lockbpf.report/1";

/// Everything that an observation says about the locks of its target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// Over all locks, those left out of `locks` included.
    pub totals: Totals,
    /// Most harmful first: by `harm_ns`, then by name.
    pub locks: Vec<LockEntry>,
    /// Static critical sections of `locks`, by rank.
    pub sites: Vec<SiteEntry>,
    /// Longest wait first, then by tid.
    pub threads: Vec<ThreadEntry>,
    /// Condition variables: waiting for a condition is idleness, not contention.
    pub conditions: Vec<ConditionEntry>,
    /// Futex words that are no known lock.
    pub futexes: Vec<FutexEntry>,
    /// How far all this can be trusted.
    pub quality: QualityEntry,
}

/// Sums over all locks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Locks seen.
    pub locks: u64,
    /// Of these, left out of [`Report::locks`] because fewer were asked for.
    pub locks_omitted: u64,
    /// Acquisitions seen.
    pub acquisitions: u64,
    /// Contended ones.
    pub contended: u64,
    /// Σ wait of the contended acquisitions.
    pub wait_ns: u64,
    /// Σ harm, of the omitted locks too.
    pub harm_ns: u64,
    /// Waits that had not ended.
    pub waiting_now: u64,
}

/// Durations in ns. Quantiles come from log2 histograms: exact within a factor of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Durations {
    /// Sum.
    pub sum: u64,
    /// Mean, rounded down.
    pub mean: u64,
    /// Longest.
    pub max: u64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
}

/// A place in the code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// `PID:0xaddress` of the requesting call's return; left out where there is no one address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// For reading: `function (file:line)`, or the best that is known instead.
    pub symbol: String,
    /// Demangled function; an inlined function that only wraps the lock call is passed over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Source file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// One function on a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackFrame {
    /// Demangled function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Source file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Object file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// Offset in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<String>,
    /// Return address, hexadecimal.
    pub address: String,
    /// Whether it was inlined into the next frame.
    pub inlined: bool,
}

/// One lock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LockEntry {
    /// `PID:0xaddress`.
    pub lock: String,
    /// Symbol of a global lock, else by its first call site.
    pub name: String,
    /// The name as the table shows it: with its process in front if the report has several.
    pub label: String,
    /// `mutex`.
    pub kind: String,
    /// Whether that it is a lock was inferred from how its futex word is used: no lock call was seen.
    pub inferred: bool,
    /// `normal`, `recursive`, `errorcheck` or `adaptive`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mutex_type: Option<String>,
    /// Priority inheritance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pi: Option<bool>,
    /// Robust.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub robust: Option<bool>,
    /// Shared between processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared: Option<bool>,
    /// Process id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Process name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comm: Option<String>,
    /// Completed sections; left out where acquisitions were not seen (futex tier).
    pub acquisitions: Option<u64>,
    /// Contended ones; in the futex tier, those that slept.
    pub contended: u64,
    /// Failed trylocks.
    pub try_failures: u64,
    /// Attempts that timed out.
    pub timeouts: u64,
    /// Σ wait of those that were recorded.
    pub timed_out_wait_ns: u64,
    /// Attempts that failed otherwise.
    pub errors: u64,
    /// What the lock costs: Σ wait, of timed-out attempts and of waits that had not ended too.
    pub harm_ns: u64,
    /// acquire − attempt over all acquisitions, where an uncontended one waits 0 (futex tier: over those that slept).
    pub wait_ns: Durations,
    /// acquire − attempt over the contended acquisitions only.
    pub contended_wait_ns: Durations,
    /// release − acquire.
    pub hold_ns: Option<Durations>,
    /// All-path lock time: Σ recorded waiting that this lock's holders caused, directly and indirectly. Waiting for an
    /// inner lock is not yet passed on to the inner lock's holders.
    pub aplt_ns: u64,
    /// Σ wait of the records that `holders` and `unattributed_ns` divide; less than the total where records were lost
    /// or a minimum wait was set.
    pub recorded_wait_ns: u64,
    /// Recorded waiting for which nobody is to blame, or nobody is known.
    pub unattributed_ns: u64,
    /// The part of `unattributed_ns` for which the holders' sections were no longer remembered.
    pub forgotten_ns: u64,
    /// Distinct threads among the recorded waits, counted up to 1,024.
    pub waiting_threads: u64,
    /// Where it was first requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_site: Option<String>,
    /// Waits that had not ended.
    pub waiting_now: WaitingNow,
    /// Who waited, longest first.
    pub waiters: Vec<WaiterEntry>,
    /// Who held it meanwhile, most harmful first.
    pub holders: Vec<HolderEntry>,
    /// Which thread waited for which, longest first; not complete for long queues.
    pub thread_pairs: Vec<PairEntry>,
    /// Futex calls on the lock's word that no lock call explains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub futex: Option<FutexCounts>,
}

/// Waits that had not ended when the observation did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingNow {
    /// How many threads.
    pub count: u64,
    /// The longest so far.
    pub longest_ns: u64,
    /// Sum so far.
    pub sum_ns: u64,
    /// Threads that held the lock when they asked, as the target's pid namespace numbers them.
    pub held_by: Vec<u32>,
    /// Whether one of them waited already when the observation began.
    pub before_start: bool,
    /// Where they asked, and the stack of each place.
    pub places: Vec<WaitingPlace>,
}

/// Where threads wait now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingPlace {
    /// Where.
    #[serde(flatten)]
    pub place: Place,
    /// How many threads.
    pub count: u64,
    /// Callers, innermost first.
    pub stack: Vec<StackFrame>,
}

/// Waiting at one call site.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WaiterEntry {
    /// Where.
    #[serde(flatten)]
    pub place: Place,
    /// Recorded waits.
    pub count: u64,
    /// Their sum.
    pub wait_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// Part of the lock's recorded wait.
    pub share: f64,
    /// The part of `wait_ns` for which nobody is to blame, or nobody is known.
    pub unattributed_ns: u64,
    /// Who held the lock meanwhile, most harmful first.
    pub blamed: Vec<BlameEntry>,
    /// Callers in the stack that waited longest, innermost first.
    pub stack: Vec<StackFrame>,
}

/// What one holder did to one waiting site.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BlameEntry {
    /// Where the holder had requested the lock.
    #[serde(flatten)]
    pub place: Place,
    /// The holder, where only the thread is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tid: Option<u32>,
    /// Waiting that it caused there.
    pub wait_ns: u64,
    /// Part of that site's wait.
    pub share: f64,
}

/// One holder of the lock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HolderEntry {
    /// Where it had requested the lock.
    #[serde(flatten)]
    pub place: Place,
    /// The thread, where no site is known; as the target's pid namespace numbers it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tid: Option<u32>,
    /// Waiting that it caused.
    pub wait_ns: u64,
    /// The part of `wait_ns` after its releases, until the next thread had the lock.
    pub handoff_ns: u64,
    /// Part of the lock's recorded wait.
    pub share: f64,
    /// Waits that it prolonged.
    pub victims: u64,
    /// Its recorded sections.
    pub sections: u64,
    /// Whether the blame rests on an owner word or a wake-up instead of a recorded section.
    pub inferred: bool,
    /// Callers in the stack that held longest, innermost first.
    pub stack: Vec<StackFrame>,
}

/// One thread's waiting for another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairEntry {
    /// Tid of the waiter.
    pub waiter: u32,
    /// Tid of the holder.
    pub holder: u32,
    /// Sum.
    pub wait_ns: u64,
}

/// One static critical section.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteEntry {
    /// `PID:0xaddress` of the requesting call's return.
    pub site: String,
    /// `PID:0xaddress` of its lock.
    pub lock: String,
    /// `function (file:line)`.
    pub symbol: String,
    /// Completed sections (futex tier: waits that slept).
    pub instances: u64,
    /// Σ wait of the contended ones.
    pub wait_ns: u64,
    /// Σ hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_ns: Option<u64>,
    /// All-path wait time: Σ recorded waiting that its sections caused, directly and indirectly. Waiting for an inner
    /// lock is not yet passed on to the inner lock's holders.
    pub apwt_ns: u64,
    /// By `apwt_ns`, then `wait_ns`; from 1.
    pub rank: u64,
}

/// One thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadEntry {
    /// Thread id.
    pub tid: u32,
    /// Process id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Thread name.
    pub comm: String,
    /// Σ wait, of timed-out attempts too.
    pub wait_ns: u64,
    /// Time with at least one lock held.
    pub held_union_ns: u64,
    /// Σ hold over locks: nesting counts twice.
    pub held_sum_ns: u64,
    /// Completed sections.
    pub acquisitions: u64,
}

/// One condition variable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConditionEntry {
    /// `PID:0xaddress`.
    pub condition: String,
    /// Symbol, else by its first call site.
    pub name: String,
    /// The name as the table shows it: with its process in front if the report has several.
    pub label: String,
    /// `condvar`.
    pub kind: String,
    /// Process id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Process name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comm: Option<String>,
    /// Waits that ended with a wake-up.
    pub waits: u64,
    /// Waits whose deadline passed.
    pub timeouts: u64,
    /// Waits that failed otherwise.
    pub errors: u64,
    /// Time spent waiting for the condition: idle, not contended.
    pub idle_ns: Durations,
    /// Wake-ups in the kernel that woke somebody.
    pub wakes: u64,
    /// Wake-ups in the kernel that woke nobody.
    pub wakes_of_none: u64,
    /// Threads that wait now.
    pub waiting_now: u64,
    /// Where it was first waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_site: Option<String>,
}

/// Futex calls on one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FutexCounts {
    /// Waits that slept and were woken.
    pub slept: u64,
    /// Waits that returned at once because the word had changed.
    pub again: u64,
    /// Waits whose deadline passed.
    pub timed_out: u64,
    /// Waits that a signal interrupted, or that failed.
    pub interrupted: u64,
    /// Wake calls that woke somebody.
    pub wakes: u64,
    /// Wake calls that woke nobody.
    pub wakes_of_none: u64,
    /// Σ wait of those that slept.
    pub wait_sum_ns: u64,
}

/// A futex word of unknown purpose.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FutexEntry {
    /// `PID:0xaddress`.
    pub futex: String,
    /// Symbol, else by its first call site or its address.
    pub name: String,
    /// The name as the table shows it: with its process in front if the report has several.
    pub label: String,
    /// `futex`.
    pub kind: String,
    /// `unknown`: idle waiting and contention look alike from here.
    pub purpose: String,
    /// Process id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Process name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comm: Option<String>,
    /// The calls.
    #[serde(flatten)]
    pub counts: FutexCounts,
    /// The waits of those that slept.
    pub wait_ns: Durations,
    /// Threads that wait now.
    pub waiting_now: u64,
    /// By the owner word, where it looks like one, longest wait first.
    pub owners: Vec<ThreadWait>,
    /// By the thread that ended the wait, longest wait first.
    pub wakers: Vec<ThreadWait>,
    /// By call site, longest first.
    pub waiters: Vec<WaiterEntry>,
}

/// A thread, and waits that have to do with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadWait {
    /// The thread.
    pub tid: u32,
    /// Waits.
    pub count: u64,
    /// Their sum.
    pub wait_ns: u64,
}

/// How complete the observation was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QualityEntry {
    /// What was observed, in words.
    pub target: String,
    /// How long, ns.
    pub duration_ns: u64,
    /// Part of that time in which the probes were on.
    pub observed_share: f64,
    /// Whether only the futex tier was on: no acquisitions, no holds.
    pub futex_only: bool,
    /// Processes seen.
    pub processes: u64,
    /// Waits shorter than this were summed only: nobody is blamed for them.
    pub min_wait_ns: u64,
    /// Events that reached the analysis.
    pub events: u64,
    /// What is missing, by cause.
    pub lost: BTreeMap<String, u64>,
    /// Events that came too late to be put in order.
    pub late: u64,
    /// Transitions that a well-formed program cannot make, by kind.
    pub impossible: BTreeMap<String, u64>,
    /// Where the recording began or ended in the middle of something, by kind.
    pub edges: BTreeMap<String, u64>,
    /// Waits that had not ended.
    pub open_at_end: u64,
    /// Probes that failed.
    pub failed_probes: Vec<FailedProbeEntry>,
    /// Remarks, each a full sentence.
    pub notes: Vec<String>,
    /// Whether anything that should be in the report is missing from it.
    pub incomplete: bool,
}

/// A probe that was wanted and is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedProbeEntry {
    /// Function or tracepoint.
    pub probe: String,
    /// File it was to be placed in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Why.
    pub reason: String,
}
