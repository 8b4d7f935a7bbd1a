//! Every node and edge, if they are asked for: all of them at the end, or each when it is complete.

use super::findings::{Blamed, Detail, DividedPart, DividedWait, Edge, EdgeKind, Node, Told};
use super::released::Piece;
use crate::event::FutexWait;
use crate::id::{Lock, Tid};
use crate::state::Instance;
use crate::units::{Nanos, Time};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// An edge into a node.
#[derive(Clone, Copy, Debug)]
struct Incoming {
    from: u64,
    kind: EdgeKind,
    by: Blamed,
}

#[derive(Clone, Debug)]
struct Kept {
    node: Node,
    incoming: Vec<Incoming>,
    unattributed: Nanos,
}

/// Nodes by their keys, 0, 1, … in the order in which they came about.
#[derive(Clone, Debug, Default)]
pub(super) struct Keeper {
    nodes: FxHashMap<u64, Kept>,
    next: u64,
    divided: Vec<DividedWait>,
    /// What is complete and not given out yet, if it is to be given out.
    told: Option<Vec<Told>>,
}

impl Keeper {
    pub(super) fn new(told: bool) -> Self {
        Self { told: told.then(Vec::new), ..Self::default() }
    }

    /// What has been complete since the last call.
    pub(super) fn take_told(&mut self) -> Vec<Told> {
        self.told.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Nodes in memory.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.nodes.len()
    }

    fn insert(&mut self, node: Node) -> u64 {
        let key = self.next;
        self.next += 1;
        self.nodes.insert(key, Kept { node, incoming: Vec::new(), unattributed: Nanos(0) });
        key
    }

    /// Nobody can be charged to this node any more, nor can it be charged.
    pub(super) fn complete(&mut self, key: u64) {
        let Some(told) = &mut self.told else { return };
        let Some(Kept { node, incoming, .. }) = self.nodes.remove(&key) else { return };
        if node.wait > Nanos(0) || node.acquire.is_some() || node.release.is_some() {
            let blamed = incoming.iter().map(|edge| edge.by).collect();
            told.push(Told::Section { node, blamed });
        }
    }

    pub(super) fn add(&mut self, i: &Instance) -> u64 {
        let node = Node {
            number: i.number,
            site: i.site,
            tid: i.tid,
            lock: i.lock,
            attempt: i.attempt,
            acquire: i.acquire,
            release: None,
            wait: Nanos(0),
            waker: None,
            stack: i.stack,
        };
        self.insert(node)
    }

    /// A section of a thread of which nothing else is known. It has nothing to give out.
    pub(super) fn of_thread(&mut self, tid: Tid, lock: Lock) -> u64 {
        let (wait, waker, stack) = (Nanos(0), None, None);
        let (attempt, acquire, release) = (None, None, None);
        let node = Node { number: 0, site: None, tid, lock, attempt, acquire, release, wait, waker, stack };
        let key = self.insert(node);
        if self.told.is_some() {
            self.nodes.remove(&key);
        }
        key
    }

    /// It is no section after all, and nothing leads to it.
    pub(super) fn forget(&mut self, key: u64) {
        self.nodes.remove(&key);
    }

    pub(super) fn acquired(&mut self, key: u64, at: Time) {
        if let Some(kept) = self.nodes.get_mut(&key) {
            kept.node.acquire = Some(at);
        }
    }

    /// It has waited for others.
    pub(super) fn waited(&mut self, key: u64, wait: Nanos, waker: Option<Tid>) {
        if let Some(kept) = self.nodes.get_mut(&key) {
            (kept.node.wait, kept.node.waker) = (wait, waker);
        }
    }

    pub(super) fn released(&mut self, key: u64, at: Time) {
        if let Some(kept) = self.nodes.get_mut(&key) {
            kept.node.release = Some(at);
        }
    }

    pub(super) fn edge(&mut self, from: u64, to: u64, kind: EdgeKind, by: Blamed) {
        if by.wait == Nanos(0) {
            return;
        }
        let Some(kept) = self.nodes.get_mut(&to) else { return };
        // The same holder most often comes again at once.
        if let Some(edge) = kept.incoming.iter_mut().rev().find(|e| (e.from, e.kind) == (from, kind)) {
            edge.by.wait += by.wait;
            edge.by.inferred |= by.inferred;
        } else {
            kept.incoming.push(Incoming { from, kind, by });
        }
    }

    pub(super) fn leave(&mut self, key: u64, wait: Nanos) {
        if let Some(kept) = self.nodes.get_mut(&key) {
            kept.unattributed += wait;
        }
    }

    /// A wait that was divided.
    pub(super) fn divided(&mut self, w: &FutexWait, of_runtime: bool, pieces: &[Piece]) {
        let part = |piece: &Piece| DividedPart {
            who: piece.who,
            tid: piece.tid,
            cause: piece.cause,
            nested: piece.is_nested(),
            inferred: piece.inferred,
            wait: piece.wait(),
        };
        let wait = DividedWait {
            lock: w.word,
            of_runtime,
            site: w.site,
            tid: w.tid,
            stack: w.stack,
            end: w.end,
            wait: w.wait,
            waker: w.waker,
            count: w.weight.of_waits(),
            parts: pieces.iter().map(part).collect(),
        };
        match &mut self.told {
            Some(told) => told.push(Told::Divided(wait)),
            None => self.divided.push(wait),
        }
    }

    /// A failed attempt has not waited for anybody.
    pub(super) fn void(&mut self, key: u64) {
        if let Some(kept) = self.nodes.get_mut(&key) {
            kept.incoming = Vec::new();
        }
    }

    /// The graph. Nodes without an attempt in the recording are numbered after those with one.
    pub(super) fn finish(self, critical: Vec<Vec<u64>>) -> Detail {
        let Self { mut nodes, divided, .. } = self;
        let mut next = nodes.values().map(|kept| kept.node.number).max().unwrap_or(0);
        for key in 0..self.next {
            if let Some(kept) = nodes.get_mut(&key).filter(|kept| kept.node.number == 0) {
                next += 1;
                kept.node.number = next;
            }
        }
        let number = |key: u64| nodes.get(&key).map_or(0, |kept| kept.node.number);
        let mut edges = Vec::new();
        let mut unattributed = BTreeMap::new();
        let mut order: Vec<&Kept> = nodes.values().collect();
        order.sort_unstable_by_key(|kept| kept.node.number);
        for kept in &order {
            let to = kept.node.number;
            let edge = |e: &Incoming| {
                let Blamed { wait: cost, inferred, .. } = e.by;
                Edge { from: number(e.from), to, kind: e.kind, cost, inferred }
            };
            edges.extend(kept.incoming.iter().map(edge));
            if kept.unattributed > Nanos(0) {
                unattributed.insert(to, kept.unattributed);
            }
        }
        let sorted = |members: Vec<u64>| {
            let mut members: Vec<u64> = members.into_iter().map(number).collect();
            members.sort_unstable();
            members
        };
        let mut critical_components: Vec<Vec<u64>> = critical.into_iter().map(sorted).collect();
        critical_components.sort_unstable();
        let nodes = order.iter().map(|kept| kept.node).collect();
        Detail { nodes, edges, unattributed, critical_components, divided }
    }
}
