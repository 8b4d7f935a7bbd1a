//! The futex system calls: who slept, for how long, who woke whom. A wait inside a probed lock call marks that call; any
//! other is summed and recorded by itself, since only it is known (runtimes with locks of their own, futex-only mode).

use crate::atomic::add;
use crate::barrier::waits_at;
use crate::counts;
use crate::custom_call::is_pending;
use crate::earlier;
use crate::focus;
use crate::follow;
use crate::futex_call::{FutexCall, HAND_OVER, INTERRUPTED, NONE, WAIT, WAKE};
use crate::gate::{charge, refresh};
use crate::gil;
use crate::held::Held;
use crate::lock::{has_word, owner, owner_by_word};
use crate::maps::{FutexWord, WAKERS, Waker, count};
use crate::parking;
use crate::registers::{ARGUMENTS, FRAME_POINTER, read_register, system_call, user_register};
use crate::section::{contend, contend_held, is_of, reacquire_held, stack_of_wait, wakes_after_release};
use crate::section_sums::{add_time, at, place};
use crate::signal::handler_left;
use crate::slots::{NO_SLOT, slot_of};
use crate::thread::{Recent, Thread, current, existing, now, task, tid};
use crate::transitions;
use crate::unexplained::{unexplained, woken};
use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::pt_regs;
use aya_ebpf::macros::{raw_tracepoint, tracepoint};
use aya_ebpf::programs::{RawTracePointContext, TracePointContext};
use core::ffi::c_void;
use lockbpf_common::config::MAX_HELD;
use lockbpf_common::counter::Counter;
use lockbpf_common::kind::{Via, flag, mutex_kind};
use lockbpf_common::layout::CONTENDED_VALUE;
use lockbpf_common::parking::in_place_of;
use lockbpf_common::record::{FutexResult, LOW48};
use lockbpf_common::sums::{SumKey, Sums};
use lockbpf_common::waiting::Waiting;

/// Number of the futex system call (x86-64).
#[cfg(bpf_target_arch = "x86_64")]
const NR_FUTEX: u64 = 202;
/// Number of the futex system call (arm64).
#[cfg(bpf_target_arch = "aarch64")]
const NR_FUTEX: u64 = 98;
/// Number of `rt_sigreturn` (x86-64).
#[cfg(bpf_target_arch = "x86_64")]
const NR_RT_SIGRETURN: u64 = 15;
/// Number of `rt_sigreturn` (arm64).
#[cfg(bpf_target_arch = "aarch64")]
const NR_RT_SIGRETURN: u64 = 139;
/// `futex_waitv` (5.16), `futex_wake` and `futex_wait` (6.7): the same number on every architecture.
const NR_FUTEX_WAITV: u64 = 449;
const NR_FUTEX_WAKE: u64 = 454;
const NR_FUTEX_WAIT: u64 = 455;

/// Byte offset of a system call's number in the record of a `syscalls` tracepoint (the kernel's `format` files).
const NUMBER_OFFSET: usize = 8;

/// Byte offset of a system call's argument in the record of a `syscalls:sys_enter_*` tracepoint, and of the result in
/// that of `sys_exit_*` (the kernel's `format` files; the same for all of them since 2.6.33).
const fn arg_offset(n: usize) -> usize {
    16 + 8 * n
}

/// What an operation of the multiplexed `futex` call does.
#[inline(always)]
const fn role(op: u64) -> u32 {
    match op & 0x7f {
        // WAIT, LOCK_PI, WAIT_BITSET, WAIT_REQUEUE_PI, LOCK_PI2
        0 | 6 | 9 | 11 | 13 => WAIT,
        // WAKE, REQUEUE, CMP_REQUEUE, WAKE_OP, WAKE_BITSET, CMP_REQUEUE_PI
        1 | 3 | 4 | 5 | 10 | 12 => WAKE,
        // UNLOCK_PI
        7 => HAND_OVER,
        _ => NONE,
    }
}

