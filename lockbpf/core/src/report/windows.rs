//! Locks whose waits windows alone show, since no futex call names them: those that runtimes take inline, and spin locks. How long
//! threads waited for them is an estimate; whom that is charged to is inferred from the waits that were recorded.

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

/// Brings the blame for waits for such locks to all until `end`, for which those that were recorded stand.
pub(super) fn extrapolate(
    all: &BTreeMap<Lock, Gathered<'_>>,
    estimates: Option<&Estimates>,
    end: Time,
    blame: &mut Blame<'_>,
) {
    let Some(estimates) = estimates.filter(|e| e.complete && e.sampled()) else { return };
    for (&lock, gathered) in all {
        let Some(known) = blame.told.get(&lock).or(gathered.shares) else { continue };
        if is_seen_in_windows(lock, gathered, estimates)
            && let Some(more) = more(gathered, known, end)
        {
            let scaled = scaled(known, more);
            for (holder, known) in scaled.holders.iter().zip(&known.holders) {
                let more = holder.wait - known.wait;
                if let Some(site) = holder.who.site() {
                    blame.sites.entry(site).or_default().apwt += more;
                }
                *blame.locks.entry(holder.who.lock().unwrap_or(lock)).or_default() += more;
            }
            blame.told.insert(lock, scaled);
        }
    }
}

fn is_seen_in_windows(lock: Lock, gathered: &Gathered<'_>, estimates: &Estimates) -> bool {
    let rows = &gathered.mutex;
    let estimated = || {
        estimates.of(Subject::Lock(lock)).is_some()
            || rows.iter().any(|row| estimates.of(Subject::Row(lock, row.site, row.via)).is_some())
    };
    gathered.futex.is_empty() && estimated()
}

/// How many times as long as was recorded threads waited, if that is longer.
fn more(gathered: &Gathered<'_>, known: &Shares, end: Time) -> Option<f64> {
    let closed = || gathered.mutex.iter().map(|row| row.wait.sum + row.timed_out);
    let open = || gathered.open.iter().map(|wait| end.since(wait.since));
    let (all, recorded) = (closed().chain(open()).sum::<Nanos>(), known.waits.time);
    (known.waits.count >= ENOUGH && recorded > Nanos(0) && all > recorded).then(|| all.0 as f64 / recorded.0 as f64)
}

fn scaled(known: &Shares, more: f64) -> Shares {
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
