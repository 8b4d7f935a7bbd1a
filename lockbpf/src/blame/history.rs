//! Who held one lock when. The time line is tiled by tenures: each lasts from its acquire to the next acquire, so that
//! a hand-off gap belongs to the releaser. Per holder the tenures carry running sums, which makes the time that a
//! holder takes out of any waiting interval a difference of two look-ups, however long the queue is.

use crate::id::Tid;
use crate::units::{Nanos, Time};
use std::collections::VecDeque;

/// A release is time-stamped when the unlock call begins: its probe runs before the lock word changes. An attempt in
/// between still finds the lock held by the releaser, whom the owner word names.
const RELEASE_SKEW: Nanos = Nanos(20_000);

/// How far back a tenure that arrives out of order is still put in its place.
const MAX_REORDER: usize = 256;

/// Row of a holder in the lock's table of holders.
pub(super) type HolderIndex = usize;

/// One recorded holding of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tenure {
    pub(super) acquire: Time,
    pub(super) release: Time,
    pub(super) holder: HolderIndex,
    pub(super) tid: Tid,
}

/// A tenure as one of its holder's own, with what the earlier ones of that holder sum up to.
#[derive(Clone, Copy, Debug)]
struct Span {
    acquire: Time,
    release: Time,
    /// The next acquire by anybody; the end of time for the last tenure.
    next: Time,
    before: Charge,
}

/// Waiting time that a holder has to answer for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Charge {
    pub(super) wait: Nanos,
    /// The part of `wait` after the release, until the next thread had the lock.
    pub(super) handoff: Nanos,
}

impl Span {
    /// What the holder had taken by time `t`, this tenure included.
    fn until(&self, t: Time) -> Charge {
        let t = t.min(self.next);
        Charge {
            wait: self.before.wait + t.since(self.acquire),
            handoff: self.before.handoff + t.since(self.release.max(self.acquire)),
        }
    }
}

/// Whom the part of a wait before the first tenure that counts is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// A recorded holder: the owner word shows that it had the lock a little before or after its record says.
    Holder(HolderIndex, Tid),
    /// A thread known by the owner word (or as the waker) only.
    Thread(Tid),
    /// Nobody is known to have held the lock.
    Nobody,
}

/// A waiting interval, cut where recorded tenures begin to account for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// Leading part that lies before the oldest tenure kept, after older ones were dropped.
    pub(super) forgotten: Nanos,
    /// Then the part that no recorded tenure covers, and whom it is charged to.
    pub(super) head: (Head, Nanos),
    /// From here on tenures account for all of it.
    pub(super) from: Time,
}

/// The recorded tenures of one lock, in order of acquisition.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    tenures: VecDeque<Tenure>,
    spans: Vec<VecDeque<Span>>,
    /// Whether older tenures were dropped.
    pruned: bool,
}

impl History {
    /// Adds a tenure, keeping at most `limit` (at least one). `false` if it is too late to be put in order.
    pub(super) fn insert(&mut self, tenure: Tenure, limit: usize) -> bool {
        let newest = self.tenures.iter().rev().take(MAX_REORDER + 1);
        let later = newest.take_while(|t| t.acquire > tenure.acquire).count();
        if later > MAX_REORDER || self.pruned && later == self.tenures.len() {
            return false;
        }
        let displaced: Vec<Tenure> = (0..later).filter_map(|_| self.pop_back()).collect();
        self.push_back(tenure);
        displaced.into_iter().rev().for_each(|t| self.push_back(t));
        while self.tenures.len() > limit.max(1) {
            if let Some(oldest) = self.tenures.pop_front() {
                self.spans[oldest.holder].pop_front();
                self.pruned = true;
            }
        }
        true
    }

    /// The last release that is known; time zero before the first.
    pub(super) fn last_release(&self) -> Time {
        self.tenures.back().map_or(Time(0), |t| t.release)
    }

