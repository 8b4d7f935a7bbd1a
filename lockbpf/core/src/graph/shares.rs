//! The waiting for one lock as it adds up: rows of waiting sites and of holders, bounded in number.

use super::findings::{Cause, Chain, Holder, Link, Shares, Waiter, Who};
use super::released::Piece;
use crate::event::{FutexResult, FutexWait};
use crate::id::{Lock, Site, StackId, Tid};
use crate::tally::{Tally, TopTallies};
use crate::units::Nanos;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Sites told apart per lock, as waiters and as holders; further ones share one row.
const MAX_SITES: usize = 128;
/// Holders per lock of which only the thread is known; further ones share the row of the other holders.
const MAX_THREADS: usize = 64;
/// Waiting threads counted per lock.
const MAX_WAITING_THREADS: usize = 1_024;
/// Chains told apart per lock while they add up.
const MAX_CHAINS: usize = 256;
/// Chains listed per lock.
const LISTED_CHAINS: usize = 16;

/// A wait to be counted.
pub(super) struct Waited {
    pub(super) site: Option<Site>,
    pub(super) tid: Tid,
    pub(super) wait: Nanos,
    /// How many like it this one stands for.
    pub(super) count: u64,
    pub(super) stack: Option<StackId>,
    pub(super) how: Ended,
    /// By how many acquisitions it was overtaken, at least, if they were seen.
    pub(super) overtaken: Option<u64>,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// With the lock.
    Acquired,
    /// At its deadline.
    TimedOut,
    /// Not before the recording did.
    Open,
}

/// Part of a wait, and whom it is charged to.
#[derive(Clone, Copy)]
pub(super) struct Charge {
    pub(super) who: Who,
    pub(super) cause: Cause,
    pub(super) nested: bool,
    pub(super) inferred: bool,
    pub(super) wait: Nanos,
}

/// The shares of one lock, and the rows by key. A copy has the same shares until one of the two changes them: a snapshot costs as
/// much as what it changes.
#[derive(Clone, Debug)]
pub(super) struct LockShares {
    pub(super) lock: Lock,
    pub(super) shares: Arc<Shares>,
    /// What its holders are blamed for, by waiters of any lock.
    pub(super) aplt: Nanos,
    waiters: FxHashMap<Option<Site>, u32>,
    holders: FxHashMap<Who, u32>,
    /// The last wait that each holder prolonged, so that each counts once.
    victims: Vec<u64>,
    waits: u64,
    recent_waiter: Option<(Option<Site>, u32)>,
    recent_holder: Option<(Who, u32)>,
    /// By links without their threads.
    chains: FxHashMap<Vec<Link>, (Nanos, Vec<Link>)>,
    key: Vec<Link>,
}

impl LockShares {
    pub(super) fn new(lock: Lock) -> Self {
        Self {
            lock,
            shares: Arc::default(),
            aplt: Nanos(0),
            waiters: FxHashMap::default(),
            holders: FxHashMap::default(),
            victims: Vec::new(),
            waits: 0,
            recent_waiter: None,
            recent_holder: None,
            chains: FxHashMap::default(),
            key: Vec::new(),
        }
    }

    /// The shares, to be changed.
    pub(super) fn edit(&mut self) -> &mut Shares {
        Arc::make_mut(&mut self.shares)
    }

    /// Row of the waiting site, new if need be.
    pub(super) fn waiter(&mut self, site: Option<Site>) -> usize {
        if let Some((recent, row)) = self.recent_waiter
            && recent == site
        {
            return row as usize;
        }
        let row = self.waiter_row(site);
        self.recent_waiter = Some((site, row));
        row as usize
    }

    fn waiter_row(&mut self, site: Option<Site>) -> u32 {
        if let Some(&row) = self.waiters.get(&site) {
            return row;
        }
        let site = site.filter(|_| self.shares.waiters.len() < MAX_SITES);
        let rows = &mut Arc::make_mut(&mut self.shares).waiters;
        *self.waiters.entry(site).or_insert_with(|| {
            rows.push(Waiter { site, ..Waiter::default() });
            rows.len() as u32 - 1
        })
    }

