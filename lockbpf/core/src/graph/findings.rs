//! What the wait graph tells: the input of every report.

use super::futex::{FutexWaits, WaitsAtPlace};
use super::permits::Permits;
use super::turns::Turns;
use crate::histogram::Histogram;
use crate::id::{Lock, Process, Site, StackId, Tid};
use crate::tally::{Tally, TopTallies};
use crate::units::{Nanos, Time};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Stacks kept per site.
pub type Stacks = TopTallies<StackId, 8>;
/// Pairs (waiter, holder) kept per lock.
pub type Pairs = TopTallies<(Tid, Tid), 64>;

/// Everything that the graph tells.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// By lock that was waited for.
    pub locks: HashMap<Lock, Arc<Shares>>,
    /// By static critical section, over all its locks.
    pub sites: BTreeMap<Site, SiteBlame>,
    /// Whether arrivals at barriers are charged with costs that overlap: then parts may add up to more than their whole.
    pub overlapping: bool,
    /// Waiting that a lock's holders caused, of other locks' waiters too: APLT.
    pub aplt: HashMap<Lock, Nanos>,
    /// The thread that ended the program, else that of the last event.
    pub last_thread: Option<Tid>,
    /// Nodes and edges, if they were asked for.
    pub detail: Option<Detail>,
    /// What was not given out before the end, if it was to be given out ([`crate::options::Options::told`]).
    pub told: Vec<Told>,
    /// Locks of runtimes: their waits are divided ones.
    pub runtimes: BTreeSet<Lock>,
    /// The longest dependent chain.
    pub path: CriticalPath,
    /// Transitions that a well-formed program cannot make, by kind.
    pub impossible: BTreeMap<&'static str, u64>,
    /// What a recording that starts or ends in the middle brings about, by kind; and `overlap`: sections of live sources
    /// that overlap because a release is stamped before it takes effect.
    pub cut: BTreeMap<&'static str, u64>,
    /// Futex words that no lock call explains.
    pub words: HashMap<Lock, FutexWaits>,
    /// The waits among these that others ended, by the return address of the call with which they were made, as if that were a lock's
    /// address.
    pub places: HashMap<Lock, WaitsAtPlace>,
    /// Who gave the permits of semaphores, and who took them.
    pub permits: FxHashMap<Lock, Permits>,
    /// Waits for locks and words beyond the number that is followed.
    pub beyond: Tally,
    /// Locks whose words named a holder that cannot be, and the number that each named last.
    pub disbelieved: BTreeMap<Lock, Tid>,
    /// Waits for locks by calls of which the attempt was not seen, by thread; threads beyond those that a lock tells apart are missing.
    pub attempt_unseen: HashMap<Tid, Nanos>,
    /// Whether it is known when holders were off the CPU; if not, all causes are unknown.
    pub scheduling_known: bool,
}

/// Who is blamed for waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Who {
    /// Whoever held `lock` having requested it at `site`; with nesting, not the lock that was waited for.
    Section {
        /// The lock held.
        lock: Lock,
        /// The static critical section.
        site: Site,
    },
    /// Whoever gave `lock` back at `site`, by waking somebody who slept for it; where it was requested was not seen.
    Released {
        /// The lock held.
        lock: Lock,
        /// A caller's return address at the wake.
        site: Site,
        /// The stack there. It tells callers apart where one function unlocks for all of them.
        stack: Option<StackId>,
    },
    /// A thread named by the owner word, or as the waker; where it took the lock was not seen.
    Thread(Tid),
    /// Holders beyond the number that is told apart.
    Others,
}

impl Who {
    /// The lock that the holder held; `None` where only a thread is known.
    #[must_use]
    pub fn lock(self) -> Option<Lock> {
        match self {
            Self::Section { lock, .. } | Self::Released { lock, .. } => Some(lock),
            Self::Thread(_) | Self::Others => None,
        }
    }

    /// The process whose code its stacks lead through, having made others wait for `lock`: the lock's, but of a kernel lock that of the
    /// place, which is the program's where that is known.
    #[must_use]
    pub fn process(self, lock: Lock) -> Process {
        let held = self.lock().unwrap_or(lock);
        self.site().filter(|_| held.is_kernel()).map_or(held.process, |site| site.process)
    }

