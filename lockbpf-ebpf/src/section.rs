//! The life of a critical section in a thread's state: begin an attempt, acquire, close; and the failed attempt.

use crate::atomic::add;
use crate::emit::emit;
use crate::focus;
use crate::maps::{CONFIG, SUMS, count, user_stack};
use crate::orders::nested;
use crate::thread::{Held, Pending, Thread, tid};
use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::BPF_NOEXIST;
use lockbpf_common::config::{MAX_HELD, mode};
use lockbpf_common::counter::Counter;
use lockbpf_common::kind::{Outcome, Via, flag, mutex_kind};
use lockbpf_common::record::{LOW48, SectionFields, SectionRecord};
use lockbpf_common::sums::{BUCKETS, SumKey, Sums, bucket};

/// A fresh entry of the sums map: too large for the eBPF stack, so it is inserted from here.
static EMPTY: Sums = Sums::EMPTY;

/// The sums of a key, made if missing; a full map is counted.
#[inline(always)]
pub fn sums(key: &SumKey, kind: u32, now: u64) -> Option<&'static mut Sums> {
    let mut entry = SUMS.get_ptr_mut(key);
    if entry.is_none() {
        let _ = SUMS.insert(key, &EMPTY, u64::from(BPF_NOEXIST));
        entry = SUMS.get_ptr_mut(key);
        match entry {
            // SAFETY: entries are never removed while the programs run, so the pointer stays that key's.
            Some(sums) => unsafe {
                (*sums).first_ns = now;
                (*sums).kind = kind;
            },
            None => count(Counter::SumsFull),
        }
    }
    // SAFETY: as above. Writers of plain fields are ordered by the observed lock; the others use `add`.
    entry.map(|p| unsafe { &mut *p })
}

