//! Who is to blame for how much, where windows and futex calls tell of different waits.
//!
//! Windows alone show the waits for locks that no futex call names: those that runtimes take inline, and spin locks. How long threads waited
//! for these is an estimate, and the recorded waits stand for all of them.
//!
//! For any other lock the kernel counts each sleep. The recorded waits may add up to more, since a wait in a window is longer than its sleep,
//! and since a thinned wait stands for several. The report then scales them down to the kernel's count.

use super::durations::least_waits;
use super::gather::Gathered;
use crate::estimate::{Estimates, Subject};
use crate::graph::findings::{Shares, SiteBlame};
use crate::id::{Lock, Site};
use crate::units::{Nanos, Time};
use std::collections::{BTreeMap, HashMap};

/// Recorded waits below which nothing is inferred from them.
const ENOUGH: u64 = 16;

/// What locks and their holders are blamed for.
pub(super) struct Blame<'a> {
    /// Who waited for each lock, and who is to blame.
    pub(super) told: &'a mut BTreeMap<Lock, Shares>,
    /// What sections are blamed for.
    pub(super) sites: &'a mut BTreeMap<Site, SiteBlame>,
    /// What locks are blamed for.
    pub(super) locks: &'a mut HashMap<Lock, Nanos>,
}

/// Brings the blame for waits that were recorded to all waits until `end`, for which they stand.
pub(super) fn fit(all: &BTreeMap<Lock, Gathered<'_>>, estimates: Option<&Estimates>, end: Time, blame: &mut Blame<'_>) {
    let Some(estimates) = estimates.filter(|e| e.complete && e.sampled()) else { return };
    for (&lock, gathered) in all {
        let Some(known) = blame.told.get(&lock).or(gathered.shares) else { continue };
        let scaled = if is_seen_in_windows(lock, gathered, estimates) {
            more(gathered, known, end).map(|more| extrapolated(known, more))
        } else {
            less(gathered, known, estimates).map(|less| cut(known, less))
        };
        let Some(scaled) = scaled else { continue };
        for (now, before) in scaled.holders.iter().zip(&known.holders) {
            let change = |sum: &mut Nanos| *sum = *sum + now.wait - before.wait;
            if let Some(site) = now.who.site() {
                change(&mut blame.sites.entry(site).or_default().apwt);
            }
            change(blame.locks.entry(now.who.lock().unwrap_or(lock)).or_default());
        }
        blame.told.insert(lock, scaled);
    }
    // The path is made of waits as they were recorded.
    blame.sites.values_mut().for_each(|blame| blame.cpwt = blame.cpwt.map(|cpwt| cpwt.min(blame.apwt)));
}

fn is_seen_in_windows(lock: Lock, gathered: &Gathered<'_>, estimates: &Estimates) -> bool {
    let rows = &gathered.mutex;
    let estimated = || {
        estimates.of(Subject::Lock(lock)).is_some()
            || rows.iter().any(|row| estimates.of(Subject::Row(lock, row.site, row.via)).is_some())
    };
    // Waits that are seen all the time need no others to stand for them, nor do they stand for others.
    let exact = rows.iter().any(|row| row.via.is_seen_always());
    gathered.futex.is_empty() && !exact && estimated()
}

/// All waiting for a lock whose calls are seen, until `end`.
pub(super) fn waited(gathered: &Gathered<'_>, end: Time) -> Nanos {
    closed(gathered) + gathered.open.iter().map(|wait| end.since(wait.since)).sum()
}

/// The part of it that has ended.
pub(super) fn closed(gathered: &Gathered<'_>) -> Nanos {
    gathered.mutex.iter().map(|row| row.wait.sum + row.timed_out).sum()
}

/// How many times as long as was recorded threads waited, if that is longer.
fn more(gathered: &Gathered<'_>, known: &Shares, end: Time) -> Option<f64> {
    let (all, recorded) = (waited(gathered, end), known.waits.time);
    (known.waits.count >= ENOUGH && recorded > Nanos(0) && all > recorded).then(|| all.0 as f64 / recorded.0 as f64)
}

/// Which part of what was recorded threads waited by the kernel's count, if that is less.
fn less(gathered: &Gathered<'_>, known: &Shares, estimates: &Estimates) -> Option<f64> {
    if gathered.futex.is_empty() || !gathered.mutex.iter().any(|row| estimates.are_of(row.site.process)) {
        return None;
    }
    let (all, recorded) = (closed(gathered) + known.open.time, known.waits.time);
    (all < recorded).then(|| all.0 as f64 / recorded.0 as f64)
}

fn cut(known: &Shares, less: f64) -> Shares {
    let mut shares = known.clone();
    // There are as many, but shorter.
    shares.scale(1.0, less);
    // These go on: the kernel has not counted them yet.
    shares.open = known.open;
    shares
}

fn extrapolated(known: &Shares, more: f64) -> Shares {
    let mut shares = known.clone();
    shares.scale(more, more);
    for waiter in &mut shares.waiters {
        // Scaled numbers are rounded down.
        waiter.waits.count = waiter.waits.count.max(least_waits(waiter.waits.time, waiter.max));
    }
    // These go on: all of them are known.
    shares.open = known.open;
    for (holder, known) in shares.holders.iter_mut().zip(&known.holders) {
        holder.inferred = holder.wait - (known.wait - known.inferred).min(holder.wait);
    }
    shares
}
