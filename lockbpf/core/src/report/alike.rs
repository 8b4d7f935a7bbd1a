//! Locks that are alike: threads wait for them in one function, and their names differ by a number at most, as those of a table's shards.
//!
//! Where waits are thinned ([`lockbpf_common::thin`]) and locks are many, few waits for each are recorded, or one that stands for more than
//! there were. Together they tell still who makes threads wait in that function. That is inferred for those waits of each lock for which no
//! record stands.

use super::durations::Total;
use super::gather::Gathered;
use super::naming;
use super::place::Places;
use super::windows::{self, Blame};
use crate::graph::FutexWaits;
use crate::graph::findings::{Shares, Waiter, Who};
use crate::id::{Lock, Process, Site};
use crate::tally::Tally;
use crate::units::Nanos;
use std::collections::{BTreeMap, BTreeSet};

/// Records below which nothing is inferred from them.
const ENOUGH: u64 = 16;

/// Locks that are alike.
#[derive(Default)]
struct Alike {
    records: u64,
    /// All that is known of them, as if they were one.
    known: Shares,
    locks: Vec<Lacking>,
}

/// Waiting for a lock for which no record stands.
struct Lacking {
    lock: Lock,
    /// Where threads wait for it.
    site: Site,
    time: Nanos,
}

/// Charges waits for which no record stands as those for locks that are alike.
pub(super) fn infer(all: &BTreeMap<Lock, Gathered<'_>>, blame: &mut Blame<'_>, places: &mut Places<'_>) {
    for Alike { records, known, locks } in find(all, blame, places).into_values() {
        if records < ENOUGH {
            continue;
        }
        let one = of_one(&known);
        for Lacking { lock, site, time } in locks {
            if let Some(part) = part(&one, time, site, lock) {
                part.charge(lock, None, blame.locks, blame.sites);
                let known = || all.get(&lock).and_then(Gathered::blame).cloned().unwrap_or_default();
                blame.told.entry(lock).or_insert_with(known).merge(&part, |who| who);
            }
        }
    }
}

/// By process, function in which threads wait, and what the names have in common.
fn find(
    all: &BTreeMap<Lock, Gathered<'_>>,
    blame: &Blame<'_>,
    places: &mut Places<'_>,
) -> BTreeMap<(Process, String, String), Alike> {
    let mut classes: BTreeMap<_, Alike> = BTreeMap::new();
    let thinned = all.iter().filter(|(_, g)| g.waits.is_some_and(FutexWaits::is_thinned));
    let thinned: BTreeSet<Process> = thinned.map(|(lock, _)| lock.process).collect();
    for (&lock, g) in all.iter().filter(|(lock, _)| thinned.contains(&lock.process)) {
        // Only where their sleep was counted is it known what is lacking.
        if g.is_lock() && g.mutex.is_empty() {
            continue;
        }
        let Some(known) = blame.told.get(&lock).or(g.blame()) else { continue };
        let Some((site, function)) = waited_in(known, places) else { continue };
        let slept = if g.mutex.is_empty() { Total::of(&g.futex).wait.sum } else { windows::closed(g) };
        let series = naming::series(&places.lock_name(lock));
        let class = classes.entry((lock.process, function, series)).or_default();
        class.records += g.waits.map_or(0, |waits| waits.records);
        class.known.merge(known, renaming(lock, any_of(lock.process)));
        // Through which others it comes about is known of each lock alone.
        class.known.chains.clear();
        class.locks.push(Lacking { lock, site, time: slept - (known.waits.time - known.open.time) });
    }
    classes
}

/// Where most of the waiting passed, if that is in the program.
fn waited_in(known: &Shares, places: &mut Places<'_>) -> Option<(Site, String)> {
    let waiter = known.waiters.iter().filter(|waiter| waiter.site.is_some()).max_by_key(|waiter| waiter.waits.time)?;
    let (site, stack) = (waiter.site?, super::divide::top_stack(&waiter.stacks));
    let outside = places.outside(site, stack);
    if !places.is_program(outside) {
        return None;
    }
    let place = places.place(outside);
    Some((site, place.function.unwrap_or(place.symbol)))
}

/// Stands for each lock of a process.
fn any_of(process: Process) -> Lock {
    Lock { process, addr: 0 }
}

fn renaming(from: Lock, to: Lock) -> impl Fn(Who) -> Who {
    move |who| match who {
        Who::Section { lock, site } if lock == from => Who::Section { lock: to, site },
        Who::Released { lock, site, stack } if lock == from => Who::Released { lock: to, site, stack },
        who => who,
    }
}

/// Waiting that has ended as that for one lock at one place. Which thread waited for which is known of each lock alone.
fn of_one(known: &Shares) -> Shares {
    let blamed: Vec<Nanos> = known.holders.iter().map(|holder| holder.wait).collect();
    let charged: Nanos = blamed.iter().copied().sum();
    let unattributed = known.unattributed - known.open.time;
    let waits =
        Tally { count: known.waits.count - known.open.count.min(known.waits.count), time: charged + unattributed };
    let waiter = Waiter { waits, max: known.max, unattributed, blamed, ..Waiter::default() };
    Shares {
        waits,
        max: known.max,
        unattributed,
        unpaired: charged,
        holders: known.holders.clone(),
        waiters: vec![waiter],
        ..Shares::default()
    }
}

/// As much of it as a lock lacks.
fn part(one: &Shares, lacking: Nanos, site: Site, lock: Lock) -> Option<Shares> {
    let share = lacking.0 as f64 / one.waits.time.0.max(1) as f64;
    let mut part = one.clone();
    part.scale(share, share);
    part.unpaired = part.waits.time - part.unattributed;
    part.waiters.iter_mut().for_each(|waiter| waiter.site = Some(site));
    let part = part.inferred().renamed(renaming(any_of(lock.process), lock));
    (part.waits.time > Nanos(0)).then_some(part)
}