    /// Cuts the wait `[from, to)` of a thread that found `owner` in the lock's owner word and was woken by `waker`.
    pub(super) fn cut(&self, from: Time, to: Time, owner: Option<Tid>, waker: Option<Tid>) -> Cut {
        let oldest = self.tenures.front().filter(|_| self.pruned).map_or(Time(0), |t| t.acquire);
        let start = from.max(oldest).min(to);
        let forgotten = start.since(from);
        let later = self.tenures.partition_point(|t| t.acquire <= start);
        let previous = later.checked_sub(1).and_then(|i| self.tenures.get(i));
        let next = self.tenures.get(later).filter(|t| t.acquire < to);
        let covered = start == to || previous.is_some_and(|t| t.release > start || forgotten > Nanos(0));
        if covered {
            return Cut { forgotten, head: (Head::Nobody, Nanos(0)), from: start };
        }
        let until = next.map_or(to, |t| t.acquire);
        let had_it_already = next.filter(|t| Some(t.tid) == owner);
        let had_it_still = previous.filter(|t| Some(t.tid) == owner && start.since(t.release) <= RELEASE_SKEW);
        let head = match (had_it_already.or(had_it_still), owner, waker) {
            (Some(t), ..) => Head::Holder(t.holder, t.tid),
            (None, Some(owner), _) => Head::Thread(owner),
            // Without any trace of a holder, whoever woke the thread is the best guess there is.
            (None, None, Some(waker)) if next.is_none() => Head::Thread(waker),
            _ => Head::Nobody,
        };
        Cut { forgotten, head: (head, until.since(start)), from: until }
    }

    /// What each holder took of `[from, to)`; holders that took nothing are left out. `from` is a [`Cut::from`].
    pub(super) fn charges(&self, from: Time, to: Time) -> impl Iterator<Item = (HolderIndex, Charge)> + '_ {
        self.spans.iter().enumerate().filter_map(move |(holder, spans)| {
            let (a, b) = (sum_until(spans, from), sum_until(spans, to));
            let charge = Charge { wait: b.wait - a.wait, handoff: b.handoff - a.handoff };
            (charge.wait > Nanos(0)).then_some((holder, charge))
        })
    }

    /// The threads that account for `[from, to)`, tenure by tenure.
    pub(super) fn threads(&self, from: Time, to: Time) -> impl Iterator<Item = (Tid, Nanos)> + '_ {
        let first = self.tenures.partition_point(|t| t.acquire <= from).saturating_sub(1);
        let nexts = self.tenures.iter().skip(first + 1).map(|t| t.acquire).chain([Time(u64::MAX)]);
        let tenures = self.tenures.iter().skip(first).take_while(move |t| t.acquire < to);
        let pieces = tenures.zip(nexts).map(move |(t, next)| (t.tid, next.min(to).since(t.acquire.max(from))));
        pieces.filter(|&(_, wait)| wait > Nanos(0))
    }

    fn push_back(&mut self, tenure: Tenure) {
        if let Some(last) = self.tenures.back()
            && let Some(span) = self.spans[last.holder].back_mut()
        {
            span.next = tenure.acquire;
        }
        if self.spans.len() <= tenure.holder {
            self.spans.resize_with(tenure.holder + 1, VecDeque::new);
        }
        let spans = &mut self.spans[tenure.holder];
        let before = spans.back().map(|span| span.until(span.next)).unwrap_or_default();
        spans.push_back(Span { acquire: tenure.acquire, release: tenure.release, next: Time(u64::MAX), before });
        self.tenures.push_back(tenure);
    }

    fn pop_back(&mut self) -> Option<Tenure> {
        let tenure = self.tenures.pop_back()?;
        self.spans[tenure.holder].pop_back();
        if let Some(last) = self.tenures.back()
            && let Some(span) = self.spans[last.holder].back_mut()
        {
            span.next = Time(u64::MAX);
        }
        Some(tenure)
    }
}

/// Everything that one holder's spans had taken by time `t`.
fn sum_until(spans: &VecDeque<Span>, t: Time) -> Charge {
    match spans.partition_point(|span| span.acquire <= t).checked_sub(1) {
        Some(i) => spans[i].until(t),
        None => spans.front().map(|span| span.before).unwrap_or_default(),
    }
}
