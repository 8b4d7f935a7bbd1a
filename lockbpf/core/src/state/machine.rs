//! What is known of each thread and lock at a moment. Indices are dense and reused.

use super::{Instance, Round};
use crate::id::{Lock, Process, StackId, Tid};
use crate::op::{Attempt, LockKind, OffReason};
use crate::units::Time;
use rustc_hash::FxHashMap;
use slab::Slab;

/// Index of a live instance.
pub type NodeIx = u32;

/// Whether a thread runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Run {
    /// On the CPU, as far as is known.
    #[default]
    Running,
    /// Off the CPU.
    Off(OffReason, Option<StackId>),
}

/// A thread.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Who.
    pub tid: Tid,
    /// Its process.
    pub process: Process,
    /// What it holds, in order of acquisition.
    pub held: Vec<NodeIx>,
    /// What it waits for.
    pub waiting: Option<NodeIx>,
    /// What it waits for around that: functions of the program do that waiting, and take locks meanwhile.
    pub(super) around: Option<NodeIx>,
    /// The barrier's successor region that it waits to begin.
    pub at_barrier: Option<NodeIx>,
    /// Whether it runs.
    pub run: Run,
    /// The condition that it waits for.
    pub idle: Option<Lock>,
    /// Its call for a lock that it holds already, and when that began.
    pub(super) recursing: Option<(Attempt, Time)>,
    /// Whether it exited.
    pub(super) exited: bool,
    /// Whether this is its first step.
    pub(super) fresh: bool,
    /// When it was first seen, or passed a barrier last.
    pub(super) since: Time,
    /// When it was seen last.
    pub(super) last: Time,
    /// The step by which it was seen last to do something by itself, other than giving a lock back.
    pub(super) acted: u64,
}

/// A lock.
#[derive(Clone, Debug)]
pub struct LockState {
    /// Which.
    pub lock: Lock,
    /// Sort, as the last attempt said.
    pub kind: LockKind,
    /// Who holds it, in order of acquisition, without those that were overtaken.
    pub holders: Vec<NodeIx>,
    /// Holders that were overtaken: another thread has acquired the lock since, which they cannot hold any more.
    pub(super) overtaken: u32,
    /// Attempts in progress.
    pub queued: u32,
    /// Permits known to be free: released and not taken since.
    pub free: u32,
    /// Whether a semaphore is known to have given permits to two threads at once. One that is used as a lock has one permit: there
    /// a holder that is not the newest has given it back already, and is only late to tell.
    pub wide: bool,
    /// Who gave the last permit that nobody had taken, and by which step.
    pub poster: Option<(Tid, u64)>,
    /// Whether an acquisition was seen.
    pub(super) acquired: bool,
    /// The round of a barrier that is not complete.
    pub(super) round: Option<Box<Round>>,
}

/// A live instance.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// What is known of it.
    pub instance: Instance,
    /// Index of the thread.
    pub thread: u32,
    /// Index of the lock.
    pub lock: u32,
    /// The step that asked.
    pub asked: u64,
    /// The step that acquired; 0 if that was before the recording.
    pub taken: u64,
    /// Whether it waits in the lock's queue: false once it holds the lock, or if the source says that it does not wait.
    pub queued: bool,
    /// What the source says about waiting.
    pub told: Option<bool>,
    /// Owner word at the attempt.
    pub owner: Option<Tid>,
    /// Re-acquisitions by its holder.
    pub(super) depth: u32,
    /// Whether another thread has acquired the lock since, so that it cannot hold it any more.
    pub overtaken: bool,
}

/// All threads, locks and live instances.
#[derive(Clone, Debug, Default)]
pub struct Machines {
    /// The time of the step.
    pub now: Time,
    /// The number of the step, from 1 on.
    pub step: u64,
    /// Whether any step told of a thread's leaving or getting the CPU.
    pub scheduled: bool,
    /// Live instances.
    pub nodes: Slab<Node>,
    /// Threads.
    pub threads: Slab<Thread>,
    /// Locks.
    pub locks: Slab<LockState>,
    by_tid: FxHashMap<Tid, u32>,
    by_lock: FxHashMap<Lock, u32>,
    recent: Option<(Tid, u32)>,
}

