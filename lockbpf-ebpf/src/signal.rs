//! Signal handlers. Any function on locks may be called in one, in the middle of another: the call that a signal interrupts is put
//! aside when its handler begins, and goes on when the handler has ended. Without signals this costs nothing.
//!
//! A handler may also be left by a jump. What was put aside then stays there until its lock is given back, or until there is no more
//! room, and that is counted.

use crate::futex::in_call_of;
use crate::futex_call::{FutexCall, INTERRUPTED, NONE};
use crate::gate::refresh;
use crate::held::Held;
use crate::maps::{SUSPENDED, count};
use crate::once::Begun;
use crate::registers::{STACK_POINTER, user_register};
use crate::section::{is_settled, settle};
use crate::thread::{Pending, Thread, Wrapper, existing, now, task};
use aya_ebpf::bindings::BPF_LOCAL_STORAGE_GET_F_CREATE;
use aya_ebpf::helpers::bpf_probe_read_kernel;
use aya_ebpf::helpers::generated::bpf_task_storage_get;
use aya_ebpf::macros::{raw_tracepoint, tracepoint};
use aya_ebpf::programs::{RawTracePointContext, TracePointContext};
use lockbpf_common::config::MAX_HELD;
use lockbpf_common::counter::Counter;
use lockbpf_common::kind::flag;

/// Calls of a thread that are put aside at one time: a power of two.
const LEVELS: usize = 4;
/// `SIG_IGN`; what is above is a handler.
const IGNORED: u64 = 1;
/// By this signal glibc cancels a thread: its handler returns, or else unwinds, and what was interrupted goes on there. (musl uses
/// it without a handler.)
const CANCEL: u32 = 32;

/// Calls put aside, the one put aside last at the place of [`Thread::suspended`], less one.
#[repr(C)]
pub struct Suspensions {
    calls: [Call; LEVELS],
}

/// What a thread was in the middle of.
#[repr(C)]
struct Call {
    pending: Pending,
    slow: Pending,
    futex: FutexCall,
    wrapper: Wrapper,
    once: Begun,
    /// The first vacant place of the locks held, to which `released_ns` belongs.
    vacant: Held,
    released_ns: u64,
    /// The lowest stack pointer of all calls put aside so far, when they were interrupted.
    lowest: u64,
    /// Which of the handlers that the thread is in interrupted it, by number.
    handler: u64,
}

/// A signal is delivered to the current thread: if to a handler, that begins when the thread returns from the kernel.
#[raw_tracepoint(tracepoint = "signal_deliver")]
pub fn signal_delivered(ctx: RawTracePointContext) -> i32 {
    let Some(t) = existing(task()) else { return 0 };
    if !t.observed() || t.epoch == 0 {
        return 0;
    }
    refresh(t);
    let waits = is_waiting(t);
    let calls = waits || is_calling(t);
    if !calls && t.handlers == 0 {
        return 0;
    }
    let signal: u64 = ctx.arg(0);
    let action: *const u64 = ctx.arg(2);
    // SAFETY: the tracepoint's own argument, a `k_sigaction`, which begins with the handler.
    let handler = unsafe { bpf_probe_read_kernel(action) }.unwrap_or(0);
    if handler <= IGNORED || signal as u32 == CANCEL {
        return 0;
    }
    t.handlers += 1;
    if waits && t.wait_handler == 0 {
        t.wait_handler = t.handlers;
    }
    if calls {
        suspend(t);
    }
    0
}

/// The current thread leaves a handler as handlers are meant to be left.
#[tracepoint]
pub fn sigreturn_enter(_ctx: TracePointContext) -> u32 {
    handler_left();
    0
}

/// The same, wherever that is seen.
#[inline(always)]
pub fn handler_left() {
    let Some(t) = existing(task()) else { return };
    if t.handlers != 0 {
        refresh(t);
        leave(t);
    }
}

/// Whether the thread is in a call on locks, or may be.
#[inline(always)]
fn is_calling(t: &Thread) -> bool {
    t.pending.via != 0 || t.slow.via != 0 || t.released_ns != 0 || t.once.control != 0 || t.wrapper.argument != 0
}

/// Whether the thread waits for a lock, as far as that is known.
#[inline(always)]
fn is_waiting(t: &Thread) -> bool {
    t.pending.via != 0 && t.pending.flags & u32::from(flag::CONTENDED) != 0
        || t.futex.role == INTERRUPTED && in_call_of(t, t.futex.word).is_some()
}

