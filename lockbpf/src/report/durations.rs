//! Sums of several sites put together, and the statistics that a report shows of them.

use super::schema::Durations;
use crate::histogram::Histogram;
use crate::observation::SiteSums;
use crate::units::Nanos;
use lockbpf_common::sums::BUCKETS;

/// Durations as far as sums keep them.
#[derive(Clone, Debug, Default)]
pub(super) struct Measure {
    pub(super) sum: Nanos,
    pub(super) max: Nanos,
    pub(super) histogram: Histogram,
}

impl Measure {
    fn merge(&mut self, sum: u64, max: u64, histogram: &[u32; BUCKETS]) {
        self.sum += Nanos(sum);
        self.max = self.max.max(Nanos(max));
        self.histogram.merge_raw(histogram);
    }

    /// Statistics over `count` occurrences, of which those that this did not measure took no time.
    pub(super) fn over(&self, count: u64) -> Durations {
        let zeros = count.saturating_sub(self.histogram.count());
        let quantile = |q: f64| {
            let rank = (q * count as f64).ceil() - zeros as f64;
            if rank <= 0.0 { 0 } else { self.histogram.quantile(rank / self.histogram.count() as f64, self.max).0 }
        };
        Durations {
            sum: self.sum.0,
            mean: self.sum.0.checked_div(count).unwrap_or(0),
            max: self.max.0,
            p50: quantile(0.5),
            p99: quantile(0.99),
        }
    }

    /// Statistics over what was measured.
    pub(super) fn durations(&self) -> Durations {
        self.over(self.histogram.count())
    }
}

/// The sums of all sites of one lock, condition variable or futex word.
#[derive(Clone, Debug, Default)]
pub(super) struct Total {
    /// glibc's kind at the first operation.
    pub(super) kind: u32,
    pub(super) acquisitions: u64,
    pub(super) contended: u64,
    pub(super) try_failures: u64,
    pub(super) timeouts: u64,
    pub(super) timed_out: Nanos,
    pub(super) errors: u64,
    pub(super) wakes: u64,
    pub(super) wakes_of_none: u64,
    pub(super) wait: Measure,
    pub(super) hold: Measure,
}

impl Total {
    /// Puts the sums together.
    pub(super) fn of(all: &[&SiteSums]) -> Self {
        let first = all.iter().min_by_key(|s| (s.sums.first_ns, s.site));
        let mut total = Self { kind: first.map_or(0, |s| s.sums.kind), ..Self::default() };
        for SiteSums { sums: s, .. } in all.iter().copied() {
            total.acquisitions += s.acquisitions;
            total.contended += s.contended;
            total.try_failures += s.try_failures;
            total.timeouts += s.timeouts;
            total.timed_out += Nanos(s.timeout_ns);
            total.errors += s.errors;
            total.wakes += s.wakes;
            total.wakes_of_none += s.wakes_of_none;
            total.wait.merge(s.wait_ns, s.wait_max_ns, &s.wait_hist);
            total.hold.merge(s.hold_ns, s.hold_max_ns, &s.hold_hist);
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uncontended_acquisitions_wait_nothing() {
        let mut wait = Measure { sum: Nanos(3_000), max: Nanos(1_000), histogram: Histogram::default() };
        (0..3).for_each(|_| wait.histogram.add(Nanos(1_000)));
        let all = wait.over(100);
        assert_eq!((all.sum, all.mean, all.max, all.p50), (3_000, 30, 1_000, 0));
        assert!(all.p99 >= 512, "{all:?}");
        assert_eq!(wait.over(1_000).p99, 0);
        let contended = wait.durations();
        assert_eq!(contended.mean, 1_000);
        assert!((512..=1_000).contains(&contended.p50));
        assert_eq!(Measure::default().over(0), Durations::default());
    }
}
