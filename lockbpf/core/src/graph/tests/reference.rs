//! The definitions of the module's docs, instant by instant and waiter by waiter: slow, short, and without any of the
//! structures of the real thing.

use super::*;
use std::collections::BTreeSet;

/// A node of the reference.
#[derive(Clone, Debug)]
struct Node {
    tid: u32,
    lock: Lock,
    site: Site,
    shared: bool,
    acquire: Option<u64>,
    /// Its end, also of an attempt that failed; the end of the trace if it is open.
    end: Option<u64>,
    /// Index of the step that acquired.
    taken: usize,
    /// Steps up to this index made those who block it directly; `None` while it waits for a lock that is free.
    direct: Option<usize>,
    fails: bool,
}

#[derive(Default)]
struct LockNow {
    kind: LockKind,
    holders: Vec<usize>,
    releaser: Option<usize>,
    gap: bool,
    free: u32,
    wide: bool,
}

#[derive(Default)]
struct Model {
    nodes: Vec<Node>,
    locks: BTreeMap<Lock, LockNow>,
    waiting: BTreeMap<u32, usize>,
    depth: BTreeMap<(u32, Lock), u32>,
    /// The last attempt of each thread.
    asked: BTreeMap<u32, usize>,
}

/// What the reference finds.
#[derive(Debug, PartialEq, Eq, Default)]
pub(super) struct Reference {
    pub(super) edges: BTreeMap<(u64, u64, EdgeKind), u64>,
    pub(super) unattributed: BTreeMap<u64, u64>,
    pub(super) critical: BTreeSet<Vec<u64>>,
    pub(super) cpwt: BTreeMap<Site, u64>,
}

impl Model {
    fn holds(&self, tid: u32, lock: Lock) -> Option<usize> {
        self.locks[&lock].holders.iter().copied().find(|&h| self.nodes[h].tid == tid)
    }

    /// Whom `v` waits for, with the part that each has, and whether through another lock.
    fn culprits(&self, v: usize, above: &[Lock]) -> Vec<(usize, u64, bool)> {
        let lock = &self.locks[&self.nodes[v].lock];
        if self.nodes[v].direct.is_none() {
            return Vec::new();
        }
        let semaphore = lock.kind == LockKind::Semaphore;
        if lock.holders.is_empty() || semaphore && lock.gap {
            return vec![(lock.releaser.unwrap(), 1, false)];
        }
        let newest = *lock.holders.last().unwrap();
        let again = |&h: &usize| {
            self.waiting.get(&self.nodes[h].tid).is_some_and(|&w| self.nodes[w].lock == self.nodes[v].lock)
        };
        let together = if semaphore { lock.wide && !lock.holders.iter().any(again) } else { self.nodes[newest].shared };
        let culprits = if together { lock.holders.clone() } else { vec![newest] };
        let above: Vec<Lock> = above.iter().copied().chain([self.nodes[v].lock]).collect();
        let mut all = Vec::new();
        for &u in &culprits {
            let inner = self.waiting.get(&self.nodes[u].tid).filter(|&&d| !above.contains(&self.nodes[d].lock));
            let inner = inner.map(|&d| self.culprits(d, &above)).unwrap_or_default();
            if inner.is_empty() {
                all.push((u, culprits.len() as u64, false));
            }
            all.extend(inner.into_iter().map(|(w, of, _)| (w, of * culprits.len() as u64, true)));
        }
        all
    }

