//! The critical path: waits that ended with the lock, remembered for a walk back from the end of the program, or of
//! the recording.

use super::findings::{CriticalPath, OnPath, PathWait};
use crate::id::{Lock, Tid};
use crate::units::{Nanos, Time};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Waits remembered.
pub(super) const MAX_WAITS: usize = 1 << 20;

/// Ends from which the path is walked to see whether they agree.
const MAX_ENDS: usize = 64;

/// A wait of `tid` that ended when `giver` gave the lock back, or exited.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hop {
    pub(super) tid: Tid,
    pub(super) giver: Tid,
    /// `None` if it waited for the exit.
    pub(super) lock: Option<Lock>,
    pub(super) attempt: Time,
    pub(super) acquire: Time,
}

/// The waits, in order of their ends.
#[derive(Clone, Debug, Default)]
pub(super) struct Hops {
    waits: VecDeque<Hop>,
    forgotten: bool,
}

/// Where each thread's waits are.
type ByThread = FxHashMap<Tid, Vec<u32>>;

impl Hops {
    pub(super) fn push(&mut self, hop: Hop) {
        if hop.attempt >= hop.acquire || hop.tid == hop.giver {
            return;
        }
        if self.waits.len() >= MAX_WAITS {
            self.waits.pop_front();
            self.forgotten = true;
        }
        self.waits.push_back(hop);
    }

    /// Whose exit a thread waited for last, if it has waited for one.
    pub(super) fn joined(&self, tid: Tid) -> Option<Tid> {
        self.waits.iter().rev().find(|hop| hop.tid == tid && hop.lock.is_none()).map(|hop| hop.giver)
    }

    /// Walks back from the end, which is that of `last`. If nothing says that the program ended there, so do the other `ends`,
    /// each a thread and its last step. With `keep` the path lists its threads.
    pub(super) fn path(
        &self,
        last: Option<Tid>,
        start: Time,
        end: Time,
        ends: Option<Vec<(Tid, Time)>>,
        keep: bool,
    ) -> CriticalPath {
        let mut by_thread = ByThread::default();
        for (i, hop) in self.waits.iter().enumerate() {
            by_thread.entry(hop.tid).or_default().push(i as u32);
        }
        let mut on = Vec::new();
        let mut path = self.walk(&by_thread, last, start, end, |stretch| on.extend(keep.then_some(stretch)));
        on.reverse();
        path.on = on;
        let Some(mut ends) = ends else { return CriticalPath { ended: true, ..path } };
        ends.sort_unstable_by_key(|&(tid, at)| (std::cmp::Reverse(at), tid));
        ends.truncate(MAX_ENDS);
        path.ends = ends.len() as u64;
        let most = |path: &CriticalPath| path.waiting.first().map(|wait| wait.lock);
        let same =
            |&&(tid, at): &&(Tid, Time)| most(&self.walk(&by_thread, Some(tid), start, at, |_| ())) == most(&path);
        path.agreeing = ends.iter().filter(same).count() as u64;
        path
    }

    /// Walks back from one end. It hands each stretch of the way to `on`, the last one first.
    fn walk(
        &self,
        by_thread: &ByThread,
        last: Option<Tid>,
        start: Time,
        end: Time,
        mut on: impl FnMut(OnPath),
    ) -> CriticalPath {
        let first = self.waits.front().filter(|_| self.forgotten).map_or(start, |h| h.acquire);
        let mut path = CriticalPath { start: first, end, last, truncated: self.forgotten, ..CriticalPath::default() };
        let mut waiting = FxHashMap::<Lock, (u64, u64)>::default();
        // The waits for locks for which the path has left the waiter, the innermost last.
        let mut waits: Vec<(Lock, Time)> = Vec::new();
        let (mut thread, mut at, mut bound) = (last, end, self.waits.len() as u32);
        loop {
            let own = thread.and_then(|tid| by_thread.get(&tid));
            let hop = own.and_then(|own| {
                let before = own.partition_point(|&i| i < bound && self.waits[i as usize].acquire <= at);
                before.checked_sub(1).map(|i| own[i])
            });
            let until = hop.map_or(first, |i| self.waits[i as usize].acquire);
            label(&mut waits, until, at, &mut waiting);
            thread.filter(|_| at > until).into_iter().for_each(|tid| on(OnPath { tid, from: until, to: at }));
            let Some(i) = hop else { break };
            let hop = self.waits[i as usize];
            path.hops += 1;
            if let Some(lock) = hop.lock {
                waiting.entry(lock).or_default().1 += 1;
                waits.push((lock, hop.attempt));
            }
            (thread, at, bound) = (Some(hop.giver), until, i);
        }
        path.waiting =
            waiting.into_iter().map(|(lock, (wait, hops))| PathWait { lock, wait: Nanos(wait), hops }).collect();
        path.waiting.sort_unstable_by_key(|w| (std::cmp::Reverse(w.wait), w.lock));
        path
    }
}

/// Counts the stretch `[from, to)` of the path as waiting for the lock of the innermost wait that covers it.
fn label(waits: &mut Vec<(Lock, Time)>, from: Time, to: Time, waiting: &mut FxHashMap<Lock, (u64, u64)>) {
    let mut to = to;
    while let Some(&(lock, attempt)) = waits.last() {
        let part = to.since(attempt.max(from));
        waiting.entry(lock).or_default().0 += part.0;
        to = to.min(attempt.max(from));
        if attempt < from {
            return;
        }
        waits.pop();
    }
}
