//! Who made others wait, and what it was doing meanwhile.

use super::caller::CallersEntry;
use super::place::{Place, StackFrame};
use super::value::{Ns, ThreadId};
use serde::{Deserialize, Serialize};

/// Waiting at one call site.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WaiterEntry {
    /// Where.
    #[serde(flatten)]
    pub place: Place,
    /// The name of its process, where that is not the lock's own: of those that share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    /// Recorded waits.
    pub count: u64,
    /// Their sum.
    pub wait_ns: Ns,
    /// The longest.
    pub max_ns: Ns,
    /// Part of the lock's recorded wait.
    pub share: f64,
    /// The part of `wait_ns` for which nobody is to blame, or nobody is known.
    pub unattributed_ns: Ns,
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
    pub tid: Option<ThreadId>,
    /// The name of the holder's process, where that is not the lock's own: of those that share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    /// Waiting that it caused there.
    pub wait_ns: Ns,
    /// Part of that site's wait.
    pub share: f64,
}

/// One of those to blame for the waiting for a lock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HolderEntry {
    /// Where it had requested the lock that it held.
    #[serde(flatten)]
    pub place: Place,
    /// The thread, where no site is known; as the target's pid namespace numbers it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tid: Option<ThreadId>,
    /// Whether the place is where it gave the lock back: where it had requested it was not seen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub released: bool,
    /// The lock that it held, if that is not the one waited for: the one that this one's holder waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<String>,
    /// The name of that lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock_name: Option<String>,
    /// Waiting that it caused.
    pub wait_ns: Ns,
    /// The part of `wait_ns` that comes about through nesting.
    pub nested_ns: Ns,
    /// The part of `wait_ns` after its releases, until the next thread had the lock.
    pub handoff_ns: Ns,
    /// Part of the lock's recorded wait.
    pub share: f64,
    /// Waits that it prolonged.
    pub victims: u64,
    /// Its recorded sections of this lock.
    pub sections: u64,
    /// Whether the blame rests on something less than the recorded order of holders: an owner word, a wake-up, one of
    /// several readers.
    pub inferred: bool,
    /// The part of `wait_ns` of which that is so.
    #[serde(default)]
    pub inferred_ns: Ns,
    /// What its threads were doing meanwhile; left out where that is not known at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub causes: Option<CausesEntry>,
    /// Where its threads were off the CPU meanwhile, longest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub off_stacks: Vec<OffStackEntry>,
    /// For whom the function at this place locks, if it has several callers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callers: Option<CallersEntry>,
    /// Callers in the stack that caused most, innermost first.
    pub stack: Vec<StackFrame>,
}

/// All waiting by how surely it is charged to somebody. The parts add up to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttributionEntry {
    /// The order of those who had the lock was seen.
    pub exact_ns: Ns,
    /// Charged by something less: an owner word, a waker, one of several readers.
    pub inferred_ns: Ns,
    /// Nobody is to blame, or nobody is known, or it was not recorded.
    pub unknown_ns: Ns,
}

/// Waiting in ns by what the thread to blame for it was doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CausesEntry {
    /// On the CPU.
    pub running: Ns,
    /// Preempted: it could have run, but another thread had the CPU.
    pub runnable: Ns,
    /// Blocked in I/O.
    pub blocked: Ns,
    /// Asleep.
    pub sleeping: Ns,
    /// Waiting for a lock whose holder is not known.
    pub lock: Ns,
    /// Waiting for a lock of the kernel's whose holder is not known.
    #[serde(default)]
    pub kernel_lock: Ns,
    /// It had released the lock, and the next thread did not have it yet.
    pub handoff: Ns,
    /// Not known.
    pub unknown: Ns,
}

/// Where a thread to blame left the CPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OffStackEntry {
    /// `runnable`, `blocked`, `sleeping` or `lock`; of who holds a kernel lock any of [`CausesEntry`].
    pub cause: String,
    /// The function that it was in, without the C library's decorations: `fdatasync`. In code without symbols the system call:
    /// `fdatasync (system call)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Others' waiting meanwhile.
    pub wait_ns: Ns,
    /// The stack, innermost first.
    pub stack: Vec<StackFrame>,
}

/// How waiting comes about through several locks: the holder of each waits for the next one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChainEntry {
    /// From the lock that is waited for to the one whose holder is to blame.
    pub links: Vec<LinkEntry>,
    /// Waiting that comes about in this way.
    pub wait_ns: Ns,
    /// Part of the recorded wait for the first lock.
    pub share: f64,
}

/// A lock of a chain, and who holds it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkEntry {
    /// The lock.
    pub lock: String,
    /// Its name, as the table shows it.
    pub name: String,
    /// Where its holder had requested it; `null` if that was not seen.
    pub site: Option<String>,
    /// `function (file:line)` of that place.
    pub symbol: Option<String>,
    /// A thread that held it.
    pub tid: ThreadId,
    /// Whether that thread had given it back already, and nobody had it yet: the hand-off.
    #[serde(default)]
    pub released: bool,
}

/// One of those who cause most waiting, over all locks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CulpritEntry {
    /// Where it had requested its lock.
    #[serde(flatten)]
    pub place: Place,
    /// The thread, where no site is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tid: Option<ThreadId>,
    /// Whether the place is where it gave the lock back: where it had requested it was not seen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub released: bool,
    /// The lock that it held; of several, the one with which it caused most waiting.
    pub lock: String,
    /// Its name, as the table shows it.
    pub name: String,
    /// Locks that it held in turn, and of which none stands out.
    pub locks: u64,
    /// Its kind.
    pub kind: String,
    /// Waiting that it caused.
    pub wait_ns: Ns,
    /// Part of all recorded waiting.
    pub share: f64,
    /// Part of all waiting, recorded or not.
    #[serde(default)]
    pub share_of_all: f64,
    /// The part of `wait_ns` that rests on something less than the recorded order of holders.
    #[serde(default)]
    pub inferred_ns: Ns,
    /// The part of `wait_ns` that comes about through nesting: waits for other locks, whose holders waited for this one.
    pub nested_ns: Ns,
    /// What its threads were doing meanwhile; left out where that is not known at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub causes: Option<CausesEntry>,
    /// Where its threads were off the CPU meanwhile, longest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub off_stacks: Vec<OffStackEntry>,
    /// For whom the function at this place locks, if it has several callers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callers: Option<CallersEntry>,
    /// Where most of its nested waiting is waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiter: Option<String>,
    /// How most of that waiting comes about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chain: Option<ChainEntry>,
}
