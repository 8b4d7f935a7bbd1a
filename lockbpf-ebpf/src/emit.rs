//! The only place that writes to the ring buffers. The reader polls: a wake-up costs as much as a probe. Only a new process
//! wakes it, once, so that its names can be taken while it lives.

use crate::gate::charge;
use crate::maps::{RINGS, count};
use aya_ebpf::bindings::{BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP};
use aya_ebpf::helpers::generated::bpf_get_smp_processor_id;
use aya_ebpf::maps::ring_buf::RingBufEntry;
use lockbpf_common::counter::Counter;

/// What the kernel writes in front of a record, bytes.
pub const HEADER: usize = 8;

/// Reserves room for one record in this CPU's ring buffer, or counts the record as lost. The caller must write all of it
/// and [`submit`] it.
#[inline(always)]
pub fn reserve<T: 'static>() -> Option<RingBufEntry<T>> {
    // SAFETY: no arguments.
    let cpu = unsafe { bpf_get_smp_processor_id() } as u32;
    let entry = RINGS.get(cpu).and_then(|ring| ring.reserve_untyped::<T>(0));
    // Nothing else is done here with what was reserved: verifiers before 6.3 do not remember that it is not null, and
    // take a second test of it for a way to leak it.
    if entry.is_none() {
        count(Counter::RingFull);
    }
    entry
}

/// Hands a record over, without waking the reader, and counts it as `volume`.
#[inline(always)]
pub fn submit<T>(entry: RingBufEntry<T>, volume: Counter) {
    entry.submit(u64::from(BPF_RB_NO_WAKEUP));
    count(volume);
}

/// Writes one record.
#[inline(always)]
pub fn emit<T: Copy + 'static>(record: &T, volume: Counter) {
    if let Some(mut entry) = reserve::<T>() {
        entry.write(*record);
        submit(entry, volume);
    }
}

/// Writes one record of what a thread did, at the expense of its process's slot.
#[inline(always)]
pub fn emit_for<T: Copy + 'static>(slot: u32, record: &T, volume: Counter) {
    if let Some(mut entry) = reserve::<T>() {
        entry.write(*record);
        submit(entry, volume);
        charge_record::<T>(slot);
    }
}

/// Charges one record to the process of a slot.
#[inline(always)]
pub fn charge_record<T>(slot: u32) {
    charge(slot, |account| {
        account.records += 1;
        account.record_bytes += (size_of::<T>() + HEADER) as u64;
    });
}

/// Writes one record and wakes the reader.
#[inline(always)]
pub fn emit_and_wake<T: Copy + 'static>(record: &T, volume: Counter) {
    if let Some(mut entry) = reserve::<T>() {
        entry.write(*record);
        entry.submit(u64::from(BPF_RB_FORCE_WAKEUP));
        count(volume);
    }
}
