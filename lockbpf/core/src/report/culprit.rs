//! Who causes most waiting, over all locks.

use super::calling::Calling;
use super::divide::{chain, holder_place};
use super::doing::Doing;
use super::gather::Gathered;
use super::kernel;
use super::lock::{Ranked, kind};
use super::place::Places;
use super::schema::{CulpritEntry, Totals};
use crate::graph::findings::{Chain, Shares, Who};
use crate::id::Lock;
use crate::op::LockKind;
use crate::units::Nanos;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

/// Culprits listed.
const MAX: usize = 5;

/// What one holder of one lock did to the waiters of all locks.
#[derive(Debug, Default)]
struct Harm {
    wait: Nanos,
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
    let mut harms: HashMap<(Lock, Who), Harm> = HashMap::new();
    for Ranked { lock, gathered, .. } in locks {
        for holder in gathered.blame().iter().flat_map(|s| &s.holders) {
            if holder.who == Who::Others {
                continue;
            }
            let held = holder.who.lock().unwrap_or(*lock);
            let harm = harms.entry((held, holder.who)).or_default();
            harm.wait += holder.wait;
            harm.nested += holder.nested;
            harm.inferred += holder.inferred;
            harm.doing.add(holder, *lock);
            harm.calling.add(holder);
        }
    }
    let mut harms: Vec<_> = harms.into_iter().filter(|(_, harm)| harm.wait > Nanos(0)).collect();
    harms.sort_unstable_by_key(|&(key, ref harm)| (Reverse(harm.wait), key));
    let mut entries = Vec::new();
    for ((lock, who), harm) in harms.into_iter().take(MAX) {
        let (place, tid) = holder_place(who, places);
        let heaviest = heaviest_chain(locks, lock, who);
        let waiting_at = heaviest.and_then(|(shares, _)| shares.waiters.iter().max_by_key(|w| w.waits.time)?.site);
        let of_kind = all.get(&lock).and_then(|g| g.mutex.first()).map_or(LockKind::Mutex, |s| s.kind);
        entries.push(CulpritEntry {
            place,
            tid,
            released: matches!(who, Who::Released { .. }),
            lock: places.lock_id(lock),
            name: places.lock_label(lock),
            kind: match all.get(&lock) {
                Some(gathered) if lock.is_kernel() => kernel::kind(gathered).to_owned(),
                _ => kind(lock, of_kind, places),
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
