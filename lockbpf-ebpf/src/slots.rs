//! Slots for sums: one for each lock and site while there is room, then one for all further locks of a site, then one for all others, so
//! that every operation is summed somewhere.

use crate::maps::{SUM_KEYS, SUM_SLOTS, SUMS, count, given, next};
use aya_ebpf::bindings::BPF_NOEXIST;
use core::ops::Range;
use lockbpf_common::counter::Counter;
use lockbpf_common::process::{SERIAL_OTHER_SUMS, SERIAL_SITE_SUMS, SERIAL_SUMS};
use lockbpf_common::record::LOW48;
use lockbpf_common::sums::{OTHER_LOCKS, OTHER_SUMS, OWN_SUMS, SITE_SUMS, SumKey};

/// No slot was left.
pub const NO_SLOT: u32 = u32::MAX;

/// The slot of a key's sums, taken if it has none yet; a full map is counted.
#[inline(always)]
pub fn slot_of(key: &SumKey, kind: u32, now: u64) -> u32 {
    take_slot(key.lock, key.site, u64::from(key.process) << 32 | u64::from(key.via), kind, now)
}

/// A function of its own, so that the key is not on the stack of the rest. Global.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn take_slot(lock: u64, site: u64, process_and_via: u64, kind: u32, now: u64) -> u32 {
    let mut key = SumKey { lock, site, process: (process_and_via >> 32) as u32, via: process_and_via as u32 };
    let slot = slot_among(&key, kind, now, SERIAL_SUMS, OWN_SUMS);
    if slot != NO_SLOT {
        return slot;
    }
    // Together with all others that are requested there, else with all others of the process.
    key.lock = OTHER_LOCKS | site & LOW48;
    let slot = slot_among(&key, kind, now, SERIAL_SITE_SUMS, SITE_SUMS);
    if slot != NO_SLOT {
        return slot;
    }
    (key.lock, key.site) = (OTHER_LOCKS, 0);
    let slot = slot_among(&key, kind, now, SERIAL_OTHER_SUMS, OTHER_SUMS);
    if slot == NO_SLOT {
        count(Counter::SumsFull);
    }
    slot
}

/// The slot of a key's sums, or a new one in `room`, of which the next is told by a series; `NO_SLOT` without room.
#[inline(always)]
fn slot_among(key: &SumKey, kind: u32, now: u64, series: u32, room: Range<u32>) -> u32 {
    let slot = known_slot(key);
    if slot != NO_SLOT {
        return slot;
    }
    let slots = u64::from(room.end - room.start);
    if given(series) >= slots {
        return NO_SLOT;
    }
    let nth = next(series);
    if nth >= slots {
        return NO_SLOT;
    }
    let slot = room.start + nth as u32;
    if let Some(sums) = SUMS.get_ptr_mut(slot) {
        // SAFETY: nobody else knows this slot yet. Fresh ones are zeroed.
        unsafe {
            (*sums).first_ns = now;
            (*sums).kind = kind;
            (*sums).stack = -1;
        }
        if SUM_SLOTS.insert(key, slot, u64::from(BPF_NOEXIST)).is_ok() {
            // The slot exists.
            let _ = SUM_KEYS.set(slot, key, 0);
            return slot;
        }
    }
    // Another thread may have been faster; this one's slot then stays empty.
    known_slot(key)
}

/// The slot of a key's sums, if it has one.
#[inline(always)]
pub fn known_slot(key: &SumKey) -> u32 {
    // SAFETY: entries are neither changed nor removed while the programs run.
    SUM_SLOTS.get_ptr(key).map_or(NO_SLOT, |slot| unsafe { *slot })
}
