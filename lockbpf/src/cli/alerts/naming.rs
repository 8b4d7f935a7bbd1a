//! What was caught, in names: an alert.

use super::caught::{Caught, Found, HolderThen, Waiter};
use crate::alert::{Alert, CodePlace, HolderTold, Kind, LinkTold, LockTold, SCHEMA, ThreadTold};
use crate::capture::holder::Holder;
use crate::cli::holders::in_words;
use crate::id::{Lock, Process, Site};
use crate::names::{self, Frame, Names};
use crate::observe::census::Census;
use crate::report::{Sleeps, sleeps_for};
use crate::units::{Nanos, Time};
use crate::untrusted::shown;
use crate::unwind::Unwind;

/// Frames told of a stack.
const MAX_FRAMES: usize = 64;

/// What an alert tells beside what was caught.
#[derive(Clone, Copy, Debug)]
pub(super) struct About {
    pub(super) kind: Kind,
    pub(super) threshold: Nanos,
    pub(super) left_out: u64,
    /// Whether it is a lock for certain.
    pub(super) certain: bool,
    /// What such a lock is called.
    pub(super) what: Option<&'static str>,
}

/// Where a thread asked for a lock.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    pub(super) place: Option<Frame>,
    stack: Vec<CodePlace>,
    /// What the functions of the C library and of runtimes say of it, if they do.
    pub(super) sleeps: Option<Sleeps>,
}

/// Where a thread asked for the lock that it waits for.
pub(super) fn asked(waiter: &Waiter, census: &mut Census) -> Asked {
    let Waiter { wait, stack, top, .. } = waiter;
    let process = wait.lock.process;
    let names = census.symbols();
    let raw = stack.as_ref().map(|stack| stack.addresses(names)).unwrap_or_default();
    let whole = names.whole_stack(process, &raw);
    let functions = whole.iter().flat_map(|&addr| names.frames(process, addr)).filter_map(|frame| frame.function);
    let functions: Vec<String> = functions.collect();
    let sleeps = sleeps_for(functions.iter().map(String::as_str));
    let mut addresses = names.call_stack(process, &raw, wait.site.map(|site| site.addr));
    if addresses.is_empty() {
        addresses.extend(top.and_then(|words| names.caller_among(process, &words)));
    }
    let (place, stack) = told(process, &addresses, census);
    Asked { place, stack, sleeps }
}

/// What a lock is called that was asked for at this place.
pub(super) fn lock(
    lock: Lock,
    site: Option<Site>,
    place: Option<&Frame>,
    what: Option<&str>,
    census: &mut Census,
) -> LockTold {
    let pid = census.processes().get(&lock.process).map_or(0, |seen| seen.pid);
    let names = census.symbols();
    let name = names.global(lock).unwrap_or_else(|| {
        let member = site.and_then(|site| names.member(site));
        let what = member.as_deref().or(what).unwrap_or("lock");
        match place {
            Some(place) => format!("{what} in {}", place.symbol()),
            None => format!("{what} {:#x}", lock.addr),
        }
    });
    LockTold { id: format!("{pid}:{:#x}", lock.addr), name, certain: true }
}

/// The function at a return address.
pub(super) fn place(process: Process, addr: u64, census: &mut Census) -> Option<Frame> {
    let frames = if addr == 0 { Vec::new() } else { census.symbols().frames(process, addr) };
    names::place(&frames).cloned()
}

/// The alert.
pub(super) fn alert(caught: &Caught, about: About, census: &mut Census) -> Alert {
    let process = caught.lock.process;
    let (pid, comm) = match census.processes().get(&process) {
        Some(seen) => (seen.pid, shown(&seen.comm).into_owned()),
        None => (0, String::new()),
    };
    let waiter = caught.waiter.as_ref().map(|waiter| (waiter, asked(waiter, census)));
    let hold = caught.holder.as_ref().ok().and_then(|then| then.holder.hold);
    let (site, at) = match (about.kind, &waiter, hold) {
        (Kind::Hold, _, Some(hold)) => (Some(Site { process, addr: hold.site }), place(process, hold.site, census)),
        (_, Some((waiter, asked)), _) => (waiter.wait.site, asked.place.clone()),
        (_, None, _) => (None, None),
    };
    let lock = LockTold { certain: about.certain, ..lock(caught.lock, site, at.as_ref(), about.what, census) };
    let (holder, no_holder) = holder(process, &caught.holder, !caught.chain.is_empty(), caught.at, census);
    Alert {
        schema: SCHEMA,
        kind: about.kind,
        time: humantime::format_rfc3339_millis(caught.time).to_string(),
        pid,
        process: comm,
        lock,
        threshold_ns: about.threshold,
        waiter: waiter.map(|(waiter, asked)| ThreadTold {
            tid: waiter.wait.tid.0,
            name: waiter.name.clone(),
            waited_ns: caught.at.since(waiter.wait.since),
            at_least: waiter.wait.before_start,
            place: asked.place.as_ref().map(CodePlace::from),
            stack: asked.stack,
        }),
        waiting: caught.waiting,
        holder,
        no_holder,
        chain: chain(caught, census),
        left_out: about.left_out,
    }
}

fn chain(caught: &Caught, census: &mut Census) -> Vec<LinkTold> {
    let mut chain = Vec::with_capacity(caught.chain.len());
    for (number, (waiter, found)) in caught.chain.iter().enumerate() {
        let asked = asked(waiter, census);
        let of = waiter.wait.lock;
        let lock = lock(of, waiter.wait.site, asked.place.as_ref(), None, census);
        let waits_itself = number + 1 < caught.chain.len();
        let (holder, no_holder) = holder(of.process, found, waits_itself, caught.at, census);
        chain.push(LinkTold { lock, holder, no_holder });
    }
    chain
}

fn holder(
    process: Process,
    found: &Found,
    waits_itself: bool,
    at: Time,
    census: &mut Census,
) -> (Option<HolderTold>, Option<&'static str>) {
    let HolderThen { holder, name, held, stack } = match found {
        Ok(then) => &**then,
        Err(why) => return (None, Some(why)),
    };
    let &Holder { tid, hold, doing, off_since, .. } = holder;
    let taken_at = hold.and_then(|hold| place(process, hold.site, census));
    let names = census.symbols();
    let raw = stack.as_ref().map(|copy| names.unwind(copy).addresses).unwrap_or_default();
    let own = names.call_stack(process, &raw, None);
    let (place, stack) = told(process, &own, census);
    let told = HolderTold {
        tid: tid.0,
        name: name.clone(),
        doing: if waits_itself { "waiting for a lock itself".to_owned() } else { in_words(doing) },
        off_ns: off_since.map(|since| at.since(since)),
        held_ns: *held,
        taken_at: taken_at.as_ref().map(CodePlace::from),
        place: place.as_ref().map(CodePlace::from),
        stack,
    };
    (Some(told), None)
}

/// A stack of return addresses as it is told, and the place that a reader knows it by.
fn told(process: Process, addresses: &[u64], census: &mut Census) -> (Option<Frame>, Vec<CodePlace>) {
    let place = addresses.first().and_then(|&addr| place(process, addr, census));
    let names = census.symbols();
    let frames = addresses.iter().flat_map(|&addr| names.frames(process, addr)).take(MAX_FRAMES);
    (place, frames.map(|frame| CodePlace::from(&frame)).collect())
}
