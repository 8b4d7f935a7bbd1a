//! Values that many entries have.

use super::super::schema::{AttributionEntry, CorrectedEntry, Durations, FutexCounts, Ns};
use super::Check;
use crate::estimate::{Figures, Interval};

/// Quantiles come from buckets of powers of two.
const BUCKET: f64 = 2.0;

impl Check {
    /// Durations of which there are `count`, if that is known.
    pub(super) fn durations(&mut self, d: &Durations, count: Option<u64>, what: &dyn Fn() -> String) {
        let all = || format!("{}: {d:?} of {count:?}", what());
        let Durations { sum, mean, max, p50, p99 } = *d;
        let [sum, mean, max, p50, p99] = [sum, mean, max, p50, p99].map(Ns::as_f64);
        self.demand(p50 <= p99 && p99 <= max, || format!("quantiles out of order in {}", all()));
        self.demand(self.at_most(mean, max, 1), || format!("the mean exceeds the longest in {}", all()));
        self.demand(self.at_most(max / self.runs, sum, 1), || format!("the longest exceeds the sum in {}", all()));
        let Some(count) = count else { return };
        let n = count as f64;
        // Half of them are at least as long as the median.
        self.demand(self.at_most(p50, mean.max(1.0) * 2.0 * BUCKET * BUCKET, 1), || {
            format!("a median that the mean does not allow in {}", all())
        });
        // The mean is rounded, as is the count over several runs, which may be the difference of two.
        let rounding = n + if self.runs > 1.0 { 2.0 * (mean + 1.0) + n } else { 1.0 };
        self.demand((sum - mean * n).abs() <= rounding + 1e-6 * sum, || {
            format!("sum, mean and count differ in {}", all())
        });
    }

    /// An estimate.
    pub(super) fn interval(&mut self, i: &Interval, what: &dyn Fn() -> String) {
        let Interval { value, low, high } = *i;
        let fits = 0.0 <= low && low <= value && value <= high && high.is_finite();
        self.demand(fits, || format!("{}: the interval of {i:?} is without its point", what()));
    }

    /// Estimates of one thing.
    pub(super) fn figures(&mut self, f: &Figures, what: &dyn Fn() -> String) {
        // Some locks tell an estimate of the time waited, in a field of its own.
        let Figures { acquisitions, hold_mean_ns, hold_p99_ns, contended_share, wait_ns: _ } = f;
        for (interval, name) in [
            (acquisitions, "acquisitions"),
            (hold_mean_ns, "mean hold"),
            (hold_p99_ns, "p99 of holds"),
            (contended_share, "contended share"),
        ] {
            self.interval(interval, &|| format!("{name} of {}", what()));
        }
        self.demand(contended_share.high <= 1.0 + 1e-9, || format!("{}: {contended_share:?} is no share", what()));
        // A hundredth of them is at least as long as the quantile.
        let most = hold_mean_ns.value.max(1.0) * 100.0;
        self.demand(hold_p99_ns.value <= most * (1.0 + 1e-6), || {
            format!("{}: a p99 of {hold_p99_ns:?} for a mean of {hold_mean_ns:?}", what())
        });
    }

    /// Waiting by how surely it is charged.
    pub(super) fn attribution(&mut self, parts: AttributionEntry, harm: Ns, what: impl FnOnce() -> String) {
        let AttributionEntry { exact_ns, inferred_ns, unknown_ns } = parts;
        self.adds_up([exact_ns, inferred_ns, unknown_ns], harm, || format!("{} by how surely it is charged", what()));
    }

    /// Demands that figures without the observer's part are no more than those that were seen: contended sections, waits and holds.
    pub(super) fn corrected(
        &mut self,
        left: CorrectedEntry,
        (contended, waits, holds): (Option<u64>, Ns, Ns),
        name: &dyn Fn() -> String,
    ) {
        let CorrectedEntry { contended: left_contended, wait_ns, hold_ns } = left;
        self.within(wait_ns, waits, || format!("waits for {} without the observer", name()));
        self.within(hold_ns, holds, || format!("holds of {} without the observer", name()));
        if let Some(contended) = contended {
            self.count(left_contended, contended, || format!("{} contended without the observer", name()));
        }
    }

    /// Futex calls on one word.
    pub(super) fn futex_counts(&mut self, counts: &FutexCounts, name: &dyn Fn() -> String) {
        let FutexCounts {
            slept,
            timed_out,
            interrupted,
            wait_sum_ns,
            timed_out_wait_ns,
            // Whoever found another value did not sleep, and wakes may come before or after all waits.
            again: _,
            wakes: _,
            wakes_of_none: _,
        } = *counts;
        let waited = slept.saturating_add(timed_out).saturating_add(interrupted);
        self.happened(waited, wait_sum_ns, || format!("sleep on {}", name()));
        self.happened(timed_out, timed_out_wait_ns, || format!("waits that timed out on {}", name()));
    }

    /// How far so many of the runs agree on a figure: nothing that is never negative deviates by more from its mean.
    pub(super) fn deviation(&mut self, deviation: Ns, mean: Ns, what: impl FnOnce() -> String) {
        // The mean is rounded.
        let least = deviation.as_f64() / self.runs.sqrt();
        self.demand(self.at_most(least, mean.as_f64(), 2), || {
            format!("{}: a mean of {mean} with a deviation of {deviation}", what())
        });
    }
}
