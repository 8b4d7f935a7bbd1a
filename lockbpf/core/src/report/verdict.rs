//! The report in a few sentences, no surer of itself than the data allows.

use super::phrase::{self, FUNCTION, Threads};
use super::schema::{BlockedEntry, DeadlockEntry, LockEntry, Ns, Report, SleepEntry, ThreadId};
use super::sleepers::OF_CONDITIONS;
use super::table::unobserved;
use super::text::{clip, count, counted, listed, percent};
use super::{blame, distrust, estimated, in_turn, pattern, sleep, throttled, unwatched, woken};

/// Circles of waits that ended, told in words.
const MAX_ENDED: usize = 3;
/// Waiting below this part of one thread's time holds nothing back.
const SIGNIFICANT: f64 = 0.02;
/// Waiting below this part of one thread's time may be a small part of what holds a program back.
const WEAK: f64 = 0.1;
/// If threads slept this number of times as long as they waited for locks, and nobody knows what for, the verdict does not rest on the locks.
const FAR_MORE: f64 = 20.0;
/// Sleep that may have been for locks, as a part of one thread's time, below which none is overlooked.
const OVERLOOKED: f64 = 0.01;
/// Places named in which threads slept.
const PLACES: usize = 3;
/// A part of the waiting below which it is not worth a sentence.
const NOTABLE: f64 = 0.1;

/// What to tell first.
pub(super) fn sentences(report: &Report) -> Vec<String> {
    let threads = Threads::of(report);
    let mut sentences: Vec<_> = report.deadlocks.iter().map(|d| deadlock(d, &threads)).collect();
    sentences.extend(report.quality.unobserved.iter().filter(|gap| gap.to_ns.is_none()).map(|gap| {
        let who = unobserved(gap);
        format!("NOT OBSERVED: {who}. It went on using its locks, but its probes saw nothing: what follows is of the rest of the time.")
    }));
    let told = !sentences.is_empty();
    sentences.extend(report.ended_circles.iter().take(MAX_ENDED).map(|circle| ended(circle, &threads)));
    // Rather one lock than several that were summed together.
    let one = report.locks.iter().find(|l| !l.others && l.harm_ns > Ns::default());
    match one.or(report.locks.first()) {
        None if told => {}
        None => sentences.push(without_locks(report)),
        Some(top) if top.harm_ns > Ns::default() => contended(report, top, &threads, &mut sentences),
        Some(_) => {
            let doubt = unexplained(report).map(|unexplained| cannot_tell(report, &unexplained));
            let idle = idle(report).filter(|_| doubt.is_none());
            let seen = if doubt.is_some() { " that was seen" } else { "" };
            sentences.extend(doubt.into_iter().chain([uncontended(report, seen)]).chain(idle));
        }
    }
    sentences.extend(throttled::sentence(report));
    sentences.extend(pattern::sentences(report, &threads));
    if let Some(distrust) = &report.quality.distrust {
        // It comes before whatever follows from the figures.
        let at = sentences.len().min(report.deadlocks.len() + 1);
        sentences.insert(at, distrust::sentence(distrust, report));
    }
    sentences
}

/// Who waits for whom, for ever.
fn deadlock(deadlock: &DeadlockEntry, threads: &Threads<'_>) -> String {
    let member = |b: &BlockedEntry| {
        let place = b.symbol.as_deref().map(|s| format!(" in {}", clip(s, FUNCTION))).unwrap_or_default();
        format!("{} holds `{}` and waits for `{}`{place}", threads.long(&b.tid), b.holds_name, b.name)
    };
    let members: Vec<_> = deadlock.threads.iter().map(member).collect();
    let lasted = deadlock.lasted_ns;
    let stands = match deadlock {
        DeadlockEntry { for_ever: true, .. } => " and will never go on".to_owned(),
        DeadlockEntry { exited: true, .. } => format!(", for {lasted} to the end of the process"),
        _ => format!(", for {lasted} to the end"),
    };
    let (what, who) = match deadlock.threads.len() as u64 {
        1 if !deadlock.for_ever => ("Perhaps a deadlock", "1 thread waits for itself".to_owned()),
        1 => ("DEADLOCK", "1 thread waits for itself".to_owned()),
        n if deadlock.for_ever => ("DEADLOCK", format!("{} wait for one another", counted(n, "thread"))),
        n => ("DEADLOCK", format!("{} wait for one another in a circle", counted(n, "thread"))),
    };
    let others = match deadlock.threads.len() {
        _ if deadlock.for_ever || deadlock.exited => "",
        1 => " It goes on only if another thread gives back the lock.",
        _ => " They go on only if another thread gives back one of their locks.",
    };
    let before = if deadlock.before_start { " It was there before the observation began." } else { "" };
    format!("{what}: {who}{stands}: {}.{before}{others}", members.join("; "))
}

