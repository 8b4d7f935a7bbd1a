//! Convoys: a queue that does not dissolve, since each thread is back in it before the others have had their turn, and handing the lock over
//! takes longer than the sections.

use super::super::lock::Ranked;
use super::super::place::Places;
use super::super::schema::{Convoy, Evidence, PatternEntry};
use super::super::text::{percent, share};
use super::{Seen, rests_on};
use crate::op::LockKind;
use crate::units::Nanos;

/// Threads that wait, in the mean.
const QUEUE: f64 = 1.0;
/// The part of their time that the threads spend in the queue.
const IN_QUEUE: f64 = 0.5;
/// The part of the time in which somebody waits in which two or more do.
const LASTING: f64 = 0.8;
/// The part of the acquisitions that had to wait.
const HANDED: f64 = 0.9;
/// The part of the time in which somebody waits in which nobody has the lock.
const FREE: f64 = 1.0 / 3.0;
/// Acquisitions from which on these shares are no chance.
const ENOUGH: u64 = 100;

pub(super) const CURE: &str = "ask for it less often (batch, split the lock, a copy for each thread), or a lock that whoever runs may take \
                               before those who were woken (not fair, no priority inheritance)";

pub(super) fn find(r: &Ranked<'_>, seen: &Seen<'_>, places: &mut Places<'_>) -> Option<PatternEntry> {
    let of_one = matches!(r.total.kind, LockKind::Mutex | LockKind::Rwlock | LockKind::Other);
    if !of_one || r.lock.is_kernel() || r.lock.is_others() || super::super::distrust::is_unranked(seen.report) {
        return None;
    }
    let shares = r.gathered.shares?;
    let turns = &shares.turns;
    let acquisitions = r.acquisitions()?;
    let threads = shares.threads.len() as u64;
    let queue = r.harm.0 as f64 / seen.observation.duration().0 as f64;
    let of = |part: Nanos| share(part.0, turns.waited.0);
    let evidence = Convoy {
        threads,
        queue,
        queued_share: of(turns.queued),
        handed_share: share(turns.handed, turns.taken),
        free_share: of(turns.free),
    };
    let is_one = turns.taken >= ENOUGH
        && queue >= QUEUE.max(IN_QUEUE * threads as f64)
        && evidence.queued_share >= LASTING
        && evidence.handed_share >= HANDED
        && share(r.contended, acquisitions) >= HANDED
        && evidence.free_share >= FREE;
    is_one.then(|| seen.entry(places, r.lock, r.harm, Evidence::Convoy(evidence)))
}

pub(super) fn words(p: &PatternEntry, e: &Convoy) -> String {
    format!(
        "Convoy at `{}` ({}): of {} threads {:.1} stand in its queue at a time, which does not dissolve: {} of acquisitions were handed over, \
         and for {} of the time nobody had it, since a thread has to be woken each time.",
        p.name,
        rests_on(p),
        e.threads,
        e.queue,
        percent(e.handed_share),
        percent(e.free_share),
    )
}
