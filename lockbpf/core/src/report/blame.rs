//! Who causes most waiting, in a few sentences: the culprit with what it was doing, or that the culprit is not known yet, what would
//! tell, and what is known.

use super::distrust;
use super::phrase::{self, FUNCTION, Threads, label, location};
use super::schema::{CausesEntry, CulpritEntry, LockEntry, Ns, Report};
use super::sleepers::VIRTUAL_LOCK;
use super::text::{clip, counted, listed, percent};
use std::borrow::Cow;

/// From this part of all waiting on, of which nobody is known to be the cause, the culprit is not known.
const UNKNOWN: f64 = 0.5;
/// A part of the waiting below which it is not worth a sentence.
const NOTABLE: f64 = 0.1;
/// A shorter observation may have missed whoever tells.
const SHORT: Ns = Ns::new(10_000_000_000);
/// Places named at which threads wait.
const PLACES: usize = 2;

/// Who causes most waiting, and how.
pub(super) fn sentences(report: &Report, top: &LockEntry, threads: &Threads<'_>, holds_back: bool) -> Vec<String> {
    if distrust::is_unranked(report) {
        return Vec::new();
    }
    let totals = &report.totals;
    let all = match report.selection {
        Some(_) => "the selected locks' waiting",
        None if holds_back => "all waiting",
        None => "this little waiting",
    };
    let unknown = totals.attribution.unknown_ns.share_of(totals.harm_ns);
    let culprit = report.culprits.first();
    let mut sentences = Vec::new();
    if culprit.is_none() && !top.waiting_now.held_by.is_empty() {
        // What they wait for has not ended, and whoever held it when they asked is named with that.
        return sentences;
    }
    if unknown >= UNKNOWN && holds_back {
        sentences.push(not_known(report, top, unknown, all));
        sentences.extend(culprit.filter(|c| c.share_of_all >= NOTABLE).map(|c| caused(c, all, report, threads)));
        sentences.extend(waited_in(top));
        return sentences;
    }
    if culprit.is_none_or(|c| c.share_of_all < unknown) {
        sentences.push(format!("Who caused {} of {all} is not known.", percent(unknown)));
    }
    if let Some(culprit) = culprit.filter(|c| c.share_of_all >= unknown || c.share_of_all >= NOTABLE) {
        sentences.push(caused(culprit, all, report, threads));
        sentences.extend(nested(culprit, threads));
    }
    sentences
}

/// That it is not known, why, and what would tell.
fn not_known(report: &Report, top: &LockEntry, unknown: f64, all: &str) -> String {
    let part = percent(unknown);
    let first = format!("The culprit is not known yet: who caused {part} of {all} was not seen");
    let why = why(top).map(|why| format!(", since {why}")).unwrap_or_default();
    match would_tell(report, top).as_slice() {
        [] => format!("{first}{why}."),
        [only] => format!("{first}{why}. What would tell: {only}."),
        [others @ .., last] => format!("{first}{why}. What would tell: {} or {last}.", others.join(", ")),
    }
}

/// Why the holders of this kind of lock are not seen, whatever the options are.
fn why(top: &LockEntry) -> Option<&'static str> {
    let unseen = top.release_unseen * 2 > top.acquisitions.unwrap_or_default();
    match top {
        l if l.kind == "semaphore" && unseen => {
            Some("others post this semaphore than take its permits: nobody holds it")
        }
        l if l.kernel => Some("the kernel tells who waits for this lock, but not who holds it"),
        l if l.kind == VIRTUAL_LOCK => Some("virtual threads give such a lock back without the help of the machine"),
        l if is_runtimes(l) => Some("this runtime's locks are taken inline, where it is not seen"),
        _ => None,
    }
}

/// Whether a runtime takes it inline: it then has that one's name, and its acquisitions are not seen.
fn is_runtimes(lock: &LockEntry) -> bool {
    lock.kind.ends_with(')') && lock.acquisitions.is_none()
}

/// What the user can do to learn more, as far as it helps in this case.
fn would_tell(report: &Report, top: &LockEntry) -> Vec<Cow<'static, str>> {
    if top.kind == VIRTUAL_LOCK {
        return Vec::new();
    }
    let q = &report.quality;
    let windows = q.observed.as_ref().is_some_and(|o| o.overall.estimated);
    let helps = [
        (!q.lost.is_empty(), "an observation that loses no records (see the quality line)"),
        (q.min_wait_ns > Ns::default(), "no `--min-wait`"),
        (q.unfocused > 0 && report.selection.is_none(), "`--no-focus`"),
        (q.thinned > 0 && !windows, "a larger `--budget`"),
        (q.futex_only, "an observation without `--futex-only`"),
        (windows && (why(top).is_none() || is_runtimes(top)), "`--budget off`"),
    ];
    let others = others(top);
    let is_elsewhere = top.shared == Some(true) && others.is_some();
    let helps = helps.into_iter().filter(|&(helps, _)| helps).map(|(_, what)| what.into());
    let mut tell: Vec<_> = others.map(Cow::from).into_iter().chain(helps).collect();
    // Whoever had the lock all along shows when it is given back; no time tells who holds what nobody is seen to hold.
    if why(top).is_none() && !is_elsewhere && (windows || q.duration_ns < SHORT || top.waiting_now.count > 0) {
        tell.push("a longer observation".into());
    }
    if top.waiters.iter().any(|w| w.place.symbol.starts_with("0x")) {
        tell.push("symbols of the program".into());
    }
    tell
}

