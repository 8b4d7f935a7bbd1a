//! Static critical sections and threads.

use super::blame::CausesEntry;
use super::caller::CallersEntry;
use super::lock::CorrectedEntry;
use super::runs::SiteSpread;
use super::value::{Ns, ThreadId};
use crate::estimate::{Figures, Interval};
use serde::{Deserialize, Serialize};

/// One static critical section.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SiteEntry {
    /// `PID:0xaddress` of the requesting call's return, or what the input calls it.
    pub site: String,
    /// Its lock, as in [`super::LockEntry::lock`]; of several, the one whose holding here caused most waiting, of those asked for here if any
    /// are.
    pub lock: String,
    /// How many locks are requested here.
    pub locks: u64,
    /// `function (file:line)`.
    pub symbol: String,
    /// Whether locks are given back here, and none is requested: whoever held them is known by that alone. `instances` and `wait_ns` are then 0 and tell
    /// nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub released: bool,
    /// Completed sections (futex tier: waits that slept). 0 where `wait_ns` is not: no window saw a section here, and only the waiting is known.
    pub instances: u64,
    /// Σ wait of the contended ones.
    pub wait_ns: Ns,
    /// Σ hold.
    pub hold_ns: Option<Ns>,
    /// Where that is an estimate: between which bounds it is, ns. Mutexes are held for no longer than there was time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_estimate: Option<Interval>,
    /// All-path wait time: Σ recorded waiting that its sections caused, directly, indirectly and through nesting.
    pub apwt_ns: Ns,
    /// Critical-path wait time: the part of `apwt_ns` in the components that end on the thread that finished last; `null`
    /// if the site has no section there.
    pub cpwt_ns: Option<Ns>,
    /// What its threads were doing while others waited for them; left out where that is not known at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub causes: Option<CausesEntry>,
    /// The function that its threads were mostly off the CPU in meanwhile, if they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub off_in: Option<String>,
    /// For whom the function at this place locks, if it has several callers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callers: Option<CallersEntry>,
    /// What remains without the observer, as in [`super::LockEntry::corrected`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrected: Option<CorrectedEntry>,
    /// Where it was observed in windows only: as in [`super::LockEntry::estimates`]. `instances` and `hold_ns` are then
    /// estimates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimates: Option<Figures>,
    /// By `apwt_ns`, then `wait_ns`, then name; from 1.
    pub rank: u64,
    /// In a report on several runs, how far they agree.
    #[serde(flatten)]
    pub spread: Option<SiteSpread>,
}

/// One thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadEntry {
    /// Thread id.
    pub tid: ThreadId,
    /// Process id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Thread name.
    pub comm: String,
    /// Σ wait, of timed-out attempts too, and for kernel locks.
    pub wait_ns: Ns,
    /// The part of it that was for kernel locks.
    #[serde(default)]
    pub kernel_wait_ns: Ns,
    /// Time with at least one lock held.
    pub held_union_ns: Ns,
    /// Σ hold over locks: nesting counts twice.
    pub held_sum_ns: Ns,
    /// Completed sections.
    pub acquisitions: u64,
    /// Whether all this was scaled from windows, as its process was.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}
