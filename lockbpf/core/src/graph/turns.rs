//! Whose turn it was: how a lock is shared out among the threads that want it, and whether its queue dissolves.
//!
//! A wait is *overtaken* by each acquisition that another thread makes while it lasts, but for those that were queued before it: at least by
//! the acquisitions less the threads that waited already. Each step costs O(1); a section that was not recorded is missing, so all counts are
//! what there was at least.

use crate::id::Tid;
use crate::tally::Tally;
use crate::units::Nanos;
use rustc_hash::FxHashMap;

/// Threads told apart per lock.
pub const MAX_THREADS: usize = 256;
/// So many waiters at once, or more, are a queue: behind the next one there is another.
const QUEUE: usize = 2;

/// What one thread got of a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// All its waits, those that timed out and those still open included.
    pub waits: Tally,
    /// The waits among these during which acquisitions were seen.
    pub watched: Tally,
    /// Σ acquisitions by others that came out of turn during those, at least.
    pub overtaken: u64,
    /// Its own acquisitions while others went on waiting.
    pub taken: u64,
}

/// How a lock is shared out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// By thread, the first ones that came.
    pub threads: FxHashMap<Tid, Turn>,
    /// Acquisitions while others went on waiting, by all threads.
    pub taken: u64,
    /// How many of these were by threads that had waited themselves.
    pub handed: u64,
    /// Time in which somebody waited for a holder.
    pub waited: Nanos,
    /// The part of this in which two threads or more did.
    pub queued: Nanos,
    /// The part of `waited` in which nobody had the lock: it was given back, and not yet taken.
    pub free: Nanos,
}

impl Turns {
    fn thread(&mut self, tid: Tid) -> Option<&mut Turn> {
        if self.threads.len() >= MAX_THREADS && !self.threads.contains_key(&tid) {
            return None;
        }
        Some(self.threads.entry(tid).or_default())
    }

    /// Counts a wait that stands for `count` like it, and by how many acquisitions it was overtaken if that was seen.
    pub(super) fn wait(&mut self, tid: Tid, count: u64, wait: Nanos, overtaken: Option<u64>) {
        let Some(turn) = self.thread(tid) else { return };
        turn.waits.add_for(count, wait);
        if let Some(overtaken) = overtaken {
            turn.watched.add(wait);
            turn.overtaken += overtaken;
        }
    }

    /// Counts an acquisition while others go on waiting.
    pub(super) fn take(&mut self, tid: Tid, waited: bool) {
        self.taken += 1;
        self.handed += u64::from(waited);
        if let Some(turn) = self.thread(tid) {
            turn.taken += 1;
        }
    }

    /// Counts time in which so many threads waited.
    pub(super) fn queue(&mut self, waiting: usize, free: bool, time: Nanos) {
        self.waited += time;
        if waiting >= QUEUE {
            self.queued += time;
        }
        if free {
            self.free += time;
        }
    }

    /// Adds another's.
    pub(super) fn merge(&mut self, other: &Self) {
        for (&tid, add) in &other.threads {
            let Some(turn) = self.thread(tid) else { continue };
            turn.waits += add.waits;
            turn.watched += add.watched;
            turn.overtaken += add.overtaken;
            turn.taken += add.taken;
        }
        self.taken += other.taken;
        self.handed += other.handed;
        self.waited += other.waited;
        self.queued += other.queued;
        self.free += other.free;
    }
}
