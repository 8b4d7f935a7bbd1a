//! Sums of several sites put together, and the statistics that a report shows of them.

use super::schema::{Durations, Unit};
use crate::estimate::Figures;
use crate::op::LockKind;
use crate::sums::{Measure, SiteSums};
use crate::units::Nanos;

/// Statistics over `count` occurrences, of which those that were not measured took no time.
pub(super) fn over(measure: &Measure, count: u64, unit: Unit) -> Durations {
    up_to(measure.max, measure, count, unit)
}

/// The same, of which the longest is known to be `max`.
pub(super) fn up_to(max: Nanos, measure: &Measure, count: u64, unit: Unit) -> Durations {
    let zeros = count.saturating_sub(measure.histogram.count());
    let quantile = |q: f64| {
        let rank = (q * count as f64).ceil() - zeros as f64;
        let measured = measure.histogram.count() as f64;
        if rank <= 0.0 { Nanos(0) } else { measure.histogram.quantile(rank / measured, max) }
    };
    Durations {
        sum: unit.ns(measure.sum),
        mean: unit.ns(Nanos(measure.sum.0.checked_div(count).unwrap_or(0))),
        max: unit.ns(max),
        p50: unit.ns(quantile(0.5)),
        p99: unit.ns(quantile(0.99)),
    }
}

/// The least number of waits that take so long in all: none is longer than the longest.
pub(super) fn least_waits(sum: Nanos, longest: Nanos) -> u64 {
    if longest > Nanos(0) { sum.0.div_ceil(longest.0) } else { 0 }
}

/// Statistics over what was measured.
pub(super) fn durations(measure: &Measure, unit: Unit) -> Durations {
    over(measure, measure.histogram.count(), unit)
}

/// The sums of all sites of one lock, condition variable or futex word.
#[derive(Clone, Debug, Default)]
pub(super) struct Total {
    /// glibc's kind at the first operation.
    pub(super) mutex_kind: u32,
    pub(super) kind: LockKind,
    /// How many threads a round of a barrier takes.
    pub(super) participants: u32,
    pub(super) acquisitions: u64,
    pub(super) contended: u64,
    /// Acquisitions of which the release was not seen.
    pub(super) unseen: u64,
    /// The runtime whose lock it is.
    pub(super) runtime: Option<&'static str>,
    /// Whether only contended acquisitions are seen of it.
    pub(super) inline: bool,
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
            participants: first.map_or(0, |s| s.participants),
            runtime: first.and_then(|s| s.via.runtime()),
            inline: first.is_some_and(|s| s.via.is_inline()),
            ..Self::default()
        };
        for s in all.iter().copied() {
            total.acquisitions += s.acquisitions;
            total.contended += s.contended;
            total.unseen += s.unseen;
            total.try_failures += s.try_failures;
            total.timeouts += s.timeouts;
            total.timed_out += s.timed_out;
            total.errors += s.errors;
            total.wakes += s.wakes;
            total.wakes_of_none += s.wakes_of_none;
            total.wait.merge(&s.wait);
            total.hold.merge(&s.hold);
        }
        if total.kind == LockKind::Barrier {
            // An arrival has two sections: the region before it and the one after.
            total.acquisitions /= 2;
        }
        total
    }

    /// Takes what was estimated for all sites together: it is not the sum of what was estimated for each.
    pub(super) fn estimated(&mut self, figures: &Figures) {
        let all = figures.acquisitions.value.round();
        self.acquisitions = all as u64;
        self.contended = ((all * figures.contended_share.value).round() as u64).min(self.acquisitions);
        if self.wait.sum > Nanos(0) && self.acquisitions > 0 {
            // Whoever waited was contended, and none of them longer than the longest.
            self.contended = self.contended.max(1);
            self.wait.sum = self.wait.sum.min(Nanos(self.wait.max.0.saturating_mul(self.contended)));
        }
        let held = self.acquisitions - self.unseen.min(self.acquisitions);
        self.hold.sum = Nanos((held as f64 * figures.hold_mean_ns.value).round() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::super::schema::Ns;
    use super::*;

    #[test]
    fn uncontended_acquisitions_wait_nothing() {
        let mut wait = Measure::default();
        (0..3).for_each(|_| wait.add(Nanos(1_000)));
        let unit = Unit::per_ns(1);
        let all = over(&wait, 100, unit);
        assert_eq!(all, Durations { sum: Ns::new(3_000), mean: Ns::new(30), max: Ns::new(1_000), ..all });
        assert!(all.p50 == 0 && all.p99.whole() >= 512, "{all:?}");
        assert_eq!(over(&wait, 1_000, unit).p99, 0);
        let contended = durations(&wait, unit);
        assert_eq!(contended.mean, 1_000);
        assert!((512..=1_000).contains(&contended.p50.whole()));
        assert_eq!(durations(&wait, Unit::per_ns(1_000)).mean, 1);
        assert_eq!(over(&Measure::default(), 0, unit), Durations::default());
    }
}
