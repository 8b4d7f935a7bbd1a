//! Every node and edge, if they are asked for.

use super::findings::{Detail, DividedPart, DividedWait, Edge, EdgeKind, Node};
use super::released::Piece;
use crate::event::FutexWait;
use crate::id::{Lock, Tid};
use crate::state::Instance;
use crate::units::{Nanos, Time};
use std::collections::BTreeMap;

/// An edge into a node.
#[derive(Clone, Copy, Debug)]
struct Incoming {
    from: u64,
    kind: EdgeKind,
    cost: Nanos,
    inferred: bool,
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
    nodes: Vec<Kept>,
    divided: Vec<DividedWait>,
}

impl Keeper {
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
            stack: i.stack,
        };
        self.nodes.push(Kept { node, incoming: Vec::new(), unattributed: Nanos(0) });
        self.nodes.len() as u64 - 1
    }

    /// A section of a thread of which nothing else is known.
    pub(super) fn of_thread(&mut self, tid: Tid, lock: Lock) -> u64 {
        let (wait, stack) = (Nanos(0), None);
        let node = Node { number: 0, site: None, tid, lock, attempt: None, acquire: None, release: None, wait, stack };
        self.nodes.push(Kept { node, incoming: Vec::new(), unattributed: Nanos(0) });
        self.nodes.len() as u64 - 1
    }

    pub(super) fn acquired(&mut self, key: u64, at: Time) {
        if let Some(kept) = self.nodes.get_mut(key as usize) {
            kept.node.acquire = Some(at);
        }
    }

    /// It has waited for others.
    pub(super) fn waited(&mut self, key: u64, wait: Nanos) {
        if let Some(kept) = self.nodes.get_mut(key as usize) {
            kept.node.wait = wait;
        }
    }

    pub(super) fn released(&mut self, key: u64, at: Time) {
        if let Some(kept) = self.nodes.get_mut(key as usize) {
            kept.node.release = Some(at);
        }
    }

    pub(super) fn edge(&mut self, from: u64, to: u64, kind: EdgeKind, cost: Nanos, inferred: bool) {
        if cost == Nanos(0) {
            return;
        }
        let Some(kept) = self.nodes.get_mut(to as usize) else { return };
        // The same holder most often comes again at once.
        if let Some(edge) = kept.incoming.iter_mut().rev().find(|e| (e.from, e.kind) == (from, kind)) {
            edge.cost += cost;
            edge.inferred |= inferred;
        } else {
            kept.incoming.push(Incoming { from, kind, cost, inferred });
        }
    }

    pub(super) fn leave(&mut self, key: u64, wait: Nanos) {
        if let Some(kept) = self.nodes.get_mut(key as usize) {
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
        self.divided.push(DividedWait {
            lock: w.word,
            of_runtime,
            site: w.site,
            tid: w.tid,
            stack: w.stack,
            end: w.end,
            wait: w.wait,
            count: w.weight.of_waits(),
            parts: pieces.iter().map(part).collect(),
        });
    }

    /// A failed attempt has not waited for anybody.
    pub(super) fn void(&mut self, key: u64) {
        if let Some(kept) = self.nodes.get_mut(key as usize) {
            kept.incoming = Vec::new();
        }
    }

    /// The graph. Nodes without an attempt in the recording are numbered after those with one.
    pub(super) fn finish(mut self, critical: Vec<Vec<u64>>) -> Detail {
        let mut next = self.nodes.iter().map(|k| k.node.number).max().unwrap_or(0);
        for kept in &mut self.nodes {
            if kept.node.number == 0 {
                next += 1;
                kept.node.number = next;
            }
        }
        let number = |key: u64| self.nodes.get(key as usize).map_or(0, |k| k.node.number);
        let mut edges = Vec::new();
        let mut unattributed = BTreeMap::new();
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_unstable_by_key(|&i| self.nodes[i].node.number);
        for &i in &order {
            let kept = &self.nodes[i];
            let to = kept.node.number;
            let edge =
                |e: &Incoming| Edge { from: number(e.from), to, kind: e.kind, cost: e.cost, inferred: e.inferred };
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
        let nodes = order.iter().map(|&i| self.nodes[i].node).collect();
        Detail { nodes, edges, unattributed, critical_components, divided: self.divided }
    }
}
