//! Parts of sentences that several parts of the text share.

use super::schema::{CallerEntry, CallersEntry, CausesEntry, ChainEntry, Ns, OffStackEntry, Place, Report, ThreadId};
use super::text::{clip, count, percent};
use std::collections::BTreeMap;

/// Characters of a function's name.
pub(super) const FUNCTION: usize = 56;
/// A cause of less than this part of the waiting is not worth a word.
const NOTABLE: f64 = 0.25;

/// A place with a function name of bounded length: `flush (wal.c:210)`.
pub(super) fn label(place: &Place) -> String {
    match (&place.function, location(place)) {
        (Some(function), Some(location)) => format!("{} ({location})", clip(function, FUNCTION)),
        _ => clip(&place.symbol, FUNCTION),
    }
}

/// Base name of the file and the line of a place: `wal.c:210`.
pub(super) fn location(place: &Place) -> Option<String> {
    let (file, line) = (place.file.as_ref()?, place.line?);
    Some(format!("{}:{line}", file.rsplit('/').next().unwrap_or(file)))
}

/// ` or one of 19 others`: goes behind the name of the first of several locks.
pub(super) fn others(locks: u64) -> String {
    match locks {
        0 | 1 => String::new(),
        2 => " or another one".to_owned(),
        n => format!(" or one of {} others", count(n - 1)),
    }
}

/// The threads of a report, as a reader knows them.
#[derive(Debug)]
pub(super) struct Threads<'a>(BTreeMap<&'a ThreadId, &'a str>);

impl<'a> Threads<'a> {
    pub(super) fn of(report: &'a Report) -> Self {
        Self(report.threads.iter().map(|t| (&t.tid, t.comm.as_str())).collect())
    }

    /// `12 (worker)`.
    pub(super) fn short(&self, tid: &ThreadId) -> String {
        match self.0.get(tid) {
            Some(&comm) if !comm.is_empty() && tid.to_string() != comm => format!("{tid} ({comm})"),
            _ => tid.to_string(),
        }
    }

    /// `thread 12 (worker)`; one that has a name of its own: `T12`.
    pub(super) fn long(&self, tid: &ThreadId) -> String {
        match tid {
            ThreadId::Number(_) => format!("thread {}", self.short(tid)),
            ThreadId::Name(_) => self.short(tid),
        }
    }
}

/// Who waits for locks of this kind, and has them.
pub(super) fn waiter(kind: &str) -> &'static str {
    match kind {
        kind if kind.ends_with("(Go)") => "goroutine",
        kind if kind.ends_with("(tokio)") => "task",
        _ => "thread",
    }
}

/// A function that is known of a smaller part of what somebody did is named with that part.
const SURE: f64 = 1.0 / 3.0;

/// What those to blame were doing, the most notable first: each as a part of the waiting and in words that follow
/// `while`. Nothing where it is not known, or spread thin.
pub(super) fn causes(causes: Option<&CausesEntry>, off: &[OffStackEntry]) -> Vec<(f64, String)> {
    let Some(c) = causes else { return Vec::new() };
    let all =
        [c.running, c.runnable, c.blocked, c.sleeping, c.lock, c.kernel_lock, c.handoff, c.unknown].into_iter().sum();
    let named = |what: &str, cause: &str, wait: Ns, otherwise: &str| {
        let of_cause = || off.iter().filter(|o| o.cause == cause);
        let Some(function) = of_cause().next().and_then(|o| o.function.as_deref()) else { return otherwise.to_owned() };
        let there = of_cause().filter(|o| o.function.as_deref() == Some(function));
        let share = there.map(|o| o.wait_ns).sum::<Ns>().share_of(wait);
        let doubt = if share < SURE { format!(" (known of {} of it)", percent(share)) } else { String::new() };
        format!("{what} in {}{doubt}", clip(function, FUNCTION))
    };
    let kernel = "waiting for a kernel lock";
    let mut parts = vec![
        (c.running.share_of(all), named("running", "running", c.running, "running")),
        (c.runnable.share_of(all), PREEMPTED.to_owned()),
        (c.blocked.share_of(all), named("blocked", "blocked", c.blocked, "blocked in I/O")),
        (c.sleeping.share_of(all), named("asleep", "sleeping", c.sleeping, "asleep")),
        (c.lock.share_of(all), "waiting for another lock".to_owned()),
        (c.kernel_lock.share_of(all), named(kernel, "kernel_lock", c.kernel_lock, kernel)),
        (c.handoff.share_of(all), "handing the lock over".to_owned()),
    ];
    parts.retain(|&(share, _)| share >= NOTABLE);
    parts.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    parts
}