/// A function of its own, so that its stack and instructions burden no other.
#[inline(never)]
fn suspend(t: &mut Thread) -> u32 {
    let Some(all) = suspensions(u64::from(BPF_LOCAL_STORAGE_GET_F_CREATE)) else {
        count(Counter::StateFull);
        return 0;
    };
    if t.suspended >= LEVELS as u32 {
        // The oldest goes: most likely its handler was left by a jump.
        count(Counter::CallInterrupted);
    }
    let outer = last(t).map_or(u64::MAX, |call| call.lowest);
    let call = &mut all.calls[t.suspended as usize & (LEVELS - 1)];
    t.suspended += 1;
    call.lowest = outer.min(user_register(STACK_POINTER));
    call.handler = u64::from(t.handlers);
    call.pending = t.pending;
    call.slow = t.slow;
    call.futex = t.futex;
    call.wrapper = t.wrapper;
    call.once = t.once;
    call.vacant = t.held[t.depth as usize & (MAX_HELD - 1)];
    call.released_ns = t.released_ns;
    t.pending.via = 0;
    t.slow.via = 0;
    t.futex.role = NONE;
    t.wrapper.argument = 0;
    t.once.control = 0;
    t.released_ns = 0;
    0
}

#[inline(never)]
fn leave(t: &mut Thread) -> u32 {
    let handler = u64::from(t.handlers);
    if handler == 0 {
        return 0;
    }
    t.handlers -= 1;
    if t.wait_handler > t.handlers {
        t.wait_handler = 0;
    }
    if let Some(call) = last(t)
        && call.handler == handler
    {
        // What the handler was about to lock last, it had.
        settle(t);
        resume(t, call);
        if t.futex.role == INTERRUPTED && t.futex.lock == t.pending.lock && is_settled(t.pending.via) {
            // The wait goes on, or the lock is taken now.
            t.pending.acquire_ns = now();
            t.futex.role = NONE;
        }
    }
    if t.handlers == 0 {
        t.suspended = 0;
    }
    0
}

/// The thread gives back a lock that it does not hold, as far as is known. If the call that was put aside last is the one that got it,
/// its handler was left by a jump. Returns where it holds the lock then.
#[inline(always)]
pub fn jumped_out(t: &mut Thread, lock: u64) -> Option<usize> {
    (t.suspended != 0 && jumped(t, lock) != 0).then(|| (t.depth as usize).wrapping_sub(1) & (MAX_HELD - 1))
}

/// Whether it holds the lock then, as the one taken last: not 0 if so. A function of its own, so that its instructions burden no hot path.
#[inline(never)]
fn jumped(t: &mut Thread, lock: u64) -> u32 {
    let Some(call) = last(t) else { return 0 };
    if call.pending.lock != lock || !is_settled(call.pending.via) {
        return 0;
    }
    t.handlers = (call.handler as u32).wrapping_sub(1);
    if t.wait_handler > t.handlers {
        t.wait_handler = 0;
    }
    resume(t, call);
    settle(t);
    let top = (t.depth as usize).wrapping_sub(1) & (MAX_HELD - 1);
    u32::from(t.depth != 0 && t.held[top].lock == lock)
}

/// Whether the thread is in a handler on a stack above that of a call which the handler interrupted. The kernel takes such calls for left
/// by a jump when another one is to be watched to its return, and forgets to where they return: the program would be killed.
#[inline(always)]
pub fn is_above_interrupted(t: &Thread) -> bool {
    t.suspended != 0 && last(t).is_some_and(|call| user_register(STACK_POINTER) >= call.lowest)
}

/// The call that was put aside last.
#[inline(always)]
fn last(t: &Thread) -> Option<&'static mut Call> {
    if t.suspended == 0 {
        return None;
    }
    suspensions(0).map(|all| &mut all.calls[(t.suspended - 1) as usize & (LEVELS - 1)])
}

#[inline(always)]
fn resume(t: &mut Thread, call: &Call) {
    t.suspended = t.suspended.saturating_sub(1);
    t.pending = call.pending;
    t.slow = call.slow;
    t.futex = call.futex;
    t.wrapper = call.wrapper;
    t.once = call.once;
    t.released_ns = call.released_ns;
    if call.released_ns != 0 {
        t.held[t.depth as usize & (MAX_HELD - 1)] = call.vacant;
    }
}

#[inline(always)]
fn suspensions(flags: u64) -> Option<&'static mut Suspensions> {
    // SAFETY: SUSPENDED is a task-storage map of `Suspensions`, task is the trusted current task; the storage lives as long as the
    // task, and only the task itself reaches it. A null value asks for zeroed storage.
    unsafe {
        bpf_task_storage_get(SUSPENDED.as_ptr(), task().cast(), core::ptr::null_mut(), flags)
            .cast::<Suspensions>()
            .as_mut()
    }
}