/// That threads waited for one another in a circle, and went on.
fn ended(circle: &DeadlockEntry, threads: &Threads<'_>) -> String {
    let who: Vec<_> = circle.threads.iter().map(|member| threads.long(&member.tid)).collect();
    let lasted = circle.lasted_ns;
    match who.as_slice() {
        [only] => format!("No deadlock: {only} waited for itself, which ended after {lasted}."),
        _ => format!("No deadlock: {} waited for one another in a circle, which ended after {lasted}.", who.join(", ")),
    }
}

/// The part of a lock's waiting that is divided among those to blame.
pub(super) fn coverage(lock: &LockEntry) -> f64 {
    let ended = lock.harm_ns - lock.waiting_now.sum_ns;
    let recorded = lock.recorded_wait_ns - lock.open_wait_ns;
    if ended == 0 { 1.0 } else { recorded.share_of(ended).min(1.0) }
}

/// Who waits for a lock now, as a sentence.
pub(super) fn waiting_now(lock: &LockEntry) -> Option<String> {
    let now = &lock.waiting_now;
    if now.count == 0 {
        return None;
    }
    let at_least = if now.before_start { "at least " } else { "" };
    let waits = if now.count == 1 { "waits" } else { "wait" };
    let held_by = match now.held_by.as_slice() {
        // Nobody holds it.
        [] if lock.kind == "barrier" => String::new(),
        [] => match lock.word_names {
            Some(named) => format!("; its holder is not known (its word names {named}, {})", stranger(lock)),
            None => "; its holder is not known".to_owned(),
        },
        [ThreadId::Name(name)] => format!("; held by {name}"),
        [tid] => format!("; held by tid {tid}"),
        tids => format!("; held by tids {} when they asked", list(tids)),
    };
    let longest = now.longest_ns;
    Some(format!(
        "{} {waits} for it now, longest {at_least}{longest}{held_by}.",
        counted(now.count, phrase::waiter(&lock.kind))
    ))
}

/// What is known of whom a lock's word names if that is not believed.
pub(super) fn stranger(lock: &LockEntry) -> &'static str {
    // Whoever else shares it was not observed.
    if lock.shared == Some(true) { "no thread of the observed processes" } else { "no thread of its process" }
}

fn list(tids: &[ThreadId]) -> String {
    tids.iter().map(ThreadId::to_string).collect::<Vec<_>>().join(", ")
}

