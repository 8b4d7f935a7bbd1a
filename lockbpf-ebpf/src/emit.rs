//! The only place that writes to the ring buffers. The reader polls: a wake-up costs as much as a probe. Only a new process
//! wakes it, once, so that its names can be taken while it lives.

use crate::maps::{RINGS, count};
use aya_ebpf::bindings::{BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP};
use aya_ebpf::helpers::generated::bpf_get_smp_processor_id;
use aya_ebpf::maps::ring_buf::RingBufEntry;
use lockbpf_common::counter::Counter;

/// Reserves room for one record in this CPU's ring buffer; counts it as `volume`, or as lost. The caller must write all
/// of it and [`submit`] it.
#[inline(always)]
pub fn reserve<T: 'static>(volume: Counter) -> Option<RingBufEntry<T>> {
    // SAFETY: no arguments.
    let cpu = unsafe { bpf_get_smp_processor_id() } as u32;
    let entry = RINGS.get(cpu).and_then(|ring| ring.reserve_untyped::<T>(0));
    count(if entry.is_some() { volume } else { Counter::RingFull });
    entry
}

/// Hands a record over, without waking the reader.
#[inline(always)]
pub fn submit<T>(entry: RingBufEntry<T>) {
    entry.submit(u64::from(BPF_RB_NO_WAKEUP));
}

/// Writes one record.
#[inline(always)]
pub fn emit<T: Copy + 'static>(record: &T, volume: Counter) {
    if let Some(mut entry) = reserve::<T>(volume) {
        entry.write(*record);
        submit(entry);
    }
}

/// Writes one record and wakes the reader.
#[inline(always)]
pub fn emit_and_wake<T: Copy + 'static>(record: &T, volume: Counter) {
    if let Some(mut entry) = reserve::<T>(volume) {
        entry.write(*record);
        entry.submit(u64::from(BPF_RB_FORCE_WAKEUP));
    }
}
