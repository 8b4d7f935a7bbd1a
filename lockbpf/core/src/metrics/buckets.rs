//! Distributions of durations in a few fixed buckets.

use super::rise::{Divided, Peak};
use crate::report::measured::Durations;

/// Buckets with an upper bound.
const BOUNDED: usize = 14;
/// All of them: the last is open.
const ALL: usize = BOUNDED + 1;

/// Upper bounds in ns: every second power of two, 1.024 µs to 68.7 s. What the kernel counts by powers of two falls into these whole.
pub const BOUNDS_NS: [u64; BOUNDED] = {
    let mut bounds = [0; BOUNDED];
    let mut at = 0;
    while at < BOUNDED {
        bounds[at] = 1 << (10 + 2 * at);
        at += 1;
    }
    bounds
};

/// Durations counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Buckets {
    counts: [u64; ALL],
    /// Their sum, ns.
    pub(super) sum_ns: u64,
}

impl Buckets {
    /// What was measured, as many times as it stands for.
    pub(super) fn of(measured: &Durations) -> Self {
        let mut counts = [0u64; ALL];
        for bar in &measured.bars {
            let below = bar.from_ns.max(1).saturating_mul(2);
            let at = BOUNDS_NS.iter().position(|&bound| below <= bound).unwrap_or(BOUNDED);
            counts[at] = counts[at].saturating_add(bar.count);
        }
        let seen: u128 = counts.iter().copied().map(u128::from).sum();
        if seen > 0 && seen != u128::from(measured.count) {
            let mut below = 0u128;
            // Rounded so that they add up to it.
            let upto = |below: u128| (below * u128::from(measured.count) / seen) as u64;
            counts = counts.map(|count| {
                let before = upto(below);
                below += u128::from(count);
                upto(below) - before
            });
        }
        Self { counts, sum_ns: measured.sum.0 }
    }

    /// Adds another's.
    pub(super) fn add(&mut self, other: &Self) {
        for (sum, add) in self.counts.iter_mut().zip(other.counts) {
            *sum = sum.saturating_add(add);
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }

    /// How many there are in all.
    pub(super) fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, &count| sum.saturating_add(count))
    }

    /// How many are in each bucket or one before it; the last is [`Self::count`].
    pub(super) fn cumulative(&self) -> [u64; ALL] {
        let mut below = 0u64;
        self.counts.map(|count| {
            below = below.saturating_add(count);
            below
        })
    }
}

/// How far they have come.
#[derive(Clone, Debug, Default)]
pub(super) struct Peaks {
    counts: Divided<usize>,
    sum: Peak,
}

impl Peaks {
    /// What has come since the last look.
    pub(super) fn rise(&mut self, now: &Buckets) -> Buckets {
        let mut risen = Buckets { sum_ns: self.sum.rise(now.sum_ns), ..Buckets::default() };
        for (bucket, count) in self.counts.rise(now.count(), now.counts.into_iter().enumerate()) {
            risen.counts[bucket] = count;
        }
        risen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::histograms::Bar;
    use crate::units::Nanos;

    #[test]
    fn powers_of_two_fall_into_them_whole() {
        assert_eq!((BOUNDS_NS[0], BOUNDS_NS[13]), (1_024, 1 << 36));
        let bar = |from_ns, count| Bar { from_ns, count };
        let bars = [
            bar(0, 1),
            bar(512, 2),
            bar(1_024, 4),
            bar(2_048, 8),
            bar(1 << 35, 16),
            bar(1 << 36, 32),
            bar(1 << 63, 64),
        ];
        let measured = Durations { bars: bars.to_vec(), count: 127, sum: Nanos(9) };
        let buckets = Buckets::of(&measured);
        assert_eq!((buckets.counts[0], buckets.counts[1]), (3, 12));
        assert_eq!((buckets.counts[13], buckets.counts[14]), (16, 96));
        assert_eq!(buckets.count(), 127);
        assert_eq!(buckets.cumulative()[..3], [3, 15, 15]);
        assert_eq!(buckets.cumulative()[14], 127);
        let mut peaks = Peaks::default();
        assert_eq!(peaks.rise(&buckets), buckets);
        assert_eq!(peaks.rise(&buckets), Buckets::default());
        for count in [0, 1, 126, 128, 1_000] {
            assert_eq!(Buckets::of(&Durations { count, ..measured.clone() }).count(), count);
        }
    }
}
