//! Thinning: of the waits that only the futex calls show, and of their stacks, some are recorded for others where all of them
//! would cost the target more than it is to pay. The longer a wait, beside others of its process, the likelier it is recorded, and the
//! fewer it stands for, so that sums over what is recorded are right on average, and hardly depend on chance. What the kernel side sums
//! itself is exact.
//!
//! A wait is told in full only if each wake at its word was recorded while it lasted. Which waits are recorded is therefore decided when they
//! begin, but for their length, and those that are likely to be are *followed*: wakes at their words are recorded meanwhile. On long
//! ones chance decides when they end, and on the wakes by which they end alike: in a millisecond all of one length, or none.

use crate::sums::bucket;

/// The highest level. At level 0 everything is recorded.
pub const MAX_LEVEL: u32 = 15;
/// Up to this level only stacks are thinned; where nothing but stacks tells of the program, those of waits are not either.
pub const STACKS_FIRST: u32 = 3;
/// Typical waits are no shorter than this power of two, ns.
const SHORTEST: u32 = 10;
/// Waits are thinned alike that are this many powers of two longer than typical ones: most of the time that is waited is in such waits.
const ALIKE: u32 = 3;
/// Waits that are followed, of those that would be recorded if they were longer: to this power of two.
const LONGER: u32 = 1;
/// Time that shares a random number, ns, as a power of two.
const SLICE: u32 = 20;

/// How long the waits of a process are: the mean of the exponents of their powers of two, times 256.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Typical(pub u32);

impl Typical {
    /// With another wait.
    #[must_use]
    #[inline(always)]
    pub const fn with(self, wait_ns: u64) -> Self {
        Self(self.0 - self.0 / 16 + (bucket(wait_ns) as u32) * 16)
    }

    /// Whether there was one.
    #[must_use]
    #[inline(always)]
    pub const fn is_known(self) -> bool {
        self.0 != 0
    }

    /// Whether a wait is so long that chance decides on it together with the wakes around it ([`of_time`]): such waits are rarely followed.
    #[must_use]
    #[inline(always)]
    pub const fn is_long(self, wait_ns: u64) -> bool {
        less(wait_ns, self) > LONGER
    }

    /// What a holder did longer before it gives a lock back than this, ns, concerns few of those who wait: four times as long as typical waits.
    #[must_use]
    #[inline(always)]
    pub const fn concerns_ns(self) -> u64 {
        let exponent = self.short() - 1;
        1 << if exponent < 63 { exponent } else { 63 }
    }

    /// Waits of this power of two, ns, and shorter ones are thinned as their level says.
    #[inline(always)]
    const fn short(self) -> u32 {
        let mean = (self.0 + 128) >> 8;
        ALIKE + if mean < SHORTEST { SHORTEST } else { mean }
    }
}

/// By how many powers of two less a wait is thinned than short ones.
#[inline(always)]
const fn less(wait_ns: u64, typical: Typical) -> u32 {
    (bucket(wait_ns) as u32).saturating_sub(typical.short()) * 3 / 2
}

/// The slice of time, about a millisecond, that shares a random number.
#[must_use]
#[inline(always)]
pub const fn slice(time_ns: u64) -> u64 {
    time_ns >> SLICE
}

/// A random number that all waits and wakes of one slice share.
#[must_use]
#[inline(always)]
pub const fn of_time(time_ns: u64) -> u32 {
    // The last steps of MurmurHash3.
    let mut x = slice(time_ns) as u32;
    x ^= x >> 16;
    x = x.wrapping_mul(0x85eb_ca6b);
    x ^= x >> 13;
    x = x.wrapping_mul(0xc2b2_ae35);
    x ^ x >> 16
}

/// How long waits at most are that a wake ends, or a part of which ends with it, if it is the first for so long: what else there is of them
/// is not much, as a rule.
#[must_use]
#[inline(always)]
pub const fn at_most(since_ns: u64) -> u64 {
    since_ns.saturating_mul(4)
}

/// By how many powers of two waits are thinned at a level.
#[inline(always)]
const fn of_waits(level: u32) -> u32 {
    let level = if level < MAX_LEVEL { level } else { MAX_LEVEL };
    level.saturating_sub(STACKS_FIRST)
}

/// Whether waits are thinned at this level.
#[must_use]
#[inline(always)]
pub const fn thins_waits(level: u32) -> bool {
    level > STACKS_FIRST
}

/// For how many waits one stands, as a power of two, of which nothing is of use without its stack, and whose length nobody knows; `None` if another one
/// stands for it, as its random number says.
#[must_use]
#[inline(always)]
pub const fn one_of(level: u32, random: u32) -> Option<u32> {
    let level = if level < MAX_LEVEL { level } else { MAX_LEVEL };
    if random & ((1 << level) - 1) == 0 { Some(level) } else { None }
}

/// Whether a wait is recorded however long it lasts, as its random number says.
#[must_use]
#[inline(always)]
pub const fn is_any(level: u32, random: u32) -> bool {
    random & ((1 << of_waits(level)) - 1) == 0
}

/// Whether a wait that begins is to be followed, as its random number says: of those up to sixteen times as long as is typical all that are
/// recorded, and as many that are not.
#[must_use]
#[inline(always)]
pub const fn is_followed(level: u32, random: u32) -> bool {
    random & ((1 << of_waits(level).saturating_sub(LONGER)) - 1) == 0
}

/// For how many waits, and stacks of waits, a recorded one stands, as powers of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Weight {
    /// Exponent of the waits for which it stands.
    pub waits: u8,
    /// Exponent of what comes to that for its stack.
    pub stacks: u8,
}

