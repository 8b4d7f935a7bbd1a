//! The life of a critical section in a thread's state: begin an attempt, acquire, close; and the failed attempt.

use crate::atomic::add;
use crate::counts;
use crate::custom_call::goes_on;
use crate::emit::emit_for;
use crate::focus;
use crate::held::Held;
use crate::lock::{has_word, is_others};
use crate::maps::{CONFIG, count};
use crate::orders::nested;
use crate::permit;
use crate::section_sums::{NO_WAIT, add_hold, add_section, at, hold_together, slot_of_ending, sums};
use crate::stack::{take_stack, user_stack};
use crate::thread::{Pending, Thread, tid};
use crate::transitions;
use crate::unended;
use aya_ebpf::EbpfContext;
use core::ffi::c_void;
use lockbpf_common::config::{MAX_HELD, mode};
use lockbpf_common::counter::Counter;
use lockbpf_common::kind::{Outcome, Via, flag, mutex_kind};
use lockbpf_common::layout::mutex_kind::may_fail;
use lockbpf_common::record::{LOW48, SectionFields, SectionRecord};
use lockbpf_common::stack_copy::how;
use lockbpf_common::sums::{SumKey, is_shared_slot};
use lockbpf_common::via::{is_custom, is_semaphore, is_shared};

/// Whether addresses fit a record; counted if not.
#[inline(always)]
pub fn fits(lock: u64, site: u64) -> bool {
    let fits = (lock | site) <= LOW48;
    if !fits {
        count(Counter::WideAddress);
    }
    fits
}

/// Begins an attempt whose end is yet to be seen.
#[inline(always)]
pub fn attempt(t: &mut Thread, via: u32, lock: u64, site: u64, now: u64) -> &mut Pending {
    t.released_ns = 0;
    // A condition wait attempts to lock its mutex when it is over; arrivals at a barrier are no sections.
    if via != Via::CondReacquire as u32 && via != Via::Barrier as u32 {
        counts::attempt(t);
    }
    t.pending = Pending {
        lock,
        site,
        returns_to: site,
        attempt_ns: now,
        cond: 0,
        woken_ns: 0,
        latency_ns: 0,
        acquire_ns: 0,
        owner: 0,
        waker: 0,
        stack: -1,
        kind: 0,
        via,
        flags: 0,
        timed_out: 0,
        fails: 0,
    };
    &mut t.pending
}

/// Settles an attempt that must have succeeded by now, because the thread does something else: the calls that cannot
/// fail are not watched to their return, since a return probe replaces the return address, which breaks unwinding (a
/// cancelled `pthread_cond_wait`, for one). What they waited for is known from their futex calls.
#[inline(always)]
pub fn settle(t: &mut Thread) {
    match t.pending.via {
        0 => {}
        via if is_semaphore(via) || via == Via::Once as u32 => {
            permit::settle(t);
        }
        _ => {
            settle_pending(t);
        }
    }
}

/// Whether a call of this kind has its lock once the thread does anything else.
#[inline(always)]
pub const fn is_settled(via: u32) -> bool {
    via == Via::Lock as u32
        || via == Via::CondReacquire as u32
        || via == Via::ReadLock as u32
        || via == Via::WriteLock as u32
}

/// A function of its own, so that its instructions are not repeated in every program.
#[inline(never)]
fn settle_pending(t: &mut Thread) -> u32 {
    match t.pending.via {
        via if is_settled(via) || via == Via::TryLock as u32 => {
            let tried = via == Via::TryLock as u32;
            crate::cond::sum_idle(t);
            let p = &t.pending;
            let attempt_ns = if via == Via::CondReacquire as u32 { p.woken_ns.max(p.attempt_ns) } else { p.attempt_ns };
            // The last time a sleep for the lock ended; without one it was had at once.
            let acquire_ns = p.acquire_ns.max(attempt_ns);
            if p.timed_out != 0 && via != Via::CondReacquire as u32 {
                refused(t, Outcome::TimedOut, acquire_ns);
            } else if (tried || may_fail(p.kind)) && is_others(p.lock, via, u32::from(t.is_musl())) != 0 {
                refused(t, if tried { Outcome::TryFailed } else { Outcome::Failed }, acquire_ns);
            } else {
                acquired(t, attempt_ns, acquire_ns);
            }
        }
        via if via == Via::Barrier as u32 => t.pending.via = 0,
        via if (via >= u32::from(Via::RUNTIMES) || is_custom(via)) && t.slow.via == 0 => {
            t.slow = t.pending;
            t.pending.via = 0;
        }
        _ => {
            count(Counter::AttemptWhileAttempting);
            t.pending.via = 0;
        }
    }
    0
}

