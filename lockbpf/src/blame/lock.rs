//! The waiting for one lock, divided among its holders as section records arrive.

use super::history::{Head, History, Tenure};
use super::shares::{Shares, Who};
use crate::event::{Outcome, Section, flag};
use crate::id::Tid;
use crate::units::{Nanos, Time};
use std::collections::VecDeque;

/// Tenures of a long wait that are followed thread by thread.
const MAX_PAIRED: usize = 16;
/// Timed-out attempts that may await the record of the section that outlasted them.
const MAX_PENDING: usize = 1_024;

/// A wait to be divided.
#[derive(Clone, Copy, Debug)]
struct Wait {
    waiter: usize,
    tid: Tid,
    from: Time,
    to: Time,
    wait: Nanos,
    owner: Option<Tid>,
    waker: Option<Tid>,
}

/// One lock's history, and the waiting divided so far.
#[derive(Clone, Debug, Default)]
pub(super) struct LockBlame {
    history: History,
    shares: Shares,
    pending: VecDeque<Wait>,
}

impl LockBlame {
    /// Takes in one section, remembering at most `limit` tenures; `false` if it came too late to be remembered.
    pub(super) fn section(&mut self, s: &Section, limit: usize) -> bool {
        let timed_out = s.outcome == Outcome::TimedOut;
        if timed_out || s.acquired() && s.has(flag::CONTENDED) {
            self.wait(s, timed_out);
        }
        !s.acquired() || self.tenure(s, limit)
    }

    /// The waiting so far; timed-out attempts that outlasted every record are divided by what is known.
    pub(super) fn shares(&self) -> Shares {
        let mut shares = self.shares.clone();
        for wait in &self.pending {
            divide(&self.history, wait, self.history.last_release(), &mut shares);
        }
        shares
    }

    fn wait(&mut self, s: &Section, timed_out: bool) {
        let waiter = self.shares.waiter(s.site);
        self.shares.add_wait(waiter, s.tid, s.wait, timed_out);
        if let Some(stack) = s.stack.filter(|_| !s.has(flag::STACK_AT_RELEASE)) {
            self.shares.waiters[waiter].stacks.add(stack, s.wait);
        }
        let (from, to) = (s.attempt(), s.acquire());
        let wait = Wait { waiter, tid: s.tid, from, to, wait: s.wait, owner: s.owner, waker: s.waker };
        if !timed_out {
            return divide(&self.history, &wait, to, &mut self.shares);
        }
        // Whoever held the lock when the deadline passed is recorded later, at its release.
        self.pending.push_back(wait);
        if self.pending.len() > MAX_PENDING
            && let Some(oldest) = self.pending.pop_front()
        {
            divide(&self.history, &oldest, self.history.last_release(), &mut self.shares);
        }
    }

    fn tenure(&mut self, s: &Section, limit: usize) -> bool {
        let holder = self.shares.holder(Who::Site(s.site));
        self.shares.holders[holder].sections.add(s.hold);
        if let Some(stack) = s.stack {
            self.shares.holders[holder].stacks.add(stack, s.hold);
        }
        let tenure = Tenure { acquire: s.acquire(), release: s.end, holder, tid: s.tid };
        if !self.history.insert(tenure, limit) {
            return false;
        }
        while let Some(wait) = self.pending.pop_front_if(|wait| wait.to <= s.end) {
            divide(&self.history, &wait, wait.to, &mut self.shares);
        }
        true
    }
}

/// Charges every piece of a wait to whom it belongs. A gap after a release belongs to the releaser, but beyond `until`
/// nobody is known to have had the lock.
fn divide(history: &History, w: &Wait, until: Time, shares: &mut Shares) {
    let cut = history.cut(w.from, w.to, w.owner, w.waker);
    let to = w.to.min(until).max(cut.from);
    let mut paired = Nanos(0);
    let mut attributed = Nanos(0);
    let mut head = None;
    match cut.head {
        (_, Nanos(0)) | (Head::Nobody, _) => {}
        (Head::Thread(tid), wait) => {
            let holder = shares.holder(Who::Thread(tid));
            shares.blame(w.waiter, holder, wait, Nanos(0));
            shares.pairs.add((w.tid, tid), wait);
            attributed += wait;
            paired += wait;
        }
        (Head::Holder(holder, tid), wait) => {
            head = Some((holder, wait));
            shares.pairs.add((w.tid, tid), wait);
            attributed += wait;
            paired += wait;
        }
    }
    for (holder, charge) in history.charges(cut.from, to) {
        let early = head.take_if(|(h, _)| *h == holder).map_or(Nanos(0), |(_, wait)| wait);
        shares.blame(w.waiter, holder, charge.wait + early, charge.handoff);
        attributed += charge.wait;
    }
    if let Some((holder, wait)) = head {
        shares.blame(w.waiter, holder, wait, Nanos(0));
    }
    for (tid, wait) in history.threads(cut.from, to).take(MAX_PAIRED) {
        shares.pairs.add((w.tid, tid), wait);
        paired += wait;
    }
    shares.unpaired += attributed - paired;
    shares.forgotten += cut.forgotten;
    shares.leave(w.waiter, w.wait - attributed);
}
