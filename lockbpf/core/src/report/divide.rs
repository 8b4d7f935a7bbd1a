//! How the waiting for a lock is divided: who waited, who is to blame, and through which other locks.

use super::attribution;
use super::calling::Calling;
use super::doing::Doing;
use super::place::Places;
use super::schema::{
    BlameEntry, ChainEntry, HolderEntry, LinkEntry, LockEntry, PairEntry, Place, ThreadId, WaiterEntry,
};
use super::text::share;
use super::word::elsewhere;
use crate::graph::findings::{Chain, Holder, Shares, Stacks, Who};
use crate::id::{Lock, Process, StackId};
use crate::units::Nanos;

/// Pairs of threads listed per lock.
const MAX_PAIRS: usize = 10;
/// Chains listed per lock.
const MAX_CHAINS: usize = 10;

/// Fills in who waited for a lock, and who is to blame.
pub(super) fn divide(lock: Lock, shares: &Shares, entry: &mut LockEntry, places: &mut Places<'_>) {
    entry.recorded_wait_ns = places.ns(shares.waits.time);
    entry.unattributed_ns = places.ns(shares.unattributed);
    let inferred = places.ns(shares.holders.iter().map(|holder| holder.inferred).sum());
    entry.attribution = attribution::of(entry.harm_ns, entry.recorded_wait_ns, entry.unattributed_ns, inferred);
    entry.open_wait_ns = places.ns(shares.open.time);
    entry.waiting_threads = shares.threads.len() as u64;
    entry.waiters = waiters(lock, shares, places);
    let mut doing = Doing::default();
    for holder in shares.holders.iter().filter(|h| h.wait > Nanos(0)) {
        doing.add(holder, lock);
        entry.holders.push(holder_entry(lock, holder, shares, places));
    }
    entry.holders.sort_by(|a, b| (b.wait_ns, &a.place.symbol).cmp(&(a.wait_ns, &b.place.symbol)));
    entry.causes = doing.causes(places).filter(|_| !entry.holders.is_empty());
    let chains = shares.chains.iter().take(MAX_CHAINS);
    entry.chains = chains.map(|c| chain(c, shares.waits.time, places)).collect();
    // It begins at this lock, whichever of its words was waited for.
    for first in entry.chains.iter_mut().filter_map(|chain| chain.links.first_mut()) {
        first.lock.clone_from(&entry.lock);
    }
    for ((waiter, holder), sum) in shares.pairs.top().into_iter().take(MAX_PAIRS) {
        let (waiter, holder) = (places.thread(waiter), places.thread(holder));
        entry.thread_pairs.push(PairEntry { waiter, holder, wait_ns: places.ns(sum.time.min(shares.waits.time)) });
    }
}

fn waiters(lock: Lock, shares: &Shares, places: &mut Places<'_>) -> Vec<WaiterEntry> {
    let mut entries = Vec::with_capacity(shares.waiters.len());
    for w in &shares.waiters {
        let mut blamed = Vec::new();
        for (holder, &wait) in shares.holders.iter().zip(&w.blamed).filter(|&(_, &wait)| wait > Nanos(0)) {
            let (place, tid) = holder_place(holder.who, places);
            let process = holder_process(holder.who, places).and_then(|process| places.other_process(process, lock));
            let (wait_ns, share) = (places.ns(wait), share(wait.0, w.waits.time.0));
            blamed.push(BlameEntry { place, tid, process, wait_ns, share });
        }
        blamed.sort_by(|a, b| (b.wait_ns, &a.place.symbol).cmp(&(a.wait_ns, &b.place.symbol)));
        let stack = top_stack(&w.stacks);
        entries.push(WaiterEntry {
            place: w.site.map_or_else(|| elsewhere("other sites"), |site| places.place_of_wait(site, stack)),
            process: w.site.and_then(|site| places.other_process(site.process, lock)),
            count: w.waits.count,
            wait_ns: places.ns(w.waits.time),
            max_ns: places.ns(w.max),
            share: share(w.waits.time.0, shares.waits.time.0),
            unattributed_ns: places.ns(w.unattributed),
            blamed,
            stack: places.stack(lock.process, w.site.map(|s| s.addr), stack),
        });
    }
    entries.sort_by(|a, b| (b.wait_ns, &a.place.symbol).cmp(&(a.wait_ns, &b.place.symbol)));
    entries
}

fn holder_entry(lock: Lock, holder: &Holder, shares: &Shares, places: &mut Places<'_>) -> HolderEntry {
    let (place, tid) = holder_place(holder.who, places);
    let (held, site) = (holder.who.lock().unwrap_or(lock), holder.who.site().map(|site| site.addr));
    let doing = Doing::of(holder, lock);
    let other = held != lock;
    HolderEntry {
        place,
        tid,
        released: matches!(holder.who, Who::Released { .. }),
        lock: other.then(|| places.lock_id(held)),
        lock_name: other.then(|| places.lock_label(held)),
        wait_ns: places.ns(holder.wait),
        nested_ns: places.ns(holder.nested),
        handoff_ns: places.ns(doing.handoff()),
        share: share(holder.wait.0, shares.waits.time.0),
        victims: holder.victims,
        sections: holder.sections.count,
        inferred: holder.inferred > Nanos(0),
        inferred_ns: places.ns(holder.inferred),
        causes: doing.causes(places),
        off_stacks: doing.off_stacks(places),
        callers: Calling::of(holder).callers(places),
        stack: places.stack(holder.who.process(lock), site, top_stack(&holder.stacks)),
    }
}

/// The place of a holder, or the thread where that is all that is known.
pub(super) fn holder_place(who: Who, places: &mut Places<'_>) -> (Place, Option<ThreadId>) {
    match who {
        Who::Section { site, .. } => (places.place(site), None),
        Who::Released { site, stack, .. } => (places.place_of_wait(site, stack), None),
        Who::Thread(tid) => {
            let tid = places.thread(tid);
            (elsewhere(&format!("{} (site unknown)", tid.in_words())), Some(tid))
        }
        Who::Others => (elsewhere("other holders"), None),
    }
}

/// The process of a holder, as far as it is known.
fn holder_process(who: Who, places: &Places<'_>) -> Option<Process> {
    match who {
        Who::Section { site, .. } | Who::Released { site, .. } => Some(site.process),
        Who::Thread(tid) => places.process_of(tid),
        Who::Others => None,
    }
}

/// A chain of waiting; `all` is the waiting for its first lock.
pub(super) fn chain(chain: &Chain, all: Nanos, places: &mut Places<'_>) -> ChainEntry {
    let mut links = Vec::with_capacity(chain.links.len());
    for link in &chain.links {
        links.push(LinkEntry {
            lock: places.lock_id(link.lock),
            name: places.lock_label(link.lock),
            site: link.site.and_then(|site| places.site_id(site)),
            symbol: link.site.map(|site| places.place(site).symbol),
            tid: places.thread(link.tid),
            released: link.released,
        });
    }
    // Attempts that fail in the end are told in no wait, but chains have counted them until then.
    let wait = chain.wait.min(all);
    ChainEntry { links, wait_ns: places.ns(wait), share: share(wait.0, all.0) }
}

pub(super) fn top_stack(stacks: &Stacks) -> Option<StackId> {
    stacks.top().first().map(|&(stack, _)| stack)
}