/// The attempt in progress, by a call that is not watched to its return, failed by `now`. Returns 0. A function of its own, so that its
/// stack burdens no other.
#[inline(never)]
fn refused(t: &mut Thread, outcome: Outcome, now: u64) -> u32 {
    failed(t, outcome, now);
    0
}

/// The attempt in progress is contended: marks the locks held meanwhile as outer ones. The thread is about to wait anyway,
/// so this is off the critical path.
#[inline(always)]
pub fn contend(t: &mut Thread, owner: u32) {
    focus::waits(t, t.pending.lock, t.pending.site);
    let p = &mut t.pending;
    p.flags |= u32::from(flag::CONTENDED);
    p.owner = owner;
    mark_outer(t);
}

/// The stack of a wait that has ended, if it is worth its cost: a short wait is not, and how long it is, is not known
/// before. Inside the same call it is the same stack as at the attempt.
#[inline(always)]
pub fn stack_of_wait<C: EbpfContext>(ctx: &C, t: &Thread, wait_ns: u64) -> i32 {
    if wait_ns >= CONFIG.load().stack_wait_ns { user_stack(ctx, t) } else { -1 }
}

/// Held lock `i`, counted as acquired at its attempt, is contended: it is acquired when its last sleep ends.
#[inline(always)]
pub fn contend_held(t: &mut Thread, i: usize, owner: u32) {
    let Held { lock, site, flags, .. } = t.held[i & (MAX_HELD - 1)];
    focus::waits(t, lock, site);
    mark_outer(t);
    let h = &mut t.held[i & (MAX_HELD - 1)];
    // It is not held yet.
    h.flags = flags | u32::from(flag::CONTENDED);
    h.owner = owner;
}

/// A sleep for held lock `i` has ended: it is acquired now, unless a further sleep follows.
#[inline(always)]
pub fn reacquire_held(t: &mut Thread, i: usize, now: u64) {
    let h = &t.held[i & (MAX_HELD - 1)];
    let wait_ns = t.waited_ns(h.acquire_ns.saturating_sub(h.wait_ns), now);
    let h = &mut t.held[i & (MAX_HELD - 1)];
    h.acquire_ns = now;
    h.wait_ns = wait_ns;
    if t.depth == 1 {
        t.union_start_ns = now;
    }
}

/// The locks held are those under which this thread waits. Marks the vacant places, too, which are overwritten when they
/// are taken: verifiers before 6.8 cannot follow a loop whose end is not a constant.
#[inline(always)]
pub fn mark_outer(t: &mut Thread) {
    for held in &mut t.held {
        held.flags |= u32::from(flag::OUTER);
    }
    t.permit.flags |= u32::from(flag::OUTER);
}

/// The attempt in progress succeeded at `now`; it began at `attempt_ns`. Returns 0. A function of its own, so that its stack and
/// instructions are not repeated in every program.
#[inline(never)]
pub fn acquired(t: &mut Thread, attempt_ns: u64, now: u64) -> u32 {
    let contended = t.pending.flags & u32::from(flag::CONTENDED) != 0;
    // What an uncontended call takes is below the cost of measuring it.
    let held = t.attempted(now, if contended { t.waited_ns(attempt_ns, now) } else { 0 });
    t.pending.via = 0;
    hold_apart(t, &held)
}

/// As [`hold`], wherever it is held already. Returns 0. A function of its own: verifiers before 5.16 forget the bounds of an index that
/// is kept on the stack, as it is in a large function.
#[inline(never)]
pub fn hold_apart(t: &mut Thread, held: &Held) -> u32 {
    let known = t.find(held.lock).unwrap_or(MAX_HELD);
    if hold(t, *held, known).is_some() {
        counts::holds(t);
    }
    0
}

