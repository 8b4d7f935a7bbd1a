//! How the graph follows the machines: before a change, what stands so far is charged; after it, the lists are brought up
//! to date.

use super::component::NONE;
use super::engine::{Engine, LockBlame, Past, Phase, who};
use super::path::Hop;
use super::shares::Ended;
use crate::id::{Process, Site, Tid};
use crate::op::{Failure, Hold, LockKind, Released};
use crate::state::{Follower, Machines, NodeIx, Round};
use crate::units::{Nanos, Time};

impl Follower for Engine {
    fn attempting(&mut self, m: &Machines, node: NodeIx) {
        self.begin(m, node);
        if m.node(node).queued {
            self.touch_held(m, m.node(node).thread);
        }
    }

    fn attempted(&mut self, m: &Machines, node: NodeIx) -> bool {
        let n = m.node(node);
        if !n.queued {
            return false;
        }
        let phase = self.phase(m, node);
        if self.locks[n.lock as usize].gap && has_no_permit(m, node) {
            // Nor is one being handed over: whoever was woken for it has it.
            self.touch(m, n.lock);
            self.locks[n.lock as usize].gap = false;
        }
        if phase == Phase::Blocked {
            self.settle(m, n.lock);
        }
        let (state, section) = (&self.locks[n.lock as usize], &mut self.sections[node as usize]);
        section.acquisitions = state.acquisitions;
        section.ahead = (state.blocked.len() + state.free.len()) as u64;
        let first = phase == Phase::Blocked && self.locks[n.lock as usize].blocked.is_empty();
        self.enlist(m, node, phase, n.asked);
        if first {
            self.relink(m, n.lock);
        }
        self.relink_held(m, n.thread);
        phase == Phase::Blocked
    }

    fn acquiring(&mut self, m: &Machines, node: NodeIx, waker: Option<Tid>) -> bool {
        let lock = m.node(node).lock;
        self.touch(m, lock);
        let contended = self.end_wait(m, node, Ended::Acquired, waker);
        if let Some(keeper) = &mut self.keeper {
            keeper.acquired(self.sections[node as usize].key, m.now);
        }
        contended
    }

    fn acquired(&mut self, m: &Machines, node: NodeIx) {
        let lock = m.node(node).lock;
        self.drop_past(lock);
        let state = &mut self.locks[lock as usize];
        state.gap = false;
        state.epoch = m.now;
        state.acquisitions += 1;
        if !state.free.is_empty() {
            self.overtake(m, lock, node);
        }
        let (state, i) = (&self.locks[lock as usize], &m.node(node).instance);
        if !state.blocked.is_empty() && state.shares != NONE {
            self.stores[state.shares as usize].edit().turns.take(i.tid, i.contended);
        }
        self.relink(m, lock);
        self.relink_held(m, m.node(node).thread);
    }

    fn failing(&mut self, m: &Machines, node: NodeIx, how: Failure) -> bool {
        let n = m.node(node);
        self.settle(m, n.lock);
        self.touch_held(m, n.thread);
        if how == Failure::TimedOut {
            return self.end_wait(m, node, Ended::TimedOut, None);
        }
        let phase = self.delist(n.lock, node);
        if let Some(keeper) = &mut self.keeper {
            keeper.void(self.sections[node as usize].key);
        }
        phase == Phase::Blocked
    }

    fn failed(&mut self, m: &Machines, node: NodeIx) {
        let n = m.node(node);
        self.relink(m, n.lock);
        self.relink_held(m, n.thread);
        self.vanish(m, node, false);
    }

    fn releasing(&mut self, m: &Machines, node: NodeIx) {
        let n = m.node(node);
        self.touch(m, n.lock);
        if n.taken == 0 {
            // It held the lock since before the recording: that is what those waited for who found it free.
            self.overtake(m, n.lock, node);
        }
    }