impl Machines {
    /// The thread's index, new if need be.
    pub(super) fn thread(&mut self, tid: Tid, process: Process) -> u32 {
        if let Some((recent, ix)) = self.recent
            && recent == tid
        {
            return ix;
        }
        let (threads, now) = (&mut self.threads, self.now);
        let ix = *self.by_tid.entry(tid).or_insert_with(|| {
            threads.insert(Thread {
                tid,
                process,
                held: Vec::new(),
                waiting: None,
                around: None,
                at_barrier: None,
                run: Run::Running,
                idle: None,
                recursing: None,
                exited: false,
                fresh: true,
                since: now,
                last: now,
                acted: 0,
            }) as u32
        });
        self.recent = Some((tid, ix));
        ix
    }

    /// A thread that has been seen.
    #[must_use]
    pub fn known(&self, tid: Tid) -> Option<&Thread> {
        self.by_tid.get(&tid).and_then(|&ix| self.threads.get(ix as usize))
    }

    pub(super) fn forget_thread(&mut self, ix: u32) -> Option<Tid> {
        let thread = self.threads.try_remove(ix as usize)?;
        self.by_tid.remove(&thread.tid);
        self.recent = None;
        Some(thread.tid)
    }

    /// The lock's index, new if need be.
    pub(super) fn lock(&mut self, lock: Lock) -> u32 {
        let locks = &mut self.locks;
        *self.by_lock.entry(lock).or_insert_with(|| {
            locks.insert(LockState {
                lock,
                kind: LockKind::default(),
                holders: Vec::new(),
                overtaken: 0,
                queued: 0,
                free: 0,
                wide: false,
                poster: None,
                acquired: false,
                round: None,
            }) as u32
        })
    }

    pub(super) fn forget_lock(&mut self, ix: u32) {
        if let Some(state) = self.locks.try_remove(ix as usize) {
            self.by_lock.remove(&state.lock);
        }
    }

    /// The thread's own section on a lock, if it holds it.
    pub(super) fn own(&self, thread: u32, lock: Lock) -> Option<NodeIx> {
        let held = &self.threads[thread as usize].held;
        held.iter().rev().copied().find(|&n| self.nodes[n as usize].instance.lock == lock)
    }

    /// The node at an index that is known to be live.
    #[must_use]
    pub fn node(&self, ix: NodeIx) -> &Node {
        &self.nodes[ix as usize]
    }

    /// The thread at an index that is known to be live.
    #[must_use]
    pub fn thread_at(&self, ix: u32) -> &Thread {
        &self.threads[ix as usize]
    }

    /// The lock at an index that is known to be live.
    #[must_use]
    pub fn lock_at(&self, ix: u32) -> &LockState {
        &self.locks[ix as usize]
    }

    /// The holders that are to blame while somebody waits for the lock: all readers, and all who have permits of a wide semaphore
    /// unless one of them waits for a further one; else the newest.
    #[must_use]
    pub fn culprits<'a>(&self, lock: &'a LockState) -> &'a [NodeIx] {
        let waits_again = |&holder: &NodeIx| {
            let waiting = self.thread_at(self.node(holder).thread).waiting;
            waiting.is_some_and(|wait| self.node(wait).lock == self.node(holder).lock)
        };
        let all = &lock.holders[..];
        let together = self.shared(lock) || lock.wide && !all.iter().any(waits_again);
        if together { all } else { &all[all.len().saturating_sub(1)..] }
    }

    /// Whether the newest holder holds the lock shared; then all holders do.
    #[must_use]
    pub fn shared(&self, lock: &LockState) -> bool {
        lock.holders.last().is_some_and(|&n| self.node(n).instance.shared)
    }
}
