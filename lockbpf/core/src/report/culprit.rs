//! Who causes most waiting, over all locks. Many locks may be held in one function in turn: the shards of a table, a lock in each object of
//! a kind. If none of them stands out, the report names one culprit for all.

use super::calling::{Calling, only_locks};
use super::divide::{chain, holder_place};
use super::doing::Doing;
use super::gather::Gathered;
use super::kernel;
use super::lock::{Ranked, kind};
use super::naming;
use super::place::Places;
use super::schema::{CulpritEntry, Totals};
use crate::graph::findings::{Chain, Shares, Who};
use crate::id::Lock;
use crate::op::LockKind;
use crate::units::Nanos;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Culprits listed.
const MAX: usize = 5;
/// A lock stands out among those held in one function if it has at least this part of the waiting that they cause.
const STANDS_OUT: f64 = 0.9;

/// What one holder of one lock, or of several that are alike, did to the waiters of all locks.
#[derive(Debug, Default)]
struct Harm {
    wait: Nanos,
    held: BTreeSet<Lock>,
    nested: Nanos,
    inferred: Nanos,
    doing: Doing,
    calling: Calling,
}

/// All waiting that is divided among those to blame.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Divided {
    /// Recorded waiting.
    pub(super) all: Nanos,
    /// The part of it without anybody to blame.
    pub(super) unattributed: Nanos,
    /// The part of the rest of which it is inferred who is to blame.
    pub(super) inferred: Nanos,
}

