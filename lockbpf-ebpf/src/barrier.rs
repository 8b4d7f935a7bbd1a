//! pthread barriers: each arrival is recorded at the entry of `pthread_barrier_wait`. The wait that follows is that
//! for the last one to arrive, which the arrivals themselves tell: its futex calls count neither as waits nor as sums.

use crate::calls::return_address;
use crate::emit::emit_for;
use crate::section::{attempt, fits, settle};
use crate::thread::{Thread, tid};
use aya_ebpf::helpers::bpf_probe_read_user;
use aya_ebpf::programs::ProbeContext;
use lockbpf_common::barrier::{BarrierFields, BarrierRecord};
use lockbpf_common::counter::Counter;
use lockbpf_common::kind::Via;

/// Offset of `_b_limit` in musl's `pthread_barrier_t`: the number of participants less one.
const MUSL_LIMIT: u64 = 8;
/// Offset of `count` in glibc's `struct pthread_barrier` (2.25 and later: `in`, `current_round`, `count`, `shared`, `out`).
const COUNT: u64 = 8;
/// Size of that structure.
const SIZE: u64 = 20;

/// Entry of `pthread_barrier_wait`, at `now`. Returns whether its return is of interest where it can be watched.
#[inline(always)]
pub fn arrive(ctx: &ProbeContext, t: &mut Thread, now: u64) -> bool {
    settle(t);
    let barrier: u64 = ctx.arg(0).unwrap_or(0);
    let site = return_address(ctx);
    if !fits(barrier, site) {
        return false;
    }
    let count = barrier.wrapping_add(if t.is_musl() { MUSL_LIMIT } else { COUNT });
    // SAFETY: a faulting address is an error from the helper, not a fault.
    let participants = unsafe { bpf_probe_read_user(count as *const u32) }.unwrap_or(0);
    let participants = if t.is_musl() { participants.wrapping_add(1) } else { participants };
    attempt(t, Via::Barrier as u32, barrier, site, now);
    let fields = BarrierFields { time_ns: now, barrier, site, process: t.process, tid: tid(), participants };
    emit_for(t, &BarrierRecord::pack(&fields), Counter::BarrierRecords);
    true
}

/// Whether a futex word is one of the barrier at which the thread waits. musl's is on the stack of the first to arrive, but its
/// calls are watched to their return.
#[inline(always)]
pub fn waits_at(t: &Thread, word: u64) -> bool {
    t.pending.via == Via::Barrier as u32 && (t.is_musl() || word.wrapping_sub(t.pending.lock) < SIZE)
}