/// The value of the word that a wait expects: the kernel's own locks are only asked for when they are held, and expect nothing.
#[inline(always)]
const fn expected(op: u64, value: u64) -> u32 {
    match op & 0x7f {
        // LOCK_PI, LOCK_PI2
        6 | 13 => CONTENDED_VALUE,
        _ => value as u32,
    }
}

#[inline(always)]
fn enter<C: EbpfContext>(ctx: &C, role: u32, word: u64, expected: u32) {
    let now = now();
    let Some(t) = current() else { return };
    charge(t.slot, |account| account.futex_calls += 1);
    let mut told = false;
    if role != WAIT {
        // Also if its gate has been closed since: that section is complete.
        told = wakes_after_release(ctx, t, word);
        crate::once::wakes(ctx, t, word, now);
    }
    refresh(t);
    if word > LOW48 {
        count(Counter::WideAddress);
        return;
    }
    let word = gil::word_of(t, word);
    let lock = parking::lock_of(t, word, role == WAIT, expected);
    let is_parked = lock != word;
    let (word, expected) = if is_parked { (lock, in_place_of(expected)) } else { (word, expected) };
    t.resume();
    follow::forget(t);
    t.futex = FutexCall { told: u32::from(told), ..FutexCall::new(word, now, role, expected) };
    if role != WAIT {
        t.futex.lock = released(t, word);
        // Before the wake itself, so that the woken thread finds it.
        wakes(t, word, now);
        return;
    }
    crate::once::waits(t, word);
    gil::futex_wait_begins(t);
    let mut waiting = Waiting {
        since_ns: t.futex.enter_ns,
        lock: word,
        site: 0,
        frame: user_register(FRAME_POINTER),
        process: t.process,
        owner: 0,
        via: Via::Futex as u32,
        kind: mutex_kind::IS_FUTEX,
        expected,
        word_offset: 0,
        tid: tid(),
        check: 0,
    };
    if waits_at(t, word) {
        waiting.site = t.pending.site;
    } else if in_pending_call(t, word) {
        if t.pending.flags & u32::from(flag::CONTENDED) == 0 {
            // Free at the attempt, but another thread was faster; or the mutex of a condition wait is taken.
            let owner = owner(t.pending.lock, t.pending.via, t.is_musl());
            contend(t, owner);
        }
        let p = &t.pending;
        waiting.since_ns = p.attempt_ns.max(p.woken_ns);
        waiting.lock = p.lock;
        (waiting.site, waiting.owner, waiting.via, waiting.kind) = (p.site, p.owner, p.via, p.kind);
    } else if t.pending.via == Via::CondReacquire as u32 {
        // The sleep of a condition wait: idle, if it is not for a monitor.
        parking::note_monitor(t);
        return;
    } else if let Some(i) = in_call_of(t, word) {
        if t.held[i & (MAX_HELD - 1)].flags & u32::from(flag::CONTENDED) == 0 {
            let Held { lock, via, .. } = t.held[i & (MAX_HELD - 1)];
            let owner = owner(lock, via, t.is_musl());
            contend_held(t, i, owner);
        }
        let h = &t.held[i & (MAX_HELD - 1)];
        waiting.since_ns = h.acquire_ns.saturating_sub(h.wait_ns);
        waiting.lock = h.lock;
        (waiting.site, waiting.owner, waiting.via, waiting.kind) = (h.site, h.owner, h.via, 0);
    } else {
        focus::waits(t, word, 0);
        // Behind such a lock is what it guards.
        waiting.owner = if is_parked { 0 } else { owner_by_word(word) };
        follow::begins(t);
    }
    t.futex.owner = waiting.owner;
    t.futex.lock = waiting.lock;
    waiting.word_offset = t.gil_futex.named.wrapping_sub(waiting.lock) as u32;
    t.begin_wait(&waiting);
}

