//! What is known for certain of a subject bounds what windows make of it: estimates and what was seen are told side by side.

use super::{Figures, Interval};

/// What the whole observation tells of a subject, whatever its windows do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Known {
    /// Acquisitions that slept: the kernel tells all of them.
    pub slept: f64,
    /// The longest hold seen, without what observing adds to it, ns.
    pub hold_max_ns: f64,
}

impl Figures {
    /// The same figures, as far as they can be true beside what is known.
    #[must_use]
    pub fn beside(self, known: &Known) -> Self {
        let Known { slept, hold_max_ns: longest } = *known;
        let acquisitions = self.acquisitions.at_least(Interval::exact(slept));
        let per = |sum: f64| Interval {
            value: part(sum, acquisitions.value),
            low: part(sum, acquisitions.high),
            high: part(sum, acquisitions.value),
        };
        let share = self.contended_share.at_least(per(slept)).capped(1.0);
        // The longest was held, at least.
        let mut mean = self.hold_mean_ns.at_least(per(longest));
        if mean.is_wide() {
            // What may be anything is no more than what was seen.
            mean.value = mean.value.min(longest.max(mean.low));
        }
        let mut p99 = self.hold_p99_ns;
        p99.value = p99.value.min(longest.max(mean.value)).min(mean.value * 100.0);
        Self {
            acquisitions: acquisitions.in_order(),
            hold_mean_ns: mean.in_order(),
            hold_p99_ns: p99.in_order(),
            contended_share: share.in_order(),
            ..self
        }
    }

    /// For how long it was held in all, ns, which is no more than `most`.
    #[must_use]
    pub fn held_ns(&self, most: f64) -> Interval {
        let (all, mean) = (&self.acquisitions, &self.hold_mean_ns);
        let product = Interval { value: all.value * mean.value, low: all.low * mean.low, high: all.high * mean.high };
        product.capped(most)
    }

    /// Several subjects that are one: a lock that processes share, each of which has its own windows.
    #[must_use]
    pub fn together(all: &[Self]) -> Self {
        let number: f64 = all.iter().map(|f| f.acquisitions.value).sum();
        let ratio =
            |of: fn(&Self) -> Interval| Interval::mean(all.iter().map(|f| (of(f), f.acquisitions.value)), number);
        let each = |of: fn(&Self) -> f64| all.iter().map(of);
        Self {
            acquisitions: Interval::mean(all.iter().map(|f| (f.acquisitions, 1.0)), 1.0),
            hold_mean_ns: ratio(|f| f.hold_mean_ns),
            // That of a mixture is between those of its parts.
            hold_p99_ns: Interval {
                value: ratio(|f| f.hold_p99_ns).value,
                low: each(|f| f.hold_p99_ns.low).fold(f64::INFINITY, f64::min).min(ratio(|f| f.hold_p99_ns).value),
                high: each(|f| f.hold_p99_ns.high).fold(0.0, f64::max),
            }
            .in_order(),
            contended_share: ratio(|f| f.contended_share).capped(1.0),
            wait_ns: Interval::mean(all.iter().map(|f| (f.wait_ns, 1.0)), 1.0),
        }
    }
}

fn part(sum: f64, number: f64) -> f64 {
    if number > 0.0 { sum / number } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(value: f64, low: f64, high: f64) -> Interval {
        Interval { value, low, high }
    }

    fn figures(acquisitions: Interval, mean: Interval) -> Figures {
        Figures {
            acquisitions,
            hold_mean_ns: mean,
            hold_p99_ns: interval(9e6, 1e3, 2e7),
            contended_share: interval(0.01, 0.005, 0.02),
            wait_ns: interval(2e6, 1e6, 4e6),
        }
    }

    #[test]
    fn a_mean_that_nothing_is_known_of_does_not_exceed_the_longest_seen() {
        let told = figures(interval(2_994.0, 2_871.0, 5.65e6), interval(3.73e6, 1e5, 8e9));
        let told = told.beside(&Known { slept: 0.0, hold_max_ns: 367e3 });
        assert_eq!(told.hold_mean_ns, interval(367e3, 1e5, 8e9));
        assert_eq!(told.hold_p99_ns.value, 367e3);
        assert!(told.acquisitions.is_wide());
        // One that is known exceeds what was seen: sections were longer than windows.
        let told = figures(interval(10.0, 9.0, 11.0), interval(3e7, 2.9e7, 3.1e7));
        assert_eq!(told.beside(&Known { slept: 0.0, hold_max_ns: 1e6 }).hold_mean_ns.value, 3e7);
    }

    #[test]
    fn whoever_slept_acquired_and_was_contended() {
        let told = figures(interval(100.0, 80.0, 120.0), interval(10.0, 9.0, 11.0));
        let told = told.beside(&Known { slept: 60.0, hold_max_ns: 5_000.0 });
        assert_eq!(told.contended_share, interval(0.6, 0.5, 0.6));
        assert_eq!(told.hold_mean_ns.value, 50.0);
        let told = told.beside(&Known { slept: 600.0, hold_max_ns: 0.0 });
        assert_eq!((told.acquisitions, told.contended_share.value), (Interval::exact(600.0), 1.0));
    }

    #[test]
    fn parts_of_one_lock_add_up() {
        let one = figures(interval(100.0, 80.0, 120.0), interval(10.0, 9.0, 11.0));
        let told = Figures::together(&[one, figures(interval(300.0, 300.0, 300.0), interval(50.0, 50.0, 50.0))]);
        assert_eq!(told.acquisitions, interval(400.0, 380.0, 420.0));
        assert_eq!(told.hold_mean_ns.value, 40.0);
    }

    #[test]
    fn holds_add_up_to_no_more_than_there_was_time() {
        let told = figures(interval(1_000.0, 200.0, 5_000.0), interval(30.0, 1.0, 90.0));
        assert_eq!(told.held_ns(10_000.0), interval(10_000.0, 200.0, 10_000.0));
        assert_eq!(told.held_ns(f64::INFINITY), interval(30_000.0, 200.0, 450_000.0));
    }
}
