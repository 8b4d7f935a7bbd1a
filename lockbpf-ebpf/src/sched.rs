//! What ends a thread's state: exec, exit, and a change of name where names are filtered.

use crate::counts;
use crate::emit::emit;
use crate::futex::abandon_wait;
use crate::gate::refresh;
use crate::maps::{CONTROL, GILS, TARGETS, WAITS, count};
use crate::off_cpu::record_absence;
use crate::process;
use crate::section::{End, close, settle};
use crate::thread::{existing, now, task, tid};
use crate::unseen;
use aya_ebpf::bindings::task_struct;
use aya_ebpf::helpers::{bpf_get_current_comm, bpf_get_current_pid_tgid};
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use aya_log_ebpf::debug;
use lockbpf_common::config::MAX_HELD;
use lockbpf_common::counter::Counter;
use lockbpf_common::kind::Outcome;
use lockbpf_common::record::{Tag, ThreadExitRecord};

/// Runs in the parent, before the child does: a process that an observed one starts is observed, too. Only where forks are
/// followed. Its probes are placed once user space, which this wakes, knows of it.
#[raw_tracepoint(tracepoint = "sched_process_fork")]
pub fn process_fork(ctx: RawTracePointContext) -> i32 {
    let parent = (bpf_get_current_pid_tgid() >> 32) as u32;
    // SAFETY: only the key's presence matters.
    if unsafe { TARGETS.get(parent) }.is_none() {
        return 0;
    }
    let child: *mut task_struct = ctx.arg(1);
    let pid = process::pid_of(child);
    // Else it is a thread.
    if pid != 0 && pid != parent {
        if TARGETS.insert(pid, 0, 0).is_err() {
            count(Counter::ProcessesFull);
        }
        process::number(child, pid, bpf_get_current_comm().unwrap_or_default());
    }
    0
}

/// Runs in the thread that called exec, the only one left of its process.
#[raw_tracepoint(tracepoint = "sched_process_exec")]
pub fn process_exec(ctx: RawTracePointContext) -> i32 {
    // It may have been numbered at its fork, before it did anything.
    let pid = (bpf_get_current_pid_tgid() >> 32) as u32;
    process::forget(pid);
    // That was in the memory it had.
    let _ = GILS.remove(pid);
    let Some(t) = existing(task()) else { return 0 };
    if t.observed() {
        if t.depth > 0 || t.pending.via != 0 {
            count(Counter::ExecHolding);
        }
        debug!(&ctx, "exec in thread {}: {} locks held", tid(), t.depth);
        retire(t);
        let _ = WAITS.remove(tid());
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
    let Some(t) = existing(task()) else { return 0 };
    if !t.observed() || CONTROL.get(0).is_none_or(|c| c.active == 0) {
        return 0;
    }
    let now = now();
    refresh(t);
    record_absence(t);
    abandon_wait(t);
    settle(t);
    unseen::tell(t, Outcome::Unseen, 0, false);
    if t.depth > 0 {
        count(Counter::ExitHolding);
        debug!(&ctx, "thread {} exits holding {} locks", tid(), t.depth);
    }
    let mut left = 0;
    while left < MAX_LEFT && t.depth > 0 {
        let i = (t.depth - 1) as usize & (MAX_HELD - 1);
        close(&ctx, t, i, End { now, outcome: Outcome::ExitedHolding, waited_for: true });
        left += 1;
    }
    if t.depth > 0 {
        count(Counter::HeldFull);
    }
    let _ = WAITS.remove(tid());
    // The process's number may be another's next.
    let ids = bpf_get_current_pid_tgid();
    if (ids >> 32) as u32 == ids as u32 {
        let _ = GILS.remove(ids as u32);
    }
    retire(t);
    0
}

/// Sends the thread's sums and gives its slot back.
#[inline(always)]
fn retire(t: &mut crate::thread::Thread) {
    counts::exits(t);
    if let Some(sums) = t.retire() {
        let record = ThreadExitRecord { time_ns: now(), tag: (Tag::ThreadExit as u64) << 60, sums };
        emit(&record, Counter::LifeRecords);
    }
}

/// A thread got another name, perhaps by itself: decide anew whether the filter wants it.
#[raw_tracepoint(tracepoint = "task_rename")]
pub fn task_rename(_ctx: RawTracePointContext) -> i32 {
    if let Some(t) = existing(task()) {
        t.reconsider();
    }
    0
}