/// In words that follow `while`: it could have run, but had no CPU.
pub(super) const PREEMPTED: &str = "preempted (runnable, not running)";

/// `61 % blocked in fdatasync`: what a holder was mostly doing, if it was not running.
pub(super) fn remark(known: Option<&CausesEntry>, off: &[OffStackEntry]) -> Option<String> {
    let (share, doing) = causes(known, off).into_iter().find(|(_, doing)| !doing.starts_with("running"))?;
    Some(format!("{} {}", percent(share), if doing == PREEMPTED { "preempted" } else { &doing }))
}

/// A caller of less than this part is not worth a word beside others.
const CALLER: f64 = 0.1;
/// Callers that are named, where none has caused half.
const CALLERS: usize = 2;
/// Characters of a caller's name in a table.
const SHORT: usize = 28;

/// The first of them that are worth a word, at least one.
fn notable(callers: &CallersEntry, most: usize) -> impl Iterator<Item = &CallerEntry> {
    let notable = |&(at, caller): &(usize, &CallerEntry)| at == 0 || caller.share >= CALLER;
    callers.most.iter().take(most).enumerate().filter(notable).map(|(_, caller)| caller)
}

/// For whom a section locks, as it goes on after what it has caused: `called by `vacuum` (db.c:40) for 98 % of it`. Nothing where hardly
/// any caller is known.
pub(super) fn called_by(callers: &CallersEntry, wait: Ns) -> Option<String> {
    let known = callers.known_ns.share_of(wait);
    let told = |caller: &CallerEntry| {
        let place = location(&caller.place).map(|location| format!(" ({location})")).unwrap_or_default();
        format!("`{}`{place} for {}", clip(caller.name(), FUNCTION), percent(caller.share))
    };
    let (most, several) = match callers.dominating() {
        Some(_) => (1, String::new()),
        None => (CALLERS, format!("{} functions, most by ", count(callers.functions))),
    };
    let names: Vec<_> = notable(callers, most).map(told).collect();
    let names = match names.as_slice() {
        [first, rest @ ..] if known >= CALLER => {
            let rest: String = rest.iter().map(|name| format!(" and by {name}")).collect();
            format!("{first} of it{rest}")
        }
        _ => return None,
    };
    let unknown =
        if 1.0 - known >= CALLER { format!(" (not known for {})", percent(1.0 - known)) } else { String::new() };
    Some(format!("called by {several}{names}{unknown}"))
}

/// The same in a table: `← vacuum 68 %, get_row 14 %`.
pub(super) fn callers(callers: &CallersEntry) -> String {
    let told = |caller: &CallerEntry| format!("{} {}", clip(caller.name(), SHORT), percent(caller.share));
    let shown: Vec<_> = notable(callers, CALLERS).map(told).collect();
    format!("← {}", shown.join(", "))
}

/// `f waits for `A`, held by T2 in g, which waits for `B`, held by T3 in h`; of a hand-off: `just given back by T3 …`.
pub(super) fn chain(chain: &ChainEntry, waiter: Option<&str>, threads: &Threads<'_>) -> String {
    let mut text = waiter.map_or_else(|| "a thread".to_owned(), |w| clip(w, FUNCTION));
    for (i, link) in chain.links.iter().enumerate() {
        let place = link.symbol.as_deref().map(|s| format!(" in {}", clip(s, FUNCTION))).unwrap_or_default();
        let which = if i == 0 { "" } else { ", which" };
        let held = if link.released { "just given back by" } else { "held by" };
        text += &format!("{which} waits for `{}`, {held} {}{place}", link.name, threads.long(&link.tid));
        if link.released {
            text += " and not yet taken (hand-off)";
        }
    }
    text
}