    /// Where it was requested, or given back, as far as that is known.
    #[must_use]
    pub fn site(self) -> Option<Site> {
        match self {
            Self::Section { site, .. } | Self::Released { site, .. } => Some(site),
            Self::Thread(_) | Self::Others => None,
        }
    }
}

/// What a holder's thread was doing while others waited for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// On the CPU.
    Running,
    /// Runnable, but another thread had the CPU.
    Runnable,
    /// Blocked in I/O.
    Blocked,
    /// Asleep.
    Sleeping,
    /// Waiting for another lock whose holder is not known.
    Lock,
    /// Waiting for a lock of the kernel's whose holder is not known.
    KernelLock,
    /// The lock was free again: from its release until the next thread had it.
    HandOff,
    /// Not known.
    Unknown,
}

impl Cause {
    /// All of them, in the order of [`Causes`].
    pub const ALL: [Self; 8] = [
        Self::Running,
        Self::Runnable,
        Self::Blocked,
        Self::Sleeping,
        Self::Lock,
        Self::KernelLock,
        Self::HandOff,
        Self::Unknown,
    ];
}

/// Waiting by [`Cause`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Causes(pub [Nanos; Cause::ALL.len()]);

impl Causes {
    /// Adds waiting of one cause.
    pub fn add(&mut self, cause: Cause, wait: Nanos) {
        self.0[cause as usize] += wait;
    }

    /// Waiting of one cause.
    #[must_use]
    pub fn of(&self, cause: Cause) -> Nanos {
        self.0[cause as usize]
    }

    /// Lets them add up to this: what is too much goes from the largest, what is missing is unknown.
    pub(super) fn settle(&mut self, wait: Nanos) {
        let sum: Nanos = self.0.iter().copied().sum();
        let mut excess = sum - wait;
        self.0[Cause::Unknown as usize] += wait - sum;
        while excess > Nanos(0)
            && let Some(largest) = self.0.iter_mut().max()
        {
            let part = excess.min(*largest);
            (*largest, excess) = (*largest - part, excess - part);
        }
    }

    /// Adds another's.
    pub fn merge(&mut self, other: &Self) {
        for (sum, add) in self.0.iter_mut().zip(other.0) {
            *sum += add;
        }
    }
}

/// One static critical section, over all its instances and locks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteBlame {
    /// All-path wait time: Σ cost of the out-edges of its instances.
    pub apwt: Nanos,
    /// Critical-path wait time; `None` if it has no instance in a critical component.
    pub cpwt: Option<Nanos>,
}

/// All waiting for one lock. Σ `wait` of the holders + `unattributed` = `waits.time`.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    /// Contended acquisitions, timed-out attempts and waits still open at the end, and Σ wait.
    pub waits: Tally,
    /// The attempts among these that timed out.
    pub timed_out: Tally,
    /// The waits among these that were open at the end.
    pub open: Tally,
    /// The part of `waits.time` by calls of which the attempt was not seen: only their sleep in the kernel was.
    pub attempt_unseen: Nanos,
    /// The longest of those that were open, so far.
    pub open_max: Nanos,
    /// The longest wait of an acquisition.
    pub max: Nanos,
    /// Waits of the acquisitions.
    pub histogram: Histogram,
    /// Waiting for which nobody is to blame, or nobody is known.
    pub unattributed: Nanos,
    /// By site, in the order in which they were first seen.
    pub waiters: Vec<Waiter>,
    /// In the order in which they were first seen.
    pub holders: Vec<Holder>,
    /// Through which locks the waiting comes about, longest first, bounded: only those of more than one link.
    pub chains: Vec<Chain>,
    /// Which thread waited for which.
    pub pairs: Pairs,
    /// Attributed waiting that `pairs` does not list: before the last four holders of a long queue.
    pub unpaired: Nanos,
    /// Distinct threads that waited, counted up to 1,024.
    pub threads: FxHashSet<Tid>,
    /// How the lock was shared out among them.
    pub turns: Turns,
}

impl Shares {
    /// What a holder is blamed for by one waiting site.
    #[must_use]
    pub fn blamed(&self, waiter: usize, holder: usize) -> Nanos {
        self.waiters.get(waiter).and_then(|w| w.blamed.get(holder)).copied().unwrap_or_default()
    }
}

