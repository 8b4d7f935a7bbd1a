//! Sections of which the end will not be seen: another thread gave the lock back, or a thread holds more locks than are followed.
//! They were acquired, and count as such.

use crate::counts;
use crate::maps::count;
use crate::section::fill_gap;
use crate::thread::{Thread, stored, task};
use crate::unseen;
use lockbpf_common::config::MAX_HELD;
use lockbpf_common::counter::Counter;

/// Makes room among the locks held at `now`: the one acquired first goes. Its unlock is expected. Returns 0. A function of its own, so
/// that its instructions burden no hot path.
#[inline(never)]
pub fn forget_oldest(t: &mut Thread, now: u64) -> u32 {
    let oldest = oldest() as usize & (MAX_HELD - 1);
    count(Counter::HeldForgotten);
    end(t, oldest as u32, now);
    counts::forgets(t, oldest);
    t.depth = t.depth.saturating_sub(1);
    t.overflow += 1;
    fill_gap(t, oldest);
    0
}

/// Which of the locks that the current thread holds was acquired first; all places are taken. Global, so that the verifier does not
/// follow all that comes after it once for each place. It only reads: the caller has the thread's state in its hands.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn oldest() -> u32 {
    // Not a place, lest the compiler leaves out its caller's bound, which the verifier needs.
    let Some(t) = stored(task()) else { return u32::MAX };
    let (mut oldest, mut since_ns) = (0, u64::MAX);
    for (held, i) in t.held.iter().zip(0..) {
        if held.acquire_ns < since_ns {
            (oldest, since_ns) = (i, held.acquire_ns);
        }
    }
    oldest
}

/// Sums the section of held lock `i` as one whose end was not seen until `now`; it is still among the locks held. Returns 0. A function
/// of its own, for the same reason.
#[inline(never)]
pub fn end(t: &mut Thread, i: u32, now: u64) -> u32 {
    let held = t.held[i as usize & (MAX_HELD - 1)];
    unseen::sum(t, &held);
    if let Some(s) = t.sums() {
        // Meanwhile the thread counts as one that holds a lock.
        s.held_sum_ns += now.saturating_sub(held.acquire_ns);
    }
    0
}
