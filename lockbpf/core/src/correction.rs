//! What sections would have waited and held without the observer, as far as that follows from what observing adds to a hold.
//!
//! * **Holds**: each is too long by the bias.
//! * **Waits**: whoever waits for a holder waits for that one's bias, too. A wait that is no longer than the bias would not have been,
//!   the lock would have been free. A wait that spans several holds is too long by the bias of each: they are as long as the hold that
//!   one who comes by chance finds, by the time that holds take, not by their number.
//!
//! Not in it: probes of other locks inside of a section, which make it longer still, and that threads come more often where nothing
//! makes them slow.
#![forbid(unsafe_code)]

use crate::sums::Measure;
use crate::units::Nanos;

/// What observing adds to each hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HoldBias {
    ns: f64,
}

/// What remains of sections without it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Corrected {
    /// Contended acquisitions.
    pub contended: u64,
    /// Σ wait.
    pub wait: Nanos,
    /// Σ hold.
    pub hold: Nanos,
}

impl HoldBias {
    /// A bias of so many ns; `None` if that is nothing.
    #[must_use]
    pub fn new(ns: f64) -> Option<Self> {
        (ns.is_finite() && ns > 0.0).then_some(Self { ns })
    }

    /// Removes it from the waits and holds of a lock. Neither grows.
    #[must_use]
    pub fn remove(self, waits: &Measure, holds: &Measure) -> Corrected {
        let added = self.ns * holds.histogram.count() as f64;
        let found = self.found(holds);
        let (mut seen, mut left, mut contended) = (0.0, 0.0, 0.0);
        for (low, high, count) in waits.histogram.spans(waits.max) {
            seen += count * (low + high) / 2.0;
            if high <= self.ns {
                continue;
            }
            let from = low.max(self.ns);
            let part = if low < high { (high - from) / (high - low) } else { 1.0 };
            let wait = (from + high) / 2.0;
            contended += count * part;
            left += count * part * (wait - self.ns * (wait / found).max(1.0)).max(0.0);
        }
        let share = if seen > 0.0 { (left / seen).clamp(0.0, 1.0) } else { 0.0 };
        Corrected {
            contended: (contended.round() as u64).min(waits.histogram.count()),
            wait: Nanos((waits.sum.0 as f64 * share).round() as u64).min(waits.sum),
            hold: Nanos((holds.sum.0 as f64 - added).max(0.0).round() as u64).min(holds.sum),
        }
    }

    /// The mean hold that one who comes by chance finds, bias included.
    fn found(self, holds: &Measure) -> f64 {
        let (mut time, mut squares) = (0.0, 0.0);
        for (low, high, count) in holds.histogram.spans(holds.max) {
            let hold = (low + high) / 2.0;
            time += count * hold;
            squares += count * hold * hold;
        }
        if time > 0.0 { (squares / time).max(self.ns) } else { self.ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn measure(durations: &[(u64, u64)]) -> Measure {
        let mut measure = Measure::default();
        for &(duration, count) in durations {
            (0..count).for_each(|_| measure.add(Nanos(duration)));
        }
        measure
    }

    fn corrected(bias: f64, waits: &[(u64, u64)], holds: &[(u64, u64)]) -> (u64, u64, u64) {
        let c = HoldBias::new(bias).unwrap().remove(&measure(waits), &measure(holds));
        (c.contended, c.wait.0, c.hold.0)
    }

    #[test]
    fn each_hold_and_each_wait_for_one_is_too_long_by_the_bias() {
        assert_eq!(corrected(1_000.0, &[(5_000, 10)], &[(10_000, 100)]), (10, 40_000, 900_000));
    }

    #[test]
    fn contention_with_what_only_the_observer_held_would_not_have_been() {
        assert_eq!(corrected(1_000.0, &[(800, 10), (3_000, 1)], &[(3_000, 100)]), (1, 2_000, 200_000));
        assert_eq!(corrected(1_000.0, &[(900, 3)], &[(500, 100)]), (0, 0, 0));
    }

    #[test]
    fn a_queue_waits_for_the_bias_of_each_holder_before_it() {
        // Ten holds of 2 µs, half of each the observer's.
        assert_eq!(corrected(1_000.0, &[(20_000, 1)], &[(2_000, 50)]), (1, 10_000, 50_000));
        // Whoever waits long waits for the long hold, not for a thousand short ones.
        let (_, wait, _) = corrected(1_000.0, &[(5_000_000, 10)], &[(1_500, 1_000), (10_000_000, 10)]);
        assert!(wait > 49_900_000, "{wait}");
    }

    #[test]
    fn no_bias_is_no_correction() {
        assert_eq!([0.0, -1.0, f64::NAN, f64::INFINITY].map(HoldBias::new), [None; 4]);
        assert_eq!(corrected(1.0, &[], &[]), (0, 0, 0));
    }

    proptest! {
        #[test]
        fn nothing_grows_and_more_bias_leaves_less(
            waits in prop::collection::vec((1u64..1 << 40, 1u64..5), 0..20),
            holds in prop::collection::vec((1u64..1 << 40, 1u64..5), 0..20),
            bias in 1.0f64..1e6,
        ) {
            let (w, h) = (measure(&waits), measure(&holds));
            let of = |bias| HoldBias::new(bias).unwrap().remove(&w, &h);
            let (less, more) = (of(bias), of(bias * 2.0));
            prop_assert!(less.wait <= w.sum && less.hold <= h.sum && less.contended <= w.histogram.count());
            prop_assert!(more.wait <= less.wait && more.hold <= less.hold && more.contended <= less.contended);
        }
    }
}