/// Waiting at one call site.
#[derive(Clone, Debug, Default)]
pub struct Waiter {
    /// The site; `None` for all sites beyond the number that is told apart.
    pub site: Option<Site>,
    /// Waits and their sum.
    pub waits: Tally,
    /// The part of the sum that is of acquisitions.
    pub acquired: Nanos,
    /// The longest.
    pub max: Nanos,
    /// The part of the sum for which nobody is to blame, or nobody is known.
    pub unattributed: Nanos,
    /// What each holder is blamed for, by row in [`Shares::holders`]; missing rows are 0.
    pub blamed: Vec<Nanos>,
    /// Stacks at the attempt, and the waits of each.
    pub stacks: Stacks,
}

/// One holder, of the lock or, with nesting, of one that the lock's holder waited for.
#[derive(Clone, Debug)]
pub struct Holder {
    /// Who.
    pub who: Who,
    /// Waiting that it caused.
    pub wait: Nanos,
    /// The part of `wait` that comes about through nesting.
    pub nested: Nanos,
    /// `wait` by what its thread was doing.
    pub causes: Causes,
    /// Waits that it prolonged.
    pub victims: u64,
    /// The part of `wait` for which that is inferred (owner word, waker, several readers, permits).
    pub inferred: Nanos,
    /// Its sections and their holds, for a holder of this lock.
    pub sections: Tally,
    /// Stacks at its attempts (or releases), and the waiting that each caused.
    pub stacks: Stacks,
    /// Stacks with which its thread left the CPU, and the waiting meanwhile.
    pub off_stacks: TopTallies<(Cause, StackId), 8>,
}

/// How waiting for a lock comes about through others: the lock's holder waits for the next link's lock, and so on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// From the lock that is waited for to the one whose holder is to blame; at least two.
    pub links: Vec<Link>,
    /// Waiting that comes about in this way.
    pub wait: Nanos,
}

/// One link of a [`Chain`]: a lock and where its holder requested it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Link {
    /// The lock.
    pub lock: Lock,
    /// Where its holder had requested it; `None` if that was not seen.
    pub site: Option<Site>,
    /// The thread that held it, in the first chain of this kind.
    pub tid: Tid,
    /// Whether that thread had given it back already, and nobody had it yet: the hand-off.
    pub released: bool,
}

/// The graph itself.
#[derive(Clone, Debug, Default)]
pub struct Detail {
    /// In the order of their attempts.
    pub nodes: Vec<Node>,
    /// By target, then in the order in which they came about. No cost is zero.
    pub edges: Vec<Edge>,
    /// Waiting without anybody to blame, by node; zeros are left out.
    pub unattributed: BTreeMap<u64, Nanos>,
    /// The components that [`SiteBlame::cpwt`] counts, each by node number.
    pub critical_components: Vec<Vec<u64>>,
    /// Waits that are divided among those who gave the lock back, since their holders are not seen: in the order of their ends.
    pub divided: Vec<DividedWait>,
}

/// Something that nothing can change any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// A section, or an attempt that failed after a wait.
    Section {
        /// What [`Detail::nodes`] would have; its number may be 0.
        node: Node,
        /// Whom its wait is charged to, in the order in which they came about.
        blamed: Vec<Blamed>,
    },
    /// What [`Detail::divided`] would have.
    Divided(DividedWait),
}

/// A part of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blamed {
    /// Who is to blame.
    pub who: Who,
    /// The thread.
    pub tid: Tid,
    /// The lock that it held, or was about to hand over.
    pub lock: Lock,
    /// For how much.
    pub wait: Nanos,
    /// Whether that rests on something less than the recorded order of holders.
    pub inferred: bool,
}

/// A wait for a futex word, or for a lock of a runtime, and whom it is charged to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DividedWait {
    /// The lock or word.
    pub lock: Lock,
    /// Whether it is a lock of a runtime: [`Detail::nodes`] have this wait, too, but not whom it is charged to.
    pub of_runtime: bool,
    /// Where it was requested.
    pub site: Option<Site>,
    /// Who waited.
    pub tid: Tid,
    /// Stack at the wait.
    pub stack: Option<StackId>,
    /// When it ended.
    pub end: Time,
    /// How long it lasted.
    pub wait: Nanos,
    /// Who woke its thread, if that was seen.
    pub waker: Option<Tid>,
    /// For how many such waits it stands.
    pub count: u64,
    /// Its parts, which add up to it, in the order of time.
    pub parts: Vec<DividedPart>,
}

