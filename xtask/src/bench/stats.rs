//! Medians, and how far they can be trusted on a noisy machine.

use serde::Serialize;

/// Two-sided 95 % of the normal distribution, in standard deviations.
const Z95: f64 = 1.96;

/// The median of some samples, and the interval that holds the true median with a confidence of about 95 %, found
/// from the order of the samples alone, whatever their distribution. Of five or fewer it is their range, with less
/// confidence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Spread {
    /// The median.
    pub(super) median: f64,
    /// Lower end of the interval.
    pub(super) low: f64,
    /// Upper end of the interval.
    pub(super) high: f64,
    /// Number of samples.
    pub(super) samples: usize,
}

impl Spread {
    /// The spread of `samples`; `None` if there are none. Samples that are no numbers are left out.
    pub(super) fn of(samples: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = samples.into_iter().filter(|sample| sample.is_finite()).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let count = sorted.len();
        // The rank of the interval's lower end, counted from either side: the normal approximation of the binomial.
        let rank = ((count as f64 - Z95 * (count as f64).sqrt()) / 2.0).max(0.0) as usize;
        let (low, high) = (*sorted.get(rank)?, *sorted.get(count - 1 - rank)?);
        let middle = sorted.get((count - 1) / 2..=count / 2)?;
        let median = middle.iter().sum::<f64>() / middle.len() as f64;
        Some(Self { median, low, high, samples: count })
    }
}

/// What half of all samples lie in.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Quartiles {
    /// A quarter of them are lower.
    pub(super) low: f64,
    /// A quarter of them are higher.
    pub(super) high: f64,
    /// Number of samples.
    pub(super) samples: usize,
}

impl Quartiles {
    /// The quartiles of `samples`; `None` if there are none. Samples that are no numbers are left out.
    pub(super) fn of(samples: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = samples.into_iter().filter(|sample| sample.is_finite()).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let rank = sorted.len() / 4;
        Some(Self { low: *sorted.get(rank)?, high: *sorted.get(sorted.len() - 1 - rank)?, samples: sorted.len() })
    }
}

/// The quotient, `None` where it has no meaning.
pub(super) fn ratio(numerator: f64, denominator: f64) -> Option<f64> {
    (denominator > 0.0).then(|| numerator / denominator)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one_or_the_mean_of_two() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]).unwrap().median, 2.0);
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert_eq!(Spread::of([7.0]).unwrap().median, 7.0);
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([f64::NAN, 1.0]).unwrap().samples, 1);
    }

    #[test]
    fn the_interval_is_the_range_of_few_and_narrower_for_many() {
        let few = Spread::of([5.0, 1.0, 3.0]).unwrap();
        assert_eq!((few.low, few.high), (1.0, 5.0));
        // The classical ranks for 25 samples are the 8th and the 18th.
        let many = Spread::of((1..=25).map(f64::from)).unwrap();
        assert_eq!((many.low, many.median, many.high), (8.0, 13.0, 18.0));
    }

    #[test]
    fn one_outlier_moves_neither_median_nor_interval() {
        let clean = Spread::of((1..=25).map(f64::from)).unwrap();
        let disturbed = Spread::of((1..=24).map(f64::from).chain([1e9])).unwrap();
        assert_eq!(clean, disturbed);
    }

    #[test]
    fn half_of_all_samples_lie_between_the_quartiles() {
        let quartiles = Quartiles::of((1..=9).map(f64::from)).unwrap();
        assert_eq!((quartiles.low, quartiles.high, quartiles.samples), (3.0, 7.0, 9));
        assert_eq!(Quartiles::of([f64::NAN]), None);
    }

    #[test]
    fn a_ratio_to_nothing_is_none() {
        assert_eq!(ratio(1.0, 0.0), None);
        assert_eq!(ratio(1.0, 2.0), Some(0.5));
    }
}
