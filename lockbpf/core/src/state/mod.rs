//! Per-thread and per-lock machines: steps in order of time in, dynamic critical sections out, with explicit unknown
//! states, since a recording starts and ends in the middle. Impossible transitions are counted by kind, never hidden;
//! what a cut recording explains is counted apart.
//!
//! Memory is bounded by live threads and locks: the 1,024 threads that exited last and 65,536 locks (idle ones included)
//! are remembered, so that what is impossible is told from what a cut recording explains.
#![forbid(unsafe_code)]

mod barrier;
mod blocked;
mod machine;
mod orders;
mod steps;
#[cfg(test)]
mod tests;

pub use barrier::Round;
pub use machine::{LockState, Machines, Node, NodeIx, Run, Thread};

use crate::deadlock::{Deadlock, LockOrder};
use crate::id::{Lock, Process, Site, StackId, Tid};
use crate::op::{Failure, Hold, LockKind, Released};
use crate::units::{Nanos, Time};
use orders::Orders;
use std::collections::BTreeMap;

/// One dynamic critical section: an attempt, what became of it, and the release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance {
    /// d1, d2, …: 1 for the first attempt of the recording. An attempt that fails keeps its number; 0 if the attempt was
    /// before the recording.
    pub number: u64,
    /// The thread.
    pub tid: Tid,
    /// Its process.
    pub process: Process,
    /// The lock.
    pub lock: Lock,
    /// Sort of lock.
    pub kind: LockKind,
    /// Static critical section; `None` if the attempt was before the recording.
    pub site: Option<Site>,
    /// Whether it is a shared (read) acquisition.
    pub shared: bool,
    /// Whether the thread waited for a holder.
    pub contended: bool,
    /// `None` if it was before the recording.
    pub attempt: Option<Time>,
    /// `None` if it was before the recording, or not (yet) obtained.
    pub acquire: Option<Time>,
    /// Stack at the attempt.
    pub stack: Option<StackId>,
}

/// Follows the sections: what totals are built from.
pub trait Observer {
    /// A lock was acquired; the instance has its `acquire`.
    fn acquired(&mut self, _instance: &Instance) {}
    /// A section ended. `acquire` is `None` only if that was before the recording.
    fn released(&mut self, instance: &Instance, at: Time, how: Released);
    /// An attempt failed.
    fn failed(&mut self, instance: &Instance, at: Time, how: Failure);
    /// A participant has passed a barrier: the region that its arrival ended, and the one that it began, which waited from
    /// `attempt` to `acquire`.
    fn passed(&mut self, _region: &Instance, _successor: &Instance) {}
    /// At the end of the recording the thread still holds the lock, or (without `acquire`) still waits for it.
    fn open(&mut self, _instance: &Instance, _end: Time) {}
}

impl Observer for () {
    fn released(&mut self, _instance: &Instance, _at: Time, _how: Released) {}
    fn failed(&mut self, _instance: &Instance, _at: Time, _how: Failure) {}
}

/// Follows the machines from change to change, by their dense indices: what the wait graph is built from. Each change is
/// announced before it takes place and told again afterwards.
pub trait Follower {
    /// The thread is about to ask for the lock.
    fn attempting(&mut self, m: &Machines, node: NodeIx);
    /// It has asked, and waits if [`Node::queued`]. Returns whether it waits for a holder.
    fn attempted(&mut self, m: &Machines, node: NodeIx) -> bool;
    /// Its wait ends successfully. Returns whether it waited for a holder.
    fn acquiring(&mut self, m: &Machines, node: NodeIx, waker: Option<Tid>) -> bool;
    /// It holds the lock.
    fn acquired(&mut self, m: &Machines, node: NodeIx);
    /// Its attempt fails. Returns whether it waited for a holder.
    fn failing(&mut self, m: &Machines, node: NodeIx, how: Failure) -> bool;
    /// It no longer waits; the node is gone after this.
    fn failed(&mut self, m: &Machines, node: NodeIx);
    /// It is about to release the lock.
    fn releasing(&mut self, m: &Machines, node: NodeIx);
    /// It has released it so; the node is gone after this.
    fn released(&mut self, m: &Machines, node: NodeIx, how: Released);
    /// Whether the thread runs is about to change.
    fn switching(&mut self, m: &Machines, thread: u32);
    /// A thread arrives at a barrier; it is not yet among the round's arrivals. `region` is gone after this.
    fn arriving(&mut self, m: &Machines, region: NodeIx, successor: NodeIx);
    /// It was the last: the successors in `round` have acquired, and are gone after this.
    fn completed(&mut self, m: &Machines, round: &Round);
    /// The recording ends, and it still waits for the lock or holds it. Returns whether it waits for a holder.
    fn open(&mut self, m: &Machines, node: NodeIx) -> bool;
    /// A thread has waited so long for another one's exit, until now.
    fn joined(&mut self, m: &Machines, tid: Tid, of: Tid, wait: Nanos);
    /// Somebody is seen to hold a lock that nobody is known to hold: in this process, at this place.
    fn seen_holding(&mut self, m: &Machines, lock: u32, at: (Process, Site), hold: &Hold);
    /// A lock is forgotten; its index may be given to another.
    fn forget_lock(&mut self, lock: u32);
    /// A thread is forgotten.
    fn forget_thread(&mut self, tid: Tid);
}

