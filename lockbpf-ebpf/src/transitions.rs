//! Which lock a thread goes to after which other one, after how long, and how long it stays: sums for models. Only if they are asked
//! for; otherwise the verifier leaves all of this out.

use crate::maps::{CONFIG, TRANSITION_SLOTS, TRANSITIONS, count, next};
use crate::slots::NO_SLOT;
use crate::thread::{Thread, tid};
use aya_ebpf::bindings::BPF_NOEXIST;
use lockbpf_common::config::mode;
use lockbpf_common::counter::Counter;
use lockbpf_common::process::SERIAL_TRANSITIONS;
use lockbpf_common::transition::{TransitionKey, TransitionSums};

/// A thread's way from lock to lock. Zeroed storage is the valid initial state.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Way {
    /// The lock of the visit in progress, or else of the last one.
    lock: u64,
    /// When the last visit ended; 0 while there is one in progress, or where the last one is not known.
    ended_ns: u64,
    /// Of the time since then, or of the visit in progress, what was spent waiting.
    waited_ns: u64,
    /// Slot of the sums of the transition that led to the visit in progress, plus one; 0 if there is none.
    slot: u32,
    /// Explicit padding.
    reserved: u32,
    /// Slots used last.
    recent: [Known; RECENT],
}

/// Slots that a thread remembers, each at the place that its pair's hash names.
const RECENT: usize = 16;

/// Where the sums of a transition are. All zero: nowhere, since no lock is at address 0.
#[derive(Clone, Copy)]
#[repr(C)]
struct Known {
    from: u64,
    to: u64,
    slot: u32,
    reserved: u32,
}

impl Way {
    /// What was seen so far does not lead on.
    #[inline(always)]
    pub fn lose(&mut self) {
        self.ended_ns = 0;
        self.slot = 0;
    }

    /// The thread has another process's number from now on.
    #[inline(always)]
    pub fn forget_slots(&mut self) {
        self.lose();
        for known in &mut self.recent {
            known.to = 0;
        }
    }
}

#[inline(always)]
fn on() -> bool {
    CONFIG.load().mode & mode::TRANSITIONS != 0
}

/// The thread, which holds nothing, takes a lock for which it has asked at `attempt_ns`.
#[inline(always)]
pub fn arrives(t: &mut Thread, lock: u64, attempt_ns: u64) {
    // The mutex that guards an interpreter lock is part of that.
    if on() && lock != t.gil {
        arrive(t, lock, attempt_ns);
    }
}

/// A function of its own, so that its stack and instructions burden no other.
#[inline(never)]
fn arrive(t: &mut Thread, lock: u64, attempt_ns: u64) -> u32 {
    let known = t.way.ended_ns != 0;
    let from = if known { t.way.lock } else { 0 };
    let own_ns = attempt_ns.saturating_sub(t.way.ended_ns).saturating_sub(t.way.waited_ns);
    let slot = slot_of(t, from, lock, attempt_ns);
    t.way.lock = lock;
    t.way.ended_ns = 0;
    t.way.waited_ns = 0;
    t.way.slot = slot.wrapping_add(1);
    if let Some(s) = at(slot) {
        s.count += 1;
        if known {
            s.local_ns += own_ns;
        }
    } else {
        count(Counter::TransitionsFull);
    }
    0
}

/// The thread holds nothing any more, at `now`.
#[inline(always)]
pub fn departs(t: &mut Thread, now: u64) {
    if on() && t.way.slot != 0 {
        depart(t, now);
    }
}

#[inline(never)]
fn depart(t: &mut Thread, now: u64) -> u32 {
    let hold_ns = now.saturating_sub(t.union_start_ns).saturating_sub(t.way.waited_ns);
    if let Some(s) = at(t.way.slot.wrapping_sub(1)) {
        s.visits += 1;
        s.hold_ns += hold_ns;
        s.add_square(hold_ns);
    }
    t.way.slot = 0;
    t.way.ended_ns = now;
    t.way.waited_ns = 0;
    0
}

/// The thread has waited for others: that is neither time of its own nor of its visit.
#[inline(always)]
pub fn waited(way: &mut Way, ns: u64) {
    if on() {
        way.waited_ns += ns;
    }
}

/// The thread was not watched from `end_ns` on; `holding` tells whether it had a lock then.
#[inline(always)]
pub fn cut(t: &mut Thread, end_ns: u64, holding: bool) {
    if on() {
        cut_off(t, end_ns, holding);
    }
}

/// What was seen of a time that did not end is part of its sum, though not of its count: so the quotient is what it would be without
/// windows, if times are exponential.
#[inline(never)]
fn cut_off(t: &mut Thread, end_ns: u64, holding: bool) -> u32 {
    if t.way.slot != 0 {
        if holding && let Some(s) = at(t.way.slot.wrapping_sub(1)) {
            s.cut_ns += end_ns.saturating_sub(t.union_start_ns).saturating_sub(t.way.waited_ns);
        }
    } else if t.way.ended_ns != 0 {
        let own_ns = end_ns.saturating_sub(t.way.ended_ns).saturating_sub(t.way.waited_ns);
        let (from, ended_ns) = (t.way.lock, t.way.ended_ns);
        if let Some(s) = at(slot_of(t, from, 0, ended_ns)) {
            s.count += 1;
            s.local_ns += own_ns;
        } else {
            count(Counter::TransitionsFull);
        }
    }
    t.way.lose();
    0
}

/// The slot of a transition's sums, by the thread's memory of what it used last; one that has found no room is remembered as well.
#[inline(always)]
fn slot_of(t: &mut Thread, from: u64, to: u64, now: u64) -> u32 {
    // The upper bits of a product depend on all bits of its factors; the halves are exchanged, since both ways are common.
    let hash = (from.rotate_left(32) ^ to).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let place = (hash >> (u64::BITS - RECENT.ilog2())) as usize & (RECENT - 1);
    let known = &t.way.recent[place];
    if known.from == from && known.to == to && to != 0 {
        return known.slot;
    }
    let slot = take_transition(from, to, t.process, tid(), now);
    t.way.recent[place] = Known { from, to, slot, reserved: 0 };
    slot
}

/// Global, so that it is verified once.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn take_transition(from: u64, to: u64, process: u32, tid: u32, now: u64) -> u32 {
    let key = TransitionKey { from, to, process, tid };
    // SAFETY: entries are neither changed nor removed while the programs run.
    if let Some(slot) = TRANSITION_SLOTS.get_ptr(key) {
        return unsafe { *slot };
    }
    // Only its thread takes a transition's slot. Beyond the last one there is none, however far the series has gone.
    let slot = next(SERIAL_TRANSITIONS).min(u64::from(NO_SLOT)) as u32;
    let Some(sums) = TRANSITIONS.get_ptr_mut(slot) else { return NO_SLOT };
    if TRANSITION_SLOTS.insert(key, slot, u64::from(BPF_NOEXIST)).is_err() {
        return NO_SLOT;
    }
    // SAFETY: nobody else knows this slot. Fresh ones are zeroed.
    unsafe {
        (*sums).key = key;
        (*sums).first_ns = now;
    }
    slot
}

#[inline(always)]
fn at(slot: u32) -> Option<&'static mut TransitionSums> {
    // SAFETY: the kernel returned a valid entry, which belongs to this thread alone.
    TRANSITIONS.get_ptr_mut(slot).map(|p| unsafe { &mut *p })
}
