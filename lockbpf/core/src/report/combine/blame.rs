//! Who waited and who is to blame, over several runs.

use super::super::schema::{
    AttributionEntry, BlameEntry, CallerEntry, CallersEntry, CausesEntry, ChainEntry, CulpritEntry, HolderEntry,
    LockEntry, Ns, OffStackEntry, Place, Report, StackFrame, ThreadId, Totals, WaiterEntry,
};
use super::super::{calling, doing};
use super::over::{Key, LockIds, Over};

/// Culprits and chains listed.
const MAX_CULPRITS: usize = 5;
const MAX_CHAINS: usize = 10;

/// A place from run to run: threads are told apart by it where they are all that is known.
fn place(place: &Place) -> String {
    place.symbol.clone()
}

fn thread(tid: Option<&ThreadId>) -> String {
    tid.map(ThreadId::to_string).unwrap_or_default()
}

/// Mean causes, of the runs that know any.
pub(super) fn causes<T>(all: &Over<'_, T>, of: impl Fn(&T) -> Option<CausesEntry>) -> Option<CausesEntry> {
    let mean = |part: fn(&CausesEntry) -> Ns| all.ns(|thing| of(thing).as_ref().map(part).unwrap_or_default());
    all.any(|thing| of(thing).is_some()).then(|| CausesEntry {
        running: mean(|c| c.running),
        runnable: mean(|c| c.runnable),
        blocked: mean(|c| c.blocked),
        sleeping: mean(|c| c.sleeping),
        lock: mean(|c| c.lock),
        kernel_lock: mean(|c| c.kernel_lock),
        handoff: mean(|c| c.handoff),
        unknown: mean(|c| c.unknown),
    })
}

/// Mean callers, of which each run may know others; `wait` is the waiting of which they are parts.
pub(super) fn callers<T>(
    all: &Over<'_, T>,
    wait: Ns,
    of: impl Fn(&T) -> Option<&CallersEntry>,
) -> Option<CallersEntry> {
    let mut most = all.within(
        |thing| of(thing).map_or(&[], |callers| callers.most.as_slice()),
        |caller| vec![caller.place.function.clone().unwrap_or_else(|| place(&caller.place))],
        |all| {
            let caused = all.ns(|caller| caller.wait_ns);
            let like = all.largest(|caller| caller.wait_ns).clone();
            CallerEntry { wait_ns: caused, share: caused.share_of(wait), ..like }
        },
    );
    most.sort_by(|a, b| (b.wait_ns, &a.place.symbol).cmp(&(a.wait_ns, &b.place.symbol)));
    most.truncate(calling::MAX);
    let functions = all.most(|thing| of(thing).map_or(0, |callers| callers.functions)).max(most.len() as u64);
    let known = || all.ns(|thing| of(thing).map_or(Ns::default(), |callers| callers.known_ns));
    (!most.is_empty()).then(|| CallersEntry { functions, known_ns: known(), most })
}

/// Mean parts of the waiting by how surely it is charged.
pub(super) fn attribution<T>(all: &Over<'_, T>, of: impl Fn(&T) -> AttributionEntry) -> AttributionEntry {
    AttributionEntry {
        exact_ns: all.ns(|thing| of(thing).exact_ns),
        inferred_ns: all.ns(|thing| of(thing).inferred_ns),
        unknown_ns: all.ns(|thing| of(thing).unknown_ns),
    }
}

/// Mean waiting by the stack with which a holder was off the CPU.
fn off_stacks<T>(all: &Over<'_, T>, of: impl Fn(&T) -> &[OffStackEntry]) -> Vec<OffStackEntry> {
    let frame = |f: &StackFrame| match (&f.module, &f.offset) {
        (Some(module), Some(offset)) => format!("{module}+{offset}"),
        _ => f.function.clone().unwrap_or_else(|| f.address.clone()),
    };
    let mut stacks = all.within(
        of,
        |s| [&s.cause].into_iter().chain(&s.function).cloned().chain(s.stack.iter().map(frame)).collect(),
        |all| OffStackEntry { wait_ns: all.ns(|s| s.wait_ns), ..all.largest(|s| s.wait_ns).clone() },
    );
    stacks.sort_by(|a, b| (b.wait_ns, &a.function).cmp(&(a.wait_ns, &b.function)));
    stacks.truncate(doing::MAX_STACKS);
    stacks
}

