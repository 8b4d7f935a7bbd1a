//! What is known about the waiting for one lock: who waited, who held it meanwhile.

use crate::histogram::Histogram;
use crate::id::{Site, StackId, Tid};
use crate::tally::{Tally, TopTallies};
use crate::units::Nanos;
use std::collections::HashSet;

/// Sites told apart per lock, as waiters and as holders; further ones share one row.
const MAX_SITES: usize = 128;
/// Holders per lock of which only the thread is known; further ones share the row of the other holders.
const MAX_THREADS: usize = 64;
/// Waiting threads counted per lock.
const MAX_WAITING_THREADS: usize = 1_024;

/// Stacks kept per site.
pub type Stacks = TopTallies<StackId, 8>;
/// Pairs (waiter, holder) kept per lock.
pub type Pairs = TopTallies<(Tid, Tid), 64>;

/// Who is blamed for waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Who {
    /// Whoever held the lock having requested it here.
    Site(Site),
    /// A thread named by the owner word, or as the waker if there is none; where it took the lock was not seen.
    Thread(Tid),
    /// Holders beyond the number that is told apart.
    Others,
}

/// Waiting at one call site.
#[derive(Clone, Debug, Default)]
pub struct Waiter {
    /// The site; `None` for all sites beyond the number that is told apart.
    pub site: Option<Site>,
    /// Waits and their sum, timed-out attempts included.
    pub waits: Tally,
    /// The longest.
    pub max: Nanos,
    /// The part of the sum for which nobody is to blame, or nobody is known.
    pub unattributed: Nanos,
    /// What each holder is blamed for, by row in [`Shares::holders`]; missing rows are 0.
    pub blamed: Vec<Nanos>,
    /// Stacks at the attempt, and the waits of each.
    pub stacks: Stacks,
}

/// One holder of the lock.
#[derive(Clone, Debug)]
pub struct Holder {
    /// Who.
    pub who: Who,
    /// Waiting that it caused.
    pub wait: Nanos,
    /// The part of `wait` after its releases, until the next thread had the lock.
    pub handoff: Nanos,
    /// Waits that it prolonged.
    pub victims: u64,
    /// Its recorded sections and their holds.
    pub sections: Tally,
    /// Stacks, and the holds of each.
    pub stacks: Stacks,
}

/// All recorded waiting for one lock. Σ `wait` of the holders + `unattributed` = `waits.time`.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    /// Recorded contended acquisitions and timed-out attempts, and Σ wait.
    pub waits: Tally,
    /// Of these, the timed-out attempts.
    pub timed_out: Tally,
    /// The longest wait of an acquisition.
    pub max: Nanos,
    /// Waits of the acquisitions, without timed-out attempts.
    pub histogram: Histogram,
    /// Waiting for which nobody is to blame, or nobody is known.
    pub unattributed: Nanos,
    /// The part of `unattributed` for which the holders' sections were no longer remembered.
    pub forgotten: Nanos,
    /// By site, in the order in which they were first seen.
    pub waiters: Vec<Waiter>,
    /// By site or thread, in the order in which they were first seen.
    pub holders: Vec<Holder>,
    /// Which thread waited for which.
    pub pairs: Pairs,
    /// Attributed waiting that `pairs` does not list: beyond the first holders of a long queue.
    pub unpaired: Nanos,
    /// Distinct threads that waited, counted up to 1,024.
    pub threads: HashSet<Tid>,
}

impl Shares {
    /// Row of the waiting site, new if need be.
    pub(super) fn waiter(&mut self, site: Site) -> usize {
        let site = if self.waiters.len() < MAX_SITES { Some(site) } else { self.known(site) };
        self.waiters.iter().position(|w| w.site == site).unwrap_or_else(|| {
            self.waiters.push(Waiter { site, ..Waiter::default() });
            self.waiters.len() - 1
        })
    }

    fn known(&self, site: Site) -> Option<Site> {
        self.waiters.iter().any(|w| w.site == Some(site)).then_some(site)
    }

    /// Row of the holder, new if need be.
    pub(super) fn holder(&mut self, who: Who) -> usize {
        let find = |holders: &[Holder], who| holders.iter().position(|h| h.who == who);
        if let Some(row) = find(&self.holders, who) {
            return row;
        }
        let alike =
            |h: &&Holder| matches!((h.who, who), (Who::Site(_), Who::Site(_)) | (Who::Thread(_), Who::Thread(_)));
        let limit = if matches!(who, Who::Thread(_)) { MAX_THREADS } else { MAX_SITES };
        let who = if self.holders.iter().filter(alike).count() < limit { who } else { Who::Others };
        find(&self.holders, who).unwrap_or_else(|| {
            self.holders.push(Holder {
                who,
                wait: Nanos(0),
                handoff: Nanos(0),
                victims: 0,
                sections: Tally::default(),
                stacks: Stacks::default(),
            });
            self.holders.len() - 1
        })
    }

    /// Counts a wait, before it is divided among those to blame.
    pub(super) fn add_wait(&mut self, waiter: usize, tid: Tid, wait: Nanos, timed_out: bool) {
        self.waits.add(wait);
        if timed_out {
            self.timed_out.add(wait);
        } else {
            self.max = self.max.max(wait);
            self.histogram.add(wait);
        }
        if let Some(waiter) = self.waiters.get_mut(waiter) {
            waiter.waits.add(wait);
            waiter.max = waiter.max.max(wait);
        }
        if self.threads.len() < MAX_WAITING_THREADS {
            self.threads.insert(tid);
        }
    }

    /// Blames a holder for a part of a wait.
    pub(super) fn blame(&mut self, waiter: usize, holder: usize, wait: Nanos, handoff: Nanos) {
        if let Some(holder) = self.holders.get_mut(holder) {
            holder.wait += wait;
            holder.handoff += handoff;
            holder.victims += 1;
        }
        if let Some(waiter) = self.waiters.get_mut(waiter) {
            if waiter.blamed.len() <= holder {
                waiter.blamed.resize(holder + 1, Nanos(0));
            }
            waiter.blamed[holder] += wait;
        }
    }

    /// Leaves a part of a wait without anybody to blame.
    pub(super) fn leave(&mut self, waiter: usize, wait: Nanos) {
        self.unattributed += wait;
        if let Some(waiter) = self.waiters.get_mut(waiter) {
            waiter.unattributed += wait;
        }
    }

    /// What a holder is blamed for by one waiting site.
    #[must_use]
    pub fn blamed(&self, waiter: usize, holder: usize) -> Nanos {
        self.waiters.get(waiter).and_then(|w| w.blamed.get(holder)).copied().unwrap_or_default()
    }
}
