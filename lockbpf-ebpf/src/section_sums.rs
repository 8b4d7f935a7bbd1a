//! What is summed of sections: where a section's sums are, and how they grow.

use crate::atomic::{add, raise};
use crate::maps::SUMS;
use crate::slots::{NO_SLOT, slot_of};
use crate::thread::{RECENT, Recent, Thread};
use lockbpf_common::config::MAX_HELD;
use lockbpf_common::sums::{BUCKETS, SumKey, Sums, bucket};

/// The sums of a key, made if missing; a full map is counted.
#[inline(always)]
pub fn sums(key: &SumKey, kind: u32, now: u64) -> Option<&'static mut Sums> {
    at(slot_of(key, kind, now))
}

#[inline(always)]
pub fn at(slot: u32) -> Option<&'static mut Sums> {
    // SAFETY: the kernel returned a valid entry. Writers of plain fields are ordered by the observed lock; the others use
    // `add`.
    SUMS.get_ptr_mut(slot).map(|p| unsafe { &mut *p })
}

/// The slot for a section that ends, by the thread's memory of what it used last.
#[inline(always)]
pub fn slot_of_ending(t: &mut Thread, i: usize) -> u32 {
    let h = &t.held[i & (MAX_HELD - 1)];
    let (lock, site, via) = (h.lock, h.site, h.via);
    let place = place(lock, site);
    let recent = &t.recent[place];
    if recent.lock == lock && recent.site == site && recent.via == via {
        return recent.slot;
    }
    let slot = slot_of(&SumKey { lock, site, process: t.process, via }, h.kind, h.acquire_ns);
    if slot != NO_SLOT {
        t.recent[place] = Recent { lock, site, via, slot };
    }
    slot
}

/// The slot of the sums of held lock `i`.
#[inline(always)]
pub fn slot_of_held(t: &Thread, i: usize) -> u32 {
    let h = &t.held[i & (MAX_HELD - 1)];
    let (lock, site, via) = (h.lock, h.site, h.via);
    let recent = &t.recent[place(lock, site)];
    if recent.lock == lock && recent.site == site && recent.via == via {
        return recent.slot;
    }
    slot_of(&SumKey { lock, site, process: t.process, via }, h.kind, h.acquire_ns)
}

/// Where a thread remembers the slot of a lock and a site.
#[inline(always)]
pub fn place(lock: u64, site: u64) -> usize {
    // The upper bits of a product depend on all bits of its factors.
    ((lock ^ site).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - RECENT.ilog2())) as usize & (RECENT - 1)
}

/// Counts a duration in a histogram, into which others may count at the same time.
#[inline(always)]
pub fn tally(histogram: &mut [u64; BUCKETS], ns: u64) {
    let b = bucket(ns);
    if b < BUCKETS {
        add(&mut histogram[b], 1);
    }
}

/// In place of a wait: the section had none, ns.
pub const NO_WAIT: u64 = u64::MAX;

/// Sums a section: its hold, and its wait unless that is [`NO_WAIT`]; if it is `shared`, others may do so at the same time. Returns 0. Global.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn add_section(slot: u32, hold_ns: u64, wait_ns: u64, inner_hits: u64, shared: u32) -> u32 {
    let shared = shared != 0;
    if let Some(s) = at(slot) {
        add_hold(s, hold_ns, inner_hits, shared);
        if wait_ns != NO_WAIT {
            plus(&mut s.contended, 1, shared);
            add_time(&mut s.wait_ns, &mut s.wait_max_ns, &mut s.wait_hist, wait_ns, shared);
        }
    }
    0
}

/// Sums a section's hold where several locks are summed together, which do not order their writers. Returns 0. A function of its own,
/// so that its instructions burden no hot path.
#[inline(never)]
pub fn hold_together(slot: u32, hold_ns: u64, inner_hits: u64) -> u32 {
    if let Some(s) = at(slot) {
        add_hold(s, hold_ns, inner_hits, true);
    }
    0
}

/// Sums a section's hold; with `shared`, others may do so at the same time.
#[inline(always)]
pub fn add_hold(s: &mut Sums, hold_ns: u64, inner_hits: u64, shared: bool) {
    plus(&mut s.acquisitions, 1, shared);
    plus(&mut s.inner_hits, inner_hits, shared);
    add_time(&mut s.hold_ns, &mut s.hold_max_ns, &mut s.hold_hist, hold_ns, shared);
}

/// Adds an acquisition after so long a wait (0: none) that others may have had at the same time, and that is not seen to end.
#[inline(always)]
pub fn add_unseen(s: &mut Sums, wait_ns: u64) {
    add(&mut s.acquisitions, 1);
    add(&mut s.unseen, 1);
    if wait_ns > 0 {
        add(&mut s.contended, 1);
        add_time(&mut s.wait_ns, &mut s.wait_max_ns, &mut s.wait_hist, wait_ns, true);
    }
}

/// Adds a duration to a sum, the longest one and a histogram; with `shared`, others may do so at the same time.
#[inline(always)]
pub fn add_time(sum: &mut u64, longest: &mut u64, histogram: &mut [u64; BUCKETS], ns: u64, shared: bool) {
    plus(sum, ns, shared);
    if ns > *longest {
        if shared {
            raise(longest, ns);
        } else {
            *longest = ns;
        }
    }
    tally(histogram, ns);
}

/// Adds to a word of sums; with `shared`, others may do so at the same time.
#[inline(always)]
pub fn plus(word: &mut u64, n: u64, shared: bool) {
    if shared { add(word, n) } else { *word += n }
}
