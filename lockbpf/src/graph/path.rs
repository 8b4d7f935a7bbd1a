//! The critical path: waits that ended with the lock, remembered for a walk back from the end of the recording.

use super::findings::{CriticalPath, PathWait};
use crate::id::{Lock, Tid};
use crate::units::{Nanos, Time};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Waits remembered.
pub(super) const MAX_WAITS: usize = 1 << 20;

/// A wait of `tid` that ended when `giver` gave the lock back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hop {
    pub(super) tid: Tid,
    pub(super) giver: Tid,
    pub(super) lock: Lock,
    pub(super) attempt: Time,
    pub(super) acquire: Time,
}

/// The waits, in order of their ends.
#[derive(Clone, Debug, Default)]
pub(super) struct Hops {
    waits: VecDeque<Hop>,
    forgotten: bool,
}

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

    /// Walks back from the end on the thread of the last event.
    pub(super) fn walk(&self, last: Option<Tid>, start: Time, end: Time) -> CriticalPath {
        let mut by_thread = FxHashMap::<Tid, Vec<u32>>::default();
        for (i, hop) in self.waits.iter().enumerate() {
            by_thread.entry(hop.tid).or_default().push(i as u32);
        }
        let first = self.waits.front().filter(|_| self.forgotten).map_or(start, |h| h.acquire);
        let mut path = CriticalPath { start: first, end, truncated: self.forgotten, ..CriticalPath::default() };
        let mut waiting = FxHashMap::<Lock, (u64, u64)>::default();
        // The waits for which the path has left the waiter, the innermost last.
        let mut waits: Vec<Hop> = Vec::new();
        let (mut thread, mut at, mut bound) = (last, end, self.waits.len() as u32);
        loop {
            let own = thread.and_then(|tid| by_thread.get(&tid));
            let hop = own.and_then(|own| {
                let before = own.partition_point(|&i| i < bound && self.waits[i as usize].acquire <= at);
                before.checked_sub(1).map(|i| own[i])
            });
            let until = hop.map_or(first, |i| self.waits[i as usize].acquire);
            label(&mut waits, until, at, &mut waiting);
            let Some(i) = hop else { break };
            let hop = self.waits[i as usize];
            path.hops += 1;
            waiting.entry(hop.lock).or_default().1 += 1;
            waits.push(hop);
            (thread, at, bound) = (Some(hop.giver), until, i);
        }
        path.waiting =
            waiting.into_iter().map(|(lock, (wait, hops))| PathWait { lock, wait: Nanos(wait), hops }).collect();
        path.waiting.sort_unstable_by_key(|w| (std::cmp::Reverse(w.wait), w.lock));
        path
    }
}

/// Counts the stretch `[from, to)` of the path as waiting for the lock of the innermost wait that covers it.
fn label(waits: &mut Vec<Hop>, from: Time, to: Time, waiting: &mut FxHashMap<Lock, (u64, u64)>) {
    let mut to = to;
    while let Some(hop) = waits.last() {
        let part = to.since(hop.attempt.max(from));
        waiting.entry(hop.lock).or_default().0 += part.0;
        to = to.min(hop.attempt.max(from));
        if hop.attempt < from {
            return;
        }
        waits.pop();
    }
}