/// Counts a duration in a histogram.
#[inline(always)]
pub fn tally(histogram: &mut [u32; BUCKETS], ns: u64) {
    let b = bucket(ns);
    if b < BUCKETS {
        histogram[b] += 1;
    }
}

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
pub fn attempt(t: &mut Thread, via: Via, lock: u64, site: u64, now: u64) -> &mut Pending {
    t.pending = Pending {
        lock,
        site,
        attempt_ns: now,
        cond: 0,
        woken_ns: 0,
        acquire_ns: 0,
        owner: 0,
        waker: 0,
        stack: -1,
        kind: 0,
        via: via as u32,
        flags: 0,
        timed_out: 0,
        reserved: 0,
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
        via if via == Via::Lock as u32 || via == Via::CondReacquire as u32 => {
            crate::cond::sum_idle(t);
            let p = &t.pending;
            let attempt_ns = if via == Via::CondReacquire as u32 { p.woken_ns.max(p.attempt_ns) } else { p.attempt_ns };
            // The last time a sleep for the lock ended; without one it was had at once.
            let acquire_ns = p.acquire_ns.max(attempt_ns);
            acquired(t, attempt_ns, acquire_ns);
        }
        via if via == Via::Barrier as u32 => t.pending.via = 0,
        _ => {
            count(Counter::AttemptWhileAttempting);
            t.pending.via = 0;
        }
    }
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
pub fn stack_of_wait<C: EbpfContext>(ctx: &C, wait_ns: u64) -> i32 {
    if wait_ns >= CONFIG.load().stack_wait_ns { user_stack(ctx) } else { -1 }
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
    let h = &mut t.held[i & (MAX_HELD - 1)];
    let attempt_ns = h.acquire_ns.saturating_sub(h.wait_ns);
    h.acquire_ns = now;
    h.wait_ns = now.saturating_sub(attempt_ns);
    if t.depth == 1 {
        t.union_start_ns = now;
    }
}

/// The locks held are those under which this thread waits. Marks the vacant places, too, which are overwritten when they
/// are taken: verifiers before 6.8 cannot follow a loop whose end is not a constant.
#[inline(always)]
fn mark_outer(t: &mut Thread) {
    for held in &mut t.held {
        held.flags |= u32::from(flag::OUTER);
    }
}

/// The attempt in progress succeeded at `now`; it began at `attempt_ns`.
#[inline(always)]
pub fn acquired(t: &mut Thread, attempt_ns: u64, now: u64) {
    let p = t.pending;
    t.pending.via = 0;
    let contended = p.flags & u32::from(flag::CONTENDED) != 0;
    let held = Held {
        lock: p.lock,
        site: p.site,
        acquire_ns: now,
        // What an uncontended call takes is below the cost of measuring it.
        wait_ns: if contended { now.saturating_sub(attempt_ns) } else { 0 },
        owner: p.owner,
        waker: p.waker,
        stack: p.stack,
        via: p.via,
        flags: p.flags,
        recursion: 0,
    };
    let known = t.find(held.lock);
    hold(t, p.kind, held, known);
}

/// The thread holds a lock from now on; `known` is where it holds it already. Returns where it is kept.
#[inline(always)]
pub fn hold(t: &mut Thread, kind: u32, held: Held, known: Option<usize>) -> Option<usize> {
    if let Some(i) = known {
        let outer = &mut t.held[i & (MAX_HELD - 1)];
        if kind & mutex_kind::TYPE_MASK == mutex_kind::RECURSIVE {
            // Belongs to the outermost instance.
            outer.recursion += 1;
            outer.flags |= u32::from(flag::RECURSED);
        } else {
            // Its release was not seen; the new section is the one that counts.
            count(Counter::AcquireWhileHolding);
            *outer = held;
        }
        return None;
    }
    if t.depth as usize >= MAX_HELD {
        t.overflow += 1;
        count(Counter::HeldFull);
        return None;
    }
    if t.depth == 0 {
        t.union_start_ns = held.acquire_ns;
    } else {
        nested(t, &held);
    }
    let i = t.depth as usize & (MAX_HELD - 1);
    t.held[i] = held;
    t.depth += 1;
    Some(i)
}

/// Ends the section of held lock `i`: sums it, and records it if it waited, made others wait, or if all are wanted.
#[inline(always)]
pub fn close<C: EbpfContext>(
    ctx: &C,
    t: &mut Thread,
    i: usize,
    now: u64,
    outcome: Outcome,
    kind: u32,
    waited_for: bool,
) {
    let h = t.held[i & (MAX_HELD - 1)];
    let hold_ns = now.saturating_sub(h.acquire_ns);
    let contended = h.flags & u32::from(flag::CONTENDED) != 0;
    let mut flags = h.flags;
    if waited_for {
        flags |= u32::from(flag::WAITED_FOR);
    }
    let wanted = CONFIG.load().mode & mode::ALL_EVENTS != 0
        || flags & u32::from(flag::WAITED_FOR | flag::OUTER) != 0
        || contended && h.wait_ns >= CONFIG.load().min_wait_ns;
    let wanted = wanted && focus::includes(t.process, h.lock, h.site);
    let mut stack = h.stack;

    let key = SumKey { lock: h.lock, site: h.site, process: t.process, via: h.via };
    if let Some(s) = sums(&key, kind, h.acquire_ns) {
        s.acquisitions += 1;
        s.hold_ns += hold_ns;
        if hold_ns > s.hold_max_ns {
            s.hold_max_ns = hold_ns;
        }
        tally(&mut s.hold_hist, hold_ns);
        if contended {
            s.contended += 1;
            s.wait_ns += h.wait_ns;
            if h.wait_ns > s.wait_max_ns {
                s.wait_max_ns = h.wait_ns;
            }
            tally(&mut s.wait_hist, h.wait_ns);
        }
        if wanted && s.stack < 0 {
            // Once per key: others wait while this is done.
            if stack < 0 {
                stack = user_stack(ctx);
                flags |= u32::from(flag::STACK_AT_RELEASE);
            }
            s.stack = stack;
        }
    }

    t.depth = t.depth.saturating_sub(1);
    if let Some(s) = t.sums() {
        s.acquisitions += 1;
        s.held_sum_ns += hold_ns;
        if contended {
            s.wait_ns += h.wait_ns;
        }
        if t.depth == 0 {
            s.held_union_ns += now.saturating_sub(t.union_start_ns);
        }
    }
    // Unlocks are mostly last-in first-out; otherwise the most recent one takes the gap.
    let last = t.depth as usize & (MAX_HELD - 1);
    if last != i & (MAX_HELD - 1) {
        t.held[i & (MAX_HELD - 1)] = t.held[last];
    }

    if wanted {
        let mut h = h;
        if contended && h.wait_ns < CONFIG.load().min_wait_ns {
            // Recorded because it made others wait; its own wait is too short to be told.
            h.wait_ns = 0;
            flags &= !u32::from(flag::CONTENDED);
        }
        record(t.process, &h, now, hold_ns, outcome, kind, flags, stack);
    }
}

#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "the fields of one record, gathered in two places")]
fn record(process: u32, h: &Held, end_ns: u64, hold_ns: u64, outcome: Outcome, kind: u32, flags: u32, stack: i32) {
    let record = SectionRecord::pack(&SectionFields {
        end_ns,
        wait_ns: h.wait_ns,
        hold_ns,
        lock: h.lock,
        site: h.site,
        process,
        tid: tid(),
        owner: h.owner,
        waker: h.waker,
        stack,
        flags: flags as u16,
        via: h.via as u8,
        outcome: outcome as u8,
        mutex_kind: kind as u8,
    });
    emit(&record, Counter::SectionRecords);
}

/// The attempt in progress failed: a busy trylock, a deadline, an error.
#[inline(always)]
pub fn failed(t: &mut Thread, outcome: Outcome, now: u64) {
    let p = t.pending;
    t.pending.via = 0;
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
        s.wait_ns += wait_ns;
    }
    if (timed_out || CONFIG.load().mode & mode::ALL_EVENTS != 0) && focus::includes(t.process, p.lock, p.site) {
        let h = Held {
            lock: p.lock,
            site: p.site,
            acquire_ns: now,
            wait_ns,
            owner: p.owner,
            waker: p.waker,
            stack: p.stack,
            via: p.via,
            flags: p.flags,
            recursion: 0,
        };
        record(t.process, &h, now, 0, outcome, p.kind, p.flags, p.stack);
    }
}