/// Sleep that may or may not have been for a lock, if there is enough of it to matter: whoever says that no lock holds anything back
/// has to know of it.
fn unexplained(report: &Report) -> Option<String> {
    let q = &report.quality;
    let parts = [slept(report), unwatched::found(q, OVERLOOKED), unwatched::virtual_threads(q)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// The part of it in futex calls.
fn slept(report: &Report) -> Option<String> {
    let sleep = report.quality.sleep.as_ref()?;
    let duration = report.quality.duration_ns;
    let slept = perhaps_for_locks(sleep);
    if slept.share_of(duration) < OVERLOOKED {
        return None;
    }
    let places: Vec<_> =
        sleep.places.iter().map(|p| format!("`{}` ({})", clip(&p.symbol, FUNCTION), p.slept_ns)).collect();
    let others = match (sleep.parked_ns > Ns::default(), sleep.unknown_ns > Ns::default()) {
        (false, false) => None,
        (true, false) => Some("where a runtime or library parks them for its own locks and when they are idle"),
        (false, true) => Some(
            "on futex words whose purpose cannot be told from here: locks of another kind (Rust, Go, …), or idle waiting",
        ),
        (true, true) => Some(
            "where runtimes and libraries park them, and on futex words of unknown purpose: for locks of their own, or idle",
        ),
    };
    let of_runtimes = sleep.runtimes_ns.map(|slept| {
        let more = if report.quality.futex_only { " (probes do: leave `--futex-only` out)" } else { "" };
        format!("{slept} of it for locks of a runtime, of which futex calls do not tell which one{more}")
    });
    let what: Vec<_> = of_runtimes.into_iter().chain(others.map(str::to_owned)).collect();
    Some(format!("threads slept {slept} in {duration} in {}, {}", listed(&places, PLACES), what.join(", and ")))
}

/// Whether the waiting for locks is weak evidence, and threads slept more than this number of times as long, perhaps for locks.
fn outweighs(report: &Report, times: f64) -> bool {
    let (waited, duration) = (report.totals.harm_ns, report.quality.duration_ns);
    let slept = report.quality.sleep.as_ref().map(perhaps_for_locks);
    waited.share_of(duration) < WEAK && slept.is_some_and(|slept| slept.as_f64() > waited.as_f64() * times)
}

fn perhaps_for_locks(sleep: &SleepEntry) -> Ns {
    sleep.parked_ns + sleep.runtimes_ns.unwrap_or_default() + sleep.unknown_ns
}

/// Sleep that is no contention, if there is enough of it to be wondered at.
fn idle(report: &Report) -> Option<String> {
    let sleep = report.quality.sleep.as_ref()?;
    let idle = sleep.conditions_ns;
    let first = report.conditions.iter().find(|c| c.purpose != OF_CONDITIONS);
    let first = first.map(|c| format!(", most of it in `{}`", c.label)).unwrap_or_default();
    (idle.share_of(report.quality.duration_ns) >= NOTABLE).then(|| {
        let what = sleep::idle_for(report);
        format!("Threads waited {idle} for {what}{first}: idle time, unless the program makes locks of {what}.")
    })
}

/// That nothing can be told, since threads slept and it is not known what for.
fn cannot_tell(report: &Report, unexplained: &str) -> String {
    let victim = report.locks.first().map_or("the target", victim);
    format!("Cannot tell whether a lock holds {victim} back: {unexplained}.")
}

fn without_locks(report: &Report) -> String {
    let q = &report.quality;
    let time = q.duration_ns;
    if let Some(unexplained) = unexplained(report) {
        return format!("No pthread lock was seen in use in {time}. {}", cannot_tell(report, &unexplained));
    }
    let sleep = q.sleep.clone().unwrap_or_default();
    if !report.conditions.is_empty() || sleep.conditions_ns > Ns::default() {
        let what = sleep::idle_for(report);
        return format!(
            "No lock was seen in use in {time}: threads only waited for {what}: idle time, unless the program makes locks of {what}."
        );
    }
    let reason = match q.failed_probes.first() {
        Some(p) => {
            format!("{} failed, {} first: {}", counted(q.failed_probes.len() as u64, "probe"), p.probe, p.reason)
        }
        None if !q.lost.is_empty() => "records were lost (see below)".to_owned(),
        None if sleep.joins_ns > Ns::default() => "threads slept for the ends of others only".to_owned(),
        None if !report.futexes.is_empty() => "futex calls were seen, but none that waited noticeably".to_owned(),
        None if q.futex_only => "no thread slept on a futex, so nothing waited for a lock".to_owned(),
        None => "the target is idle, has only one busy thread, or locks without the C library's mutexes".to_owned(),
    };
    format!("No lock operation was seen in {time}: {reason}.")
}

fn uncontended(report: &Report, seen: &str) -> String {
    let (totals, time) = (&report.totals, report.quality.duration_ns);
    let doubt = match &report.quality {
        q if !q.unobserved.is_empty() => " while it was observed",
        q if q.incomplete => ", as far as the incomplete data tells",
        _ => "",
    };
    let contended = match totals.contended {
        0 => "none contended".to_owned(),
        n => format!("{} contended, but without a sleep", count(n)),
    };
    let estimated = report.quality.observed.as_ref().is_some_and(|o| o.overall.estimated);
    let acquisitions =
        if estimated { estimated::acquisitions(report) } else { counted(totals.acquisitions, "acquisition") };
    format!(
        "No thread waited for a lock{seen}{doubt}: {acquisitions} of {} in {time}, {contended}.",
        counted(totals.locks, "lock"),
    )
}

fn contended(report: &Report, top: &LockEntry, threads: &Threads<'_>, sentences: &mut Vec<String>) {
    // Many locks may hold a program back of which none does.
    let significant = report.totals.harm_ns.share_of(report.quality.duration_ns) >= SIGNIFICANT;
    let holds_back = significant && !outweighs(report, FAR_MORE);
    if holds_back {
        sentences.extend(blame::sentences(report, top, threads, true));
        // Whoever waits for a lock made of conditions is woken by one.
        let doubt = in_turn::sentence(top).or_else(|| woken::sentence(report, top));
        sentences.push(cost(report, top, doubt.is_none()));
        sentences.extend(doubt);
        let q = &report.quality;
        let more = if outweighs(report, 1.0) { slept(report) } else { None };
        let besides = [unwatched::found(q, SIGNIFICANT), unwatched::virtual_threads(q), more];
        sentences.extend(besides.into_iter().flatten().map(|found| format!("Besides, {found}.")));
    } else {
        let doubt = unexplained(report);
        sentences.push(cheap(report, top, doubt.as_deref()));
        sentences.extend(blame::sentences(report, top, threads, false));
        sentences.extend(idle(report).filter(|_| doubt.is_none()));
    }
    sentences.extend(inconclusive(report));
    sentences.extend(waiting_now(top));
    if report.quality.incomplete {
        sentences.push("The data is incomplete: see the quality line.".to_owned());
    }
}

/// That several runs disagree on the section that causes most waiting.
fn inconclusive(report: &Report) -> Option<String> {
    let runs = report.runs.as_ref()?;
    let top = report.sites.first()?;
    let spread = top.spread.filter(|spread| spread.inconclusive)?;
    let deviation = spread.apwt_sd_ns.share_of(top.apwt_ns).max(
        // The site may be inconclusive by what it caused on the critical paths alone.
        spread.cpwt_sd_ns.unwrap_or_default().share_of(top.cpwt_ns.unwrap_or_default()),
    );
    Some(format!(
        "Inconclusive: over {} the waiting that {} caused deviates by {} of its mean.",
        counted(runs.count, "run"),
        clip(&top.symbol, FUNCTION),
        percent(deviation),
    ))
}

/// The most waited-for lock, where its waiting is significant; `holds_back`: nothing speaks against that it holds the target back.
fn cost(report: &Report, top: &LockEntry, holds_back: bool) -> String {
    let (waited, q) = (estimated::harm(top), &report.quality);
    let at_least = if q.incomplete { "at least " } else { "" };
    let who = phrase::waiter(&top.kind);
    let threads = match top.waiting_threads.max(top.waiting_now.count) {
        0 => format!("{who}s"),
        1_024.. => format!("{} {who}s or more", count(1_024)),
        // Others may have waited where no window was.
        n if top.estimates.is_some() || top.wait_estimate.is_some() => format!("{} or more", counted(n, who)),
        n => counted(n, who),
    };
    let culprit = report.culprits.first();
    let is_one = top.harm_ns.share_of(q.duration_ns) >= SIGNIFICANT && culprit.is_none_or(|c| c.locks == 1);
    let waited = format!("{threads} waited {at_least}{waited} for it in {}", q.duration_ns);
    // Through nesting, the lock to blame may be another one.
    if holds_back && is_one && culprit.is_none_or(|c| c.lock == top.lock) {
        return format!("{} holds {} back: {waited}.", named(top), victim(top));
    }
    let of_all = if is_one { String::new() } else { format!(", of {} for all locks", report.totals.harm_ns) };
    format!("Most waited for is {}: {waited}{of_all}.", named(top))
}

/// The most waited-for lock, where it does not hold the target back.
fn cheap(report: &Report, top: &LockEntry, unexplained: Option<&str>) -> String {
    let q = &report.quality;
    let (doubt, at_least) =
        if q.incomplete { (", as far as the incomplete data tells", "at least ") } else { ("", "") };
    let cost = format!(
        "{}, cost {at_least}{} of waiting in {} ({} of one thread's time)",
        named(top),
        top.harm_ns,
        q.duration_ns,
        percent(top.harm_ns.share_of(q.duration_ns)),
    );
    match unexplained {
        Some(unexplained) => {
            format!("{} Of the locks seen the most waited-for one, {cost}.", cannot_tell(report, unexplained))
        }
        None => format!("No lock holds {} back{doubt}: the most waited-for one, {cost}.", victim(top)),
    }
}

fn named(lock: &LockEntry) -> String {
    format!("`{}` ({}{})", lock.label, lock.kind, if lock.inferred { ", inferred" } else { "" })
}

fn victim(lock: &LockEntry) -> &str {
    lock.comm.as_deref().unwrap_or("the target")
}