/// The thread holds a lock from now on. Returns where it is kept. `known` is where it holds it already, or `MAX_HELD`: once an option is
/// kept on the stack, verifiers before 5.16 do not see that its tag tells of its index.
#[inline(always)]
pub fn hold(t: &mut Thread, held: Held, known: usize) -> Option<usize> {
    t.released_ns = 0;
    if known < MAX_HELD {
        let outer = &mut t.held[known & (MAX_HELD - 1)];
        if held.kind & mutex_kind::TYPE_MASK == mutex_kind::RECURSIVE {
            // Belongs to the outermost instance.
            outer.recursion += 1;
            outer.flags |= u32::from(flag::RECURSED);
        } else {
            // Its release was not seen; the new section is the one that counts.
            count(Counter::AcquireWhileHolding);
            unended::end(t, known as u32, held.acquire_ns);
            t.held[known & (MAX_HELD - 1)] = held;
        }
        return None;
    }
    if t.depth as usize >= MAX_HELD {
        // Most likely another thread has given that back.
        unended::forget_oldest(t, held.acquire_ns);
    }
    if t.depth == 0 {
        // A call that a handler interrupted may have had its lock before the handler took one.
        t.union_start_ns = held.acquire_ns.max(t.union_start_ns);
        transitions::arrives(t, held.lock, held.acquire_ns.saturating_sub(held.wait_ns));
    } else {
        nested(t, &held);
    }
    let i = t.depth as usize & (MAX_HELD - 1);
    t.held[i] = held;
    t.depth += 1;
    Some(i)
}

/// How a section ends.
#[derive(Clone, Copy)]
pub struct End {
    /// When, ns.
    pub now: u64,
    /// Why.
    pub outcome: Outcome,
    /// Whether somebody (perhaps) waits for the lock.
    pub waited_for: bool,
}

/// Ends the section of held lock `i`, no spin lock, by an unlock. Whether somebody waits for an uneventful one
/// need not be read from the lock's word, which costs as much as all the rest: if so, the unlock enters the kernel to wake them, and
/// [`wakes_after_release`] sees it.
#[inline(always)]
pub fn release_held<C: EbpfContext>(
    ctx: &C,
    t: &mut Thread,
    i: usize,
    now: u64,
    has_waiters: impl FnOnce(&Held) -> bool,
) {
    let h = &t.held[i & (MAX_HELD - 1)];
    // Of several readers only the last one wakes who waits for all of them.
    let eventful = h.flags & u32::from(flag::CONTENDED | flag::OUTER) != 0 || is_shared(h.via);
    if CONFIG.load().mode & mode::ALL_EVENTS != 0 || eventful || i as u32 + 1 != t.depth {
        let waited_for = has_waiters(h);
        close(ctx, t, i, End { now, outcome: Outcome::Released, waited_for });
        return;
    }
    let hold_ns = now.saturating_sub(h.acquire_ns);
    counts::ends(t, i);
    let inner_hits = t.inner_hits(i);
    let slot = slot_of_ending(t, i);
    if is_shared_slot(slot) {
        hold_together(slot, hold_ns, inner_hits);
    } else if let Some(s) = at(slot) {
        add_hold(s, hold_ns, inner_hits, false);
    }
    leave(t, i, hold_ns, 0, now);
    t.released_ns = now;
}

/// Whether a thread that uses this word, and has this lock or had it last, does so for the lock.
#[inline(always)]
pub fn is_of(t: &Thread, h: &Held, word: u64) -> bool {
    has_word(h.lock, h.via, t.is_musl(), word) || is_custom(h.via) && goes_on(t, h.lock)
}

/// The thread wakes whoever waits on `word`: if it has just released the lock there, that section made others wait. Whether it has.
#[inline(always)]
pub fn wakes_after_release<C: EbpfContext>(ctx: &C, t: &mut Thread, word: u64) -> bool {
    t.released_ns != 0 && record_released(ctx.as_ptr(), t, word)
}

#[inline(always)]
fn record_released(ctx: *mut c_void, t: &mut Thread, word: u64) -> bool {
    let end = End { now: t.released_ns, outcome: Outcome::Released, waited_for: true };
    t.released_ns = 0;
    let i = t.depth & (MAX_HELD as u32 - 1);
    let released = is_of(t, &t.held[i as usize], word);
    if released {
        record_section(ctx, t, i, &end);
    }
    released
}

