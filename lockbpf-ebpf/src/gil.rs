//! CPython's global interpreter lock. The flag that it is changes only under a mutex of the C library, so the unlocks of that
//! mutex tell who has taken it and who has given it back: no function of the interpreter need be known, or probed.
//!
//! Which mutex it is, user space finds in the process's memory. A thread asks for it when it is first seen, and again whenever
//! it waits for a condition: who waits for the lock does.

use crate::calls::return_address;
use crate::counts;
use crate::futex_call::FutexCall;
use crate::maps::{GILS, count};
use crate::memory::read;
use crate::python::python_site;
use crate::section::{End, acquired, attempt, close, contend, fill_gap, fits, stack_of_wait};
use crate::thread::Thread;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::programs::ProbeContext;
use lockbpf_common::config::MAX_HELD;
use lockbpf_common::counter::Counter;
use lockbpf_common::gil::{CONDITION, CONDITION_SIZE, MUTEX, WAITERS, WAITERS_SHIFT};
use lockbpf_common::kind::{Outcome, Via, flag};
use lockbpf_common::layout::CONTENDED_VALUE;

/// The mutex of the interpreter lock in the current process; 0 if none is known.
#[inline(always)]
pub fn mutex() -> u64 {
    let pid = (bpf_get_current_pid_tgid() >> 32) as u32;
    // SAFETY: copied at once.
    unsafe { GILS.get(pid) }.copied().unwrap_or(0)
}

/// Where a lock is asked for by a call that returns there: if the interpreter makes it, in the Python function that has it done, if that
/// is known.
#[inline(always)]
pub fn site(t: &Thread, returns_to: u64) -> u64 {
    if t.gil == 0 { returns_to } else { python_site(t.process, t.slot, returns_to) }
}

/// A wait for the interpreter lock as futex calls tell it: of several, each of which ends after the switch interval (5 ms).
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Timed {
    /// When the first of those that have ended so began, ns.
    since_ns: u64,
    /// When the last one ended, ns; 0 if there is none.
    until_ns: u64,
    /// The word that the thread's last futex call named, not the one that it is counted for.
    pub named: u64,
}

/// Between two of them a thread does little else than to look whether the lock is free, ns.
const BETWEEN_NS: u64 = 200_000;

/// The word that a futex call of the thread's is counted for: all of those on the interpreter lock's condition variable stand for the lock. A
/// function of its own, so that its stack burdens no other.
#[inline(never)]
pub fn word_of(t: &mut Thread, word: u64) -> u64 {
    t.gil_futex.named = word;
    let lock = t.gil.wrapping_sub(MUTEX);
    let is_part = t.gil != 0 && word.wrapping_sub(lock.wrapping_add(CONDITION)) < CONDITION_SIZE;
    if is_part { lock } else { word }
}

/// The thread's futex call begins a wait, which may be for the interpreter lock and go on with an earlier one. Returns 0. A function of its own,
/// so that its stack burdens no other.
#[inline(never)]
pub fn futex_wait_begins(t: &mut Thread) -> u32 {
    let Timed { since_ns, until_ns, .. } = t.gil_futex;
    if t.gil == 0 || t.futex.word != t.gil.wrapping_sub(MUTEX) {
        return 0;
    }
    t.gil_futex.until_ns = 0;
    // Nobody waits for it while it is free.
    t.futex.expected = CONTENDED_VALUE;
    if until_ns != 0 && t.futex.enter_ns.saturating_sub(until_ns) < BETWEEN_NS {
        t.futex.enter_ns = since_ns;
    }
    0
}

/// A futex call of the thread's has timed out, `now`. Returns whether it was one of a wait for the interpreter lock.
#[inline(always)]
pub fn goes_on(t: &mut Thread, call: &FutexCall, now: u64) -> bool {
    // Where the lock was found later than the thread.
    look_again(t);
    let is_lock = t.gil != 0 && call.word == t.gil.wrapping_sub(MUTEX);
    if is_lock {
        (t.gil_futex.since_ns, t.gil_futex.until_ns) = (call.enter_ns, now);
    }
    is_lock
}

