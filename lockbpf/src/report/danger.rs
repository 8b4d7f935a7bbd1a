//! Deadlocks, and orders of locking that could lead there, with names.

use super::place::Places;
use super::schema::{BlockedEntry, DeadlockEntry};
use crate::deadlock::Deadlock;
use crate::observation::Observation;

/// The deadlocks found, in the order in which they were.
pub(super) fn deadlocks(observation: &Observation, places: &mut Places<'_>) -> Vec<DeadlockEntry> {
    observation.deadlocks.iter().map(|deadlock| entry(deadlock, observation, places)).collect()
}

fn entry(deadlock: &Deadlock, observation: &Observation, places: &mut Places<'_>) -> DeadlockEntry {
    let mut threads = Vec::with_capacity(deadlock.members.len());
    // Each holds what the one before waits for, the first what the last waits for.
    let before = deadlock.members.iter().cycle().skip(deadlock.members.len().saturating_sub(1));
    for (member, before) in deadlock.members.iter().zip(before) {
        let comm = observation.threads.iter().find(|t| t.tid == member.tid).map(|t| t.comm.clone());
        let place = member.site.map(|site| places.place(site));
        threads.push(BlockedEntry {
            tid: places.thread(member.tid),
            comm: comm.filter(|comm| !comm.is_empty()),
            lock: places.lock_id(member.lock),
            name: places.lock_label(member.lock),
            holds: places.lock_id(before.lock),
            holds_name: places.lock_label(before.lock),
            site: place.as_ref().and_then(|p| p.site.clone()),
            symbol: place.map(|p| p.symbol),
            since_ns: places.at(member.since),
            stack: places.stack(member.lock.process, member.site.map(|s| s.addr), member.stack),
        });
    }
    DeadlockEntry { found_ns: places.at(deadlock.found), before_start: deadlock.before_start, threads }
}
