//! Lock-step: threads that meet at a barrier again and again, each of which waits there for much of its time: now one is the last, now another.

use super::super::lock::Ranked;
use super::super::place::Places;
use super::super::schema::{Evidence, LockStep, PatternEntry};
use super::super::text::{count, percent, share};
use super::{Seen, rests_on};
use crate::op::LockKind;

/// The part of all time of the threads that they wait for one another.
const MUCH: f64 = 0.2;
/// The same of the one that waits least: who is always the last waits for nobody.
const EACH: f64 = 0.1;
/// Rounds from which on this is no chance.
const ROUNDS: u64 = 20;

pub(super) const CURE: &str = "meet less often (more work in a round, fewer barriers), share the work of a round out while it goes on, or wait \
                               only for those whose results are needed";

pub(super) fn find(r: &Ranked<'_>, seen: &Seen<'_>, places: &mut Places<'_>) -> Option<PatternEntry> {
    if r.total.kind != LockKind::Barrier || r.lock.is_others() {
        return None;
    }
    let turns = &r.gathered.shares?.turns;
    // Others may have met in its place: then it is not known how long each of them was there.
    let threads = u64::from(r.total.participants);
    if threads < 2 || turns.threads.len() as u64 != threads {
        return None;
    }
    let duration = seen.observation.duration().0;
    let of = |wait: u64| share(wait, duration);
    let all = turns.threads.values().map(|turn| of(turn.waits.time.0)).sum::<f64>() / threads as f64;
    let least = turns.threads.values().map(|turn| of(turn.waits.time.0)).fold(f64::INFINITY, f64::min);
    let arrivals = r.total.acquisitions;
    let is_one = arrivals >= ROUNDS * threads && all >= MUCH && least >= EACH;
    let evidence = LockStep { threads, arrivals, waited_share: all, least_share: least };
    is_one.then(|| seen.entry(places, r.lock, r.harm, Evidence::LockStep(evidence)))
}

pub(super) fn words(p: &PatternEntry, e: &LockStep) -> String {
    format!(
        "Lock-step at barrier `{}` ({}): {} threads met {} times and waited there for {} of their time, each of them for {} at least: each \
         round lasts as long as its slowest part.",
        p.name,
        rests_on(p),
        e.threads,
        count(e.arrivals / e.threads.max(1)),
        percent(e.waited_share),
        percent(e.least_share),
    )
}
