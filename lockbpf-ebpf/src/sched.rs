//! What ends a thread's state: exec, exit, and a change of name where names are filtered.

use crate::counts;
use crate::emit::emit;
use crate::futex::abandon_wait;
use crate::gate::refresh;
use crate::lease;
use crate::maps::{CHILDREN, CONFIG, CONTROL, GATES, GILS, REPLACED, TARGETS, count, count_more};
use crate::off_cpu::record_absence;
use crate::process;
use crate::registers::ends_process;
use crate::section::{End, close, settle};
use crate::thread::{Thread, current, existing, now, task, tid};
use crate::unseen;
use aya_ebpf::bindings::task_struct;
use aya_ebpf::helpers::{bpf_get_current_comm, bpf_get_current_pid_tgid};
use aya_ebpf::macros::{btf_tracepoint, raw_tracepoint};
use aya_ebpf::programs::{BtfTracePointContext, RawTracePointContext};
use aya_log_ebpf::debug;
use lockbpf_common::config::{MAX_HELD, mode};
use lockbpf_common::counter::Counter;
use lockbpf_common::kind::Outcome;
use lockbpf_common::process::{Child, child};
use lockbpf_common::record::{Tag, ThreadExitRecord};

/// Runs in the parent, before the child does: a process that an observed one starts has its breakpoints in its memory, of which
/// user space rids it soon. Where forks are followed it is observed, too. Its probes are placed once user space, which this wakes,
/// knows of it.
#[raw_tracepoint(tracepoint = "sched_process_fork")]
pub fn process_fork(ctx: RawTracePointContext) -> i32 {
    let parent = (bpf_get_current_pid_tgid() >> 32) as u32;
    // SAFETY: copied at once.
    let slot = unsafe { TARGETS.get(parent) }.copied();
    // SAFETY: likewise.
    let inherits = unsafe { CHILDREN.get(parent) }.copied();
    if slot.is_none() && inherits.is_none() {
        return 0;
    }
    let child: *mut task_struct = ctx.arg(1);
    let pid = process::pid_of(child);
    // Else it is a thread.
    if pid == 0 || pid == parent {
        return 0;
    }
    if slot.is_some() && CONFIG.load().mode & mode::FOLLOW_FORKS != 0 {
        if TARGETS.insert(pid, 0, 0).is_err() {
            count(Counter::ProcessesFull);
        }
        let comm = bpf_get_current_comm().unwrap_or_default();
        let number = process::number(task(), parent, 0, comm);
        process::number(child, pid, number, comm);
    }
    let probed = slot.and_then(|slot| GATES.get(slot)).is_some_and(|gate| gate.set != 0)
        || inherits.is_some_and(|parent| parent.flags & child::PROBED != 0);
    let memory = process::memory_of(child);
    let shares = memory != 0 && memory == process::memory_of(task());
    let flags = if probed { child::PROBED } else { 0 } | if shares { child::SHARES } else { 0 };
    if probed {
        count(Counter::Children);
    }
    if CHILDREN.insert(pid, Child { forked_ns: now(), flags }, 0).is_err() {
        count(Counter::ChildrenFull);
    }
    0
}

/// A process has other memory from now on, or none.
#[inline(always)]
fn weaned(pid: u32) {
    // SAFETY: copied at once.
    if let Some(known) = unsafe { CHILDREN.get(pid) }.copied()
        && CHILDREN.remove(pid).is_ok()
        && known.flags & child::PROBED != 0
    {
        count_more(Counter::ChildrenNs, now().saturating_sub(known.forked_ns));
    }
}

/// Runs in the thread that called exec, the only one left of its process.
#[raw_tracepoint(tracepoint = "sched_process_exec")]
pub fn process_exec(ctx: RawTracePointContext) -> i32 {
    // It may have been numbered at its fork, before it did anything.
    let pid = (bpf_get_current_pid_tgid() >> 32) as u32;
    process::forget(pid);
    weaned(pid);
    let before: u64 = ctx.arg(1);
    // SAFETY: only the key's presence matters.
    if before as u32 != tid() && unsafe { TARGETS.get(pid) }.is_some() {
        // The new image has no breakpoints: what asks for them is tied to the thread that was the first, and is no more.
        let _ = REPLACED.insert(pid, now(), 0);
        process::number(task(), pid, 0, bpf_get_current_comm().unwrap_or_default());
    }
    // That was in the memory it had.
    let _ = GILS.remove(pid);
    let Some(t) = existing(task()) else { return 0 };
    if t.observed() {
        if t.depth > 0 || t.pending.via != 0 {
            count(Counter::ExecHolding);
        }
        debug!(&ctx, "exec in thread {}: {} locks held", tid(), t.depth);
        retire(t, false);
    }
    t.forget_locks();
    t.futex.role = 0;
    t.kernel.forget();
    t.reconsider();
    0
}

/// Locks closed for a thread that exits holding them; more are counted as lost. Each makes the verifier's work longer.
const MAX_LEFT: usize = 4;

/// Runs in the exiting thread.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub fn process_exit(ctx: RawTracePointContext) -> i32 {
    let ids = bpf_get_current_pid_tgid();
    if (ids >> 32) as u32 == ids as u32 {
        weaned(ids as u32);
    }
    // A thread of which nothing was seen counts if a process of which something was seen ends by it.
    if existing(task()).is_none() && ends_process() && process::is_known() {
        current();
    }
    let Some(t) = existing(task()) else { return 0 };
    if !t.observed() || CONTROL.get(0).is_none_or(|c| !c.is_active()) {
        return 0;
    }
    if lease::believes(t) {
        ends(&ctx, t);
    }
    // The process's number may be another's next.
    if (ids >> 32) as u32 == ids as u32 {
        let _ = GILS.remove(ids as u32);
    }
    retire(t, true);
    0
}

/// Closes what an exiting thread was in.
#[inline(always)]
fn ends(ctx: &RawTracePointContext, t: &mut Thread) {
    let now = now();
    refresh(t);
    record_absence(t);
    abandon_wait(t);
    settle(t);
    unseen::tell(t, Outcome::Unseen, 0, false);
    if t.depth > 0 {
        count(Counter::ExitHolding);
        debug!(ctx, "thread {} exits holding {} locks", tid(), t.depth);
    }
    let mut left = 0;
    while left < MAX_LEFT && t.depth > 0 {
        let i = (t.depth - 1) as usize & (MAX_HELD - 1);
        close(ctx, t, i, End { now, outcome: Outcome::ExitedHolding, waited_for: true });
        left += 1;
    }
    if t.depth > 0 {
        count(Counter::HeldFull);
    }
}

/// Sends the thread's sums and gives its slot back.
#[inline(always)]
fn retire(t: &mut Thread, exits: bool) {
    counts::exits(t);
    if let Some(sums) = t.retire() {
        let mark = if exits && ends_process() { ThreadExitRecord::ENDS_PROCESS } else { 0 };
        let record = ThreadExitRecord { time_ns: now(), tag: (Tag::ThreadExit as u64) << 60 | mark, sums };
        emit(&record, Counter::LifeRecords);
    }
}

/// A thread gets another name, from itself or from another thread of its process: decide anew whether the filter wants it.
#[btf_tracepoint(function = "task_rename")]
pub fn task_rename(ctx: BtfTracePointContext) -> i32 {
    if let Some(t) = existing(ctx.arg(0)) {
        t.reconsider();
    }
    0
}
