//! Entries of what is no lock, or not known to be one: condition variables and futex words.

use super::durations::{Total, durations};
use super::gather::Gathered;
use super::place::Places;
use super::schema::{ConditionEntry, Durations, FutexCounts, FutexEntry, Ns, Place, ThreadWait, WaiterEntry};
use super::sleepers::{self, OF_CONDITIONS};
use super::text::share;
use crate::graph::{FutexWaits, Threads};
use crate::id::{Lock, Process};
use crate::names::Frame;
use crate::observation::OpenWait;
use crate::sums::Measure;

/// Threads listed per word.
const MAX_THREADS: usize = 10;

/// A place without an address of its own.
pub(super) fn elsewhere(symbol: &str) -> Place {
    Place { symbol: symbol.to_owned(), ..Place::default() }
}

/// The futex calls on an address that no lock call explains: counts from the sums, else from the records.
pub(super) fn counts(gathered: &Gathered<'_>, places: &Places<'_>) -> Option<FutexCounts> {
    let total = Total::of(&gathered.futex);
    match gathered.waits {
        _ if !gathered.futex.is_empty() => Some(FutexCounts {
            slept: total.acquisitions,
            again: total.try_failures,
            timed_out: total.timeouts,
            interrupted: total.errors,
            wakes: total.wakes,
            wakes_of_none: total.wakes_of_none,
            wait_sum_ns: places.ns(total.wait.sum),
            timed_out_wait_ns: places.ns(total.timed_out),
        }),
        Some(w) => Some(FutexCounts {
            slept: w.slept,
            again: w.again,
            timed_out: w.timed_out,
            interrupted: w.interrupted + w.failed,
            wait_sum_ns: places.ns(w.waits.time),
            ..FutexCounts::default()
        }),
        None => None,
    }
}

/// The entry of a condition variable, or of a semaphore whose permits stand for work.
pub(super) fn condition(lock: Lock, g: &Gathered<'_>, name: &str, places: &mut Places<'_>) -> ConditionEntry {
    let semaphore = !g.permits.is_empty();
    let total = Total::of(if semaphore { &g.permits } else { &g.condvar });
    // Who finds a permit waits for nothing.
    let (waits, blocked_again) = if semaphore { (total.contended, 0) } else { (total.acquisitions, total.contended) };
    let futex = Total::of(&g.futex);
    let (pid, comm) = places.process(lock.process);
    ConditionEntry {
        condition: places.lock_id(lock),
        name: name.to_owned(),
        label: places.label(lock.process, name),
        kind: if semaphore { sleepers::SEMAPHORE } else { "condvar" }.to_owned(),
        pid,
        comm,
        permits: semaphore.then_some(total.acquisitions),
        waits,
        timeouts: total.timeouts,
        errors: total.errors,
        idle_ns: durations(&total.wait, places.unit()),
        slept_ns: places.ns(futex.wait.sum + futex.timed_out),
        wakes: futex.wakes,
        wakes_of_none: futex.wakes_of_none,
        woken: futex.acquisitions,
        blocked_again,
        wake_latency_ns: if semaphore { Durations::default() } else { durations(&total.hold, places.unit()) },
        waiting_now: g.idle.len() as u64,
        waiting_now_ns: open(&g.idle, places),
        purpose: match g.of_lock {
            true => OF_CONDITIONS.to_owned(),
            false if semaphore => permits(g, places).to_owned(),
            false => sleepers::parking(lock, g, places).unwrap_or("condition").to_owned(),
        },
        first_site: g.first().1.map(|site| places.place(site).symbol),
    }
}

/// What threads wait for permits for. A semaphore of which only one thread takes permits may be where a runtime parks that thread, for locks of its own.
fn permits(g: &Gathered<'_>, places: &mut Places<'_>) -> &'static str {
    let waits = |frame: &Frame| {
        let file = frame.location.as_ref().map(|(file, _)| file.as_str());
        sleepers::waits_in_python(frame.function.as_deref(), file)
    };
    let known = g.permits.iter().any(|sums| places.frames_at(sums.site).iter().any(waits));
    if g.takers > 1 || known { sleepers::SEMAPHORE } else { sleepers::PARKING }
}

/// The entry of a futex word of unknown purpose.
pub(super) fn futex(lock: Lock, g: &Gathered<'_>, name: &str, places: &mut Places<'_>) -> FutexEntry {
    let (pid, comm) = places.process(lock.process);
    let wait = match g.waits {
        Some(w) if g.futex.is_empty() => {
            durations(&Measure { sum: w.waits.time, max: w.max, histogram: w.histogram.clone() }, places.unit())
        }
        _ => durations(&Total::of(&g.futex).wait, places.unit()),
    };
    FutexEntry {
        futex: places.lock_id(lock),
        name: name.to_owned(),
        label: places.label(lock.process, name),
        kind: "futex".to_owned(),
        purpose: match g.of_lock {
            true => OF_CONDITIONS.to_owned(),
            false => sleepers::name(lock, g, places).unwrap_or(sleepers::UNKNOWN).to_owned(),
        },
        pid,
        comm,
        counts: counts(g, places).unwrap_or_default(),
        wait_ns: wait,
        waiting_now: g.open.len() as u64,
        waiting_now_ns: open(&g.open, places),
        owners: g.waits.map(|w| threads(&w.owners, places)).unwrap_or_default(),
        wakers: g.waits.map(|w| threads(&w.wakers, places)).unwrap_or_default(),
        waiters: g.waits.map(|w| waiters(lock.process, w, places)).unwrap_or_default(),
    }
}

/// How long waits have lasted that have not ended.
fn open(waits: &[&OpenWait], places: &Places<'_>) -> Ns {
    places.ns(waits.iter().map(|wait| places.until_end(wait.since)).sum())
}

fn waiters(process: Process, waits: &FutexWaits, places: &mut Places<'_>) -> Vec<WaiterEntry> {
    let all = waits.waits.time.0;
    let mut entries = Vec::with_capacity(waits.sites.len());
    for s in &waits.sites {
        entries.push(WaiterEntry {
            place: s.site.map_or_else(|| elsewhere("unknown site"), |site| places.place(site)),
            count: s.waits.count,
            wait_ns: places.ns(s.waits.time),
            max_ns: places.ns(s.max),
            share: share(s.waits.time.0, all),
            stack: places.stack(process, s.site.map(|s| s.addr), s.stacks.top().first().map(|&(stack, _)| stack)),
            ..WaiterEntry::default()
        });
    }
    entries.sort_by(|a, b| (b.wait_ns, &a.place.symbol).cmp(&(a.wait_ns, &b.place.symbol)));
    entries
}

fn threads(tallies: &Threads, places: &mut Places<'_>) -> Vec<ThreadWait> {
    let top = tallies.top().into_iter().take(MAX_THREADS);
    top.map(|(tid, sum)| ThreadWait { tid: places.thread(tid), count: sum.count, wait_ns: places.ns(sum.time) })
        .collect()
}