    fn released(&mut self, m: &Machines, node: NodeIx, how: Released) {
        let n = m.node(node);
        let i = &n.instance;
        if let Some(keeper) = &mut self.keeper {
            keeper.released(self.sections[node as usize].key, m.now);
        }
        let lock = m.lock_at(n.lock);
        let is_newest = lock.holders.last().is_none_or(|&other| m.node(other).taken < n.taken);
        let who = who(i.lock, i.site, i.tid);
        let store = self.locks[n.lock as usize].shares;
        if store != NONE {
            self.stores[store as usize].section(who, m.now.since(i.acquire.unwrap_or(m.now)));
        }
        if n.overtaken {
            return self.vanish(m, node, false);
        }
        if how == Released::Unseen && lock.kind != LockKind::Semaphore {
            // Others may have had it since.
            self.drop_past(n.lock);
            self.vanish(m, node, false);
        } else if lock.holders.is_empty() || lock.kind == LockKind::Semaphore && (lock.wide || is_newest) {
            self.drop_past(n.lock);
            let last = self.last(m, node, false);
            let section = &mut self.sections[node as usize];
            let comp = std::mem::replace(&mut section.comp, NONE);
            let (site, key) = (section.site, section.key);
            let unseen = how == Released::Unseen;
            let state = &mut self.locks[n.lock as usize];
            state.past = Some(Past {
                tid: i.tid,
                site,
                who,
                stack: i.stack,
                key,
                comp,
                taken: n.taken,
                last,
                seen: None,
                unseen,
            });
            state.gap = true;
        } else {
            self.vanish(m, node, false);
        }
        self.locks[n.lock as usize].epoch = m.now;
        self.relink(m, n.lock);
    }

    fn switching(&mut self, m: &Machines, thread: u32) {
        self.touch_held(m, thread);
    }

    fn arriving(&mut self, m: &Machines, region: NodeIx, successor: NodeIx) {
        self.begin(m, region);
        self.begin(m, successor);
        self.arrive(m, region, successor);
        if let Some(keeper) = &mut self.keeper {
            keeper.released(self.sections[region as usize].key, m.now);
        }
        self.vanish(m, region, false);
    }

    fn completed(&mut self, m: &Machines, round: &Round) {
        let successors = round.arrivals.iter().map(|&(_, successor)| successor);
        self.complete_round(m, round.lock, successors, Ended::Acquired, round.at);
        for &(_, successor) in &round.arrivals {
            self.vanish(m, successor, false);
        }
    }

    fn open(&mut self, m: &Machines, node: NodeIx) -> bool {
        if self.closed != m.step {
            self.closed = m.step;
            (0..self.locks.len() as u32).filter(|&l| m.locks.contains(l as usize)).for_each(|l| self.settle(m, l));
        }
        let n = m.node(node);
        let contended = if n.instance.kind == LockKind::Barrier {
            self.complete_round(m, n.lock, [node].into_iter(), Ended::Open, m.now);
            true
        } else if n.queued {
            self.end_wait(m, node, Ended::Open, None)
        } else {
            false
        };
        self.vanish(m, node, true);
        contended
    }

    fn joined(&mut self, m: &Machines, tid: Tid, of: Tid, wait: Nanos) {
        let attempt = Time(m.now.0.saturating_sub(wait.0));
        self.hops.push(Hop { tid, giver: of, lock: None, attempt, acquire: m.now });
    }

    fn seen_holding(&mut self, m: &Machines, lock: u32, at: (Process, Site), hold: &Hold) {
        self.see(m, lock, at, hold);
    }

    fn forget_lock(&mut self, lock: u32) {
        if (lock as usize) < self.locks.len() {
            self.drop_past(lock);
            self.locks[lock as usize] = LockBlame::default();
        }
    }

    fn forget_thread(&mut self, tid: Tid) {
        self.comps.forget(tid);
    }
}

/// Whether an attempt found a semaphore without a permit, as its source says, that somebody is known to hold.
fn has_no_permit(m: &Machines, attempt: NodeIx) -> bool {
    let (n, lock) = (m.node(attempt), m.lock_at(m.node(attempt).lock));
    lock.kind == LockKind::Semaphore && n.told == Some(true) && !lock.holders.is_empty()
}