impl DividedWait {
    /// Gives the locks that it is about other identities.
    pub fn rename_locks(&mut self, of: impl Fn(Lock) -> Lock) {
        self.lock = of(self.lock);
        for part in &mut self.parts {
            match &mut part.who {
                Some(Who::Section { lock, .. } | Who::Released { lock, .. }) => *lock = of(*lock),
                Some(Who::Thread(_) | Who::Others) | None => {}
            }
        }
    }
}

/// A part of a [`DividedWait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DividedPart {
    /// Who is to blame; `None` if nobody is known.
    pub who: Option<Who>,
    /// The thread of that.
    pub tid: Tid,
    /// What it was doing.
    pub cause: Cause,
    /// Whether it held another lock, for which whoever had this one waited.
    pub nested: bool,
    /// Whether that is inferred.
    pub inferred: bool,
    /// For how long.
    pub wait: Nanos,
}

/// A dynamic critical section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// d1, d2, … in the order of attempts. Sections without an attempt in the recording follow after all others, and
    /// those of which only the thread is known: one for each wait that is charged to such a thread.
    pub number: u64,
    /// Static critical section; `None` if that was not seen.
    pub site: Option<Site>,
    /// The thread.
    pub tid: Tid,
    /// The lock or barrier.
    pub lock: Lock,
    /// `None` if it was before the recording.
    pub attempt: Option<Time>,
    /// `None` if it was not obtained (yet).
    pub acquire: Option<Time>,
    /// `None` if it was not given back (yet).
    pub release: Option<Time>,
    /// For how long it waited for others; 0 where it did not, or got nothing for it.
    pub wait: Nanos,
    /// Who woke its thread at the end of that, if that was seen.
    pub waker: Option<Tid>,
    /// Stack at the attempt.
    pub stack: Option<StackId>,
}

/// One waits because of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Node number of the one to blame.
    pub from: u64,
    /// Node number of the waiter.
    pub to: u64,
    /// How.
    pub kind: EdgeKind,
    /// For how long.
    pub cost: Nanos,
    /// Whether it rests on something less than the lock's own order of holders.
    pub inferred: bool,
}

/// How waiting came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EdgeKind {
    /// The holder at the attempt, or the first that overtook.
    Direct,
    /// A later holder.
    Indirect,
    /// The holder of a lock that a holder waited for.
    Nested,
    /// A later arrival at the same barrier.
    Barrier,
}

/// The longest dependent chain through the recording: from the end back, on the thread that ended the program until it had waited
/// for a lock or another thread's exit, then on the thread that gave it the lock or exited, and so on. Where the program goes on
/// after the recording, any thread's last event could stand for the end; the path is that of the last of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CriticalPath {
    /// Where it begins: the start of the recording, or of the part whose waits are still remembered.
    pub start: Time,
    /// When the program ended, or the last event.
    pub end: Time,
    /// The thread that it ends on.
    pub last: Option<Tid>,
    /// Whether that thread ended the program.
    pub ended: bool,
    /// If it did not, threads from whose last event the path was walked as well.
    pub ends: u64,
    /// How many of these waited for the same lock the longest.
    pub agreeing: u64,
    /// Its length is `end − start`; this part of it passed while the thread that follows on the path waited for a lock.
    pub waiting: Vec<PathWait>,
    /// Changes of thread.
    pub hops: u64,
    /// Whether earlier waits were forgotten.
    pub truncated: bool,
    /// The threads that it is on, from its beginning; empty unless the graph itself is kept.
    pub on: Vec<OnPath>,
}

/// A stretch of the critical path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnPath {
    /// The thread.
    pub tid: Tid,
    /// Since when.
    pub from: Time,
    /// Until when.
    pub to: Time,
}

/// The part of the critical path that passed in waiting for one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathWait {
    /// The lock.
    pub lock: Lock,
    /// How long.
    pub wait: Nanos,
    /// How often.
    pub hops: u64,
}
