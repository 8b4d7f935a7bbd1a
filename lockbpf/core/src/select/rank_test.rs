//! The Mann–Whitney U test, one-sided: whether one sample tends to be larger than another. (statrs has one, but version
//! 0.19.1 returns the complement of the exact p-value for samples of equal size.)

use std::cmp::Ordering;

/// Values of both samples together up to which the distribution is counted out.
const EXACT: usize = 100;

/// The probability of a rank sum of `larger` at least as high as the one seen if both samples came from one
/// distribution: the one-sided p-value. 1 if a sample is empty.
///
/// Up to 100 values it is exact, with ties too: every division of the values seen into two samples of these sizes is
/// equally likely. Beyond, it is the normal approximation with corrections for ties and continuity.
#[must_use]
pub fn p_larger(larger: &[f64], than: &[f64]) -> f64 {
    if larger.is_empty() || than.is_empty() {
        return 1.0;
    }
    let ranks = Ranks::of(larger, than);
    if ranks.doubled.len() <= EXACT { ranks.exact() } else { ranks.normal() }
}

/// Ranks of two samples together.
struct Ranks {
    /// Twice the rank of each value, ascending; equal values share the mean of their ranks, so that only twice the rank
    /// is sure to be whole.
    doubled: Vec<usize>,
    /// Size of the first sample.
    size: usize,
    /// Sum of its doubled ranks.
    sum: usize,
    /// Σ t³ − t over the groups of t equal values.
    ties: f64,
}

impl Ranks {
    fn of(first: &[f64], second: &[f64]) -> Self {
        let mut values: Vec<(f64, bool)> =
            first.iter().map(|&v| (v, true)).chain(second.iter().map(|&v| (v, false))).collect();
        values.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut ranks = Self { doubled: Vec::with_capacity(values.len()), size: first.len(), sum: 0, ties: 0.0 };
        for equal in values.chunk_by(|a, b| a.0.total_cmp(&b.0) == Ordering::Equal) {
            let before = ranks.doubled.len();
            // The ranks before + 1 … before + t have this mean, twice.
            let doubled = 2 * before + equal.len() + 1;
            ranks.doubled.resize(before + equal.len(), doubled);
            ranks.sum += doubled * equal.iter().filter(|(_, in_first)| *in_first).count();
            let t = equal.len() as f64;
            ranks.ties += t * t * t - t;
        }
        ranks
    }

    /// Counts the selections of `size` values by their sum of ranks.
    fn exact(&self) -> f64 {
        let highest: usize = self.doubled.iter().rev().take(self.size).sum();
        // ways[k][s]: selections of k of the values so far with sum s.
        let mut ways = vec![vec![0.0; highest + 1]; self.size + 1];
        ways[0][0] = 1.0;
        for &rank in &self.doubled {
            for k in (1..=self.size).rev() {
                let (fewer, more) = ways.split_at_mut(k);
                let (from, to) = (&fewer[k - 1], &mut more[0]);
                for (to, from) in to.iter_mut().skip(rank).zip(from) {
                    *to += from;
                }
            }
        }
        let all: f64 = ways[self.size].iter().sum();
        let as_high: f64 = ways[self.size].iter().skip(self.sum).sum();
        as_high / all
    }