    /// Row of the holder, new if need be.
    pub(super) fn holder(&mut self, who: Who) -> usize {
        if let Some((recent, row)) = self.recent_holder
            && recent == who
        {
            return row as usize;
        }
        let row = match self.holders.get(&who) {
            Some(&row) => row,
            None => self.new_holder(who),
        };
        self.recent_holder = Some((who, row));
        row as usize
    }

    fn new_holder(&mut self, who: Who) -> u32 {
        let alike = |h: &&Holder| std::mem::discriminant(&h.who) == std::mem::discriminant(&who);
        let known = self.shares.holders.iter().filter(alike).count();
        let full = known >= if matches!(who, Who::Thread(_)) { MAX_THREADS } else { MAX_SITES };
        if full {
            return self.holder_row(Who::Others);
        }
        self.holder_row(who)
    }

    fn holder_row(&mut self, who: Who) -> u32 {
        let rows = &mut Arc::make_mut(&mut self.shares).holders;
        let victims = &mut self.victims;
        *self.holders.entry(who).or_insert_with(|| {
            rows.push(Holder {
                who,
                wait: Nanos(0),
                nested: Nanos(0),
                causes: Default::default(),
                victims: 0,
                inferred: Nanos(0),
                sections: Tally::default(),
                stacks: TopTallies::default(),
                off_stacks: TopTallies::default(),
            });
            victims.push(0);
            rows.len() as u32 - 1
        })
    }

    /// Counts a wait, before it is charged; its row.
    pub(super) fn add_wait(&mut self, w: &Waited) -> usize {
        let row = self.waiter(w.site);
        self.waits += 1;
        let shares = self.edit();
        shares.waits.add_for(w.count, w.wait);
        match w.how {
            Ended::Acquired => {
                shares.max = shares.max.max(w.wait);
                shares.histogram.add_for(w.count, w.wait);
            }
            Ended::TimedOut => shares.timed_out.add_for(w.count, w.wait),
            Ended::Open => {
                shares.open_max = shares.open_max.max(w.wait);
                shares.open.add_for(w.count, w.wait);
            }
        }
        let waiter = &mut shares.waiters[row];
        waiter.waits.add_for(w.count, w.wait);
        waiter.max = waiter.max.max(w.wait);
        if w.how == Ended::Acquired {
            waiter.acquired += Nanos(w.wait.0.saturating_mul(w.count));
        }
        if let Some(stack) = w.stack {
            waiter.stacks.add_for(stack, w.count, w.wait);
        }
        if shares.threads.len() < MAX_WAITING_THREADS {
            shares.threads.insert(w.tid);
        }
        shares.turns.wait(w.tid, w.count, w.wait, w.overtaken);
        row
    }

    /// Charges a part of the wait counted last.
    pub(super) fn charge(&mut self, waiter: usize, c: &Charge) {
        let row = self.holder(c.who);
        self.charge_row(waiter, row, c);
    }

    /// Charges a part of the wait counted last to a holder's row.
    pub(super) fn charge_row(&mut self, waiter: usize, row: usize, c: &Charge) {
        let shares = Arc::make_mut(&mut self.shares);
        let holder = &mut shares.holders[row];
        holder.wait += c.wait;
        if c.nested {
            holder.nested += c.wait;
        }
        holder.causes.add(c.cause, c.wait);
        if c.inferred {
            holder.inferred += c.wait;
        }
        if self.victims[row] != self.waits {
            self.victims[row] = self.waits;
            holder.victims += 1;
        }
        let blamed = &mut shares.waiters[waiter].blamed;
        if blamed.len() <= row {
            blamed.resize(row + 1, Nanos(0));
        }
        blamed[row] += c.wait;
    }

