//! Where threads held locks of which the acquisition was not seen (it was before the observation, or between two windows): the lock's word, or
//! whoever was woken, names the thread only. Where it has woken others at this lock, and always at one place, that is where it gives the lock
//! back.

use super::findings::{Findings, Shares, Who};
use super::released::Releases;
use crate::id::{Lock, Site, StackId, Tid};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Wakes of a thread looked at, the last ones.
const MAX_LOOKED_AT: usize = 1_024;

/// Names these places.
pub(super) fn place(findings: &mut Findings, releases: &Releases) {
    let Findings { locks, sites, places, .. } = findings;
    for (&lock, shares) in locks.iter_mut().filter(|(lock, _)| !lock.is_kernel()) {
        let is_of = |word: Lock| word.process == lock.process && word.addr.wrapping_sub(lock.addr) < Lock::LARGEST;
        let named = named(releases, lock, shares, is_of);
        for holder in &shares.holders {
            if let Some(site) = named.get(&holder.who).and_then(|who| who.site()) {
                sites.entry(site).or_default().apwt += holder.wait;
            }
        }
        if !named.is_empty() {
            *shares = Arc::new(shares.renamed(|who| named.get(&who).copied().unwrap_or(who)));
        }
    }
    for (&at, place) in places {
        let named = named(releases, at, &place.waits.shares, |word| place.words.contains(&word));
        place.waits.shares = place.waits.shares.renamed(|who| named.get(&who).copied().unwrap_or(who));
    }
}

/// Threads that a lock's waiting is charged to, and where they give it back, as far as that is known.
fn named(releases: &Releases, lock: Lock, shares: &Shares, is_of: impl Fn(Lock) -> bool) -> BTreeMap<Who, Who> {
    let place = |who: Who| {
        let Who::Thread(tid) = who else { return None };
        let (site, stack) = gave_back(releases, tid, &is_of)?;
        Some((who, Who::Released { lock, site, stack }))
    };
    shares.holders.iter().filter_map(|holder| place(holder.who)).collect()
}

/// Where this thread gives back a lock with such words, and the stack of the last time. Not each record of a wake tells.
fn gave_back(releases: &Releases, tid: Tid, is_of: impl Fn(Lock) -> bool) -> Option<(Site, Option<StackId>)> {
    let there = releases.wakes.latest_first(tid).take(MAX_LOOKED_AT).filter(|wake| is_of(wake.word));
    let mut told = there.filter_map(|wake| Some((wake.site?, wake.stack)));
    let last = told.next()?;
    told.all(|(site, _)| site == last.0).then_some(last)
}