    fn normal(&self) -> f64 {
        let (n, all) = (self.size as f64, self.doubled.len() as f64);
        let other = all - n;
        let u = self.sum as f64 / 2.0 - n * (n + 1.0) / 2.0;
        let variance = n * other / 12.0 * ((all + 1.0) - self.ties / (all * (all - 1.0)));
        if variance <= 0.0 {
            return 1.0;
        }
        let z = (u - n * other / 2.0 - 0.5) / variance.sqrt();
        libm::erfc(z / std::f64::consts::SQRT_2) / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every division of the values into two samples, one by one.
    fn brute_force(first: &[f64], second: &[f64]) -> f64 {
        let all: Vec<f64> = first.iter().chain(second).copied().collect();
        let u = |chosen: u32| {
            let mut sum = 0.0;
            for (i, a) in all.iter().enumerate().filter(|(i, _)| chosen >> i & 1 == 1) {
                for (_, b) in all.iter().enumerate().filter(|(j, _)| *j != i && chosen >> j & 1 == 0) {
                    sum += if a > b {
                        1.0
                    } else if a == b {
                        0.5
                    } else {
                        0.0
                    };
                }
            }
            sum
        };
        let seen = u((1 << first.len()) - 1);
        let divisions = (0_u32..1 << all.len()).filter(|c| c.count_ones() as usize == first.len());
        let (high, count) = divisions.fold((0, 0), |(high, count), c| (high + u32::from(u(c) >= seen), count + 1));
        f64::from(high) / f64::from(count)
    }

    fn values(range: std::ops::Range<u32>) -> Vec<f64> {
        range.map(f64::from).collect()
    }

    #[test]
    fn the_highest_of_all_divisions() {
        // 1 of C(6, 3) = 20 and 1 of C(8, 4) = 70 divisions.
        assert_eq!(p_larger(&values(3..6), &values(0..3)), 0.05);
        assert_eq!(p_larger(&values(4..8), &values(0..4)), 1.0 / 70.0);
        assert_eq!(p_larger(&values(0..3), &values(3..6)), 1.0);
        assert_eq!(p_larger(&[], &[1.0]), 1.0);
        assert_eq!(p_larger(&[1.0; 5], &[1.0; 5]), 1.0);
    }

    #[test]
    fn the_example_of_scipys_documentation() {
        let (males, females) = ([19.0, 22.0, 16.0, 29.0, 24.0], [20.0, 11.0, 17.0, 12.0]);
        // Two-sided: exact 0.1111111111111111, asymptotic 0.11134688653314041.
        assert!((2.0 * p_larger(&males, &females) - 0.111_111_111_111_111_1).abs() < 1e-12);
        assert!((2.0 * Ranks::of(&males, &females).normal() - 0.111_346_886_533_140_41).abs() < 1e-12);
    }

    /// Critical values of U, one-sided at 0.05, from the published tables: the greatest U that is still significant.
    #[test]
    fn critical_values_are_the_published_ones() {
        for (n, m, critical) in [(3, 3, 0), (4, 4, 1), (5, 5, 4), (4, 6, 3), (8, 8, 15), (10, 10, 27), (20, 20, 138)] {
            let p = |u: usize| p_of_u(n, m, u);
            assert!(p(critical) <= 0.05, "{n}, {m}: {}", p(critical));
            assert!(p(critical + 1) > 0.05, "{n}, {m}: {}", p(critical + 1));
        }
    }

    /// p of two samples of n and m values in which the second has exactly `u` pairs over the first.
    fn p_of_u(n: usize, m: usize, u: usize) -> f64 {
        // The first sample at the top; each of its values moves down past up to m others.
        let second: Vec<f64> = (0..m).map(|i| i as f64).collect();
        let mut left = u;
        let first: Vec<f64> = (0..n)
            .map(|i| {
                let down = left.min(m);
                left -= down;
                (m - down) as f64 - 0.5 + i as f64 / 1_000.0
            })
            .collect();
        assert_eq!(left, 0);
        p_larger(&first, &second)
    }

    #[test]
    fn both_ways_agree_where_they_meet() {
        for shift in 0..30 {
            let first: Vec<f64> = (0..40).map(|i| f64::from(i * 7 % 41 + shift)).collect();
            let second: Vec<f64> = (0..40).map(|i| f64::from(i * 11 % 43)).collect();
            let ranks = Ranks::of(&first, &second);
            let (exact, normal) = (ranks.exact(), ranks.normal());
            assert!((exact - normal).abs() < 0.002, "shift {shift}: {exact} and {normal}");
        }
    }

    #[test]
    fn many_values() {
        assert!(p_larger(&values(1..200), &values(0..199)) > 0.4);
        assert!(p_larger(&values(100..300), &values(0..200)) < 1e-9);
        assert_eq!(p_larger(&[1.0; 80], &[1.0; 80]), 1.0);
    }

    proptest! {
        #[test]
        fn as_counted_one_by_one(
            first in prop::collection::vec(0_u32..6, 1..7),
            second in prop::collection::vec(0_u32..6, 1..7),
        ) {
            let [first, second] = [first, second].map(|v| v.into_iter().map(f64::from).collect::<Vec<_>>());
            prop_assert!((p_larger(&first, &second) - brute_force(&first, &second)).abs() < 1e-12);
        }

        #[test]
        fn a_probability(first in prop::collection::vec(any::<f64>(), 0..12), second in prop::collection::vec(any::<f64>(), 0..12)) {
            let p = p_larger(&first, &second);
            prop_assert!((0.0..=1.0).contains(&p), "{p}");
        }
    }
}
