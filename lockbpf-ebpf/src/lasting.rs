//! Contended sections that go on when the observation ends. Sections are summed and recorded at their ends, so nobody would tell of the waits that
//! led to these. User space has the kernel go through all tasks (an iterator, 5.8) once the other programs do nothing any more, so that states
//! stay as they are meanwhile.

use crate::focus;
use crate::futex_call::NONE;
use crate::held::Held;
use crate::lock::has_word;
use crate::maps::CONFIG;
use crate::section::{Ended, is_settled, record_of};
use crate::thread::{Thread, now, stored};
use crate::unseen;
use aya_ebpf::bindings::task_struct;
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use lockbpf_common::config::MAX_HELD;
use lockbpf_common::kind::{Outcome, Via, flag};
use lockbpf_common::layout::mutex_kind::may_fail;

/// Runs for each task. An iterator's context is laid out like that of a tracepoint: what is being done, and the task, which is null at the end.
#[btf_tracepoint(function = "task")]
pub fn lasting(ctx: BtfTracePointContext) -> i32 {
    let task: *mut task_struct = ctx.arg(1);
    if task.is_null() {
        return 0;
    }
    let Some(t) = stored(task) else { return 0 };
    let Some(tid) = t.sums().map(|sums| sums.tid) else { return 0 };
    if !t.observed() {
        return 0;
    }
    let now = now();
    if let Some(held) = settled(t) {
        tell(tid, t, &held, now);
    }
    let waits_for = if t.futex.role == NONE { 0 } else { t.futex.word };
    let mut i = 0;
    while i < MAX_HELD {
        if i >= t.depth as usize {
            break;
        }
        let held = t.held[i & (MAX_HELD - 1)];
        // What it still waits for has not been acquired.
        if !has_word(held.lock, held.via, t.is_musl(), waits_for) {
            tell(tid, t, &held, now);
        }
        i += 1;
    }
    // Permits are summed when they are had.
    let permit = t.permit;
    if permit.lock != 0 {
        record(tid, t, &permit, now);
    }
    0
}

/// What the call in progress has acquired, if it has slept for a lock and cannot fail: such calls are not watched to their return.
#[inline(always)]
fn settled(t: &Thread) -> Option<Held> {
    let p = &t.pending;
    let slept = p.acquire_ns != 0 && p.timed_out == 0 && t.futex.role == NONE;
    if !slept || !is_settled(p.via) || may_fail(p.kind) {
        return None;
    }
    let attempt_ns = if p.via == Via::CondReacquire as u32 { p.woken_ns.max(p.attempt_ns) } else { p.attempt_ns };
    Some(t.attempted(p.acquire_ns, t.waited_ns(attempt_ns, p.acquire_ns)))
}

/// Sums and records a section that goes on, if its thread waited for it. Returns 0. A function of its own, so that its instructions are not repeated.
#[inline(never)]
fn tell(tid: u32, t: &mut Thread, held: &Held, now: u64) -> u32 {
    if held.flags & u32::from(flag::CONTENDED) == 0 {
        return 0;
    }
    unseen::sum(t, held);
    if let Some(s) = t.sums() {
        // It has held a lock since.
        s.held_sum_ns += now.saturating_sub(held.acquire_ns);
    }
    record(tid, t, held, now)
}

/// Records that it was waited for, if that took long enough. Returns 0. A function of its own, for the same reason.
#[inline(never)]
fn record(tid: u32, t: &Thread, held: &Held, now: u64) -> u32 {
    let &Held { lock, site, acquire_ns, wait_ns, flags, stack, .. } = held;
    let told = flags & u32::from(flag::CONTENDED) != 0 && wait_ns >= CONFIG.load().min_wait_ns;
    if told && focus::includes(t.process, lock, site) {
        let hold_ns = now.saturating_sub(acquire_ns);
        record_of(tid, t, held, &Ended { end_ns: now, wait_ns, hold_ns, outcome: Outcome::Unseen, flags, stack });
    }
    0
}
