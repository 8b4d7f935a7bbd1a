//! What a holder does instead of running: its absences from the CPU while it holds a lock, or may hold one. Every switch of every thread
//! passes here, so whoever is not involved must be gone after one look into the task's storage, which costs nothing to
//! speak of for a task that has none.
//!
//! This program runs with interrupts off, under the lock of a run queue: nothing can preempt it, so it need not
//! [stay on the thread's own stack](crate::thread).

use crate::emit::emit_for;
use crate::focus::holds_any;
use crate::futex_call::WAIT;
use crate::gate::{charge, is_open};
use crate::goroutine;
use crate::lease;
use crate::lock::{has_word, may_have};
use crate::maps::{CONFIG, STATE, count};
use crate::reading;
use crate::stack::user_stack;
use crate::thread::{Thread, now, task, tid};
use crate::watched;
use aya_ebpf::bindings::task_struct;
use aya_ebpf::helpers::bpf_probe_read_kernel;
use aya_ebpf::helpers::generated::bpf_task_storage_get;
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use lockbpf_common::counter::Counter;
use lockbpf_common::kind::Via;
use lockbpf_common::layout::CONTENDED_VALUE;
use lockbpf_common::off_cpu::{MIN_OFF_NS, OffCpuFields, OffCpuRecord, Reason};

/// `TASK_UNINTERRUPTIBLE`.
const UNINTERRUPTIBLE: u32 = 2;
/// `TASK_DEAD`: the thread never runs again.
const DEAD: u32 = 0x80;
/// Marks the reason of an absence that is [kept](watched), not recorded: no lock is known that the thread holds.
pub const KEPT: u32 = 1 << 8;

/// An absence, until it is recorded: by the thread itself, once it is back and gives back a lock, or leaves again.
/// How long it waited for a CPU is known only then, from what the scheduler adds up for each thread; to watch each thread's
/// wake-ups for it would cost all of them.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Absence {
    /// When it began.
    pub since_ns: u64,
    /// When it ended; 0 while it lasts, and while there is none.
    pub end_ns: u64,
    /// The scheduler's sum of the thread's waiting for CPUs at its beginning.
    pub run_delay_ns: u64,
    /// Stack at its beginning.
    pub stack: i32,
    /// `Reason`; 0 while there is none.
    pub reason: u32,
}

impl Absence {
    /// Records an absence that is over, in which `who` waited `runnable_ns` for a CPU.
    #[inline(always)]
    fn tell(&self, who: Who, runnable_ns: u64) {
        let OffCpuRecord([end, off, runnable, thread, stack]) = OffCpuRecord::pack(&OffCpuFields {
            end_ns: self.end_ns,
            off_ns: self.end_ns.saturating_sub(self.since_ns),
            runnable_ns,
            process: who.process,
            tid: who.tid,
            stack: self.stack,
            reason: self.reason as u8,
        });
        emit_absence(end, off, runnable, thread, u64::from(who.slot) << 32 | stack);
    }
}

/// Emits a record by its words, with the slot that pays for it above the last one's. Returns 0. Global.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn emit_absence(end: u64, off: u64, runnable: u64, who: u64, slot_and_stack: u64) -> u32 {
    let record = OffCpuRecord([end, off, runnable, who, u64::from(slot_and_stack as u32)]);
    emit_for((slot_and_stack >> 32) as u32, &record, Counter::OffCpuRecords);
    0
}

/// Whose absence is told.
#[derive(Clone, Copy)]
pub struct Who {
    /// Process number.
    process: u32,
    /// Slot of the process.
    slot: u32,
    /// The thread, or what stands for a goroutine.
    tid: u32,
}

impl Who {
    /// A thread, or a goroutine, of the process of `t`.
    #[inline(always)]
    pub fn of(t: &Thread, tid: u32) -> Self {
        Self { process: t.process, slot: t.slot, tid }
    }
}

