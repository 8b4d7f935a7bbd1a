//! Where threads held locks of which the acquisition was not seen (it was before the observation, or between two windows): the lock's word, or
//! whoever was woken, names the thread only. Where it has woken others at this lock, and always at one place, that is where it gives the lock
//! back.

use super::findings::{Findings, Who};
use super::released::Releases;
use crate::id::{Lock, Site, StackId, Tid};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Wakes of a thread looked at, the last ones.
const MAX_LOOKED_AT: usize = 1_024;

/// Names these places.
pub(super) fn place(findings: &mut Findings, releases: &Releases) {
    let Findings { locks, sites, .. } = findings;
    for (&lock, shares) in locks.iter_mut().filter(|(lock, _)| !lock.is_kernel()) {
        let mut places = BTreeMap::new();
        for holder in &shares.holders {
            let Who::Thread(tid) = holder.who else { continue };
            if let Some((site, stack)) = gave_back(releases, tid, lock) {
                sites.entry(site).or_default().apwt += holder.wait;
                places.insert(holder.who, Who::Released { lock, site, stack });
            }
        }
        if !places.is_empty() {
            *shares = Arc::new(shares.renamed(|who| places.get(&who).copied().unwrap_or(who)));
        }
    }
}

/// Where this thread gives back this lock, and the stack of the last time.
fn gave_back(releases: &Releases, tid: Tid, lock: Lock) -> Option<(Site, Option<StackId>)> {
    let is_of = |word: Lock| word.process == lock.process && word.addr.wrapping_sub(lock.addr) < Lock::LARGEST;
    let mut there = releases.wakes.latest_first(tid).take(MAX_LOOKED_AT).filter(|wake| is_of(wake.word));
    let last = there.next()?;
    let site = last.site.filter(|&site| there.all(|wake| wake.site == Some(site)))?;
    Some((site, last.stack))
}
