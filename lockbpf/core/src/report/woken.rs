//! Waiting for a mutex by threads that a condition had just woken: at the end of a condition wait they lock it again.

use super::gather::Gathered;
use super::schema::{LockEntry, Ns, Report};
use super::text::percent;
use crate::id::{Lock, Site};
use crate::units::Nanos;
use std::collections::{BTreeMap, HashSet};

/// Threads that were woken do most of a lock's waiting from this part on.
const MOSTLY: f64 = 0.5;
/// The places of at least this part of the waiting must be known.
const KNOWN: f64 = 0.1;
/// Where the places of at least this part are known, the rest needs no mention.
const SURE: f64 = 0.9;

/// Places at which threads wait for conditions.
#[derive(Debug)]
pub(super) struct Woken(HashSet<Site>);

impl Woken {
    /// Those of an observation.
    pub(super) fn of(all: &BTreeMap<Lock, Gathered<'_>>) -> Self {
        let ended = all.values().flat_map(|g| &g.condvar).map(|sums| sums.site);
        let of_conditions = all.values().filter(|g| g.permits.is_empty());
        let open = of_conditions.flat_map(|g| &g.idle).filter_map(|wait| wait.site);
        Self(ended.chain(open).filter(|site| site.addr != 0).collect())
    }

    /// The recorded waiting for a lock at these places.
    pub(super) fn waited(&self, gathered: &Gathered<'_>) -> Nanos {
        let waiters = gathered.blame().into_iter().flat_map(|shares| &shares.waiters);
        waiters.filter(|w| w.site.is_some_and(|site| self.0.contains(&site))).map(|w| w.waits.time).sum()
    }
}

/// What is to be said of a lock that is waited for mostly by threads that had just been woken, if threads wait for conditions longer than for it:
/// whoever has time to wait for work may do as much of it without the lock, only sooner.
pub(super) fn sentence(report: &Report, lock: &LockEntry) -> Option<String> {
    let placed = lock.waiters.iter().filter(|waiter| waiter.place.site.is_some()).map(|waiter| waiter.wait_ns);
    let placed = placed.sum::<Ns>().max(lock.woken_wait_ns);
    let known = placed.share_of(lock.recorded_wait_ns);
    let woken = lock.woken_wait_ns.share_of(placed);
    let seen = report.conditions.iter().map(|condition| condition.waited_ns()).sum::<Ns>();
    let idle = report.quality.sleep.as_ref().map_or(seen, |sleep| sleep.conditions_ns.max(seen));
    if known < KNOWN || woken < MOSTLY || idle <= lock.harm_ns {
        return None;
    }
    let doubt = if known < SURE {
        format!(", as far as its places are known (of {} of it),", percent(known))
    } else {
        String::new()
    };
    Some(format!(
        "{} of that waiting{doubt} is of threads that a condition had just woken, and threads waited {idle} for conditions besides: it makes \
         late what they were woken for, but need not hold back how much gets done.",
        percent(woken),
    ))
}
