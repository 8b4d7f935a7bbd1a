//! Deadlocks, and orders of locking that could lead there, with names.

use super::place::Places;
use super::schema::{BlockedEntry, DeadlockEntry, InversionEntry, OrderEntry};
use crate::deadlock::{self, Deadlock, LockOrder};
use crate::observation::Observation;

/// The deadlocks found, in the order in which they were: those that stood to the end, or those that were over before (`ended`).
pub(super) fn deadlocks(observation: &Observation, ended: bool, places: &mut Places<'_>) -> Vec<DeadlockEntry> {
    let these = observation.deadlocks.iter().filter(|deadlock| deadlock.ended.is_some() == ended);
    these.map(|deadlock| entry(deadlock, observation, places)).collect()
}

fn entry(deadlock: &Deadlock, observation: &Observation, places: &mut Places<'_>) -> DeadlockEntry {
    let mut threads = Vec::with_capacity(deadlock.members.len());
    // Each holds what the one before waits for, the first what the last waits for.
    let before = deadlock.members.iter().cycle().skip(deadlock.members.len().saturating_sub(1));
    for (member, before) in deadlock.members.iter().zip(before) {
        let comm = observation.threads.iter().find(|t| t.tid == member.tid).map_or("", |t| &t.comm);
        let comm = places.comm(member.tid, comm);
        let place = member.site.map(|site| places.place(site));
        threads.push(BlockedEntry {
            tid: places.thread(member.tid),
            comm: (!comm.is_empty()).then_some(comm),
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
    DeadlockEntry {
        found_ns: places.at(deadlock.found),
        ended_ns: deadlock.ended.map(|ended| places.at(ended)),
        lasted_ns: places.ns(deadlock.until().since(deadlock.closed())),
        exited: deadlock.exited,
        for_ever: deadlock.is_for_ever(),
        before_start: deadlock.before_start,
        threads,
    }
}

/// The lock orders that could deadlock, the shortest circles first.
pub(super) fn inversions(observation: &Observation, places: &mut Places<'_>) -> Vec<InversionEntry> {
    let inversions = deadlock::inversions(&observation.orders).into_iter();
    inversions.map(|i| InversionEntry { orders: i.links.iter().map(|link| order(link, places)).collect() }).collect()
}

fn order(order: &LockOrder, places: &mut Places<'_>) -> OrderEntry {
    let (outer, inner) = (places.place(order.outer_site), places.place(order.inner_site));
    OrderEntry {
        outer: places.lock_id(order.outer),
        outer_name: places.lock_label(order.outer),
        outer_site: outer.site,
        outer_symbol: outer.symbol,
        inner: places.lock_id(order.inner),
        inner_name: places.lock_label(order.inner),
        inner_site: inner.site,
        inner_symbol: inner.symbol,
        tid: places.thread(order.tid),
        other_threads: order.others,
        count: order.count,
    }
}
