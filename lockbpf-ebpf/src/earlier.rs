//! Waits that were in progress when the observation began: user space knows in which futex calls threads slept then, and their ends are seen
//! like those of all others. Else a lock for which threads waited all the time, until somebody gave it back, would be told of by nobody.

use crate::futex_call::{FutexCall, WAIT};
use crate::gil;
use crate::maps::count;
use crate::parking;
use crate::registers::{STACK_POINTER, user_register};
use crate::thread::{Thread, tid};
use aya_ebpf::bindings::BPF_F_NO_PREALLOC;
use aya_ebpf::btf_maps::HashMap;
use aya_ebpf::macros::btf_map;
use lockbpf_common::config::MAX_THREADS;
use lockbpf_common::counter::Counter;
use lockbpf_common::parking::in_place_of;
use lockbpf_common::waiting::Asleep;

/// Threads that slept in futex calls, with these. Only what is used takes memory.
#[btf_map]
static ASLEEP: HashMap<u32, Asleep, { MAX_THREADS as usize }, { BPF_F_NO_PREALLOC as usize }> = HashMap::new();

/// Goes on with the wait in which the thread was, if the exit from it is the first that is seen of the thread's futex calls. Returns 0. A
/// function of its own, so that its stack burdens no other.
#[inline(never)]
pub fn resume(t: &mut Thread) -> u32 {
    // SAFETY: copied at once.
    let Some(asleep) = unsafe { ASLEEP.get(tid()) }.copied() else { return 0 };
    // During a lapse of the lease it may have gone on and come back.
    if t.lapses != 0 || asleep.stack_pointer != user_register(STACK_POINTER) {
        return 0;
    }
    count(Counter::WaitingAtStart);
    let word = gil::word_of(t, asleep.word);
    let expected = asleep.expected as u32;
    let lock = parking::lock_of(t, word, true, expected);
    let expected = if lock == word { expected } else { in_place_of(expected) };
    t.futex = FutexCall::new(lock, asleep.since_ns, WAIT, expected);
    0
}
