//! Values that many entries have.

use super::super::schema::{CausesEntry, Durations, Ns};
use super::Check;
use crate::estimate::{Figures, Interval};

/// Quantiles come from buckets of powers of two.
const BUCKET: f64 = 2.0;

impl Check {
    /// Durations of which there are `count`, if that is known.
    pub(super) fn durations(&mut self, d: &Durations, count: Option<u64>, what: &dyn Fn() -> String) {
        let all = || format!("{}: {d:?} of {count:?}", what());
        let [sum, mean, max, p50, p99] = [d.sum, d.mean, d.max, d.p50, d.p99].map(Ns::as_f64);
        self.demand(p50 <= p99 && p99 <= max, || format!("quantiles out of order in {}", all()));
        self.demand(self.at_most(mean, max, 1), || format!("the mean exceeds the longest in {}", all()));
        self.demand(self.at_most(max, sum * self.runs, 1), || format!("the longest exceeds the sum in {}", all()));
        let Some(count) = count else { return };
        let n = count as f64;
        // Half of them are at least as long as the median.
        self.demand(self.at_most(p50, mean.max(1.0) * 2.0 * BUCKET * BUCKET, 1), || {
            format!("a median that the mean does not allow in {}", all())
        });
        // The mean is rounded, as is the count over several runs.
        let rounding = n + if self.runs > 1.0 { mean + n } else { 1.0 };
        self.demand((sum - mean * n).abs() <= rounding + 1e-6 * sum, || {
            format!("sum, mean and count differ in {}", all())
        });
    }

    /// An estimate.
    pub(super) fn interval(&mut self, i: &Interval, what: &dyn Fn() -> String) {
        let fits = 0.0 <= i.low && i.low <= i.value && i.value <= i.high && i.high.is_finite();
        self.demand(fits, || format!("{}: the interval of {i:?} is without its point", what()));
    }

    /// Estimates of one thing.
    pub(super) fn figures(&mut self, f: &Figures, what: &dyn Fn() -> String) {
        for (interval, name) in [
            (&f.acquisitions, "acquisitions"),
            (&f.hold_mean_ns, "mean hold"),
            (&f.hold_p99_ns, "p99 of holds"),
            (&f.contended_share, "contended share"),
        ] {
            self.interval(interval, &|| format!("{name} of {}", what()));
        }
        self.demand(f.contended_share.high <= 1.0 + 1e-9, || {
            format!("{}: {:?} is no share", what(), f.contended_share)
        });
        // A hundredth of them is at least as long as the quantile.
        let most = f.hold_mean_ns.value.max(1.0) * 100.0;
        self.demand(f.hold_p99_ns.value <= most * (1.0 + 1e-6), || {
            format!("{}: a p99 of {:?} for a mean of {:?}", what(), f.hold_p99_ns, f.hold_mean_ns)
        });
    }

    /// What those were doing who made others wait so long; `None` if that is not known.
    pub(super) fn causes(&mut self, causes: Option<&CausesEntry>, wait: Ns, what: &dyn Fn() -> String) {
        let Some(c) = causes else { return };
        let all = [c.running, c.runnable, c.blocked, c.sleeping, c.lock, c.kernel_lock, c.handoff, c.unknown];
        self.parts(all, wait, || format!("causes of {}", what()));
    }
}