    /// Counts and charges a futex wait.
    pub(super) fn divided(&mut self, w: &FutexWait, pieces: &[Piece]) {
        let how = if w.result == FutexResult::Slept { Ended::Acquired } else { Ended::TimedOut };
        let count = w.weight.of_waits();
        let waited = Waited { site: w.site, tid: w.tid, wait: w.wait, count, stack: w.stack, how, overtaken: None };
        let row = self.add_wait(&waited);
        for piece in pieces {
            let wait = Nanos(piece.wait().0.saturating_mul(count));
            let Some(who) = piece.who else {
                self.leave(row, wait);
                continue;
            };
            let (nested, inferred) = (piece.is_nested(), piece.inferred);
            self.charge(row, &Charge { who, cause: piece.cause, nested, inferred, wait });
            self.stacks(who, wait, piece.stack, piece.off.map(|off| (piece.cause, off)));
            self.edit().pairs.add((w.tid, piece.tid), wait);
            if nested {
                self.chain(&piece.links, wait);
            }
        }
    }

    /// Charges what an arrival at a barrier adds to the waits of one site.
    pub(super) fn charge_arrival(&mut self, waiter: usize, c: &Charge, victims: u64) {
        self.waits += 1;
        self.charge(waiter, c);
        if let Some(&row) = self.holders.get(&c.who) {
            self.edit().holders[row as usize].victims += victims.saturating_sub(1);
        }
    }

    /// Leaves a part of a wait without anybody to blame.
    pub(super) fn leave(&mut self, waiter: usize, wait: Nanos) {
        let shares = self.edit();
        shares.unattributed += wait;
        shares.waiters[waiter].unattributed += wait;
    }

    /// Counts a section of a holder.
    pub(super) fn section(&mut self, who: Who, hold: Nanos) {
        let row = self.holder(who);
        self.edit().holders[row].sections.add(hold);
    }

    /// Counts waiting for the stacks of a holder.
    pub(super) fn stacks(&mut self, who: Who, wait: Nanos, at_attempt: Option<StackId>, off: Option<(Cause, StackId)>) {
        if at_attempt.is_none() && off.is_none() {
            return;
        }
        let row = self.holder(who);
        let holder = &mut self.edit().holders[row];
        if let Some(stack) = at_attempt {
            holder.stacks.add(stack, wait);
        }
        if let Some(off) = off {
            holder.off_stacks.add(off, wait);
        }
    }

    /// Counts waiting that comes about through other locks.
    pub(super) fn chain(&mut self, links: &[Link], wait: Nanos) {
        self.key.clear();
        self.key.extend(links.iter().map(|link| Link { tid: Tid::default(), ..*link }));
        if let Some((sum, _)) = self.chains.get_mut(&self.key) {
            *sum += wait;
        } else if self.chains.len() < MAX_CHAINS {
            self.chains.insert(self.key.clone(), (wait, links.to_vec()));
        }
    }

    /// The shares, complete. Without any scheduling step, it is not known what holders did while they seemed to run.
    pub(super) fn finish(mut self, scheduling_known: bool) -> (Lock, Nanos, Arc<Shares>) {
        if !scheduling_known && !self.shares.holders.is_empty() {
            for holder in &mut self.edit().holders {
                let ran = std::mem::take(&mut holder.causes.0[Cause::Running as usize]);
                holder.causes.add(Cause::Unknown, ran);
            }
        }
        if !self.chains.is_empty() {
            let chains = std::mem::take(&mut self.chains).into_values().map(|(wait, links)| Chain { links, wait });
            let mut chains: Vec<Chain> = chains.collect();
            chains.sort_unstable_by(|a, b| (b.wait, &a.links).cmp(&(a.wait, &b.links)));
            chains.truncate(LISTED_CHAINS);
            self.edit().chains = chains;
        }
        (self.lock, self.aplt, self.shares)
    }
}
