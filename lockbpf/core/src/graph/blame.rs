//! Who is to blame for a lock's waiters at a moment, and charging it for the time since the last change.
//!
//! A lock's present set of culprits and waiters stands until one of them changes; before that, the lock is *settled*: the
//! time since the last change is added once to the cells of the culprits, however many wait. A waiter's costs are the
//! differences of the cells between the beginning and the end of its wait.

use super::component::NONE;
use super::engine::{Cell, CellKey, Engine, Entry, PIECES, Phase, Piece, kind, who};
use super::findings::{Blamed, Cause, Link, Who};
use super::split::Split;
use crate::id::{Lock, StackId, Tid};
use crate::op::{LockKind, OffReason};
use crate::state::{Machines, NodeIx, Run};
use crate::units::Nanos;
use lockbpf_common::task;

/// Locks that blame is passed on through.
const MAX_NESTING: usize = 64;
/// Culprits told apart while a lock is waited for without a break.
const MAX_CELLS: usize = 1_024;
/// Cells that are searched one by one.
const LINEAR: usize = 16;
/// Entries of a lock's log.
const MAX_LOG: usize = 64;

/// Where a culprit is to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A live section.
    Live(NodeIx),
    /// The section that released this lock last.
    Past(u32),
    /// Nobody is known.
    Nobody,
}

/// One to blame at a moment.
#[derive(Clone, Copy, Debug)]
struct Blame {
    source: Source,
    split: Split,
    inferred: bool,
    cause: Cause,
    off: Option<StackId>,
    /// Its part of the links, beginning with the lock that is waited for.
    links: (u32, u32),
}

/// Buffers.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    blames: Vec<Blame>,
    /// The locks that are being resolved, and their holders.
    path: Vec<(u32, Source)>,
    links: Vec<(u32, Source)>,
    chain: Vec<Link>,
}

/// What is known of a culprit.
#[derive(Clone, Copy)]
struct Culprit {
    who: Option<Who>,
    lock: Lock,
    tid: Tid,
    site: u32,
    key: u64,
    taken: u64,
    stack: Option<StackId>,
}

