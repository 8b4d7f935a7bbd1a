//! What a thread does instead of running while others wait for it, where no section tells: outside of windows, and for locks that
//! programs take inline. A thread that gives back a lock for which others slept is watched for a second from then on: its absences
//! are kept, and recorded when it gives back such a lock again. So nothing is written for who makes nobody wait. So is a thread that is new
//! in a process where that happens: it may end before it has given back a second one.

use crate::maps::THINNING;
use crate::off_cpu::{Absence, Absences, Who};
use crate::thread::{Thread, now, stored, task, tid};
use aya_ebpf::{btf_maps::Array, helpers::generated::bpf_get_prandom_u32, macros::btf_map};
use lockbpf_common::gate::MAX_SLOTS;

/// For how long a thread is watched after it gave back such a lock, ns.
pub const WATCH_NS: u64 = 1_000_000_000;
/// Absences kept; the oldest gives way.
const KEPT: usize = 32;
/// Stacks of absences are so close to one another on the average where there are more, ns: to take one costs more than a short absence, and those
/// that make others wait for long are rare. With each level of thinning half as close, and at higher ones a quarter of that: else little of what all this may
/// cost is left for the stacks of waits. Up to the last shift, nearly a second.
const STACK_NS: u64 = 200_000;
const MAX_SHIFT: u32 = 12;

/// When a thread of each slot's processes last gave back a lock for which others slept, ns.
#[btf_map]
static GAVE_BACK: Array<u64, { MAX_SLOTS as usize }> = Array::new();

/// The absences of a thread that may prove to have made others wait.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Watched {
    /// Until when it is watched, ns; 0 if it is not.
    until_ns: u64,
    /// Since when all its absences are kept or recorded, ns.
    complete_ns: u64,
    /// When the stack of an absence was taken last, ns.
    stack_ns: u64,
    /// The last ones.
    absences: Absences<KEPT>,
}

/// Whether the thread's absences are to be kept.
#[inline(always)]
pub fn is_watched(t: &Thread) -> bool {
    t.watched.until_ns != 0 && t.watched.until_ns > now()
}

/// Watches a thread that is new, or whose program is, if its process makes threads wait.
#[inline(always)]
pub fn begin(t: &mut Thread) {
    stop(t);
    let now = now();
    if GAVE_BACK.get(t.slot).is_some_and(|&last_ns| last_ns + WATCH_NS > now) {
        t.watched.until_ns = now + WATCH_NS;
        t.watched.complete_ns = now;
    }
}

/// Whether the stack of an absence is to be taken that begins `now`. By chance, the sooner the longer none was taken: after a fixed time it would
/// always be the same one of two absences that take turns.
#[inline(always)]
pub fn takes_stack(t: &mut Thread, now: u64) -> bool {
    let level = THINNING.get(t.slot).copied().unwrap_or(0);
    let shift = (level + (level / 2).min(2)).min(MAX_SHIFT);
    is_due(&mut t.watched.stack_ns, STACK_NS << shift, now)
}

/// Whether what was done last at `last_ns` is to be done again `now`, so far apart on the average. By chance, the sooner the longer ago that was.
#[inline(always)]
pub fn is_due(last_ns: &mut u64, apart_ns: u64, now: u64) -> bool {
    // SAFETY: no arguments.
    let chance = u64::from(unsafe { bpf_get_prandom_u32() });
    // From none to twice the time on the average.
    let due = now.saturating_sub(*last_ns) >= chance * apart_ns >> 31;
    if due {
        *last_ns = now;
    }
    due
}

/// Keeps an absence that is over.
#[inline(always)]
pub fn keep(t: &mut Thread, off: &Absence) {
    let w = &mut t.watched;
    w.complete_ns = w.complete_ns.max(w.absences.keep(off));
}

/// Forgets what is kept: it was another program's, or something was missed.
#[inline(never)]
pub fn stop(t: &mut Thread) -> u32 {
    t.watched.until_ns = 0;
    t.watched.absences.forget();
    0
}

/// Watches a thread that has made others wait.
#[inline(always)]
fn watch(t: &mut Thread, now: u64) {
    t.watched.until_ns = now + WATCH_NS;
    if let Some(last_ns) = GAVE_BACK.get_ptr_mut(t.slot) {
        // SAFETY: the kernel returned a valid entry; of two times that are nearly the same either may stay.
        unsafe { *last_ns = now };
    }
}

/// The thread has `now` given back a lock for which others slept, which it had since `from_ns` at the earliest. Records its absences
/// since then, and returns since when they are complete. Is watched from now on if that is `long`. A function of its own, so that its
/// instructions burden no other.
#[inline(never)]
pub fn gave_back(t: &mut Thread, from_ns: u64, now: u64, long: bool) -> u64 {
    if t.watched.until_ns <= now {
        // Nobody looked until now.
        t.watched.complete_ns = now;
        if !long {
            return now;
        }
    }
    if long {
        watch(t, now);
    }
    tell_kept(from_ns, now);
    t.watched.complete_ns
}

/// Records the current thread's kept absences since `from_ns`. Returns 0. Global.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn tell_kept(from_ns: u64, now: u64) -> u32 {
    if let Some(t) = stored(task()) {
        t.watched.absences.tell_since(Who::of(t, tid()), from_ns, now);
    }
    0
}
