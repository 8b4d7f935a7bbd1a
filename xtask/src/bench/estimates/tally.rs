//! How often the truth was within the interval, and how wide that was.

use std::collections::BTreeMap;

use super::quantity::{Interval, Quantity};
use crate::bench::stats::{Spread, ratio};

/// A truth, and what a report stated of it.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    /// Symbol of the lock.
    pub(super) lock: String,
    pub(super) quantity: Quantity,
    pub(super) truth: f64,
    /// `None` if nothing was: the truth is not within it.
    pub(super) stated: Option<Interval>,
}

/// The runs of one quantity of one lock.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    within: usize,
    runs: usize,
    widths: Vec<f64>,
    errors: Vec<f64>,
}

impl Tally {
    fn add(&mut self, statement: &Statement) {
        self.runs += 1;
        let Some(Interval { value, low, high }) = statement.stated else { return };
        let (truth, uncertainty) = (statement.truth, statement.quantity.uncertainty());
        if low - uncertainty <= truth && truth <= high + uncertainty {
            self.within += 1;
        }
        self.widths.extend(ratio(high - low, truth));
        self.errors.extend(ratio((value - truth).abs(), truth));
    }

    /// Runs in which the truth was within the interval.
    pub(super) fn within(&self) -> usize {
        self.within
    }

    /// Runs.
    pub(super) fn runs(&self) -> usize {
        self.runs
    }

    /// Part of the runs in which the truth was within the interval.
    pub(super) fn share(&self) -> f64 {
        ratio(self.within as f64, self.runs as f64).unwrap_or(0.0)
    }

    /// Whether that is at least this.
    pub(super) fn reaches(&self, required: f64) -> bool {
        self.share() >= required
    }

    /// Median width of the intervals, by the truth; `None` where the truth is 0.
    pub(super) fn median_width(&self) -> Option<f64> {
        Some(Spread::of(self.widths.iter().copied())?.median)
    }

    /// Median distance of the estimate from the truth, by the truth.
    pub(super) fn median_error(&self) -> Option<f64> {
        Some(Spread::of(self.errors.iter().copied())?.median)
    }
}

/// Workload, lock, quantity.
type Key = (&'static str, String, Quantity);

/// All tallies.
#[derive(Clone, Debug, Default)]
pub(super) struct Tallies(BTreeMap<Key, Tally>);

impl Tallies {
    /// Counts what one run stated.
    pub(super) fn add(&mut self, workload: &'static str, statement: &Statement) {
        self.0.entry((workload, statement.lock.clone(), statement.quantity)).or_default().add(statement);
    }

    /// Every one, in order.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&Key, &Tally)> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(truth: f64, stated: Option<Interval>) -> Statement {
        Statement { lock: "a".to_owned(), quantity: Quantity::Acquisitions, truth, stated }
    }

    #[test]
    fn what_is_not_stated_does_not_hold_the_truth() {
        let mut tallies = Tallies::default();
        let interval = Interval { value: 10.0, low: 8.0, high: 12.0 };
        for truth in [8.0, 10.0, 12.0, 12.5] {
            tallies.add("w", &statement(truth, Some(interval)));
        }
        tallies.add("w", &statement(10.0, None));
        let (_, tally) = tallies.rows().next().unwrap();
        assert_eq!((tally.within(), tally.runs(), tally.share()), (3, 5, 0.6));
        assert!(tally.reaches(0.6) && !tally.reaches(0.61));
        assert_eq!(tally.median_error(), Some((1.0 / 6.0 + 0.2) / 2.0));
    }

    #[test]
    fn clocks_are_allowed_their_reading() {
        let stated = Some(Interval { value: 100.0, low: 90.0, high: 110.0 });
        let mut tally = Tally::default();
        for quantity in [Quantity::HoldMean, Quantity::Acquisitions] {
            tally.add(&Statement { quantity, ..statement(150.0, stated) });
        }
        assert_eq!((tally.within(), tally.runs()), (1, 2));
    }
}
