//! Sums of several sites put together, and the statistics that a report shows of them.

use super::schema::Durations;
use crate::op::LockKind;
use crate::sums::{Measure, SiteSums};
use crate::units::Nanos;

/// Statistics over `count` occurrences, of which those that were not measured took no time.
pub(super) fn over(measure: &Measure, count: u64) -> Durations {
    let zeros = count.saturating_sub(measure.histogram.count());
    let quantile = |q: f64| {
        let rank = (q * count as f64).ceil() - zeros as f64;
        if rank <= 0.0 { 0 } else { measure.histogram.quantile(rank / measure.histogram.count() as f64, measure.max).0 }
    };
    Durations {
        sum: measure.sum.0,
        mean: measure.sum.0.checked_div(count).unwrap_or(0),
        max: measure.max.0,
        p50: quantile(0.5),
        p99: quantile(0.99),
    }
}

/// Statistics over what was measured.
pub(super) fn durations(measure: &Measure) -> Durations {
    over(measure, measure.histogram.count())
}

/// The sums of all sites of one lock, condition variable or futex word.
#[derive(Clone, Debug, Default)]
pub(super) struct Total {
    /// glibc's kind at the first operation.
    pub(super) mutex_kind: u32,
    pub(super) kind: LockKind,
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
        let first = all.iter().min_by_key(|s| (s.first, s.site));
        let mut total = Self {
            mutex_kind: first.map_or(0, |s| s.mutex_kind),
            kind: first.map_or(LockKind::Mutex, |s| s.kind),
            ..Self::default()
        };
        for s in all.iter().copied() {
            total.acquisitions += s.acquisitions;
            total.contended += s.contended;
            total.try_failures += s.try_failures;
            total.timeouts += s.timeouts;
            total.timed_out += s.timed_out;
            total.errors += s.errors;
            total.wakes += s.wakes;
            total.wakes_of_none += s.wakes_of_none;
            total.wait.merge(&s.wait);
            total.hold.merge(&s.hold);
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uncontended_acquisitions_wait_nothing() {
        let mut wait = Measure::default();
        (0..3).for_each(|_| wait.add(Nanos(1_000)));
        let all = over(&wait, 100);
        assert_eq!((all.sum, all.mean, all.max, all.p50), (3_000, 30, 1_000, 0));
        assert!(all.p99 >= 512, "{all:?}");
        assert_eq!(over(&wait, 1_000).p99, 0);
        let contended = durations(&wait);
        assert_eq!(contended.mean, 1_000);
        assert!((512..=1_000).contains(&contended.p50));
        assert_eq!(over(&Measure::default(), 0), Durations::default());
    }
}
