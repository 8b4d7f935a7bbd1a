//! A thread that holds a lock leaves the CPU and comes back: one record, written when it is back.

use crate::record::{LOW48, Tag};

/// Shorter absences are not recorded, ns. A switch to another thread and back takes a few microseconds by itself, so what
/// is shorter explains no wait, and a thread that yields in a loop must not fill the ring buffers.
pub const MIN_OFF_NS: u64 = 5_000;

/// Why a thread left the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Reason {
    /// It was preempted, or yielded: it could have run on.
    Runnable = 1,
    /// Uninterruptible sleep: I/O, page faults.
    Blocked = 2,
    /// Interruptible sleep: timers, sockets, pipes; also stopped by a signal.
    Sleeping = 3,
    /// Sleep in a futex call that is not for a probed lock.
    Futex = 4,
}

impl Reason {
    /// The reason for a number read from a record; `None` for a number no version has written.
    #[must_use]
    pub const fn from_u8(raw: u8) -> Option<Self> {
        Some(match raw {
            1 => Self::Runnable,
            2 => Self::Blocked,
            3 => Self::Sleeping,
            4 => Self::Futex,
            _ => return None,
        })
    }
}

/// The fields of one absence, unpacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffCpuFields {
    /// When the thread was on the CPU again, ns on `CLOCK_MONOTONIC`.
    pub end_ns: u64,
    /// How long it was off, ns.
    pub off_ns: u64,
    /// The last part of it, in which it waited for a CPU, ns.
    pub runnable_ns: u64,
    /// Process number.
    pub process: u32,
    /// The thread.
    pub tid: u32,
    /// Stack number, or a negative errno.
    pub stack: i32,
    /// [`Reason`] as a number.
    pub reason: u8,
}

/// One absence, packed into five words.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct OffCpuRecord(pub [u64; 5]);

impl OffCpuRecord {
    /// Packs the fields; durations beyond their width are clipped.
    #[must_use]
    #[inline(always)]
    pub const fn pack(f: &OffCpuFields) -> Self {
        Self([
            f.end_ns,
            (Tag::OffCpu as u64) << 60 | (f.reason as u64) << 48 | clip(f.off_ns),
            clip(f.runnable_ns),
            (f.process as u64) << 32 | f.tid as u64,
            f.stack as u32 as u64,
        ])
    }

    /// Unpacks the fields.
    #[must_use]
    pub const fn unpack(&self) -> OffCpuFields {
        let w = &self.0;
        OffCpuFields {
            end_ns: w[0],
            off_ns: w[1] & LOW48,
            runnable_ns: w[2] & LOW48,
            process: (w[3] >> 32) as u32,
            tid: w[3] as u32,
            stack: w[4] as u32 as i32,
            reason: (w[1] >> 48) as u8,
        }
    }
}

#[inline(always)]
const fn clip(ns: u64) -> u64 {
    if ns > LOW48 { LOW48 } else { ns }
}

const _: () = assert!(size_of::<OffCpuRecord>() == 40);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absence_survives_packing() {
        for reason in [Reason::Runnable, Reason::Blocked, Reason::Sleeping, Reason::Futex] {
            let fields = OffCpuFields {
                end_ns: u64::MAX,
                off_ns: LOW48,
                runnable_ns: 7,
                process: u32::MAX,
                tid: 4_194_303,
                stack: -14,
                reason: reason as u8,
            };
            let packed = OffCpuRecord::pack(&fields);
            assert_eq!(Tag::of(packed.0[1]), Some(Tag::OffCpu));
            assert_eq!(packed.unpack(), fields);
            assert_eq!(Reason::from_u8(fields.reason), Some(reason));
        }
        assert_eq!(Reason::from_u8(0), None);
        let long = OffCpuFields { off_ns: u64::MAX, runnable_ns: u64::MAX, ..OffCpuFields::default() };
        let clipped = OffCpuRecord::pack(&long).unpack();
        assert_eq!((clipped.off_ns, clipped.runnable_ns), (LOW48, LOW48));
    }
}