/// The thread begins to wait for a condition with this mutex, at `now`: for the interpreter lock, if it is that one's. A function
/// of its own, so that its instructions are not repeated in every program.
#[inline(never)]
pub fn waits(t: &mut Thread, lock: u64, now: u64) -> u32 {
    look_again(t);
    if t.gil != 0 && t.gil == lock && t.gil_wait_ns == 0 {
        t.gil_wait_ns = now;
    }
    0
}

/// Asks for the lock of a thread that was there before it was found.
#[inline(always)]
pub fn look_again(t: &mut Thread) {
    if t.gil == 0 {
        t.gil = mutex();
    }
}

/// Whether this mutex guards the interpreter lock, whose flag may have changed.
#[inline(always)]
pub fn is_guarded_by(t: &Thread, lock: u64) -> bool {
    t.gil != 0 && t.gil == lock
}

/// The guarding mutex is given back. It is part of the interpreter lock, not a lock of its own: waiting for it is waiting for that.
/// A function of its own, so that its instructions are not repeated in every program.
#[inline(never)]
pub fn leave_guard(t: &mut Thread) -> u32 {
    let (gil, depth) = (t.gil, t.depth as usize);
    if let Some(i) = t.find(gil)
        && depth > 0
    {
        let h = &t.held[i & (MAX_HELD - 1)];
        if h.flags & u32::from(flag::CONTENDED) != 0 && t.gil_wait_ns == 0 {
            t.gil_wait_ns = h.acquire_ns.saturating_sub(h.wait_ns);
        }
        counts::forgets(t, i);
        t.depth -= 1;
        fill_gap(t, i);
        t.released_ns = 0;
    }
    0
}

/// What the unlock of the guarding mutex means: the thread has taken the interpreter lock.
pub const TAKEN: u32 = 1;
/// It has given it back.
pub const GIVEN: u32 = 2;
/// Others wait for it.
const WAITED_FOR: u32 = 4;

/// What it means that the guarding mutex is unlocked: if the flag is up and the thread does not hold the interpreter lock,
/// it has taken it; if it is down and the thread holds it, given it back.
#[inline(never)]
pub fn meaning(t: &Thread) -> u32 {
    let word = t.gil.wrapping_sub(MUTEX);
    let Some(up) = read::<i32>(word) else { return 0 };
    let Some(i) = t.find(word) else {
        if up > 0 {
            return TAKEN;
        }
        count(Counter::HeldAtStart);
        return 0;
    };
    if up > 0 {
        return 0;
    }
    // Whom it has woken just now need not wait any more.
    let woke = t.futex.word == word && t.futex.enter_ns > t.held[i & (MAX_HELD - 1)].acquire_ns;
    // In the other releases each of these words is a number of threads or of signals, hardly ever one that looks like waiters.
    let [newer, older] = WAITERS.map(|at| read::<u32>(word + CONDITION + at).unwrap_or(0));
    let waiters = newer | older;
    if woke || waiters >> WAITERS_SHIFT != 0 { GIVEN | WAITED_FOR } else { GIVEN }
}

/// The thread has given the interpreter lock back, at `now`.
#[inline(always)]
pub fn given(ctx: &ProbeContext, t: &mut Thread, now: u64, meaning: u32) {
    t.gil_wait_ns = 0;
    if let Some(i) = t.find(t.gil.wrapping_sub(MUTEX)) {
        close(ctx, t, i, End { now, outcome: Outcome::Released, waited_for: meaning & WAITED_FOR != 0 });
    }
}

/// The interpreter lock is the thread's, at `now`. A function of its own, so that its
/// stack burdens no hot path.
#[inline(never)]
pub fn taken(ctx: &ProbeContext, t: &mut Thread, now: u64) -> u32 {
    let (lock, site) = (t.gil.wrapping_sub(MUTEX), site(t, return_address(ctx)));
    let attempt_ns = if t.gil_wait_ns == 0 { now } else { t.gil_wait_ns };
    t.gil_wait_ns = 0;
    if !fits(lock, site) {
        return 0;
    }
    attempt(t, Via::Gil as u32, lock, site, attempt_ns);
    if attempt_ns < now {
        contend(t, 0);
        t.pending.flags |= u32::from(flag::SLEPT);
        t.pending.stack = stack_of_wait(ctx, t, now - attempt_ns);
    }
    acquired(t, attempt_ns, now)
}
