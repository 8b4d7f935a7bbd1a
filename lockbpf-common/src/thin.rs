//! Thinning: of the waits that only the futex calls show, and of their stacks, some are recorded for others where all of them
//! would cost the target more than it is to pay. The longer a wait, the likelier it is recorded, and the fewer it stands for, so
//! that sums over what is recorded are right on average, and hardly depend on chance. What the kernel side sums itself is exact.

use crate::sums::bucket;

/// The highest level. At level 0 everything is recorded.
pub const MAX_LEVEL: u32 = 15;
/// Up to this level only stacks are thinned.
pub const STACKS_FIRST: u32 = 3;
/// Waits of fewer than twice 2^this ns are thinned as their level says; with each doubling by one level less.
const SHORT: u32 = 13;

/// For how many waits, and stacks of waits, a recorded one stands, as powers of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Weight {
    /// Exponent of the waits for which it stands.
    pub waits: u8,
    /// Exponent of what comes to that for its stack.
    pub stacks: u8,
}

impl Weight {
    /// At this level, of a wait that lasted so long.
    #[must_use]
    #[inline(always)]
    pub const fn of(level: u32, wait_ns: u64) -> Self {
        let level = if level < MAX_LEVEL { level } else { MAX_LEVEL };
        let less = (bucket(wait_ns) as u32).saturating_sub(SHORT);
        let stacks = level.saturating_sub(less);
        let waits = level.saturating_sub(STACKS_FIRST).saturating_sub(less);
        Self { waits: waits as u8, stacks: (stacks - waits) as u8 }
    }

    /// Whether a wait of this weight is recorded, as a random number says.
    #[must_use]
    #[inline(always)]
    pub const fn records(self, random: u32) -> bool {
        random & ((1 << self.waits) - 1) == 0
    }

    /// Whether the stack of a wait that is recorded is taken, by the same random number.
    #[must_use]
    #[inline(always)]
    pub const fn takes_stack(self, random: u32) -> bool {
        (random >> 16) & ((1 << self.stacks) - 1) == 0
    }

    /// For how many waits it stands.
    #[must_use]
    pub const fn of_waits(self) -> u64 {
        1 << self.waits
    }

    /// For how many waits its stack stands.
    #[must_use]
    pub const fn of_stacks(self) -> u64 {
        1 << (self.waits + self.stacks)
    }

    /// As eight bits.
    #[must_use]
    #[inline(always)]
    pub const fn packed(self) -> u8 {
        self.waits | self.stacks << 4
    }

    /// From eight bits.
    #[must_use]
    pub const fn unpacked(packed: u8) -> Self {
        Self { waits: packed & 0xf, stacks: packed >> 4 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_thinned_first_and_long_waits_last() {
        let of = |level, ns| (Weight::of(level, ns).waits, Weight::of(level, ns).stacks);
        assert_eq!([of(0, 0), of(1, 5_000), of(3, 5_000), of(5, 5_000)], [(0, 0), (0, 1), (0, 3), (2, 3)]);
        assert_eq!([of(5, 40_000), of(5, 300_000), of(15, 1_000_000), of(99, 1)], [(0, 3), (0, 0), (6, 3), (12, 3)]);
        assert_eq!(of(MAX_LEVEL, 1 << 30), (0, 0));
        for level in 0..=MAX_LEVEL {
            let weight = Weight::of(level, 1);
            assert_eq!(Weight::unpacked(weight.packed()), weight);
        }
    }

    #[test]
    fn sums_are_right_on_average() {
        // Each random number once: what is recorded, by its weight, is exactly everything.
        let weight = Weight::of(7, 9_000);
        let (mut waits, mut stacks) = (0, 0);
        for random in (0..256).flat_map(|low| (0..256).map(move |high| high << 16 | low)) {
            if weight.records(random) {
                waits += weight.of_waits();
                stacks += if weight.takes_stack(random) { weight.of_stacks() } else { 0 };
            }
        }
        assert_eq!((waits, stacks), (1 << 16, 1 << 16));
    }
}
