//! Transitions: to which lock a thread goes after which other one, how long it works on its own in between, and how long it then
//! stays. A stay is a *visit*: from the acquisition of a lock while no other is held until none is held any more. Sums by
//! thread, so that threads of the same pattern can be told from others; only where a model is to be made of them.

/// Transitions with sums: by thread, as many pairs of locks as it goes between.
pub const MAX_TRANSITIONS: u32 = 65_536;

/// A transition of one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C)]
pub struct TransitionKey {
    /// The lock of the visit before; 0 if that was not seen, as at the beginning of a window.
    pub from: u64,
    /// The lock of the visit; 0 if there is none: the observation (or a window of it) ended before.
    pub to: u64,
    /// Process number.
    pub process: u32,
    /// The thread.
    pub tid: u32,
}

/// What was seen of a transition. Times in ns. Written by its thread alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct TransitionSums {
    /// Which.
    pub key: TransitionKey,
    /// When it was first made.
    pub first_ns: u64,
    /// How often.
    pub count: u64,
    /// Σ time from the end of the visit before to the attempt, but for what was spent waiting for other threads at conditions and
    /// barriers.
    pub local_ns: u64,
    /// Visits that it led to and that have ended.
    pub visits: u64,
    /// Σ of their lengths, but for waits inside of them.
    pub hold_ns: u64,
    /// The same of visits that were cut by the end of a window, as far as it was seen.
    pub cut_ns: u64,
    /// Σ of the squares of the lengths of those that have ended, ns²: the lower 64 bits.
    pub squares_low: u64,
    /// The upper ones.
    pub squares_high: u64,
}

/// Lengths whose squares are summed: 39 hours; longer ones count as that.
const LONGEST: u64 = (1 << 47) - 1;

impl TransitionSums {
    /// Adds a square. eBPF has no multiplication to 128 bits.
    #[inline(always)]
    pub const fn add_square(&mut self, ns: u64) {
        let ns = if ns > LONGEST { LONGEST } else { ns };
        let (high, low) = (ns >> 32, ns & 0xffff_ffff);
        let middle = 2 * high * low;
        self.squares_high += high * high + (middle >> 32);
        self.add_low(low * low);
        self.add_low(middle << 32);
    }

    #[inline(always)]
    const fn add_low(&mut self, n: u64) {
        self.squares_low = self.squares_low.wrapping_add(n);
        self.squares_high += (self.squares_low < n) as u64;
    }

    /// Σ of the squares, ns².
    #[must_use]
    pub const fn squares(&self) -> u128 {
        (self.squares_high as u128) << 64 | self.squares_low as u128
    }
}

const _: () = assert!(size_of::<TransitionKey>() == 24);
const _: () = assert!(size_of::<TransitionSums>() == 24 + 8 * 8);

// SAFETY: repr(C), integers only, no padding (asserted above): any bytes are a valid value.
#[cfg(feature = "user")]
unsafe impl aya::Pod for TransitionKey {}
// SAFETY: as above.
#[cfg(feature = "user")]
unsafe impl aya::Pod for TransitionSums {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squares_are_exact() {
        let mut sums = TransitionSums::default();
        let mut expected = 0;
        let lengths = [0, 1, 0xffff_ffff, 1 << 32, (1 << 32) + 12_345, 987_654_321_987, LONGEST, LONGEST, 3];
        for ns in lengths.into_iter().cycle().take(100_000) {
            sums.add_square(ns);
            expected += u128::from(ns) * u128::from(ns);
            assert_eq!(sums.squares(), expected);
        }
        let mut longest = TransitionSums::default();
        longest.add_square(u64::MAX);
        assert_eq!(longest.squares(), u128::from(LONGEST) * u128::from(LONGEST));
    }
}
