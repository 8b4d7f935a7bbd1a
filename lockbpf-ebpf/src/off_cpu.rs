//! What a holder does instead of running: its absences from the CPU while it holds a lock. Every switch of every thread
//! passes here, so whoever is not involved must be gone after one look into the task's storage, which costs nothing to
//! speak of for a task that has none.
//!
//! These programs run with interrupts off, under the lock of a run queue: nothing can preempt them, so they need not
//! [stay on the thread's own stack](crate::thread). They reach the state of threads other than the current one; what they
//! touch of it (`Thread::off`) is touched by nobody else.

use crate::emit::emit;
use crate::futex::WAIT;
use crate::maps::{CONFIG, CONTROL, STATE, user_stack};
use crate::thread::{Thread, now};
use aya_ebpf::bindings::task_struct;
use aya_ebpf::helpers::bpf_probe_read_kernel;
use aya_ebpf::helpers::generated::bpf_task_storage_get;
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use lockbpf_common::counter::Counter;
use lockbpf_common::kind::Via;
use lockbpf_common::off_cpu::{MIN_OFF_NS, OffCpuFields, OffCpuRecord, Reason};

/// `TASK_UNINTERRUPTIBLE`.
const UNINTERRUPTIBLE: u32 = 2;

/// An absence that has not ended.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Absence {
    /// When it began; 0 while there is none.
    pub since_ns: u64,
    /// When the thread could have run again; 0 as long as it cannot.
    pub runnable_ns: u64,
    /// Stack at its beginning.
    pub stack: i32,
    /// `Reason`.
    pub reason: u32,
    /// The thread, which is not the current one when it comes back.
    pub tid: u32,
    /// Explicit padding.
    pub reserved: u32,
}

/// The state of a task, if it has any.
#[inline(always)]
fn state(task: *mut task_struct) -> Option<*mut Thread> {
    // SAFETY: STATE is a task-storage map of `Thread`; the task is an argument of the tracepoint, hence trusted.
    let state = unsafe { bpf_task_storage_get(STATE.as_ptr(), task.cast(), core::ptr::null_mut(), 0) };
    if state.is_null() { None } else { Some(state.cast()) }
}

/// `prev` leaves the CPU (it is still the current thread), `next` takes it.
#[btf_tracepoint(function = "sched_switch")]
pub fn sched_switch(ctx: BtfTracePointContext) -> i32 {
    if let Some(t) = state(ctx.arg(1)) {
        // SAFETY: the storage of a live task.
        let t = unsafe { &mut *t };
        if t.depth > 0 {
            leave(&ctx, t);
        }
    }
    if let Some(t) = state(ctx.arg(2)) {
        // SAFETY: as above; the thread does not run yet.
        let off = unsafe { &mut (*t).off };
        if off.since_ns != 0 {
            // SAFETY: written once, before the absence began.
            come_back(off, unsafe { (*t).process });
        }
    }
    0
}

/// A thread becomes runnable.
#[btf_tracepoint(function = "sched_wakeup")]
pub fn sched_wakeup(ctx: BtfTracePointContext) -> i32 {
    if let Some(t) = state(ctx.arg(0)) {
        // SAFETY: as above.
        let off = unsafe { &mut (*t).off };
        if off.since_ns != 0 && off.runnable_ns == 0 {
            off.runnable_ns = now();
        }
    }
    0
}

/// A thread that holds a lock leaves the CPU.
#[inline(always)]
fn leave(ctx: &BtfTracePointContext, t: &mut Thread) {
    if !t.observed() || CONTROL.get(0).is_none_or(|c| c.active == 0) {
        return;
    }
    let preempted: u32 = ctx.arg(0);
    let task: *mut task_struct = ctx.arg(1);
    let state = if preempted & 1 != 0 { 0 } else { task_state(task) };
    let reason = if state == 0 {
        Reason::Runnable
    } else if state & UNINTERRUPTIBLE != 0 {
        Reason::Blocked
    } else if t.futex.role != WAIT {
        Reason::Sleeping
    } else if in_lock_call(t) {
        // That wait is told by the section of that lock.
        return;
    } else {
        Reason::Futex
    };
    t.off = Absence {
        since_ns: now(),
        runnable_ns: 0,
        // Where it was preempted says nothing: it could have been anywhere.
        stack: if matches!(reason, Reason::Runnable) { -1 } else { user_stack(ctx) },
        reason: reason as u32,
        tid: crate::thread::tid(),
        reserved: 0,
    };
}

/// Whether the futex call in progress is the sleep of a probed lock call.
#[inline(always)]
fn in_lock_call(t: &Thread) -> bool {
    let p = &t.pending;
    if p.via == 0 {
        return crate::futex::in_call_of(t, t.futex.word).is_some();
    }
    p.via != Via::Barrier as u32 && p.lock == t.futex.word
}

/// `task_struct::__state`; 0 if it cannot be read. Somebody may have woken the thread since it decided to sleep: then it
/// counts as runnable, and comes back at once.
#[inline(always)]
fn task_state(task: *mut task_struct) -> u32 {
    let task = task.cast::<u8>().cast_const();
    // SAFETY: a faulting address is an error from the helper, not a fault; the offset comes from the kernel's BTF.
    unsafe { bpf_probe_read_kernel(task.add(CONFIG.load().task_state as usize).cast::<u32>()) }.unwrap_or(0)
}

/// The thread has a CPU again.
#[inline(always)]
fn come_back(off: &mut Absence, process: u32) {
    let now = now();
    let off_ns = now.saturating_sub(off.since_ns);
    let could_run_ns = if off.reason == Reason::Runnable as u32 { off.since_ns } else { off.runnable_ns };
    off.since_ns = 0;
    if off_ns < MIN_OFF_NS {
        return;
    }
    let record = OffCpuRecord::pack(&OffCpuFields {
        end_ns: now,
        off_ns,
        runnable_ns: if could_run_ns == 0 { 0 } else { now.saturating_sub(could_run_ns) },
        process,
        tid: off.tid,
        stack: off.stack,
        reason: off.reason as u8,
    });
    emit(&record, Counter::OffCpuRecords);
}