/// Advice to observe the process of the thread that the lock's word names, where that process may share the lock.
fn others(top: &LockEntry) -> Option<String> {
    let named = top.word_names?;
    match top.shared {
        Some(true) => Some(format!(
            "an observation of the other processes that share the lock, too (its word names thread {named})"
        )),
        // Only a word is known of it.
        None if top.inferred => {
            Some(format!("an observation of the process of thread {named}, too, whom its word names"))
        }
        _ => None,
    }
}

/// Where threads wait for a lock.
fn waited_in(top: &LockEntry) -> Option<String> {
    let mut places: Vec<_> = top.waiters.iter().map(|w| label(&w.place)).collect();
    places.dedup();
    (!places.is_empty()).then(|| format!("`{}` is waited for in {}.", top.label, listed(&places, PLACES)))
}

/// `72 % of all waiting is caused by `flush` holding `log_lock` at wal.c:210; 61 % of that while blocked in fdatasync.`
fn caused(culprit: &CulpritEntry, of: &str, report: &Report, threads: &Threads<'_>) -> String {
    let part = percent(culprit.share_of_all);
    let who = if culprit.kind == "barrier" {
        let barrier = report.locks.iter().find(|l| l.lock == culprit.lock);
        let threads = match barrier.map_or(0, |l| l.waiting_threads) {
            0 => "threads wait".to_owned(),
            1 => "1 thread waits".to_owned(),
            n => format!("{} wait", counted(n, "thread")),
        };
        let for_whom = label(&culprit.place);
        format!("{part} of {of}: {threads} at barrier `{}` for {for_whom}, the last to arrive", culprit.name)
    } else {
        format!("{part} of {of} is caused by {}", holder(culprit, threads))
    };
    let inferred = if culprit.inferred_ns.share_of(culprit.wait_ns) >= UNKNOWN { " (inferred)" } else { "" };
    let callers = culprit.callers.as_ref().and_then(|callers| phrase::called_by(callers, culprit.wait_ns));
    let callers = callers.map(|callers| format!(", {callers}")).unwrap_or_default();
    format!("{who}{inferred}{callers}{}.", how(culprit))
}

fn holder(culprit: &CulpritEntry, threads: &Threads<'_>) -> String {
    let lock = format!("`{}`{}", culprit.name, phrase::others(culprit.locks));
    match (&culprit.tid, &culprit.place.function, location(&culprit.place)) {
        (Some(tid), ..) => format!("{} holding {lock} at a place that was not seen", threads.long(tid)),
        (_, Some(function), Some(location)) => {
            let given_back = if culprit.released { ", given back" } else { "" };
            format!("`{}` holding {lock}{given_back} at {location}", clip(function, FUNCTION))
        }
        _ => format!("`{}` holding {lock}", clip(&culprit.place.symbol, FUNCTION)),
    }
}

/// What a task does, in words that follow `while`, which no thread runs.
const SUSPENDED: &str = "suspended, as at an `.await`";

/// What the culprit was doing meanwhile, or that it is not known: as it goes on after a sentence.
fn how(culprit: &CulpritEntry) -> String {
    if culprit.kind == "barrier" && culprit.causes.as_ref().is_none_or(only_unknown) {
        // Who has not come yet does whatever comes before the barrier.
        return String::new();
    }
    let mut doing = phrase::causes(culprit.causes.as_ref(), &culprit.off_stacks);
    if phrase::waiter(&culprit.kind) == "task" {
        // Where its thread sleeps for the task, there is a stack.
        doing.iter_mut().filter(|(_, what)| what == "asleep").for_each(|(_, what)| SUSPENDED.clone_into(what));
    }
    let unknown = culprit.causes.as_ref().map_or(1.0, |c| c.unknown.share_of(all(c)));
    let rest = if unknown >= UNKNOWN { format!("; for {} it is not known", percent(unknown)) } else { String::new() };
    match doing.as_slice() {
        [] if unknown >= UNKNOWN => "; what it did meanwhile is not known".to_owned(),
        [] => String::new(),
        [(share, what), ..] if what == phrase::PREEMPTED => {
            format!("; its holder was {what} for {} of it: not a long section but a missing CPU{rest}", percent(*share))
        }
        [(share, what), others @ ..] => {
            let others = others.iter().map(|(share, what)| format!(", {} while {what}", percent(*share)));
            format!("; {} of that while {what}{}{rest}", percent(*share), others.collect::<String>())
        }
    }
}

fn all(c: &CausesEntry) -> Ns {
    [c.running, c.runnable, c.blocked, c.sleeping, c.lock, c.kernel_lock, c.handoff, c.unknown].into_iter().sum()
}

fn only_unknown(c: &CausesEntry) -> bool {
    c.unknown == all(c)
}

/// How a culprit's waiting reaches the waiters of other locks, if much of it does.
fn nested(culprit: &CulpritEntry, threads: &Threads<'_>) -> Option<String> {
    let share = culprit.nested_ns.share_of(culprit.wait_ns);
    let chain = culprit.chain.as_ref().filter(|_| share >= NOTABLE)?;
    let how = phrase::chain(chain, culprit.waiter.as_deref(), threads);
    Some(format!("{} of that reaches waiters of other locks: {how}.", percent(share)))
}