impl Engine {
    /// Charges the time since the last change of the lock's culprits or waiters, which is about to change.
    pub(super) fn settle(&mut self, m: &Machines, lock: u32) {
        let state = &mut self.locks[lock as usize];
        let from = std::mem::replace(&mut state.since, m.now);
        if state.blocked.is_empty() || m.now <= from {
            return;
        }
        if state.shares != NONE {
            let free = m.lock_at(lock).holders.is_empty() && !m.lock_at(lock).lock.is_kernel();
            let turns = &mut self.stores[state.shares as usize].edit().turns;
            turns.queue(state.blocked.len(), free, m.now.since(from));
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.blames.clear();
        scratch.links.clear();
        self.resolve(m, lock, Split::default(), false, &mut scratch);
        let epoch = self.locks[lock as usize].epoch.min(from);
        let mut joined = NONE;
        for blame in &scratch.blames {
            let wait = Nanos(blame.split.of(from.since(epoch).0, m.now.since(epoch).0));
            if wait == Nanos(0) {
                continue;
            }
            let culprit = self.culprit(m, lock, blame.source);
            let nested = blame.links.1 > 1;
            self.charge_cell(lock, &culprit, blame, nested, wait);
            self.charge_lists(m, lock, &culprit, blame, &scratch.links, &mut scratch.chain, wait);
            if let Some(keeper) = &mut self.keeper {
                for &waiter in &self.locks[lock as usize].blocked {
                    let waiter = &self.sections[waiter as usize];
                    match culprit.who {
                        Some(who) => {
                            let kind = kind(nested, culprit.taken, waiter.direct);
                            let Culprit { tid, lock, key, .. } = culprit;
                            let by = Blamed { who, tid, lock, wait, inferred: blame.inferred };
                            keeper.edge(key, waiter.key, kind, by);
                        }
                        None => keeper.leave(waiter.key, wait),
                    }
                }
            }
            if culprit.who.is_some() {
                // The holder of the lock through which it is to blame, if it is through one.
                let (first, links) = (blame.links.0 as usize, blame.links.1 as usize);
                let outer = links.checked_sub(2).and_then(|before| scratch.links.get(first + before));
                let outer = outer.map_or(culprit.tid, |&(lock, source)| self.culprit(m, lock, source).tid);
                let state = &mut self.locks[lock as usize];
                if state.pieces.len() < PIECES {
                    let none = Piece { tid: Tid(0), outer: Tid(0), from, to: from, epoch, split: Split::default() };
                    state.pieces.resize(PIECES, none);
                }
                let split = blame.split;
                state.pieces[state.next_piece] = Piece { tid: culprit.tid, outer, from, to: m.now, epoch, split };
                state.next_piece = (state.next_piece + 1) % PIECES;
                let comp = self.component(blame.source);
                joined = if joined == NONE { comp } else { self.comps.union(joined, comp) };
            }
        }
        if joined != NONE {
            self.log(m, lock, joined);
        }
        self.scratch = scratch;
    }

    /// Notes in the lock's log that all present waiters have waited for a component.
    fn log(&mut self, m: &Machines, lock: u32, comp: u32) {
        let log = &mut self.locks[lock as usize].log;
        if let Some(last) = log.last_mut()
            && self.comps.find(&mut last.comp) == comp
        {
            last.to = m.now;
            return;
        }
        if log.len() >= MAX_LOG {
            // The oldest waiter joins them all in the end, unless it gives up.
            let to = log[MAX_LOG / 2 - 1].to;
            let mut merged = NONE;
            for mut entry in log.drain(..MAX_LOG / 2) {
                let root = self.comps.find(&mut entry.comp);
                let root = if merged == NONE { root } else { self.comps.union(merged, root) };
                if merged == NONE {
                    merged = root;
                    continue;
                }
                let kept = self.comps.add_ref(root);
                self.comps.unref(merged);
                self.comps.unref(entry.comp);
                merged = kept;
            }
            log.insert(0, Entry { to, comp: merged });
        }
        let comp = self.comps.add_ref(comp);
        log.push(Entry { to: m.now, comp });
    }

    fn component(&mut self, source: Source) -> u32 {
        match source {
            Source::Live(node) => {
                let section = &mut self.sections[node as usize];
                self.comps.of(&mut section.comp, section.site, section.key)
            }
            Source::Past(lock) => match &mut self.locks[lock as usize].past {
                Some(past) => self.comps.of(&mut past.comp, past.site, past.key),
                None => NONE,
            },
            Source::Nobody => NONE,
        }
    }

    fn charge_cell(&mut self, lock: u32, culprit: &Culprit, blame: &Blame, nested: bool, wait: Nanos) {
        let state = &mut self.locks[lock as usize];
        let mut key = CellKey { who: culprit.who, cause: blame.cause, nested, inferred: blame.inferred };
        let mut site = culprit.site;
        let find = |state: &super::engine::LockBlame, key: &CellKey| {
            let hint = state.cells.get(state.hint).filter(|cell| cell.key == *key).map(|_| state.hint);
            hint.or_else(|| match state.cells.len() {
                0..=LINEAR => state.cells.iter().position(|cell| cell.key == *key),
                _ => state.index.get(key).map(|&at| at as usize),
            })
        };
        let mut found = find(state, &key);
        if found.is_none() && state.cells.len() >= MAX_CELLS {
            // Charged at once, with the attempts among the waiters that will fail.
            self.sites.blame(site, Nanos(wait.0.saturating_mul(state.blocked.len() as u64)));
            (key.who, site) = (Some(Who::Others), super::engine::NO_SITE);
            found = find(state, &key);
        }
        let at = found.unwrap_or_else(|| {
            let store = self.store_of.get(&culprit.lock).copied().unwrap_or(NONE);
            state.cells.push(Cell { key, site, store, row: NONE, sum: 0 });
            let at = state.cells.len() - 1;
            state.index.insert(key, at as u32);
            at
        });
        state.hint = at;
        let cell = &mut state.cells[at];
        cell.sum = cell.sum.saturating_add(wait.0);
    }

    /// Charges, for all waiters together, what need not be exact for attempts that will fail: stacks and chains.
    #[allow(clippy::too_many_arguments, reason = "the parts of one piece, borrowed apart")]
    fn charge_lists(
        &mut self,
        m: &Machines,
        lock: u32,
        culprit: &Culprit,
        blame: &Blame,
        links: &[(u32, Source)],
        chain: &mut Vec<Link>,
        wait: Nanos,
    ) {
        let state = &self.locks[lock as usize];
        let (Some(who), store) = (culprit.who, state.shares) else { return };
        let off = blame.off.map(|stack| (blame.cause, stack));
        let (first, count) = (blame.links.0 as usize, blame.links.1 as usize);
        if store == NONE || culprit.stack.is_none() && off.is_none() && count < 2 {
            return;
        }
        let wait = Nanos(wait.0.saturating_mul(state.blocked.len() as u64));
        if count > 1 {
            chain.clear();
            for &(lock, source) in links.iter().skip(first).take(count) {
                let holder = self.culprit(m, lock, source);
                let site = match holder.who {
                    Some(Who::Section { site, .. }) => Some(site),
                    _ => None,
                };
                let released = matches!(source, Source::Past(_)) && !m.lock_at(lock).lock.is_kernel();
                chain.push(Link { lock: m.lock_at(lock).lock, site, tid: holder.tid, released });
            }
            self.stores[store as usize].chain(chain, wait);
        }
        self.stores[store as usize].stacks(who, wait, culprit.stack, off);
    }

    fn culprit(&self, m: &Machines, lock: u32, source: Source) -> Culprit {
        let nobody = Culprit {
            who: None,
            lock: m.lock_at(lock).lock,
            tid: Tid(0),
            site: super::engine::NO_SITE,
            key: 0,
            taken: 0,
            stack: None,
        };
        match source {
            Source::Live(node) => {
                let (n, s) = (m.node(node), &self.sections[node as usize]);
                let i = &n.instance;
                Culprit {
                    who: Some(who(i.lock, i.site, i.tid)),
                    lock: i.lock,
                    tid: i.tid,
                    site: s.site,
                    key: s.key,
                    taken: n.taken,
                    stack: i.stack,
                }
            }
            Source::Past(lock) => self.locks[lock as usize].past.map_or(nobody, |p| Culprit {
                who: Some(p.who),
                lock: m.lock_at(lock).lock,
                tid: p.tid,
                site: p.site,
                key: p.key,
                taken: p.taken,
                stack: p.stack,
            }),
            Source::Nobody => nobody,
        }
    }

    /// Collects those to blame for the lock's waiters, each with its part of the time.
    fn resolve(&self, m: &Machines, lock: u32, split: Split, inferred: bool, s: &mut Scratch) {
        let (l, state) = (m.lock_at(lock), &self.locks[lock as usize]);
        let semaphore = l.kind == LockKind::Semaphore;
        let inferred = inferred || semaphore;
        let Some(&newest) = l.holders.last().filter(|_| !(semaphore && state.gap)) else {
            let source = if state.past.is_some() { Source::Past(lock) } else { Source::Nobody };
            if l.lock.is_kernel() {
                // Its release is not seen: whoever had it last has it still, as far as is known.
                let seen = state.past.and_then(|past| past.seen);
                let (cause, off) = match (source, s.path.last()) {
                    (Source::Past(_), _) if let Some(seen) = seen => seen,
                    (Source::Nobody, Some(&(_, Source::Live(holder)))) => {
                        let waits = m.thread_at(m.node(holder).thread).waiting;
                        waits.map_or((Cause::Unknown, None), |d| waiting_for(m, d))
                    }
                    _ => (Cause::Unknown, None),
                };
                return emit(lock, source, split, true, cause, off, s);
            }
            let cause = if state.past.is_some_and(|past| past.unseen) { Cause::Unknown } else { Cause::HandOff };
            return emit(lock, source, split, inferred, cause, None, s);
        };
        let culprits = m.culprits(l);
        let count = culprits.len() as u32;
        if count == 1 {
            return self.resolve_holder(m, lock, newest, split, inferred, s);
        }
        for (part, &holder) in (0..).zip(culprits) {
            let Some(split) = split.part(part, count) else {
                // Readers of readers of …: the first stands for all.
                return self.resolve_holder(m, lock, holder, split, true, s);
            };
            self.resolve_holder(m, lock, holder, split, true, s);
        }
    }

    fn resolve_holder(&self, m: &Machines, lock: u32, holder: NodeIx, split: Split, inferred: bool, s: &mut Scratch) {
        let thread = m.thread_at(m.node(holder).thread);
        let waits = thread.waiting.filter(|&d| m.node(d).queued);
        if let Some(d) = waits
            && self.sections[d as usize].phase == Phase::Blocked
            && s.path.len() < MAX_NESTING
        {
            let inner = m.node(d).lock;
            if inner != lock && s.path.iter().all(|p| p.0 != inner) {
                s.path.push((lock, Source::Live(holder)));
                self.resolve(m, inner, split, inferred, s);
                s.path.pop();
                return;
            }
        }
        let (cause, off) = match thread.run {
            _ if let Some(d) = waits => waiting_for(m, d),
            _ if thread.idle.is_some() => (Cause::Sleeping, None),
            Run::Running if !is_watched(m, holder) => (Cause::Unknown, None),
            Run::Running => (Cause::Running, None),
            Run::Off(OffReason::Runnable, stack) => (Cause::Runnable, stack),
            Run::Off(OffReason::Blocked, stack) => (Cause::Blocked, stack),
            Run::Off(OffReason::Sleeping, stack) => (Cause::Sleeping, stack),
            Run::Off(OffReason::Futex, stack) => (Cause::Lock, stack),
        };
        emit(lock, Source::Live(holder), split, inferred, cause, off, s);
    }

    /// Settles a lock and all those whose holders wait for it, directly or through others.
    pub(super) fn touch(&mut self, m: &Machines, lock: u32) {
        if self.locks[lock as usize].outer.is_empty() {
            return self.settle(m, lock);
        }
        let mut work = std::mem::take(&mut self.work);
        work.push(lock);
        while let Some(lock) = work.pop() {
            let state = &mut self.locks[lock as usize];
            if std::mem::replace(&mut state.settled, m.step) != m.step {
                work.extend_from_slice(&state.outer);
            }
            self.settle(m, lock);
        }
        self.work = work;
    }

    /// Settles what a thread holds.
    pub(super) fn touch_held(&mut self, m: &Machines, thread: u32) {
        for &held in &m.thread_at(thread).held {
            let lock = m.node(held).lock;
            if !self.locks[lock as usize].blocked.is_empty() {
                self.touch(m, lock);
            }
        }
    }

    /// Brings up to date for which locks a lock's holders wait, if it is waited for itself.
    pub(super) fn relink(&mut self, m: &Machines, lock: u32) {
        let state = &mut self.locks[lock as usize];
        if state.inner.is_empty() && state.blocked.is_empty() {
            return;
        }
        let mut inner = std::mem::take(&mut state.inner);
        let waited = !state.blocked.is_empty();
        for inner in inner.drain(..) {
            let outer = &mut self.locks[inner as usize].outer;
            if let Some(at) = outer.iter().position(|&l| l == lock) {
                outer.swap_remove(at);
            }
        }
        for &holder in m.culprits(m.lock_at(lock)).iter().filter(|_| waited) {
            if let Some(d) = m.thread_at(m.node(holder).thread).waiting.filter(|&d| m.node(d).queued) {
                let to = m.node(d).lock;
                if to != lock && !inner.contains(&to) {
                    inner.push(to);
                    self.locks[to as usize].outer.push(lock);
                }
            }
        }
        self.locks[lock as usize].inner = inner;
    }

    pub(super) fn relink_held(&mut self, m: &Machines, thread: u32) {
        for &held in &m.thread_at(thread).held {
            self.relink(m, m.node(held).lock);
        }
    }
}

/// Whether its thread is seen to leave the CPU while it holds this: who has a permit or a kernel lock may sleep unseen.
fn is_watched(m: &Machines, holder: NodeIx) -> bool {
    let i = &m.node(holder).instance;
    i.kind != LockKind::Semaphore && !i.lock.is_kernel() && task::task(i.tid.0).is_none()
}

/// What a holder does that waits for another lock, whose holder is not known.
fn waiting_for(m: &Machines, wait: NodeIx) -> (Cause, Option<StackId>) {
    let i = &m.node(wait).instance;
    if i.lock.is_kernel() { (Cause::KernelLock, i.stack) } else { (Cause::Lock, None) }
}

fn emit(lock: u32, source: Source, split: Split, inferred: bool, cause: Cause, off: Option<StackId>, s: &mut Scratch) {
    let first = s.links.len() as u32;
    s.links.extend_from_slice(&s.path);
    let (source, cause) = match (source, s.path.last()) {
        // Where nobody is to blame for the inner wait, the blame stays with the outer holder.
        (Source::Nobody, Some(&(_, holder))) => (holder, if cause == Cause::KernelLock { cause } else { Cause::Lock }),
        _ => {
            s.links.push((lock, source));
            (source, cause)
        }
    };
    let links = (first, s.links.len() as u32 - first);
    s.blames.push(Blame { source, split, inferred, cause, off, links });
}
