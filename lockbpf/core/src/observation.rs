//! Everything an observation yielded, before names are given to addresses: the input of every report.

use crate::deadlock::{Deadlock, LockOrder};
use crate::estimate::{Estimates, Figures, Subject};
use crate::event::{ProcessSeen, ThreadTotals};
use crate::graph::findings::Findings;
use crate::id::{Lock, Process, Site, StackId, Tid};
use crate::measures::counted::Counted;
use crate::measures::library::LibraryCalls;
use crate::quality::Quality;
use crate::sums::{KernelSums, SiteSums};
use crate::transitions::Transition;
use crate::units::{Nanos, Time};
use crate::wakeups::Wakeups;
use lockbpf_common::kind::Via;
use rustc_hash::FxHashMap;
use std::collections::HashMap;

/// A wait that had not ended when the observation did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenWait {
    /// Who waits.
    pub tid: Tid,
    /// For what.
    pub lock: Lock,
    /// Where it asked; `None` if it asked before the observation began.
    pub site: Option<Site>,
    /// Since when; the start of the observation if it was waiting already.
    pub since: Time,
    /// Owner word of the lock, a tid in the target's own pid namespace.
    pub owner: Option<Tid>,
    /// Stack at the attempt.
    pub stack: Option<StackId>,
    /// By which call; [`Via::Futex`] where only the system call is known.
    pub via: Via,
    /// [`Via::Futex`]: the value of the word that the wait expected; 2 for glibc's contended locks. [`Via::CustomWait`]: the lower half of the stack
    /// pointer where it began.
    pub expected: Option<u32>,
    /// Whether it waited already when the observation began.
    pub before_start: bool,
}

/// What was observed, of whom, for how long.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// In words, for the report's first line: `pid 1234 (memcached)`, `the whole system`, `demo`.
    pub target: String,
    /// When it began.
    pub start: Time,
    /// When it ended.
    pub end: Time,
    /// Whether only the futex tier was on: no acquisitions, no holds.
    pub futex_only: bool,
    /// Processes seen, by number.
    pub processes: HashMap<Process, ProcessSeen>,
    /// Sums by lock and site.
    pub sums: Vec<SiteSums>,
    /// Events counted in sections, if any were.
    pub counted: Counted,
    /// Calls of the C library, if they were seen.
    pub library: LibraryCalls,
    /// Threads, living and exited.
    pub threads: Vec<ThreadTotals>,
    /// Who waited because of whom.
    pub findings: Findings,
    /// What became of those whom condition variables woke, by where they had waited.
    pub wakeups: FxHashMap<Site, Wakeups>,
    /// Threads that wait for one another in a circle, found while observing.
    pub deadlocks: Vec<Deadlock>,
    /// Which locks were taken while which were held.
    pub orders: Vec<LockOrder>,
    /// Waits in progress at the end.
    pub open_waits: Vec<OpenWait>,
    /// Stacks named by records and sums: return addresses, innermost first.
    pub stacks: HashMap<StackId, Vec<u64>>,
    /// Losses, failures, and what they mean.
    pub quality: Quality,
    /// What was estimated from windows, and how much was observed; `None` where there was no gate.
    pub estimates: Option<Estimates>,
    /// Units of time per ns: 1,000 where the input has decimals, else 1 (or 0, which means the same).
    pub ticks_per_ns: u64,
}

/// What is read once, at the end of an observation (or at each checkpoint of a recording).
#[derive(Clone, Debug, Default)]
pub struct Harvest {
    /// Sums by lock and site.
    pub sums: Vec<KernelSums>,
    /// Events counted in sections, if any were.
    pub counted: Counted,
    /// Calls of the C library, if they were seen.
    pub library: LibraryCalls,
    /// Threads still alive.
    pub threads: Vec<ThreadTotals>,
    /// Threads that locks' words named and that are known to be, or to have been, whether they did anything that was seen or not.
    pub bystanders: Vec<(Process, Tid)>,
    /// Waits in progress.
    pub open_waits: Vec<OpenWait>,
    /// Which locks were taken while which were held.
    pub orders: Vec<LockOrder>,
    /// From lock to lock, if that was summed.
    pub transitions: Vec<Transition>,
    /// Deadlocks found so far.
    pub deadlocks: Vec<Deadlock>,
    /// Stacks that records name.
    pub stacks: HashMap<StackId, Vec<u64>>,
    /// Losses so far.
    pub quality: Quality,
    /// How much was observed so far, at the end with what is estimated from it; `None` where there is no gate.
    pub estimates: Option<Estimates>,
}

impl Harvest {
    /// Acquisitions of locks in all.
    #[must_use]
    pub fn acquisitions(&self) -> u64 {
        let of_locks = self.sums.iter().filter(|sums| sums.is_of_lock());
        of_locks.fold(0, |all: u64, sums| all.saturating_add(sums.sums.acquisitions))
    }

    /// Gives its locks other identities: several may become one.
    pub fn rename_locks(&mut self, mut of: impl FnMut(Lock) -> Lock) {
        self.sums.iter_mut().for_each(|sums| sums.lock = of(sums.lock));
        self.counted.sites.iter_mut().for_each(|site| site.lock = of(site.lock));
        self.open_waits.iter_mut().for_each(|wait| wait.lock = of(wait.lock));
        for order in &mut self.orders {
            (order.outer, order.inner) = (of(order.outer), of(order.inner));
        }
        for transition in &mut self.transitions {
            (transition.from, transition.to) = (transition.from.map(&mut of), transition.to.map(&mut of));
        }
        let blocked = self.deadlocks.iter_mut().flat_map(|deadlock| &mut deadlock.members);
        blocked.for_each(|blocked| blocked.lock = of(blocked.lock));
        if let Some(estimates) = &mut self.estimates {
            estimates.rename_locks(of);
        }
    }
}

impl Observation {
    /// How long it lasted.
    #[must_use]
    pub fn duration(&self) -> Nanos {
        self.end.since(self.start)
    }

    /// What was estimated of a subject, where that is more than was seen.
    #[must_use]
    pub fn figures(&self, subject: Subject) -> Option<Figures> {
        self.estimates.as_ref().and_then(|e| e.of(subject)).copied()
    }

    /// Whether the sums of a process were scaled.
    #[must_use]
    pub fn is_estimated(&self, process: Process) -> bool {
        self.estimates.as_ref().is_some_and(|estimates| estimates.are_of(process))
    }
}