    fn step(&mut self, index: usize, op: &Op, fails: bool) {
        let (now, tid) = (op.time.0, op.tid.0);
        match op.action {
            Action::Attempt(a) => {
                self.asked.insert(tid, index);
                let lock = self.locks.entry(a.lock).or_default();
                lock.kind = a.kind;
                let semaphore = a.kind == LockKind::Semaphore;
                if !semaphore && self.holds(tid, a.lock).is_some() {
                    return;
                }
                let lock = &self.locks[&a.lock];
                let newest = lock.holders.last().map(|&h| self.nodes[h].tid);
                let blocked = newest.is_some() && !(semaphore && (lock.free > 0 || newest == Some(tid)));
                self.waiting.insert(tid, self.nodes.len());
                self.nodes.push(Node {
                    tid,
                    lock: a.lock,
                    site: a.site,
                    shared: a.shared,
                    acquire: None,
                    end: None,
                    taken: 0,
                    direct: blocked.then_some(index),
                    fails,
                });
            }
            Action::Acquire { lock, .. } => {
                let Some(v) = self.waiting.remove(&tid) else {
                    *self.depth.entry((tid, lock)).or_default() += 1;
                    return;
                };
                self.nodes[v].acquire = Some(now);
                self.nodes[v].taken = index;
                for &w in self.waiting.values() {
                    if self.nodes[w].lock == lock {
                        self.nodes[w].direct.get_or_insert(index);
                    }
                }
                let state = self.locks.get_mut(&lock).unwrap();
                state.holders.push(v);
                state.gap = false;
                state.free = state.free.saturating_sub(1);
            }
            Action::Release { lock, .. } => {
                if let Some(depth) = self.depth.get_mut(&(tid, lock)).filter(|d| **d > 0) {
                    *depth -= 1;
                    return;
                }
                let state = &self.locks[&lock];
                // A thread's newest permit goes first.
                let own = state.holders.iter().rposition(|&h| self.nodes[h].tid == tid).unwrap_or(0);
                let state = self.locks.get_mut(&lock).unwrap();
                let node = state.holders.remove(own);
                let later = |&h: &usize| self.nodes[h].taken > self.nodes[node].taken;
                let others = |&h: &usize| self.nodes[h].tid != self.nodes[node].tid;
                let asked = self.asked.get(&self.nodes[node].tid).copied().unwrap_or(0);
                let before = |&h: &usize| self.nodes[h].taken < asked;
                let semaphore = state.kind == LockKind::Semaphore;
                state.wide |= semaphore
                    && self.nodes[node].tid == tid
                    && state.holders.iter().filter(|h| later(h) && others(h)).any(before);
                if !semaphore || state.wide || !state.holders.iter().any(later) {
                    state.releaser = Some(node);
                    state.gap = true;
                }
                state.free += 1;
                self.nodes[node].end = Some(now);
            }
            Action::Fail { .. } => {
                if let Some(v) = self.waiting.remove(&tid) {
                    self.nodes[v].end = Some(now);
                }
            }
            _ => {}
        }
    }
}

/// Takes mutexes, rwlocks and semaphores that are used as they should; times are multiples of all numbers of readers.
pub(super) fn reference(ops: &[Op]) -> Reference {
    let mut model = Model::default();
    let mut r = Reference::default();
    for (i, op) in ops.iter().enumerate() {
        let mut own = ops[i + 1..].iter().filter(|o| o.tid == op.tid);
        let fails = own.next().is_some_and(|o| matches!(o.action, Action::Fail { how: Failure::TryFailed, .. }));
        model.step(i, op, fails);
        let dt = ops.get(i + 1).map_or(0, |next| next.time.0 - op.time.0);
        for &v in model.waiting.values().filter(|_| dt > 0) {
            let (number, node) = (v as u64 + 1, &model.nodes[v]);
            if node.fails {
                continue;
            }
            let culprits = model.culprits(v, &[]);
            if culprits.is_empty() {
                *r.unattributed.entry(number).or_default() += dt;
            }
            for (u, of, nested) in culprits {
                let direct = model.nodes[u].taken <= node.direct.unwrap();
                let kind = match (nested, direct) {
                    (true, _) => EdgeKind::Nested,
                    (_, true) => EdgeKind::Direct,
                    _ => EdgeKind::Indirect,
                };
                assert_eq!(dt % of, 0);
                *r.edges.entry((u as u64 + 1, number, kind)).or_default() += dt / of;
            }
        }
    }
    // Components, by flooding.
    let count = model.nodes.len();
    let mut of: Vec<usize> = (0..count).collect();
    for _ in 0..count {
        for &(from, to, _) in r.edges.keys() {
            let (from, to) = (from as usize - 1, to as usize - 1);
            let least = of[from].min(of[to]);
            (of[from], of[to]) = (least, least);
        }
    }
    let last = ops.last().map(|op| op.tid.0);
    for root in 0..count {
        let members: Vec<usize> = (0..count).filter(|&n| of[n] == root).collect();
        let order = |&n: &usize| {
            let node = &model.nodes[n];
            (node.end.unwrap_or(u64::MAX), node.acquire, n)
        };
        let Some(newest) = members.iter().copied().max_by_key(order) else { continue };
        if Some(model.nodes[newest].tid) != last {
            continue;
        }
        for &n in &members {
            let costs = r.edges.iter().filter(|((from, ..), _)| *from == n as u64 + 1).map(|(_, cost)| cost);
            *r.cpwt.entry(model.nodes[n].site).or_default() += costs.sum::<u64>();
        }
        r.critical.insert(members.into_iter().map(|n| n as u64 + 1).collect());
    }
    r
}

/// The same from the real thing.
pub(super) fn actual(f: &Findings) -> Reference {
    let d = detail(f);
    Reference {
        edges: d.edges.iter().map(|e| ((e.from, e.to, e.kind), e.cost.0)).collect(),
        unattributed: d.unattributed.iter().map(|(&n, w)| (n, w.0)).collect(),
        critical: d.critical_components.iter().cloned().collect(),
        cpwt: f.sites.iter().filter_map(|(&s, b)| Some((s, b.cpwt?.0))).collect(),
    }
}