/// The end of a process by one of its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The thread that called `exit`, or returned from `main`.
    pub tid: Tid,
    /// Its process.
    pub process: Process,
    /// When.
    pub time: Time,
}

/// The machines and what they found.
#[derive(Clone, Debug, Default)]
pub struct State {
    m: Machines,
    numbers: u64,
    exited: std::collections::VecDeque<u32>,
    sweep_at: usize,
    last: Option<u32>,
    ended: Option<End>,
    impossible: BTreeMap<&'static str, u64>,
    cut: BTreeMap<&'static str, u64>,
    orders: Orders,
    suspects: Vec<Deadlock>,
}

impl State {
    /// The time of the last step.
    #[must_use]
    pub fn now(&self) -> Time {
        self.m.now
    }

    /// The thread of the last step.
    #[must_use]
    pub fn last_thread(&self) -> Option<Tid> {
        self.last.and_then(|t| self.m.threads.get(t as usize)).map(|t| t.tid)
    }

    /// How the process of the last step ended, if one of its threads ended it. Others are killed by that: what they did last means
    /// nothing.
    #[must_use]
    pub fn program_end(&self) -> Option<End> {
        let last = self.last.and_then(|t| self.m.threads.get(t as usize))?;
        self.ended.filter(|end| end.process == last.process)
    }

    /// The thread and the time of each thread's last step that is known to be alive, or among those that exited last.
    pub fn last_steps(&self) -> impl Iterator<Item = (Tid, Time)> + '_ {
        self.m.threads.iter().map(|(_, thread)| (thread.tid, thread.last))
    }

    /// Transitions that a well-formed program cannot make, by kind.
    #[must_use]
    pub fn impossible(&self) -> &BTreeMap<&'static str, u64> {
        &self.impossible
    }

    /// What a recording that starts or ends in the middle, or overlaps of clock stamps, bring about, by kind.
    #[must_use]
    pub fn cut(&self) -> &BTreeMap<&'static str, u64> {
        &self.cut
    }

    /// Which locks were taken while which were held, in order of outer and inner lock. Bounded; a pair beyond is counted in
    /// [`Self::orders_beyond`].
    #[must_use]
    pub fn orders(&self) -> Vec<LockOrder> {
        self.orders.list()
    }

    /// Nested acquisitions whose pair of locks and sites was one too many to be listed.
    #[must_use]
    pub fn orders_beyond(&self) -> u64 {
        self.orders.beyond()
    }

    /// Threads that wait for one another in a circle, as of now, in the order in which the circles closed.
    #[must_use]
    pub fn deadlocks(&self) -> &[Deadlock] {
        &self.suspects
    }

    /// Whether any step told of a thread's leaving or getting the CPU.
    #[must_use]
    pub fn scheduling_known(&self) -> bool {
        self.m.scheduled
    }

    fn impossible_step(&mut self, kind: &'static str) {
        *self.impossible.entry(kind).or_default() += 1;
    }

    fn cut_step(&mut self, kind: &'static str) {
        *self.cut.entry(kind).or_default() += 1;
    }
}