/// Remembers who wakes the waiters of a word. In its place, where it has one: to find that takes a third of an insertion.
#[inline(always)]
fn wakes(t: &mut Thread, word: u64, now: u64) {
    let word = FutexWord { addr: word, process: u64::from(t.process) };
    match WAKERS.get_ptr_mut(word) {
        Some(known) => {
            // SAFETY: the kernel returned a valid entry. Of two wakers at the same time either may be told.
            let known = unsafe { &mut *known };
            (t.futex.earlier_ns, t.futex.earlier_woke_ns, t.futex.earlier_tid) =
                (known.time_ns, known.woke_ns, known.tid);
            t.futex.followers = known.followers;
            (known.time_ns, known.woke_ns, known.tid) = (now, now, tid());
        }
        None => {
            let _ = WAKERS.insert(word, Waker { time_ns: now, woke_ns: now, tid: tid(), followers: 0 }, 0);
        }
    }
}

/// The thread's wake has found nobody: whoever runs next there was woken by somebody before.
#[inline(always)]
fn woke_nobody(t: &Thread) {
    let FutexCall { word, enter_ns, earlier_woke_ns, earlier_tid, .. } = t.futex;
    if let Some(known) = WAKERS.get_ptr_mut(FutexWord { addr: word, process: u64::from(t.process) }) {
        // SAFETY: as above.
        let known = unsafe { &mut *known };
        if known.woke_ns == enter_ns && known.tid == tid() {
            (known.woke_ns, known.tid) = (earlier_woke_ns, earlier_tid);
        }
    }
}

/// The sums of a futex word, by the thread's memory of what it used last.
#[inline(always)]
fn word_sums(t: &mut Thread, word: u64, now: u64) -> Option<&'static mut Sums> {
    let via = Via::Futex as u32;
    let place = place(word, 0);
    let recent = &t.recent[place];
    if recent.lock == word && recent.site == 0 && recent.via == via {
        return at(recent.slot);
    }
    let key = SumKey { lock: word, site: 0, process: t.process, via };
    let slot = slot_of(&key, mutex_kind::IS_FUTEX, now);
    if slot != NO_SLOT {
        t.recent[place] = Recent { lock: word, site: 0, via, slot };
    }
    at(slot)
}

/// Index of the held lock in whose call the thread still is, if that is this word: it counts as held from its attempt
/// on, and only the most recent one can be.
#[inline(always)]
pub fn in_call_of(t: &Thread, word: u64) -> Option<usize> {
    let top = (t.depth as usize).checked_sub(1)?;
    let h = &t.held[top & (MAX_HELD - 1)];
    (t.pending.via == 0 && is_of(t, h, word)).then_some(top)
}

/// Whether this word is one that the attempt in progress may sleep on.
#[inline(always)]
fn in_pending_call(t: &Thread, word: u64) -> bool {
    t.pending.via >= u32::from(Via::RUNTIMES)
        || is_pending(t)
        || t.pending.via != 0 && has_word(t.pending.lock, t.pending.via, t.is_musl(), word)
}

/// The lock to which a word belongs that the thread wakes: the one it has just released, if it is that.
#[inline(always)]
fn released(t: &Thread, word: u64) -> u64 {
    let h = &t.held[t.depth as usize & (MAX_HELD - 1)];
    if is_of(t, h, word) { h.lock } else { word }
}

/// Forgets the wait that a dying thread was in: it never got the lock.
#[inline(always)]
pub fn abandon_wait(t: &mut Thread) {
    follow::forget(t);
    if matches!(t.futex.role, WAIT | INTERRUPTED) {
        if t.pending.via != 0 {
            t.pending.via = 0;
        } else if in_call_of(t, t.futex.word).is_some() {
            t.depth -= 1;
        }
    }
}

#[inline(always)]
fn exit<C: EbpfContext>(ctx: &C, ret: i64) {
    let now = now();
    let Some(t) = current() else { return };
    refresh(t);
    if t.futex.enter_ns == 0 {
        earlier::resume(t);
    }
    let call = t.futex;
    match call.role {
        WAIT => {
            counts::returned(t);
            waited(ctx, t, &call, ret, now);
        }
        WAKE | HAND_OVER => {
            t.futex.role = NONE;
            let woke = if call.role == HAND_OVER { u32::from(ret == 0) } else { ret.max(0) as u32 };
            counts::woke(t, call.lock);
            if waits_at(t, call.word) {
                return;
            }
            if let Some(s) = word_sums(t, call.lock, call.enter_ns) {
                add(if woke > 0 { &mut s.wakes } else { &mut s.wakes_of_none }, 1);
            }
            if woke == 0 {
                woke_nobody(t);
            } else if call.told == 0 {
                woken(ctx.as_ptr(), t, woke);
            }
        }
        _ => {}
    }
}

