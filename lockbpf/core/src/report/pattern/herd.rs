//! Thundering herds: a condition variable wakes many threads, of which nearly all find nothing to do and wait again.

use super::super::durations::Total;
use super::super::gather::{CONDVAR_SIZE, Gathered};
use super::super::place::Places;
use super::super::schema::{Evidence, PatternEntry, ThunderingHerd};
use super::super::select::Selected;
use super::super::text::{count, percent, share};
use super::Seen;
use crate::id::{Lock, Site};
use crate::tally::Tally;
use std::collections::{BTreeMap, BTreeSet};

/// Threads that a call wakes, in the mean.
const MANY: u64 = 3;
/// The part of those who came back that did so in vain.
const IN_VAIN: f64 = 0.5;
/// Returns in vain from which on this is no chance, and how many of them a second cost anything.
const ENOUGH: u64 = 30;
const A_SECOND: f64 = 1.0;

pub(super) const CURE: &str = "wake as many threads as there is work for (signal, not broadcast), and give threads that wait for different things conditions of their own";

pub(super) fn find(
    all: &BTreeMap<Lock, Gathered<'_>>,
    selected: &Selected,
    seen: &Seen<'_>,
    places: &mut Places<'_>,
) -> Vec<PatternEntry> {
    let conditions = || all.iter().filter(|&(&lock, g)| selected.lock(lock) && !g.condvar.is_empty());
    // A place at which several conditions are waited for does not tell for which one a thread was woken.
    let (mut known, mut ambiguous) = (BTreeMap::<Site, Lock>::new(), BTreeSet::new());
    for (&condition, site) in conditions().flat_map(|(lock, g)| g.condvar.iter().map(move |sums| (lock, sums.site))) {
        if known.insert(site, condition).is_some_and(|other| other != condition) {
            ambiguous.insert(site);
        }
    }
    let seconds = seen.observation.duration().0 as f64 / 1e9;
    let mut found: Vec<(Tally, Lock, ThunderingHerd)> = Vec::new();
    for (&condition, g) in conditions() {
        let sites: BTreeSet<Site> = g.condvar.iter().map(|s| s.site).filter(|s| !ambiguous.contains(s)).collect();
        let (mut herd, mut in_vain) = (ThunderingHerd::default(), Tally::default());
        for wakeups in sites.iter().filter_map(|site| seen.observation.wakeups.get(site)) {
            herd.returns += wakeups.returns;
            in_vain += wakeups.in_vain;
        }
        herd.in_vain = in_vain.count;
        if herd.in_vain < ENOUGH || (herd.in_vain as f64) < A_SECOND * seconds {
            continue;
        }
        // The words inside it, on which threads sleep.
        let end = Lock { addr: condition.addr.saturating_add(CONDVAR_SIZE), ..condition };
        for (_, word) in all.range(condition..end) {
            let total = Total::of(&word.futex);
            herd.wakes += total.wakes;
            herd.woken += total.acquisitions;
        }
        let many = herd.wakes > 0 && herd.woken >= herd.wakes.saturating_mul(MANY);
        if many && share(herd.in_vain, herd.returns) >= IN_VAIN {
            found.push((in_vain, condition, herd));
        }
    }
    found.sort_by_key(|(in_vain, condition, _)| (std::cmp::Reverse(in_vain.count), *condition));
    found.truncate(super::LOOKED_AT);
    found
        .into_iter()
        .map(|(in_vain, condition, herd)| seen.entry(places, condition, in_vain.time, Evidence::ThunderingHerd(herd)))
        .collect()
}

pub(super) fn words(p: &PatternEntry, e: &ThunderingHerd) -> String {
    format!(
        "Thundering herd at `{}`: it wakes {:.1} threads at a time, and {} of those that came back ({} of {} seen) found nothing to do and \
         waited again at once.",
        p.name,
        e.woken as f64 / e.wakes.max(1) as f64,
        percent(share(e.in_vain, e.returns)),
        count(e.in_vain),
        count(e.returns),
    )
}
