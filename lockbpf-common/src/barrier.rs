//! Arrivals at barriers: each is recorded, since there are few.

use crate::record::{LOW48, Tag};

/// The fields of one arrival, unpacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BarrierFields {
    /// When the thread arrived, ns on `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// Address of the barrier in its process.
    pub barrier: u64,
    /// Return address of the call.
    pub site: u64,
    /// Process number.
    pub process: u32,
    /// The thread.
    pub tid: u32,
    /// How many threads the barrier is for; 0 if its memory could not be read.
    pub participants: u32,
    /// What the barrier's memory says of the round: one of [`round`].
    pub round: u32,
}

/// What is known of the round to which an arrival belongs.
pub mod round {
    /// Nothing.
    pub const UNKNOWN: u32 = 0;
    /// Rounds are numbered up to here, and then from 0 on again.
    pub const NUMBERS: u32 = 16;
    /// Nobody has arrived before in this round.
    pub const FIRST: u32 = NUMBERS + 1;
    /// Somebody has.
    pub const LATER: u32 = NUMBERS + 2;

    /// A round by its number: as many have been since the barrier was initialised (or, after two thousand million arrivals, reset).
    #[must_use]
    #[inline(always)]
    pub const fn numbered(number: u32) -> u32 {
        number % NUMBERS + 1
    }
}

/// One arrival, packed into five words.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct BarrierRecord(pub [u64; 5]);

impl BarrierRecord {
    /// Packs the fields (the kernel side refuses wide addresses before).
    #[must_use]
    #[inline(always)]
    pub const fn pack(f: &BarrierFields) -> Self {
        Self([
            f.time_ns,
            (Tag::Barrier as u64) << 60 | f.barrier & LOW48,
            f.site & LOW48,
            (f.process as u64) << 32 | f.tid as u64,
            (f.round as u64) << 32 | f.participants as u64,
        ])
    }

    /// Unpacks the fields.
    #[must_use]
    pub const fn unpack(&self) -> BarrierFields {
        let w = &self.0;
        BarrierFields {
            time_ns: w[0],
            barrier: w[1] & LOW48,
            site: w[2] & LOW48,
            process: (w[3] >> 32) as u32,
            tid: w[3] as u32,
            participants: w[4] as u32,
            round: (w[4] >> 32) as u32,
        }
    }
}

const _: () = assert!(size_of::<BarrierRecord>() == 40);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arrival_survives_packing() {
        let fields = BarrierFields {
            time_ns: u64::MAX,
            barrier: 0x7fff_ffff_ffe0,
            site: LOW48,
            process: 7,
            tid: u32::MAX,
            participants: 4,
            round: round::numbered(33),
        };
        let packed = BarrierRecord::pack(&fields);
        assert_eq!(Tag::of(packed.0[1]), Some(Tag::Barrier));
        assert_eq!(packed.unpack(), fields);
    }
}