/// The thread holds lock `i` no longer.
#[inline(always)]
fn leave(t: &mut Thread, i: usize, hold_ns: u64, wait_ns: u64, now: u64) {
    // A wait inside of a visit, not the one that led to it.
    if wait_ns != 0 && t.held[i & (MAX_HELD - 1)].acquire_ns > t.union_start_ns {
        transitions::waited(&mut t.way, wait_ns);
    }
    t.depth = t.depth.saturating_sub(1);
    t.released_ns = 0;
    if t.depth == 0 {
        transitions::departs(t, now);
    }
    if let Some(s) = t.sums() {
        s.acquisitions += 1;
        s.held_sum_ns += hold_ns;
        s.wait_ns += t.own_wait(wait_ns);
        if t.depth == 0 {
            s.held_union_ns += now.saturating_sub(t.union_start_ns);
        }
    }
    if t.depth == 0 {
        t.union_start_ns = now;
    }
    fill_gap(t, i);
}

/// Lock `i` is held no longer, nor among those counted. Unlocks are mostly last-in first-out; otherwise the most recent one takes the gap,
/// field by field: a copy of the whole becomes a loop over its bytes, which the verifier follows through each.
#[inline(always)]
pub fn fill_gap(t: &mut Thread, i: usize) {
    let (gap, last) = (i & (MAX_HELD - 1), t.depth as usize & (MAX_HELD - 1));
    if gap != last {
        let Held { lock, site, acquire_ns, wait_ns, owner, waker, stack, via, flags, recursion, kind, hits } =
            t.held[last];
        t.held[gap] = Held { lock, site, acquire_ns, wait_ns, owner, waker, stack, via, flags, recursion, kind, hits };
    }
}

/// Ends the section of held lock `i`: sums it, and records it if it waited, made others wait, or if all are wanted.
#[inline(always)]
pub fn close<C: EbpfContext>(ctx: &C, t: &mut Thread, i: usize, end: End) {
    close_any(ctx.as_ptr(), t, i as u32, &end);
}

/// A function of its own, so that its stack and instructions burden no hot path.
#[inline(never)]
fn close_any(ctx: *mut c_void, t: &mut Thread, i: u32, end: &End) -> u32 {
    let i = i as usize;
    counts::ends(t, i);
    let End { now, waited_for, .. } = *end;
    let Held { acquire_ns, wait_ns, mut flags, .. } = t.held[i & (MAX_HELD - 1)];
    let hold_ns = now.saturating_sub(acquire_ns);
    let contended = flags & u32::from(flag::CONTENDED) != 0;
    let wait_ns = if contended { wait_ns } else { 0 };
    if waited_for {
        flags |= u32::from(flag::WAITED_FOR);
    }
    let wanted = CONFIG.load().mode & mode::ALL_EVENTS != 0
        || flags & u32::from(flag::WAITED_FOR | flag::OUTER) != 0
        || contended && wait_ns >= CONFIG.load().min_wait_ns;

    sum_up(t, i as u32, hold_ns);
    if wanted {
        record_section(ctx, t, i as u32, end);
    }
    leave(t, i, hold_ns, wait_ns, now);
    0
}

/// Sums the section of held lock `i`. Returns 0. A function of its own, since there is no room left on the stack of the one above.
#[inline(never)]
fn sum_up(t: &mut Thread, i: u32, hold_ns: u64) -> u32 {
    let i = i as usize & (MAX_HELD - 1);
    let inner_hits = t.inner_hits(i);
    let Held { via, wait_ns, flags, .. } = t.held[i];
    let slot = slot_of_ending(t, i);
    let shared = is_shared(via) || is_shared_slot(slot);
    let contended = flags & u32::from(flag::CONTENDED) != 0;
    add_section(slot, hold_ns, if contended { wait_ns } else { NO_WAIT }, inner_hits, u32::from(shared))
}

/// Whether a hold took eight times `--stack-wait`: then its stack takes about a hundredth of it.
#[inline(always)]
fn is_long(now: u64, acquire_ns: u64) -> bool {
    now.saturating_sub(acquire_ns) >= CONFIG.load().stack_wait_ns << 3
}