/// The last absences of who may prove to have made others wait; `N` is a power of two. The scheduler's sum of each is how long it
/// waited for a CPU in that absence.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Absences<const N: usize> {
    /// Absences so far: the next one's place.
    next: u64,
    /// Without a reason: recorded, or none.
    kept: [Absence; N],
}

impl<const N: usize> Absences<N> {
    /// Keeps an absence. Returns when the one ended that gives way to it without having been recorded; 0 if none does.
    #[inline(always)]
    pub fn keep(&mut self, off: &Absence) -> u64 {
        let place = &mut self.kept[self.next as usize & (N - 1)];
        let lost_ns = if place.reason == 0 { 0 } else { place.end_ns };
        *place = *off;
        self.next += 1;
        lost_ns
    }

    /// Forgets them all.
    #[inline(always)]
    pub fn forget(&mut self) {
        let mut i = 0;
        while i < N {
            self.kept[i & (N - 1)].reason = 0;
            i += 1;
        }
    }

    /// Records those that ended after `from_ns`, as far as they were over `now`.
    #[inline(always)]
    pub fn tell_since(&mut self, who: Who, from_ns: u64, now: u64) {
        let mut back = 1;
        while back <= N {
            let i = (self.next as usize).wrapping_sub(back) & (N - 1);
            let mut off = self.kept[i];
            back += 1;
            if off.end_ns <= from_ns {
                // So did all before it.
                break;
            }
            if off.reason != 0 {
                self.kept[i].reason = 0;
                off.end_ns = off.end_ns.min(now);
                off.tell(who, off.run_delay_ns);
            }
        }
    }
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
        if lease::is_on() {
            if t.epoch != 0 {
                reading::leaves(t, ctx.arg(1), || ctx.arg::<u32>(0) & 1 != 0 || task_state(ctx.arg(1)) == 0);
            }
            if t.asks.lock != 0 && ctx.arg::<u32>(0) & 1 == 0 {
                let state = task_state(ctx.arg(1));
                crate::task::leaves(&ctx, t, state, state & UNINTERRUPTIBLE != 0);
            }
            let holds = t.epoch != 0 && (t.depth > 0 || may_have(t.pending.via, t.pending.kind)) && is_open(t);
            let goroutine = if holds { 0 } else { goroutine::running(t) };
            let kept = !holds && (goroutine != 0 || watched::is_watched(t));
            if t.epoch != 0 || kept {
                charge(t.slot, |account| account.switches += 1);
            }
            if (holds || kept) && t.observed() {
                leave(&ctx, t, kept, goroutine);
            }
        }
    }
    if let Some(t) = state(ctx.arg(2)) {
        // SAFETY: as above; the thread does not run yet.
        let t = unsafe { &mut *t };
        reading::comes(t, ctx.arg(2));
        if t.sleeps != 0 {
            t.sleeps = 0;
            t.woken_ns = now();
        }
        let off = &mut t.off;
        if off.reason != 0 && off.end_ns == 0 {
            off.end_ns = now();
        }
    }
    0
}

/// A thread that holds a lock leaves the CPU, or one whose absences are kept, or those of the goroutine that it runs.
#[inline(always)]
fn leave(ctx: &BtfTracePointContext, t: &mut Thread, kept: bool, goroutine: u64) {
    record_absence(t);
    if t.kernel.told() {
        // That wait has a record of its own.
        return;
    }
    let preempted: u32 = ctx.arg(0);
    let task: *mut task_struct = ctx.arg(1);
    let state = if preempted & 1 != 0 { 0 } else { task_state(task) };
    if state & DEAD != 0 {
        // It gave its memory back, and its stack with it. What its exit closes is not closed if the kernel left that program out.
        return;
    }
    let reason = if state == 0 {
        Reason::Runnable
    } else if state & UNINTERRUPTIBLE != 0 {
        Reason::Blocked
    } else if t.futex.role != WAIT {
        Reason::Sleeping
    } else if in_lock_call(t) {
        // The section of that lock tells of it.
        return;
    } else if kept && !waits_for_lock(t) {
        Reason::Sleeping
    } else {
        Reason::Futex
    };
    let now = now();
    // Where it was preempted says nothing: it could have been anywhere. Of waits for locks, the stack would cost more than the rest.
    let takes_stack = match reason {
        Reason::Runnable => false,
        Reason::Futex if kept => false,
        _ if kept => watched::takes_stack(t, now),
        _ => holds_any(t),
    };
    t.goroutine = goroutine;
    t.off = Absence {
        since_ns: now,
        end_ns: 0,
        run_delay_ns: run_delay(task),
        stack: if takes_stack { user_stack(ctx, t) } else { -1 },
        reason: reason as u32 | if kept { KEPT } else { 0 },
    };
}

