//! The end of a wait: its costs are the differences of the lock's cells; its component joins those it waited for.

use super::component::NONE;
use super::engine::{Engine, Head, PIECES, Phase};
use super::findings::{Blamed, Cause, EdgeKind, Who};
use super::path::Hop;
use super::shares::{Charge, Ended, Waited};
use crate::id::Tid;
use crate::op::LockKind;
use crate::state::{Machines, NodeIx};
use crate::units::{Nanos, Time};

impl Engine {
    /// Ends a wait up to now, when its lock has been settled. Whether it waited for a holder.
    pub(super) fn end_wait(&mut self, m: &Machines, node: NodeIx, how: Ended, waker: Option<Tid>) -> bool {
        let n = m.node(node);
        let lock = m.lock_at(n.lock);
        let phase = self.sections[node as usize].phase;
        let wait = m.now.since(n.instance.attempt.unwrap_or(m.now));
        let contended = match phase {
            Phase::Idle => {
                // The source says that it did not wait for a holder.
                if let Some(keeper) = &mut self.keeper {
                    keeper.leave(self.sections[node as usize].key, wait);
                }
                return false;
            }
            Phase::Blocked => {
                let open = lock.kind == LockKind::Semaphore || n.instance.shared;
                wait > Nanos(0) || !open || n.told == Some(true)
            }
            Phase::Free => {
                let poster = lock.poster.filter(|p| p.1 > n.asked).map(|p| p.0);
                let known = |t: &Tid| *t != n.instance.tid;
                let who = n.owner.filter(known).or(waker.filter(known)).or(poster.filter(known));
                let who = who.filter(|_| wait > Nanos(0));
                if wait > Nanos(0) {
                    let head = self.head_of_thread(m, who, node, wait);
                    self.sections[node as usize].head = Some(head);
                }
                self.store(m, n.lock);
                who.is_some() || n.told == Some(true) || how != Ended::Acquired
            }
        };
        if contended {
            self.charge_wait(m, node, wait, how, waker);
        } else if let (Some(keeper), Phase::Free) = (&mut self.keeper, phase) {
            keeper.leave(self.sections[node as usize].key, wait);
        }
        if contended && how == Ended::Acquired {
            let newest = lock.holders.last().filter(|_| !self.locks[n.lock as usize].gap);
            let releaser = || self.locks[n.lock as usize].past.map(|p| p.tid);
            let giver = match (phase, self.sections[node as usize].head) {
                (Phase::Free, head) => head.and_then(|h| h.who.map(|_| h.tid)),
                _ => newest.map(|&h| m.node(h).instance.tid).or_else(releaser),
            };
            if let (Some(giver), Some(attempt)) = (giver, n.instance.attempt) {
                self.hops.push(Hop {
                    tid: n.instance.tid,
                    giver,
                    lock: Some(n.instance.lock),
                    attempt,
                    acquire: m.now,
                });
            }
        }
        self.join(m, node, phase);
        self.delist(n.lock, node);
        contended
    }

