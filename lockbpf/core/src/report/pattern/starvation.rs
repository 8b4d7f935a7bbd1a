//! Starvation: a thread that wants a lock as much as others do is overtaken again and again.

use super::super::lock::Ranked;
use super::super::phrase::Threads;
use super::super::place::Places;
use super::super::schema::{Evidence, FavouredEntry, PatternEntry, Starvation, StarvingEntry};
use super::super::text::{count, counted};
use super::{Seen, rests_on};
use crate::graph::{Turn, Turns};
use crate::id::Tid;
use crate::op::LockKind;
use crate::units::Nanos;
use std::cmp::Reverse;

/// Who asks seldom does not wait for this part of the time.
const LONG: f64 = 0.1;
/// Overtakings from which on they are no chance.
const OVERTAKEN: u64 = 30;
/// As many times as there are others that want the lock: if each release gave it to anybody, a wait would be overtaken about once by each.
const UNFAIR: u64 = 4;
/// Those who got the lock waited less than this part of what the starving thread did.
const LESS: f64 = 0.25;
/// Threads listed.
const LISTED: usize = 5;

pub(super) const CURE: &str = "a lock that is handed over in turn or prefers writers, shorter or rarer sections of those who overtake, or a pause before they ask again";

pub(super) fn find(r: &Ranked<'_>, seen: &Seen<'_>, places: &mut Places<'_>) -> Option<PatternEntry> {
    if r.total.kind == LockKind::Barrier || r.lock.is_kernel() || r.lock.is_others() {
        return None;
    }
    let turns = &r.gathered.shares?.turns;
    let favoured_wait = favoured_wait(turns)?;
    let mut starving: Vec<(Tid, Turn)> = turns.threads.iter().map(|(&tid, &turn)| (tid, turn)).collect();
    starving.retain(|(_, turn)| starves(turn, turns, favoured_wait, seen.observation.duration()));
    if starving.is_empty() {
        return None;
    }
    starving.sort_by_key(|&(tid, turn)| (Reverse(turn.waits.time), tid));
    let mut favoured: Vec<(Tid, Turn)> = turns.threads.iter().map(|(&tid, &turn)| (tid, turn)).collect();
    favoured.retain(|(tid, turn)| turn.taken > 0 && starving.iter().all(|(other, _)| other != tid));
    favoured.sort_by_key(|&(tid, turn)| (Reverse(turn.taken), tid));
    let wait = starving.iter().map(|(_, turn)| turn.waits.time).sum();
    let entry = |places: &mut Places<'_>, &(tid, turn): &(Tid, Turn)| StarvingEntry {
        tid: places.thread(tid),
        wait_ns: places.ns(turn.waits.time),
        waits: turn.watched.count,
        overtaken: turn.overtaken,
    };
    let evidence = Starvation {
        starving: starving.iter().take(LISTED).map(|one| entry(places, one)).collect(),
        favoured: favoured
            .iter()
            .take(LISTED)
            .map(|&(tid, turn)| FavouredEntry {
                tid: places.thread(tid),
                taken: turn.taken,
                wait_ns: places.ns(turn.waits.time),
            })
            .collect(),
        favoured_wait_ns: places.ns(favoured_wait),
    };
    Some(seen.entry(places, r.lock, wait, Evidence::Starvation(evidence)))
}

/// How long those who got the lock while others went on waiting waited themselves: the mean by how often each got it. `None` unless it is
/// known of most.
fn favoured_wait(turns: &Turns) -> Option<Nanos> {
    let taken = |turn: &Turn| u128::from(turn.taken);
    let known: u128 = turns.threads.values().map(taken).sum();
    let sum: u128 = turns.threads.values().map(|turn| taken(turn) * u128::from(turn.waits.time.0)).sum();
    let mean = sum.checked_div(known)?;
    (known * 2 >= u128::from(turns.taken)).then(|| Nanos(u64::try_from(mean).unwrap_or(u64::MAX)))
}

fn starves(turn: &Turn, turns: &Turns, favoured_wait: Nanos, duration: Nanos) -> bool {
    let others = turns.threads.len().saturating_sub(1) as u64;
    let (wait, of) = (turn.waits.time.0 as f64, duration.0 as f64);
    wait >= LONG * of
        && turn.overtaken >= OVERTAKEN
        && turn.overtaken >= turn.watched.count.saturating_mul(UNFAIR).saturating_mul(others)
        && favoured_wait.0 as f64 <= LESS * wait
}

pub(super) fn words(p: &PatternEntry, e: &Starvation, threads: &Threads<'_>) -> String {
    let Some(first) = e.starving.first() else { return String::new() };
    let others = match e.starving.len() as u64 {
        1 => String::new(),
        n => format!(" and {}", counted(n - 1, "other")),
    };
    let mean = first.overtaken / first.waits.max(1);
    let favoured = e.favoured.first().map(|f| {
        let others = e.favoured.len() as u64 - 1;
        let others = if others > 0 { format!(", as did {}", counted(others, "other")) } else { String::new() };
        format!("; {} got it at least {} times meanwhile{others}", threads.long(&f.tid), count(f.taken))
    });
    format!(
        "Starvation at `{}`: {}{others} waited {} for it ({}), overtaken at least {} times in each wait, while those who got it waited {} \
         each{}.",
        p.name,
        threads.long(&first.tid),
        p.wait_ns,
        rests_on(p),
        count(mean),
        e.favoured_wait_ns,
        favoured.unwrap_or_default(),
    )
}
