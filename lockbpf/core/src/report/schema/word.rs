//! What is no lock, or not known to be one: condition variables, semaphores whose permits stand for work, and futex words.

use super::blame::WaiterEntry;
use super::value::{Durations, Ns, ThreadId};
use serde::{Deserialize, Serialize};

/// One condition variable, or a semaphore whose permits others give than those who take them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConditionEntry {
    /// `PID:0xaddress`.
    pub condition: String,
    /// Symbol, else by its first call site.
    pub name: String,
    /// The name as the table shows it: with its process in front if the report has several.
    pub label: String,
    /// `condvar`, `semaphore`.
    pub kind: String,
    /// Process id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Process name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comm: Option<String>,
    /// Semaphore only: the permits that were taken, with and without waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permits: Option<u64>,
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
    /// Threads that they woke: of a broadcast there may be many.
    pub woken: u64,
    /// Waits after which the thread had to wait for the mutex as well.
    pub blocked_again: u64,
    /// All sleep that the kernel counted on its words: that is known outside of windows, too.
    #[serde(default, skip_serializing_if = "Ns::is_zero")]
    pub slept_ns: Ns,
    /// From the call that woke a waiter until it ran.
    pub wake_latency_ns: Durations,
    /// Threads that wait now.
    pub waiting_now: u64,
    /// For how long, in sum.
    #[serde(default)]
    pub waiting_now_ns: Ns,
    /// `parking` where a runtime parks its threads in it, for its own locks or idle; else `condition`, `semaphore`.
    #[serde(default)]
    pub purpose: String,
    /// Where it was first waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_site: Option<String>,
}

impl ConditionEntry {
    /// All known waiting for it that has ended.
    #[must_use]
    pub fn waited_ns(&self) -> Ns {
        self.idle_ns.sum.max(self.slept_ns)
    }
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
    pub wait_sum_ns: Ns,
    /// Σ wait of those whose deadline passed.
    #[serde(default)]
    pub timed_out_wait_ns: Ns,
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
    /// `condition variable` and `thread join`: idle; `malloc arena`, `stdio lock` and the like; else `unknown`: idle waiting and
    /// contention look alike from here.
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
    /// For how long, in sum.
    #[serde(default)]
    pub waiting_now_ns: Ns,
    /// By the owner word, where it looks like one, longest wait first.
    pub owners: Vec<ThreadWait>,
    /// By the thread that ended the wait, longest wait first.
    pub wakers: Vec<ThreadWait>,
    /// By call site, longest first.
    pub waiters: Vec<WaiterEntry>,
}

/// A thread, and waits that have to do with it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadWait {
    /// The thread.
    pub tid: ThreadId,
    /// Waits.
    pub count: u64,
    /// Their sum.
    pub wait_ns: Ns,
}