/// Whether the futex call in progress is the sleep of a probed lock call.
#[inline(always)]
fn in_lock_call(t: &Thread) -> bool {
    let p = &t.pending;
    if p.via == 0 {
        return crate::futex::in_call_of(t, t.futex.word).is_some();
    }
    p.via != Via::Barrier as u32 && has_word(p.lock, p.via, t.is_musl(), t.futex.word)
}

/// Whether a thread in a futex call waits for a lock there, as far as can be told: by what it expects of the word, or by a slow path of
/// a runtime's lock that was seen to begin.
#[inline(always)]
fn waits_for_lock(t: &Thread) -> bool {
    t.futex.expected == CONTENDED_VALUE
        || t.futex.owner != 0
        || t.pending.via >= u32::from(Via::RUNTIMES)
        || t.slow.via != 0
}

/// `task_struct::__state`; 0 if it cannot be read. Somebody may have woken the thread since it decided to sleep: then it
/// counts as runnable, and comes back at once.
#[inline(always)]
fn task_state(task: *mut task_struct) -> u32 {
    let task = task.cast::<u8>().cast_const();
    // SAFETY: a faulting address is an error from the helper, not a fault; the offset comes from the kernel's BTF.
    unsafe { bpf_probe_read_kernel(task.add(CONFIG.load().task_state as usize).cast::<u32>()) }.unwrap_or(0)
}

/// How long a task has waited for CPUs since it exists, ns, as far as is known; 0 where the kernel does not keep it.
#[inline(always)]
fn run_delay(task: *mut task_struct) -> u64 {
    let offset = CONFIG.load().task_run_delay;
    if offset == 0 {
        return 0;
    }
    // SAFETY: as above.
    unsafe { bpf_probe_read_kernel(task.cast::<u8>().cast_const().add(offset as usize).cast::<u64>()) }.unwrap_or(0)
}

/// Records the current thread's last absence, if it has ended and is not recorded yet.
#[inline(always)]
pub fn record_absence(t: &mut Thread) {
    if t.off.reason != 0 {
        record(t);
    }
}

/// A function of its own, so that its instructions are not repeated in every program.
#[inline(never)]
fn record(t: &mut Thread) {
    let mut off = t.off;
    t.off.reason = 0;
    let unseen = off.end_ns == 0;
    if unseen {
        // The thread runs again, so it has come back since, at a switch that the kernel told nobody of.
        off.end_ns = now();
    }
    let off_ns = off.end_ns.saturating_sub(off.since_ns);
    if off_ns < MIN_OFF_NS {
        return;
    }
    let kept = off.reason & KEPT != 0;
    off.reason &= !KEPT;
    if !kept && !holds_any(t) {
        count(Counter::Unfocused);
        return;
    }
    if unseen {
        count(Counter::OffCpuUnended);
    }
    let runnable_ns =
        if off.reason == Reason::Runnable as u32 { off_ns } else { run_delay(task()).saturating_sub(off.run_delay_ns) };
    if !kept {
        off.tell(Who::of(t, tid()), runnable_ns);
        return;
    }
    off.run_delay_ns = runnable_ns;
    if t.goroutine == 0 {
        watched::keep(t, &off);
    } else {
        goroutine::keep(t, t.goroutine, &off);
    }
}