impl Weight {
    /// At this level, of a wait that lasted so long where others are so long.
    #[must_use]
    #[inline(always)]
    pub const fn of(level: u32, wait_ns: u64, typical: Typical) -> Self {
        let level = if level < MAX_LEVEL { level } else { MAX_LEVEL };
        let less = less(wait_ns, typical);
        let stacks = level.saturating_sub(less);
        let waits = of_waits(level).saturating_sub(less);
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

    /// Of a wait with a stack, where only such waits are counted.
    #[must_use]
    pub const fn with_stack(self) -> Self {
        Self { waits: self.waits + self.stacks, stacks: 0 }
    }

    /// The same weight where each wait that is recorded has its stack: a record without it would be of little use.
    #[must_use]
    #[inline(always)]
    pub const fn whole(self) -> Self {
        Self { stacks: 0, ..self }
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

    /// Of a process whose waits are of 2^10 ns: up to twice 2^13 they are thinned alike.
    const TYPICAL: Typical = Typical(10 << 8);

    #[test]
    fn stacks_are_thinned_first_and_long_waits_last() {
        let of = |level, ns| {
            let weight = Weight::of(level, ns, TYPICAL);
            (weight.waits, weight.stacks)
        };
        assert_eq!([of(0, 0), of(1, 5_000), of(3, 5_000), of(5, 5_000)], [(0, 0), (0, 1), (0, 3), (2, 3)]);
        assert_eq!([of(5, 20_000), of(5, 40_000), of(5, 300_000), of(15, 1 << 20)], [(1, 3), (0, 2), (0, 0), (2, 3)]);
        assert_eq!([of(99, 1), of(MAX_LEVEL, 1 << 26)], [(12, 3), (0, 0)]);
        for level in 0..=MAX_LEVEL {
            let weight = Weight::of(level, 1, TYPICAL);
            assert_eq!(Weight::unpacked(weight.packed()), weight);
        }
    }

    #[test]
    fn where_stacks_tell_all_no_record_lacks_its_own() {
        let weight = Weight::of(7, 9_000, TYPICAL);
        assert_eq!((weight.whole().of_waits(), weight.whole().of_stacks()), (weight.of_waits(), weight.of_waits()));
        assert!((0..=u32::MAX).step_by(0xff_fff1).all(|random| weight.whole().takes_stack(random)));
    }

    #[test]
    fn what_is_typical_is_learned() {
        let after = |n, ns| (0..n).fold(Typical::default(), |typical, _| typical.with(ns));
        assert_eq!(after(0, 0).short(), SHORTEST + ALIKE);
        assert_eq!(after(100, 70_000).short(), 16 + ALIKE);
        assert_eq!((after(100, 70_000).concerns_ns(), after(100, u64::MAX).concerns_ns().count_ones()), (1 << 18, 1));
        assert_eq!(after(100, u64::MAX).short(), crate::sums::BUCKETS as u32 - 1 + ALIKE);
        // A long sleep now and then changes little.
        assert_eq!(after(100, 70_000).with(1 << 33).short(), 17 + ALIKE);
    }

    #[test]
    fn sums_are_right_on_average() {
        // Each random number once: what is recorded, by its weight, is exactly everything.
        let weight = Weight::of(7, 9_000, TYPICAL);
        let (mut waits, mut stacks) = (0, 0);
        for random in (0..256).flat_map(|low| (0..256).map(move |high| high << 16 | low)) {
            if weight.records(random) {
                waits += weight.of_waits();
                stacks += if weight.takes_stack(random) { weight.of_stacks() } else { 0 };
                assert_eq!(weight.with_stack().of_waits(), weight.of_stacks());
            }
        }
        assert_eq!((waits, stacks), (1 << 16, 1 << 16));
    }

    #[test]
    fn each_millisecond_has_a_number_of_its_own() {
        assert_eq!(of_time(0x10_0000), of_time(0x1f_ffff));
        // Of one in 2^4 waits those are recorded that end in one in 2^4 milliseconds.
        let chosen = (0..4_096u64).filter(|ms| of_time(ms << SLICE) & 0xf == 0).count();
        assert!((200..320).contains(&chosen), "{chosen}");
        assert!(TYPICAL.is_long(40_000) && !TYPICAL.is_long(20_000) && at_most(u64::MAX) == u64::MAX);
    }

    #[test]
    fn typical_waits_that_are_recorded_are_followed() {
        for level in 0..=MAX_LEVEL {
            let followed = (0..1 << 12).filter(|&random| is_followed(level, random));
            let recorded = |ns, random| Weight::of(level, ns, TYPICAL).records(random);
            assert_eq!(followed.count(), 1 << (12 - of_waits(level).saturating_sub(1)));
            for random in 0..1 << 12 {
                assert!(!recorded(20_000, random) || is_followed(level, random), "{level} {random}");
                assert!(!is_any(level, random) || [1, 1 << 15, 1 << 30].iter().all(|&ns| recorded(ns, random)));
            }
        }
        assert!(!thins_waits(STACKS_FIRST) && thins_waits(STACKS_FIRST + 1));
    }

    #[test]
    fn one_stands_for_as_many_as_are_left_out() {
        for level in [0, 1, 5, MAX_LEVEL, MAX_LEVEL + 9] {
            let stand: u64 = (0..1 << MAX_LEVEL).filter_map(|random| one_of(level, random)).map(|each| 1 << each).sum();
            assert_eq!(stand, 1 << MAX_LEVEL, "{level}");
        }
    }
}
