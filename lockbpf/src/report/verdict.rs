//! The report in one or two sentences, no surer of itself than the data allows.

use super::details::label;
use super::schema::{LockEntry, Report};
use super::text::{count, counted, percent, share};
use crate::units::Nanos;

/// Waiting below this part of one thread's time holds nothing back.
const SIGNIFICANT: f64 = 0.01;
/// Blame that covers less than this of the waiting is said to do so.
const COVERED: f64 = 0.9;

/// What to tell first.
pub(super) fn sentences(report: &Report) -> Vec<String> {
    match report.locks.first() {
        None => vec![without_locks(report)],
        Some(top) if top.harm_ns > 0 => contended(report, top),
        Some(_) => std::iter::once(uncontended(report)).chain(unexplained(report)).collect(),
    }
}

/// The part of a lock's waiting that is divided among holders.
pub(super) fn coverage(lock: &LockEntry) -> f64 {
    let ended = lock.harm_ns.saturating_sub(lock.waiting_now.sum_ns);
    if ended == 0 { 1.0 } else { share(lock.recorded_wait_ns, ended).min(1.0) }
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
        [] => "its holder is not known".to_owned(),
        [tid] => format!("held by tid {tid}"),
        tids => format!("held by tids {} when they asked", list(tids)),
    };
    let longest = Nanos(now.longest_ns);
    Some(format!("{} {waits} for it now, longest {at_least}{longest}; {held_by}.", counted(now.count, "thread")))
}

fn list(tids: &[u32]) -> String {
    tids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// Waiting that may or may not be for a lock, if there is enough of it to matter.
fn unexplained(report: &Report) -> Option<String> {
    let slept: u64 = report.futexes.iter().map(|f| f.wait_ns.sum).sum();
    let waiting: u64 = report.futexes.iter().map(|f| f.waiting_now).sum();
    let words = report.futexes.iter().filter(|f| f.wait_ns.sum > 0 || f.waiting_now > 0).count() as u64;
    let matters = waiting > 0 || share(slept, report.quality.duration_ns) >= SIGNIFICANT;
    matters.then(|| {
        let threads = counted(waiting, "thread");
        let slept = match (Nanos(slept), waiting) {
            (slept, 0) => format!("Threads slept {slept}"),
            (Nanos(0), _) => format!("Asleep at the end: {threads}"),
            (slept, _) => format!("Threads slept {slept} ({threads} still do)"),
        };
        format!(
            "{slept} on {}, whose purpose cannot be told from here: locks of another kind (Rust, Go, pthread_rwlock, …), \
             or idle waiting.",
            counted(words, "futex word"),
        )
    })
}

fn without_locks(report: &Report) -> String {
    let q = &report.quality;
    let time = Nanos(q.duration_ns);
    if let Some(unexplained) = unexplained(report) {
        return format!("No pthread lock was seen in use in {time}. {unexplained}");
    }
    if !report.conditions.is_empty() {
        return format!("No lock was seen in use in {time}: threads only waited for conditions, which is idle time.");
    }
    let reason = match q.failed_probes.first() {
        Some(p) => {
            format!("{} failed, {} first: {}", counted(q.failed_probes.len() as u64, "probe"), p.probe, p.reason)
        }
        None if !q.lost.is_empty() => "records were lost (see below)".to_owned(),
        None if !report.futexes.is_empty() => "futex calls were seen, but none that waited noticeably".to_owned(),
        None if q.futex_only => "no thread slept on a futex, so nothing waited for a lock".to_owned(),
        None => "the target is idle, has only one busy thread, or locks without the C library's mutexes".to_owned(),
    };
    format!("No lock operation was seen in {time}: {reason}.")
}

fn uncontended(report: &Report) -> String {
    let (totals, time) = (&report.totals, Nanos(report.quality.duration_ns));
    let doubt = if report.quality.incomplete { ", as far as the incomplete data tells" } else { "" };
    format!(
        "No thread waited for a lock{doubt}: {} of {} in {time}, none contended.",
        counted(totals.acquisitions, "acquisition"),
        counted(totals.locks, "lock"),
    )
}

fn contended(report: &Report, top: &LockEntry) -> Vec<String> {
    let q = &report.quality;
    let (waited, time) = (Nanos(top.harm_ns), Nanos(q.duration_ns));
    let name = format!("`{}` ({}{})", top.label, top.kind, if top.inferred { ", inferred" } else { "" });
    let victim = top.comm.as_deref().unwrap_or("the target");
    let of_one_thread = share(top.harm_ns, q.duration_ns);
    let at_least = if q.incomplete { "at least " } else { "" };
    let holds_back = of_one_thread >= SIGNIFICANT;
    let first = if !holds_back {
        format!(
            "No lock holds {victim} back{}: the most waited-for one, {name}, cost {at_least}{waited} of waiting in {time} \
             ({} of one thread's time)",
            if q.incomplete { ", as far as the incomplete data tells" } else { "" },
            percent(of_one_thread),
        )
    } else {
        let now = top.waiting_now.count;
        let threads = match top.waiting_threads.max(now) {
            0 => "threads".to_owned(),
            1_024.. => format!("{} threads or more", count(1_024)),
            n => counted(n, "thread"),
        };
        format!("{name} holds {victim} back: {threads} waited {at_least}{waited} for it in {time}")
    };
    let mut sentences = vec![format!("{first}{}.", holder(top))];
    sentences.extend(waiting_now(top));
    if !holds_back {
        sentences.extend(unexplained(report));
    }
    if q.incomplete {
        sentences.push("The data is incomplete: see the quality line.".to_owned());
    }
    sentences
}

/// Who held it meanwhile, as the end of a sentence.
fn holder(top: &LockEntry) -> String {
    if top.recorded_wait_ns == 0 {
        return String::new();
    }
    let covered = coverage(top);
    let of =
        if covered < COVERED { format!("the {} of it that was recorded", percent(covered)) } else { "it".to_owned() };
    let unknown = share(top.unattributed_ns, top.recorded_wait_ns);
    match top.holders.first() {
        Some(h) if h.share >= unknown => {
            format!("; {} of {of} while {} held it", percent(h.share), label(&h.place))
        }
        _ => format!("; who held it meanwhile is not known for {} of {of}", percent(unknown)),
    }
}