#[inline(always)]
fn waited<C: EbpfContext>(ctx: &C, t: &mut Thread, call: &FutexCall, ret: i64, now: u64) {
    let wait_ns = now.saturating_sub(call.enter_ns);
    // -ERESTART* (512…516) are what an interrupted wait returns before the signal is delivered.
    let result = match ret {
        0.. => FutexResult::Slept,
        -11 => FutexResult::Again,
        -110 => FutexResult::TimedOut,
        -4 | -516..=-512 => FutexResult::Interrupted,
        _ => FutexResult::Failed,
    };
    t.futex.role = if matches!(result, FutexResult::Interrupted) { INTERRUPTED } else { NONE };
    t.end_wait();
    follow::ends(t);
    let goes_on = matches!(result, FutexResult::TimedOut) && gil::goes_on(t, call, now);
    if waits_at(t, call.word) {
        transitions::waited(&mut t.way, wait_ns);
        return;
    }
    if let Some(s) = word_sums(t, call.lock, call.enter_ns) {
        match result {
            FutexResult::Slept => {
                add(&mut s.acquisitions, 1);
                add(&mut s.contended, 1);
                add_time(&mut s.wait_ns, &mut s.wait_max_ns, &mut s.wait_hist, wait_ns, true);
            }
            FutexResult::Again => add(&mut s.try_failures, 1),
            FutexResult::TimedOut => {
                add(&mut s.timeouts, 1);
                // One that goes on tells of all of its time when it ends.
                add(&mut s.timeout_ns, if goes_on { 0 } else { wait_ns });
            }
            _ => add(&mut s.errors, 1),
        }
    }
    let process = u64::from(t.process);
    let waker = || {
        // SAFETY: copied at once.
        unsafe { WAKERS.get(FutexWord { addr: call.word, process }) }.copied().unwrap_or(Waker::NOBODY)
    };
    let slept = matches!(result, FutexResult::Slept);
    if in_pending_call(t, call.word) {
        counts::waited(t);
        let p = &mut t.pending;
        p.acquire_ns = now;
        p.timed_out = u32::from(matches!(result, FutexResult::TimedOut));
        if p.stack < 0 {
            let wait_ns = now.saturating_sub(p.attempt_ns.max(p.woken_ns));
            t.pending.stack = stack_of_wait(ctx, t, wait_ns);
        }
        if slept {
            t.pending.flags |= u32::from(flag::SLEPT);
            t.pending.waker = waker().tid;
        }
    } else if t.pending.via == Via::CondReacquire as u32 {
        counts::attempt(t);
        t.pending.woken_ns = now;
        let woken_ns = waker().woke_ns;
        t.pending.latency_ns = if slept && woken_ns > call.enter_ns { now.saturating_sub(woken_ns) } else { 0 };
        t.pending.timed_out = u32::from(matches!(result, FutexResult::TimedOut));
        // A runtime's lock may be waited for by a condition.
        if t.slow.via != 0 && t.slow.stack < 0 {
            let stack = stack_of_wait(ctx, t, wait_ns);
            t.slow.stack = stack;
        }
        if slept {
            t.slow.waker = waker().tid;
        }
        // Programs and runtimes make locks of conditions, of which nothing else tells.
        if t.slow.via == 0 {
            unexplained(ctx.as_ptr(), t, call, now, result);
        }
    } else if let Some(i) = in_call_of(t, call.word) {
        counts::waited_held(t, i);
        reacquire_held(t, i, now);
        let Held { stack, wait_ns, .. } = t.held[i & (MAX_HELD - 1)];
        if stack < 0 {
            t.held[i & (MAX_HELD - 1)].stack = stack_of_wait(ctx, t, wait_ns);
        }
        let h = &mut t.held[i & (MAX_HELD - 1)];
        if slept {
            h.flags |= u32::from(flag::SLEPT);
            h.waker = waker().tid;
        }
    } else {
        unexplained(ctx.as_ptr(), t, call, now, result);
    }
}

