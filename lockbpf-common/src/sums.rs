//! Sums kept in the kernel, so that an acquisition costs no record: per process, lock and call site, and per thread.

use crate::config::MAX_SUMS;
use core::ops::Range;

/// Buckets of a log2 histogram: bucket b counts durations in [2^b, 2^(b+1)) ns, 0 ns in bucket 0, the last one open.
pub const BUCKETS: usize = 36;

/// Bucket of a duration.
#[must_use]
#[inline(always)]
pub const fn bucket(ns: u64) -> usize {
    // eBPF has no count-leading-zeros instruction. All bits below the highest one are set, and counted: without a branch, each of
    // which would double what the verifier has to follow.
    let mut v = ns | 1;
    v |= v >> 1;
    v |= v >> 2;
    v |= v >> 4;
    v |= v >> 8;
    v |= v >> 16;
    v |= v >> 32;
    let b = v.count_ones() as usize - 1;
    if b >= BUCKETS { BUCKETS - 1 } else { b }
}

/// Slots for the sums of one lock and site each.
pub const OWN_SUMS: Range<u32> = 0..MAX_SUMS - 3_072;
/// Slots for the sums of all locks together, for which there is none of those, by site.
pub const SITE_SUMS: Range<u32> = OWN_SUMS.end..OWN_SUMS.end + 2_048;
/// Slots for the sums of all others, by process.
pub const OTHER_SUMS: Range<u32> = SITE_SUMS.end..MAX_SUMS;

/// Whether several locks are summed in a slot, so that no lock orders the writers. Also of a number that is no slot.
#[must_use]
#[inline(always)]
pub const fn is_shared_slot(slot: u32) -> bool {
    slot >= OWN_SUMS.end
}

/// In the place of a lock's address: the sums are those of all locks for which there was no room one by one. The rest of the number is the
/// site at which they are requested, or 0 for all others of the process.
pub const OTHER_LOCKS: u64 = 1 << 63;

/// Whose sums: one lock of one process, requested at one call site by one kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C)]
pub struct SumKey {
    /// Address of the lock (condition variable, futex word), or [`OTHER_LOCKS`].
    pub lock: u64,
    /// Return address of the requesting call; 0 where [`crate::kind::Via::Futex`] knows none.
    pub site: u64,
    /// Process number.
    pub process: u32,
    /// [`crate::kind::Via`] as a number.
    pub via: u32,
}

/// Sums of one [`SumKey`]. Times in ns.
///
/// A lock that is free at the attempt counts as acquired at that moment: what its call takes beyond that is below the
/// cost of the probe that would measure it. So the acquire latency of an uncontended acquisition is 0 by definition, and
/// `wait_ns`, `wait_max_ns` and `wait_hist` (with `acquisitions − contended` more in its lowest bucket) are those of all.
///
/// All but `try_failures`, `timeouts`, `timeout_ns`, `errors`, `wakes` and `wakes_of_none` are written while the lock is held,
/// so the lock itself orders the writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Sums {
    /// Time of the first operation.
    pub first_ns: u64,
    /// Sections completed (condition variable: waits; futex: waits that slept and were woken).
    pub acquisitions: u64,
    /// The contended ones of these (condition variable: waits that then had to wait for the mutex as well).
    pub contended: u64,
    /// Acquisitions of which the release was not seen: their holds are unknown, and not in the sums.
    pub unseen: u64,
    /// Failed trylocks (futex: waits that returned at once, `EAGAIN`).
    pub try_failures: u64,
    /// Attempts that timed out.
    pub timeouts: u64,
    /// Σ wait of those.
    pub timeout_ns: u64,
    /// Attempts that failed otherwise (futex: interrupted).
    pub errors: u64,
    /// Futex only: wake calls that woke at least one thread.
    pub wakes: u64,
    /// Futex only: wake calls that woke nobody.
    pub wakes_of_none: u64,
    /// Σ wait of the contended ones (condition variable: Σ idle time).
    pub wait_ns: u64,
    /// Longest wait.
    pub wait_max_ns: u64,
    /// Σ hold (condition variable: Σ latency, from the call that woke the waiter until it ran).
    pub hold_ns: u64,
    /// Longest hold.
    pub hold_max_ns: u64,
    /// Sections that were open when the full tier was closed, by which it is not known when they ended.
    pub cut: u64,
    /// Σ of the time for which those had been held by then.
    pub cut_ns: u64,
    /// Σ probe hits of the holder between acquire and release: what observing added to its holds beyond the one release.
    pub inner_hits: u64,
    /// glibc's mutex kind, or one of lockbpf's own marks ([`crate::kind::mutex_kind`]).
    pub kind: u32,
    /// Stack number of a representative section, or a negative number when none was taken.
    pub stack: i32,
    /// Waits of the contended ones.
    pub wait_hist: [u64; BUCKETS],
    /// Holds.
    pub hold_hist: [u64; BUCKETS],
}

impl Sums {
    /// Nothing summed yet.
    pub const EMPTY: Self = Self {
        first_ns: 0,
        acquisitions: 0,
        contended: 0,
        unseen: 0,
        try_failures: 0,
        timeouts: 0,
        timeout_ns: 0,
        errors: 0,
        wakes: 0,
        wakes_of_none: 0,
        wait_ns: 0,
        wait_max_ns: 0,
        hold_ns: 0,
        hold_max_ns: 0,
        cut: 0,
        cut_ns: 0,
        inner_hits: 0,
        kind: 0,
        stack: -1,
        wait_hist: [0; BUCKETS],
        hold_hist: [0; BUCKETS],
    };
}

/// What one thread did, over all its locks. Times in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ThreadSums {
    /// The thread; 0 while the slot is free.
    pub tid: u32,
    /// Its process number.
    pub process: u32,
    /// Sections completed.
    pub acquisitions: u64,
    /// Σ wait of contended acquisitions and of timed-out attempts.
    pub wait_ns: u64,
    /// Σ wait for kernel locks, but for what was spent inside of a wait for a lock of the program.
    pub kernel_wait_ns: u64,
    /// Σ hold, summed over locks (nesting counts twice).
    pub held_sum_ns: u64,
    /// Time with at least one lock held.
    pub held_union_ns: u64,
    /// Thread name when first seen.
    pub comm: [u8; 16],
}

const _: () = assert!(size_of::<SumKey>() == 24);
const _: () = assert!(size_of::<Sums>() == 17 * 8 + 8 + 2 * BUCKETS * 8);
const _: () = assert!(size_of::<ThreadSums>() == 64);
// At 10⁸ operations a second, no count wraps in a year (3 · 10¹⁵): all of them have 64 bits. The sums of times last for more than five
// hundred years of waiting and of holding.

// SAFETY: repr(C), integers only, no padding (asserted above): any bytes are a valid value.
#[cfg(feature = "user")]
unsafe impl aya::Pod for SumKey {}
// SAFETY: as above.
#[cfg(feature = "user")]
unsafe impl aya::Pod for Sums {}
// SAFETY: as above.
#[cfg(feature = "user")]
unsafe impl aya::Pod for ThreadSums {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_powers_of_two() {
        assert_eq!(bucket(0), 0);
        assert_eq!(bucket(1), 0);
        for b in 1..BUCKETS {
            assert_eq!(bucket(1 << b), b);
            assert_eq!(bucket((1 << b) - 1), b - 1);
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }
}