impl Divided {
    /// That of some locks.
    pub(super) fn of(locks: &[Ranked<'_>]) -> Self {
        let mut divided = Self::default();
        for gathered in locks.iter().map(|r| r.gathered) {
            if let Some(shares) = gathered.blame() {
                divided.all += shares.waits.time;
                divided.unattributed += shares.unattributed;
                divided.inferred += shares.holders.iter().map(|holder| holder.inferred).sum();
            }
        }
        divided
    }
}

/// Those who made the waiters of `locks` wait most; holders that are not told apart are left out.
pub(super) fn culprits(
    locks: &[Ranked<'_>],
    all: &BTreeMap<Lock, Gathered<'_>>,
    totals: &Totals,
    places: &mut Places<'_>,
) -> Vec<CulpritEntry> {
    let of_kind = |lock| all.get(&lock).and_then(|g| g.sections().next()).map_or(LockKind::Mutex, |s| s.kind);
    let holders = || {
        locks.iter().flat_map(|Ranked { lock, gathered, .. }| {
            let holders = gathered.blame().into_iter().flat_map(|shares| &shares.holders);
            let told_apart = holders.filter(|holder| holder.who != Who::Others);
            told_apart.map(|holder| (*lock, (holder.who.lock().unwrap_or(*lock), holder.who), holder))
        })
    };
    let mut waits: BTreeMap<Held, Nanos> = BTreeMap::new();
    for (_, held, holder) in holders() {
        *waits.entry(held).or_default() += holder.wait;
    }
    let alike = alike(&waits, &of_kind, places);
    let mut harms: HashMap<Held, Harm> = HashMap::new();
    for (lock, held, holder) in holders() {
        let harm = harms.entry(alike.get(&held).copied().unwrap_or(held)).or_default();
        harm.wait += holder.wait;
        harm.held.insert(held.0);
        harm.nested += holder.nested;
        harm.inferred += holder.inferred;
        harm.doing.add(holder, lock);
        harm.calling.add(holder);
    }
    let mut harms: Vec<_> = harms.into_iter().filter(|(_, harm)| harm.wait > Nanos(0)).collect();
    harms.sort_unstable_by_key(|&(key, ref harm)| (Reverse(harm.wait), key));
    let mut entries = Vec::new();
    for ((lock, who), harm) in harms.into_iter().take(MAX) {
        let (place, tid) = holder_place(who, places);
        let heaviest = heaviest_chain(locks, lock, who);
        let waiting_at = heaviest.and_then(|(shares, _)| shares.waiters.iter().max_by_key(|w| w.waits.time)?.site);
        entries.push(CulpritEntry {
            place,
            tid,
            released: matches!(who, Who::Released { .. }),
            lock: places.lock_id(lock),
            name: places.lock_label(lock),
            locks: harm.held.len() as u64,
            kind: match locks.iter().find(|ranked| ranked.lock == lock) {
                Some(ranked) => ranked.kind(places),
                None => match all.get(&lock) {
                    Some(gathered) if lock.is_kernel() => kernel::kind(gathered).to_owned(),
                    _ => kind(lock, of_kind(lock), places),
                },
            },
            wait_ns: places.ns(harm.wait),
            share: places.ns(harm.wait).share_of(totals.recorded_wait_ns),
            // Records that stand for others may add up to more than all.
            share_of_all: places.ns(harm.wait).share_of(totals.harm_ns.max(totals.recorded_wait_ns)),
            inferred_ns: places.ns(harm.inferred),
            nested_ns: places.ns(harm.nested),
            causes: harm.doing.causes(places),
            off_stacks: harm.doing.off_stacks(places),
            callers: harm.calling.callers(places),
            waiter: waiting_at.map(|site| places.place(site).symbol),
            chain: heaviest.map(|(shares, heaviest)| chain(heaviest, shares.waits.time, places)),
        });
    }
    entries
}

/// A lock, and who held it.
type Held = (Lock, Who);

/// Finds holders that hold locks of one series in one function, none of which stands out. Each maps to the one that stands for all.
fn alike(
    waits: &BTreeMap<Held, Nanos>,
    of_kind: &dyn Fn(Lock) -> LockKind,
    places: &mut Places<'_>,
) -> HashMap<Held, Held> {
    let mut groups: BTreeMap<_, Vec<(Nanos, Reverse<Held>)>> = BTreeMap::new();
    for (&held, &wait) in waits.iter().filter(|&(_, &wait)| wait > Nanos(0)) {
        let (lock, who) = held;
        // Nobody holds a barrier, and what the kernel's locks have in common is that one call takes them.
        let Some(site) = who.site().filter(|_| !lock.is_kernel() && of_kind(lock) != LockKind::Barrier) else {
            continue;
        };
        let (place, _) = holder_place(who, places);
        let function = place.function.unwrap_or(place.symbol);
        // A function that locks for others is no place that locks have in common.
        if !only_locks(&function) {
            let series = naming::series(&places.lock_name(lock));
            groups.entry((site.process, function, series)).or_default().push((wait, Reverse(held)));
        }
    }
    let mut alike = HashMap::new();
    for group in groups.into_values() {
        let mut by_lock: BTreeMap<Lock, Nanos> = BTreeMap::new();
        group.iter().for_each(|&(wait, Reverse((lock, _)))| *by_lock.entry(lock).or_default() += wait);
        let (most, sum) = (by_lock.values().max().copied().unwrap_or_default(), by_lock.into_values().sum::<Nanos>());
        let Some(&(_, Reverse(first))) = group.iter().max() else { continue };
        if (most.0 as f64) < STANDS_OUT * sum.0 as f64 {
            alike.extend(group.into_iter().map(|(_, Reverse(held))| (held, first)));
        }
    }
    alike
}

/// The heaviest chain that ends at this holder, and the waiting that it is part of.
fn heaviest_chain<'a>(locks: &[Ranked<'a>], held: Lock, who: Who) -> Option<(&'a Shares, &'a Chain)> {
    let ends_here = |chain: &&Chain| {
        chain.links.last().is_some_and(|last| match who {
            Who::Section { site, .. } | Who::Released { site, .. } => last.lock == held && last.site == Some(site),
            Who::Thread(tid) => last.lock == held && last.site.is_none() && last.tid == tid,
            Who::Others => false,
        })
    };
    let shares = locks.iter().filter_map(|r| r.gathered.blame());
    let chains = shares.flat_map(|s| s.chains.iter().map(move |c| (s, c)));
    chains.filter(|(_, c)| ends_here(c)).max_by(|(_, a), (_, b)| (a.wait, &b.links).cmp(&(b.wait, &a.links)))
}