/// The waiting sites of a lock.
pub(super) fn waiters(all: &Over<'_, LockEntry>) -> Vec<WaiterEntry> {
    let recorded = all.ns(|l| l.recorded_wait_ns);
    let mut waiters = all.within(
        |l| &l.waiters,
        |w| vec![place(&w.place)],
        |all| {
            let wait = all.ns(|w| w.wait_ns);
            let mut blamed = all.within(
                |w| &w.blamed,
                |b| vec![place(&b.place), thread(b.tid.as_ref())],
                |all| {
                    let blame = all.ns(|b| b.wait_ns);
                    BlameEntry { wait_ns: blame, share: blame.share_of(wait), ..all.largest(|b| b.wait_ns).clone() }
                },
            );
            blamed.sort_by(|a, b| (b.wait_ns, &a.place.symbol).cmp(&(a.wait_ns, &b.place.symbol)));
            WaiterEntry {
                count: all.count(|w| w.count),
                wait_ns: wait,
                share: wait.share_of(recorded),
                unattributed_ns: all.ns(|w| w.unattributed_ns),
                blamed,
                // The one with the longest wait of all.
                ..all.largest(|w| w.max_ns).clone()
            }
        },
    );
    waiters.sort_by(|a, b| (b.wait_ns, &a.place.symbol).cmp(&(a.wait_ns, &b.place.symbol)));
    waiters
}

/// Those to blame for the waiting for a lock.
pub(super) fn holders(all: &Over<'_, LockEntry>) -> Vec<HolderEntry> {
    let recorded = all.ns(|l| l.recorded_wait_ns);
    let mut holders = all.within(
        |l| &l.holders,
        |h| vec![place(&h.place), thread(h.tid.as_ref()), h.lock_name.clone().unwrap_or_default()],
        |all| {
            let wait = all.ns(|h| h.wait_ns);
            HolderEntry {
                wait_ns: wait,
                nested_ns: all.ns(|h| h.nested_ns),
                handoff_ns: all.ns(|h| h.handoff_ns),
                share: wait.share_of(recorded),
                victims: all.count(|h| h.victims),
                sections: all.count(|h| h.sections),
                inferred: all.any(|h| h.inferred),
                inferred_ns: all.ns(|h| h.inferred_ns),
                causes: causes(all, |h| h.causes),
                callers: callers(all, wait, |h| h.callers.as_ref()),
                off_stacks: off_stacks(all, |h| &h.off_stacks),
                ..all.largest(|h| h.wait_ns).clone()
            }
        },
    );
    holders.sort_by(|a, b| (b.wait_ns, &a.place.symbol).cmp(&(a.wait_ns, &b.place.symbol)));
    holders
}

/// The chains of waiting of a lock.
pub(super) fn chains(all: &Over<'_, LockEntry>) -> Vec<ChainEntry> {
    let recorded = all.ns(|l| l.recorded_wait_ns);
    let links = |c: &ChainEntry| -> Key {
        c.links.iter().flat_map(|l| [l.name.clone(), l.symbol.clone().unwrap_or_default()]).collect()
    };
    let mut chains = all.within(
        |l| &l.chains,
        links,
        |all| {
            // Chains count attempts until they fail, waits do not: several of the same names may be longer than these.
            let wait = all.ns(|c| c.wait_ns).min(recorded);
            ChainEntry { wait_ns: wait, share: wait.share_of(recorded), ..all.largest(|c| c.wait_ns).clone() }
        },
    );
    chains.sort_by_key(|c| (std::cmp::Reverse(c.wait_ns), links(c)));
    chains.truncate(MAX_CHAINS);
    chains
}

/// Those who cause most waiting, of these sums in the mean.
pub(super) fn culprits(all: &Over<'_, Report>, totals: &Totals, ids: &LockIds<'_>) -> Vec<CulpritEntry> {
    let mut culprits = all.within(
        |r| &r.culprits,
        // Which one of many locks comes first depends on the run.
        |c| vec![place(&c.place), thread(c.tid.as_ref()), if c.locks > 1 { c.kind.clone() } else { c.name.clone() }],
        |all| {
            let wait = all.ns(|c| c.wait_ns);
            let (run, like) = all.largest_run(|c| c.wait_ns);
            // The same part of the mean as of that run.
            let chain = like.chain.clone().map(|chain| {
                let mean = Ns::from_f64(chain.wait_ns.as_f64() * wait.share_of(like.wait_ns));
                ChainEntry { wait_ns: mean.min(totals.recorded_wait_ns), ..chain }
            });
            CulpritEntry {
                lock: ids.of(run, &like.lock),
                chain,
                wait_ns: wait,
                nested_ns: all.ns(|c| c.nested_ns),
                share: wait.share_of(totals.recorded_wait_ns),
                share_of_all: wait.share_of(totals.harm_ns.max(totals.recorded_wait_ns)),
                inferred_ns: all.ns(|c| c.inferred_ns),
                causes: causes(all, |c| c.causes),
                callers: callers(all, wait, |c| c.callers.as_ref()),
                off_stacks: off_stacks(all, |c| &c.off_stacks),
                ..like.clone()
            }
        },
    );
    culprits.sort_by(|a, b| (b.wait_ns, &a.place.symbol).cmp(&(a.wait_ns, &b.place.symbol)));
    culprits.truncate(MAX_CULPRITS);
    culprits
}
