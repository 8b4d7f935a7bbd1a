//! What a goroutine does instead of running while others wait for it. As with [threads](crate::watched), its absences are kept for a second
//! after it gave back a lock for which others waited, and recorded when it gives back such a lock again. They are kept by goroutine, since it
//! leaves a thread at each system call that lasts, and may come back in another one.
//!
//! Goroutines that merely park leave no trace in the kernel. Only `time.Sleep` is probed, where it begins. [Virtual threads](crate::virtual_thread) of
//! Java's are kept in the same way, by their numbers; of these it is seen when they go on.

use crate::off_cpu::{Absence, Absences, Who};
use crate::registers::{GOROUTINE, user_register};
use crate::stack::walk;
use crate::thread::{Thread, now};
use crate::watched::WATCH_NS;
use aya_ebpf::btf_maps::Array;
use aya_ebpf::macros::btf_map;
use core::ffi::c_void;
use lockbpf_common::gate::MAX_SLOTS;
use lockbpf_common::off_cpu::Reason;

/// Places for watched goroutines; the descriptor's address tells which one a goroutine may have.
const PLACES: u32 = 512;
/// Absences kept of each; the oldest gives way.
const KEPT: usize = 64;
/// Descriptors are at least so far apart, as a power of two.
const ALIGN: u32 = 5;

/// A goroutine that makes others wait.
#[repr(C)]
struct Watched {
    /// Process number.
    process: u64,
    /// Address of its descriptor.
    descriptor: u64,
    /// Until when it is watched, ns.
    until_ns: u64,
    /// What it did instead of running.
    absences: Absences<KEPT>,
}

/// Watched goroutines. One that finds its place taken is not watched: its waiters' reasons stay unknown.
#[btf_map]
static GOROUTINES: Array<Watched, { PLACES as usize }> = Array::new();

/// Until when any goroutine of each slot's processes is watched, ns.
#[btf_map]
static GOROUTINES_UNTIL: Array<u64, { MAX_SLOTS as usize }> = Array::new();

#[inline(always)]
fn place(descriptor: u64) -> Option<&'static mut Watched> {
    // SAFETY: the kernel returned a valid entry of integers. A goroutine writes to its own in one thread at a time; those that wait for a virtual
    // thread may write to its entry at the same time, and an absence of which one half is another's is at worst a wrong one.
    GOROUTINES.get_ptr_mut((descriptor >> ALIGN) as u32 & (PLACES - 1)).map(|place| unsafe { &mut *place })
}

/// A goroutine is watched from now on, if there is a place for it: returns whether there is.
#[inline(always)]
pub fn watch(process: u32, descriptor: u64, now: u64) -> bool {
    let Some(place) = place(descriptor) else { return false };
    if place.until_ns <= now {
        (place.process, place.descriptor) = (u64::from(process), descriptor);
        place.absences.forget();
    } else if place.descriptor != descriptor || place.process != u64::from(process) {
        return false;
    }
    place.until_ns = now + WATCH_NS;
    true
}

/// Records what a watched goroutine, told as `tid`, did instead of running in this time.
#[inline(always)]
pub fn tell(t: &Thread, descriptor: u64, tid: u32, (from_ns, to_ns): (u64, u64)) {
    if let Some(of) = watched(t.process, descriptor, from_ns) {
        of.absences.tell_since(Who::of(t, tid), from_ns, to_ns);
    }
}

/// Whether a goroutine is watched.
#[inline(always)]
pub fn is_watched(process: u32, descriptor: u64, now: u64) -> bool {
    watched(process, descriptor, now).is_some()
}

/// What a virtual thread of Java's has in place of a descriptor; `tid` is what records tell for it.
#[inline(always)]
pub const fn of_virtual(tid: u32) -> u64 {
    (tid as u64) << ALIGN
}

/// What is kept of a goroutine, if it is watched.
#[inline(always)]
fn watched(process: u32, descriptor: u64, now: u64) -> Option<&'static mut Watched> {
    let place = place(descriptor)?;
    let own = place.descriptor == descriptor && place.process == u64::from(process) && place.until_ns > now;
    if own { Some(place) } else { None }
}

/// The descriptor of the watched goroutine that the current thread runs, which is in the kernel; 0 if there is none.
#[inline(always)]
pub fn running(t: &Thread) -> u64 {
    let until_ns = GOROUTINES_UNTIL.get(t.slot).copied().unwrap_or(0);
    if until_ns == 0 {
        return 0;
    }
    let now = now();
    if until_ns <= now {
        return 0;
    }
    let descriptor = user_register(GOROUTINE);
    if watched(t.process, descriptor, now).is_some() { descriptor } else { 0 }
}

/// Keeps an absence that is over of a goroutine of the thread's process.
#[inline(always)]
pub fn keep(t: &Thread, descriptor: u64, off: &Absence) {
    if let Some(of) = watched(t.process, descriptor, off.since_ns) {
        of.absences.keep(off);
    }
}

/// A goroutine calls `time.Sleep`. A function of its own, so that its stack is not that of all of Go's probes.
#[inline(never)]
pub fn sleeps(ctx: *mut c_void, t: &Thread, descriptor: u64, sleep_ns: u64) -> u32 {
    let now = now();
    if let Some(of) = watched(t.process, descriptor, now)
        && sleep_ns as i64 > 0
    {
        // No timer ends before its time; that it ends later is not known.
        let end_ns = now.saturating_add(sleep_ns);
        let (stack, reason) = (walk(ctx), Reason::Sleeping as u32);
        of.absences.keep(&Absence { since_ns: now, end_ns, run_delay_ns: 0, stack, reason });
    }
    0
}

/// A goroutine, told as `tid`, has `now` given back a lock for which others waited, which it had since `from_ns` at the earliest. Records
/// its absences since then. Is watched from now on.
#[inline(always)]
pub fn gave_back(t: &Thread, descriptor: u64, tid: u32, from_ns: u64, now: u64) {
    if let Some(of) = watched(t.process, descriptor, now) {
        of.absences.tell_since(Who::of(t, tid), from_ns, now);
    }
    if watch(t.process, descriptor, now)
        && let Some(until_ns) = GOROUTINES_UNTIL.get_ptr_mut(t.slot)
    {
        // SAFETY: the kernel returned a valid entry; of two times that are nearly the same either may stay.
        unsafe { *until_ns = now + WATCH_NS };
    }
}