    /// Charges a wait to those who caused it.
    fn charge_wait(&mut self, m: &Machines, node: NodeIx, wait: Nanos, how: Ended, waker: Option<Tid>) {
        let n = m.node(node);
        let i = &n.instance;
        let state = &mut self.locks[n.lock as usize];
        let section = &mut self.sections[node as usize];
        if let Some(keeper) = &mut self.keeper {
            keeper.waited(section.key, wait, waker);
        }
        let own = state.shares;
        let mut row = 0;
        if own == NONE {
            self.beyond.add(wait);
        } else {
            let overtaken = Some(state.acquisitions.saturating_sub(section.acquisitions + section.ahead));
            let waited = Waited { site: i.site, tid: i.tid, wait, count: 1, stack: i.stack, how, overtaken };
            row = self.stores[own as usize].add_wait(&waited);
        }
        let mut unattributed = Nanos(0);
        if let Some(head) = section.head {
            if let Some(who) = head.who {
                let charge =
                    Charge { who, cause: Cause::Unknown, nested: false, inferred: head.inferred, wait: head.wait };
                self.sites.blame(head.site, head.wait);
                if let Some(&store) = self.store_of.get(&head.lock) {
                    self.stores[store as usize].aplt += head.wait;
                }
                if own != NONE {
                    self.stores[own as usize].charge(row, &charge);
                    self.stores[own as usize].edit().pairs.add((i.tid, head.tid), head.wait);
                }
                let root = self.comps.of(&mut section.comp, section.site, section.key);
                if head.site != super::engine::NO_SITE {
                    self.comps.add_cost(root, head.site, head.wait.0);
                }
                if let Some(keeper) = &mut self.keeper {
                    let Head { tid, lock, wait, inferred, .. } = head;
                    keeper.edge(head.key, section.key, EdgeKind::Direct, Blamed { who, tid, lock, wait, inferred });
                    self.comps.add_member(root, head.key);
                }
            } else {
                unattributed += head.wait;
                if let Some(keeper) = &mut self.keeper {
                    keeper.leave(section.key, head.wait);
                }
            }
        }
        let paired = section.head.filter(|h| h.who.is_some()).map_or(Nanos(0), |h| h.wait);
        if section.phase == Phase::Blocked {
            for (at, cell) in state.cells.iter_mut().enumerate() {
                let cost = Nanos(cell.sum - section.before.get(at).copied().unwrap_or(0));
                if cost == Nanos(0) {
                    continue;
                }
                let Some(who) = cell.key.who else {
                    unattributed += cost;
                    continue;
                };
                self.sites.blame(cell.site, cost);
                if cell.store != NONE {
                    self.stores[cell.store as usize].aplt += cost;
                }
                if own != NONE {
                    let super::engine::CellKey { cause, nested, inferred, .. } = cell.key;
                    let store = &mut self.stores[own as usize];
                    if cell.row == NONE {
                        cell.row = store.holder(who) as u32;
                    }
                    store.charge_row(row, cell.row as usize, &Charge { who, cause, nested, inferred, wait: cost });
                }
            }
        }
        if own != NONE {
            if unattributed > Nanos(0) {
                self.stores[own as usize].leave(row, unattributed);
            }
            let section = &self.sections[node as usize];
            let blocked = section.phase == Phase::Blocked;
            let listed = if blocked { self.pair(own, n.lock, i.tid, section.start) } else { Nanos(0) } + paired;
            self.stores[own as usize].edit().unpaired += wait - unattributed - listed;
        }
    }

    /// Lists which threads a thread has waited for since it was blocked, the last ones; how long in all.
    fn pair(&mut self, store: u32, lock: u32, tid: Tid, start: Time) -> Nanos {
        let state = &self.locks[lock as usize];
        let pairs = &mut self.stores[store as usize].edit().pairs;
        let mut sum = Nanos(0);
        for back in 1..=state.pieces.len() {
            let Some(piece) = state.pieces.get((state.next_piece + PIECES - back) % PIECES) else { break };
            if piece.to <= start {
                break;
            }
            let from = piece.from.max(start);
            let wait = Nanos(piece.split.of(from.since(piece.epoch).0, piece.to.since(piece.epoch).0));
            if wait > Nanos(0) {
                // Nobody waits for itself: what it had given back is handed over to whom it waits for.
                let holder = if piece.tid == tid { piece.outer } else { piece.tid };
                pairs.add((tid, holder), wait);
                sum += wait;
            }
        }
        sum
    }

    /// Joins the components of all that the thread waited for, and its own.
    fn join(&mut self, m: &Machines, node: NodeIx, phase: Phase) {
        if phase != Phase::Blocked {
            return;
        }
        let lock = m.node(node).lock;
        let log = &mut self.locks[lock as usize].log;
        let section = &mut self.sections[node as usize];
        let mut joined = false;
        while let Some(mut entry) = log.pop_if(|entry| entry.to > section.start) {
            let own = self.comps.of(&mut section.comp, section.site, section.key);
            let other = self.comps.find(&mut entry.comp);
            self.comps.union(own, other);
            self.comps.unref(entry.comp);
            joined = true;
        }
        if !joined {
            return;
        }
        let root = self.comps.find(&mut section.comp);
        let comp = self.comps.add_ref(root);
        log.push(super::engine::Entry { to: m.now, comp });
        for (at, cell) in self.locks[lock as usize].cells.iter().enumerate() {
            let cost = cell.sum - section.before.get(at).copied().unwrap_or(0);
            if cost > 0 && cell.site != super::engine::NO_SITE && matches!(cell.key.who, Some(Who::Section { .. })) {
                self.comps.add_cost(root, cell.site, cost);
            }
        }
    }
}