/// Records the section in place `i` of the locks held, which has just ended, if it is in the focus.
#[inline(never)]
fn record_section(ctx: *mut c_void, t: &mut Thread, i: u32, end: &End) -> u32 {
    let i = i as usize & (MAX_HELD - 1);
    let Held { lock, site, acquire_ns, wait_ns, mut flags, mut stack, .. } = t.held[i];
    // What is inside of a wait for a runtime's lock belongs to that: a thread waits for one lock at a time.
    if t.gil_wait_ns != 0 || t.slow.via != 0 || !focus::includes(t.process, lock, site) {
        return 0;
    }
    let (process, slot) = (t.process, t.slot);
    if let Some(s) = at(slot_of_ending(t, i)) {
        // Others wait while this is done: once per key, and where it is nothing beside the hold that they have waited for. One function may
        // lock for many callers, and then only the stack tells for whom.
        if stack < 0 && (s.stack < 0 || end.waited_for && is_long(end.now, acquire_ns)) {
            stack = take_stack(ctx, process, slot, how::AT_RELEASE);
            flags |= u32::from(flag::STACK_AT_RELEASE);
        }
        if s.stack < 0 {
            s.stack = stack;
        }
    }
    if end.waited_for {
        flags |= u32::from(flag::WAITED_FOR);
    }
    // One recorded because it made others wait may have waited too short itself to tell of it.
    let told = flags & u32::from(flag::CONTENDED) != 0 && wait_ns >= CONFIG.load().min_wait_ns;
    if !told {
        flags &= !u32::from(flag::CONTENDED);
    }
    let (end_ns, wait_ns) = (end.now, if told { wait_ns } else { 0 });
    let hold_ns = end_ns.saturating_sub(acquire_ns);
    t.tells(end_ns);
    record(t, &t.held[i], &Ended { end_ns, wait_ns, hold_ns, outcome: end.outcome, flags, stack })
}

/// What a record tells of a section's end.
pub struct Ended {
    /// When, ns.
    pub end_ns: u64,
    /// acquire − attempt.
    pub wait_ns: u64,
    /// release − acquire.
    pub hold_ns: u64,
    /// Why.
    pub outcome: Outcome,
    /// Section flags.
    pub flags: u32,
    /// Stack number, or a negative errno.
    pub stack: i32,
}

/// Records what became of a section of the current thread.
#[inline(always)]
pub fn record(t: &Thread, h: &Held, ended: &Ended) -> u32 {
    record_of(tid(), t, h, ended)
}

/// The same of any thread. A function of its own, so that its stack and instructions burden no hot path.
#[inline(never)]
pub fn record_of(tid: u32, t: &Thread, h: &Held, ended: &Ended) -> u32 {
    if t.wait_handler != 0 {
        // A thread waits for one lock at a time, also where a handler interrupts it.
        count(Counter::InHandler);
        return 0;
    }
    let record = SectionRecord::pack(&SectionFields {
        end_ns: ended.end_ns,
        wait_ns: ended.wait_ns,
        hold_ns: ended.hold_ns,
        lock: h.lock,
        site: h.site,
        process: t.process,
        tid,
        owner: h.owner,
        waker: h.waker,
        stack: ended.stack,
        flags: ended.flags as u16,
        via: h.via as u8,
        outcome: ended.outcome as u8,
        mutex_kind: h.kind as u8,
    });
    emit_for(t.slot, &record, Counter::SectionRecords);
    0
}

/// The attempt in progress failed: a busy trylock, a deadline, an error.
#[inline(always)]
pub fn failed(t: &mut Thread, outcome: Outcome, now: u64) {
    let p = t.pending;
    let wait_ns = now.saturating_sub(p.attempt_ns);
    let key = SumKey { lock: p.lock, site: p.site, process: t.process, via: p.via };
    if let Some(s) = sums(&key, p.kind, p.attempt_ns) {
        match outcome {
            Outcome::TryFailed => add(&mut s.try_failures, 1),
            Outcome::TimedOut => {
                add(&mut s.timeouts, 1);
                add(&mut s.timeout_ns, wait_ns);
            }
            _ => add(&mut s.errors, 1),
        }
    }
    let timed_out = matches!(outcome, Outcome::TimedOut);
    if timed_out && let Some(s) = t.sums() {
        s.wait_ns += t.own_wait(wait_ns);
    }
    if timed_out || CONFIG.load().mode & mode::ALL_EVENTS != 0 {
        record_failed(t, outcome, now);
    }
    t.pending.via = 0;
}

/// A function of its own, so that its stack burdens no hot path.
#[inline(never)]
fn record_failed(t: &mut Thread, outcome: Outcome, now: u64) -> u32 {
    let p = &t.pending;
    if !focus::includes(t.process, p.lock, p.site) {
        return 0;
    }
    let wait_ns = t.waited_ns(p.attempt_ns, now);
    let h = t.attempted(now, wait_ns);
    record(t, &h, &Ended { end_ns: now, wait_ns, hold_ns: 0, outcome, flags: p.flags, stack: p.stack });
    t.tells(now);
    0
}
