//! Where threads held locks of which the acquisition was not seen (it was before the observation, or between two windows): the lock's word, or
//! whoever was woken, names the thread only. Where it has woken others at this lock, and always at one place, that is where it gives the lock
//! back.

use super::findings::{Findings, Who};
use super::released::Releases;
use crate::id::{Lock, Tid};
use std::sync::Arc;

/// Size of the largest lock of the C libraries, a read-write lock.
const LOCK_SIZE: u64 = 56;
/// Wakes of a thread looked at, the last ones.
const MAX_LOOKED_AT: usize = 1_024;

/// Names these places.
pub(super) fn place(findings: &mut Findings, releases: &Releases) {
    let Findings { locks, sites, .. } = findings;
    for (&lock, shares) in locks.iter_mut().filter(|(lock, _)| !lock.is_kernel()) {
        let place = |who: Who| match who {
            Who::Thread(tid) => gave_back(releases, tid, lock).unwrap_or(who),
            who => who,
        };
        let placed: Vec<_> = shares.holders.iter().filter(|h| place(h.who) != h.who).cloned().collect();
        if placed.is_empty() {
            continue;
        }
        *shares = Arc::new(shares.renamed(place));
        for holder in placed {
            if let Some(site) = place(holder.who).site() {
                sites.entry(site).or_default().apwt += holder.wait;
            }
        }
    }
}

/// Where this thread gives back this lock.
fn gave_back(releases: &Releases, tid: Tid, lock: Lock) -> Option<Who> {
    let is_of = |word: Lock| word.process == lock.process && word.addr.wrapping_sub(lock.addr) < LOCK_SIZE;
    let mut there = releases.wakes.latest_first(tid).take(MAX_LOOKED_AT).filter(|wake| is_of(wake.word));
    let last = there.next()?;
    let site = last.site.filter(|&site| there.all(|wake| wake.site == Some(site)))?;
    Some(Who::Released { lock, site, stack: last.stack })
}