/// The system call's number.
#[inline(always)]
fn number(ctx: &TracePointContext) -> u64 {
    // SAFETY: the record of a system call's tracepoint has its number here.
    unsafe { ctx.read_at::<i32>(NUMBER_OFFSET) }.map_or(0, |number| number as u64)
}

#[inline(always)]
fn argument(ctx: &TracePointContext, n: usize) -> u64 {
    // SAFETY: the record of a sys_enter tracepoint has six arguments.
    unsafe { ctx.read_at(arg_offset(n)) }.unwrap_or(0)
}

/// Entry of any of them: one program, since the kernel verifies each from the beginning.
#[tracepoint]
pub fn futex_enter(ctx: TracePointContext) -> u32 {
    let (role, word, expected) = asked(number(&ctx), |n| argument(&ctx, n));
    if role != NONE {
        enter(&ctx, role, word, expected);
    }
    0
}

/// What a futex call of any kind asks for: its role, the word, and the value that it expects there.
#[inline(always)]
fn asked(number: u64, argument: impl Fn(usize) -> u64) -> (u32, u64, u32) {
    match number {
        NR_FUTEX => {
            let op = argument(1);
            (role(op), argument(0), expected(op, argument(2)))
        }
        NR_FUTEX_WAKE => (WAKE, argument(0), 0),
        NR_FUTEX_WAIT => (WAIT, argument(0), argument(1) as u32),
        // It waits on several words; it is charged to the first.
        NR_FUTEX_WAITV => {
            let (expected, word) = first_of_waitv(argument(0));
            (WAIT, word, expected as u32)
        }
        _ => (NONE, 0, 0),
    }
}

/// `struct futex_waitv` begins with the expected value and the word's address.
#[inline(always)]
fn first_of_waitv(waiters: u64) -> (u64, u64) {
    // SAFETY: a faulting address is an error from the helper, not a fault.
    unsafe { aya_ebpf::helpers::bpf_probe_read_user(waiters as *const (u64, u64)) }.unwrap_or((0, 0))
}

/// Exit of any of them.
#[tracepoint]
pub fn futex_exit(ctx: TracePointContext) -> u32 {
    exit(&ctx, argument(&ctx, 0) as i64);
    0
}

/// Without tracefs: every system call's entry, filtered here.
#[raw_tracepoint(tracepoint = "sys_enter")]
pub fn sys_enter(ctx: RawTracePointContext) -> i32 {
    let number: u64 = ctx.arg(1);
    if number == NR_RT_SIGRETURN {
        handler_left();
    }
    let regs: *const pt_regs = ctx.arg(0);
    let (role, word, expected) = asked(number, |n| system_call_argument(regs, n));
    if role != NONE {
        entered(ctx.as_ptr(), role, word, expected);
    }
    0
}

/// A function of its own, so that its stack is not that of whatever else [`sys_enter`] does.
#[inline(never)]
fn entered(ctx: *mut c_void, role: u32, word: u64, expected: u32) -> u32 {
    enter(&RawTracePointContext::new(ctx), role, word, expected);
    0
}

/// Without tracefs: every system call's exit; only threads inside a futex call go on. That of the first one may have been entered before.
#[raw_tracepoint(tracepoint = "sys_exit")]
pub fn sys_exit(ctx: RawTracePointContext) -> i32 {
    let inside = match existing(task()) {
        Some(t) if t.futex.enter_ns != 0 => matches!(t.futex.role, WAIT | WAKE | HAND_OVER),
        _ => system_call() == NR_FUTEX,
    };
    if inside {
        exit(&ctx, ctx.arg(1));
    }
    0
}

/// One of the first three arguments of the system call that is being entered.
#[inline(always)]
fn system_call_argument(regs: *const pt_regs, n: usize) -> u64 {
    // SAFETY: regs is the tracepoint's own argument.
    unsafe { read_register(regs, ARGUMENTS[n]) }
}
