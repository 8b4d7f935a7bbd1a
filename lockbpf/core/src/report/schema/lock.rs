//! Locks, who waits for them and who holds them meanwhile.

use super::blame::{AttributionEntry, CausesEntry, ChainEntry, HolderEntry, WaiterEntry};
use super::place::{Place, StackFrame};
use super::runs::LockSpread;
use super::value::{Durations, Ns, ThreadId};
use super::word::FutexCounts;
use crate::estimate::{Figures, Interval};
use serde::{Deserialize, Serialize};

/// One lock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LockEntry {
    /// `PID:0xaddress`, or what the input calls it.
    pub lock: String,
    /// Symbol of a global lock, else what the input calls it, else by its first call site.
    pub name: String,
    /// The name as the table shows it: with its process in front if the report has several.
    pub label: String,
    /// `mutex`, `rwlock`, `spin`, `semaphore`, `barrier`, `futex`, or what the input says.
    pub kind: String,
    /// Whether it is a lock of the kernel's own: `kind` is then the kernel's name for it, and only the waiting is known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kernel: bool,
    /// Whether it stands for all locks that are requested at one site (`PID:others:0xSITE`) or by one process (`PID:others`), of those
    /// for which there was no room one by one: their operations are summed together here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub others: bool,
    /// Whether it is one of those: only records of its waiting are told here, which is in the sums of the others, too. The totals
    /// count it once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_others: bool,
    /// How many threads of a barrier a round takes, as far as that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub participants: Option<u64>,
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
    /// Acquisitions among those of which the release was not seen: their holds are unknown. Of a runtime with locks of its own
    /// (`kind` names it) only contended acquisitions are seen, and no release.
    pub release_unseen: u64,
    /// Contended ones; in the futex tier, those that slept.
    pub contended: u64,
    /// Failed trylocks.
    pub try_failures: u64,
    /// Attempts that timed out.
    pub timeouts: u64,
    /// Σ wait of those that were recorded.
    pub timed_out_wait_ns: Ns,
    /// Σ wait of calls that began before they could be seen: before the observation, as a rule. Their sleeps alone are known, and neither their
    /// acquisitions nor their holds.
    #[serde(default, skip_serializing_if = "Ns::is_zero")]
    pub attempt_unseen_wait_ns: Ns,
    /// Attempts that failed otherwise.
    pub errors: u64,
    /// What the lock costs: Σ wait, of timed-out attempts, of calls whose attempt was not seen and of waits that had not ended too.
    pub harm_ns: Ns,
    /// acquire − attempt over all acquisitions, where an uncontended one waits 0 (futex tier: over those that slept).
    pub wait_ns: Durations,
    /// acquire − attempt over the contended acquisitions only; where there are estimates, over the waits that were measured: all that slept, and
    /// those within windows.
    pub contended_wait_ns: Durations,
    /// release − acquire.
    pub hold_ns: Option<Durations>,
    /// All-path lock time: Σ recorded waiting that this lock's holders caused, directly, indirectly and, through
    /// nesting, to waiters of other locks.
    pub aplt_ns: Ns,
    /// Σ wait of the records that `holders` and `unattributed_ns` divide; less than the total where records were lost
    /// or a minimum wait was set.
    pub recorded_wait_ns: Ns,
    /// Recorded waiting for which nobody is to blame, or nobody is known.
    pub unattributed_ns: Ns,
    /// `harm_ns` by how surely it is charged to somebody.
    #[serde(default)]
    pub attribution: AttributionEntry,
    /// The part of `recorded_wait_ns` of waits that had not ended.
    pub open_wait_ns: Ns,
    /// The part of `recorded_wait_ns` at places where threads wait for conditions: a condition had just woken them.
    #[serde(default, skip_serializing_if = "Ns::is_zero")]
    pub woken_wait_ns: Ns,
    /// What those were doing whom the waiting for this lock is charged to; left out where that is not known at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub causes: Option<CausesEntry>,
    /// Distinct threads among the recorded waits, counted up to 1,024.
    pub waiting_threads: u64,
    /// Where it was first requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_site: Option<String>,
    /// What the lock's word named as its holder although that is no thread of its process: it is not believed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub word_names: Option<u32>,
    /// Of a lock made of conditions: the part of its recorded waits that were ended in turn. Then the thread that ends a wait has waited there,
    /// too, and has let no other thread go on since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_turn: Option<f64>,
    /// Waits that had not ended.
    pub waiting_now: WaitingNow,
    /// Who waited, longest first.
    pub waiters: Vec<WaiterEntry>,
    /// Who is to blame, most harmful first: held it meanwhile, or held a lock that its holder waited for.
    pub holders: Vec<HolderEntry>,
    /// Through which other locks the waiting comes about, longest first.
    pub chains: Vec<ChainEntry>,
    /// Which thread waited for which, longest first; not complete for long queues.
    pub thread_pairs: Vec<PairEntry>,
    /// What remains of its waits and holds without the observer, who made each hold longer and others wait for that. Left out of
    /// estimates, which are without it, and where holds are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrected: Option<CorrectedEntry>,
    /// Where the lock was observed in windows only: its acquisitions, mean and 99th percentile of holds and contended
    /// share as they are estimated for the whole time, with 95 % intervals. `acquisitions`, `contended` and the sum, mean
    /// and p99 of `hold_ns` are then these estimates; left out where everything was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimates: Option<Figures>,
    /// Where windows alone show waits for it (locks that runtimes take inline, spin locks), or some of them are recorded for others and its waiters sleep on
    /// words of their own: Σ wait, ns, as it is estimated for the whole time, with its 95 % interval. The sum of `wait_ns` is then its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_estimate: Option<Interval>,
    /// Futex calls on the lock's word that no lock call explains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub futex: Option<FutexCounts>,
    /// In a report on several runs, how far they agree.
    #[serde(flatten)]
    pub spread: Option<LockSpread>,
}

/// What sections would have waited and held if nobody had observed them, as far as it follows from what observing adds to a hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CorrectedEntry {
    /// Contended acquisitions.
    pub contended: u64,
    /// Σ wait of these.
    pub wait_ns: Ns,
    /// Σ hold.
    pub hold_ns: Ns,
}

/// Waits that had not ended when the observation did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WaitingNow {
    /// How many threads.
    pub count: u64,
    /// The longest so far.
    pub longest_ns: Ns,
    /// Sum so far.
    pub sum_ns: Ns,
    /// Threads that held the lock when they asked, as the target's pid namespace numbers them.
    pub held_by: Vec<ThreadId>,
    /// Whether one of them waited already when the observation began.
    pub before_start: bool,
    /// Where they asked, and the stack of each place.
    pub places: Vec<WaitingPlace>,
}

/// Where threads wait now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WaitingPlace {
    /// Where.
    #[serde(flatten)]
    pub place: Place,
    /// How many threads.
    pub count: u64,
    /// Callers, innermost first.
    pub stack: Vec<StackFrame>,
}

/// One thread's waiting for another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PairEntry {
    /// Tid of the waiter.
    pub waiter: ThreadId,
    /// Tid of the holder.
    pub holder: ThreadId,
    /// Sum.
    pub wait_ns: Ns,
}
