//! pthread barriers: each arrival is recorded at the entry of `pthread_barrier_wait`. The wait that follows is that
//! for the last one to arrive, which the arrivals themselves tell: its futex calls count neither as waits nor as sums.

use crate::calls::return_address;
use crate::emit::emit_for;
use crate::section::{attempt, fits};
use crate::thread::{Thread, tid};
use aya_ebpf::helpers::bpf_probe_read_user;
use aya_ebpf::programs::ProbeContext;
use lockbpf_common::barrier::{BarrierFields, BarrierRecord, round};
use lockbpf_common::counter::Counter;
use lockbpf_common::kind::Via;

/// `_b_limit` in musl's `pthread_barrier_t`, in words of 32 bits: the number of participants less one.
const MUSL_LIMIT: usize = 2;
/// `_b_inst` there: the round in progress, a pointer to the stack of the first to arrive, or nothing.
const MUSL_ROUND: usize = 6;
/// `in` in glibc's `struct pthread_barrier` (2.25 and later: `in`, `current_round`, `count`, `shared`, `out`): how many have arrived.
const IN: usize = 0;
/// `count` there.
const COUNT: usize = 2;
/// Size of that structure.
const SIZE: u64 = 20;

/// Entry of `pthread_barrier_wait`, at `now`. Returns whether its return is of interest where it can be watched.
#[inline(always)]
pub fn arrive(ctx: &ProbeContext, t: &mut Thread, now: u64) -> bool {
    let barrier: u64 = ctx.arg(0).unwrap_or(0);
    let site = return_address(ctx);
    if !fits(barrier, site) {
        return false;
    }
    // SAFETY: a faulting address is an error from the helper, not a fault.
    let words = unsafe { bpf_probe_read_user(barrier as *const [u32; 8]) }.unwrap_or([0; 8]);
    let (participants, round) = if t.is_musl() {
        let goes_on = words[MUSL_ROUND] | words[MUSL_ROUND + 1] != 0;
        (words[MUSL_LIMIT].wrapping_add(1), if goes_on { round::LATER } else { round::FIRST })
    } else if words[COUNT] == 0 {
        (0, round::UNKNOWN)
    } else {
        // Nobody arrives in a round before everybody has in the one before.
        (words[COUNT], round::numbered(words[IN] / words[COUNT]))
    };
    attempt(t, Via::Barrier as u32, barrier, site, now);
    let fields = BarrierFields { time_ns: now, barrier, site, process: t.process, tid: tid(), participants, round };
    emit_for(t.slot, &BarrierRecord::pack(&fields), Counter::BarrierRecords);
    true
}

/// Whether a futex word is one of the barrier at which the thread waits. musl's is on the stack of the first to arrive, but its
/// calls are watched to their return.
#[inline(always)]
pub fn waits_at(t: &Thread, word: u64) -> bool {
    t.pending.via == Via::Barrier as u32 && (t.is_musl() || word.wrapping_sub(t.pending.lock) < SIZE)
}
