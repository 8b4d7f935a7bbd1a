//! Log2 histograms and the quantiles they allow: within a factor of two, interpolated inside the bucket.

use crate::units::Nanos;
use lockbpf_common::sums::BUCKETS;

/// Counts of durations by power of two: bucket b covers [2^b, 2^(b+1)) ns, bucket 0 also 0 ns, the last one is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram([u64; BUCKETS]);

impl Default for Histogram {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl Histogram {
    /// Adds the counts of a histogram kept in the kernel.
    pub fn merge_raw(&mut self, raw: &[u32; BUCKETS]) {
        for (sum, &count) in self.0.iter_mut().zip(raw) {
            *sum += u64::from(count);
        }
    }

    /// Adds another histogram's counts.
    pub fn merge(&mut self, other: &Self) {
        for (sum, &count) in self.0.iter_mut().zip(&other.0) {
            *sum += count;
        }
    }

    /// Counts one duration.
    pub fn add(&mut self, duration: Nanos) {
        self.0[lockbpf_common::sums::bucket(duration.0)] += 1;
    }

    /// Durations counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Counts by bucket.
    #[must_use]
    pub fn buckets(&self) -> &[u64; BUCKETS] {
        &self.0
    }

    /// The q-quantile (0 < q ≤ 1), interpolated linearly inside its bucket and never above `max`; zero if empty.
    #[must_use]
    pub fn quantile(&self, q: f64, max: Nanos) -> Nanos {
        let total = self.count();
        if total == 0 {
            return Nanos(0);
        }
        let rank = (q * total as f64).clamp(1.0, total as f64);
        let mut below = 0.0;
        for (b, &count) in self.0.iter().enumerate() {
            let count = count as f64;
            if count > 0.0 && below + count >= rank {
                let low = if b == 0 { 0.0 } else { (1u64 << b) as f64 };
                let high = ((1u64 << (b + 1)) as f64).min(max.0 as f64 + 1.0).max(low);
                return Nanos(((low + (high - low) * (rank - below) / count) as u64).min(max.0));
            }
            below += count;
        }
        max
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_quantile_is_within_a_factor_of_two(mut values in prop::collection::vec(1u64..1 << 34, 1..200), q in 0.01f64..1.0) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|&v| histogram.add(Nanos(v)));
            values.sort_unstable();
            let rank = ((q * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let exact = values[rank - 1] as f64;
            let estimate = histogram.quantile(q, Nanos(*values.last().unwrap())).0 as f64;
            prop_assert!(estimate <= exact * 2.0 + 1.0 && estimate >= exact / 2.0 - 1.0, "{estimate} for {exact}");
        }
    }

    #[test]
    fn empty_and_extreme() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.99, Nanos(0)), Nanos(0));
        histogram.add(Nanos(u64::MAX));
        assert!(histogram.quantile(0.99, Nanos(u64::MAX)) >= Nanos(1 << 35));
    }
}
