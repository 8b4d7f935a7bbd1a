//! What is estimated: where a workload states its truth and where a report states its estimate.

use serde_json::Value;

/// A clock reading between lock and unlock of the workload's own, ns: how far its truth about holds may be off.
const CLOCK_NS: f64 = 60.0;

/// A quantity of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Quantity {
    Acquisitions,
    HoldMean,
    HoldP99,
    ContendedShare,
}

/// An estimate and the interval stated for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Interval {
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Quantity {
    pub(super) const ALL: [Self; 4] = [Self::Acquisitions, Self::HoldMean, Self::HoldP99, Self::ContendedShare];

    /// How a table names it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Acquisitions => "acquisitions",
            Self::HoldMean => "hold, mean",
            Self::HoldP99 => "hold, p99",
            Self::ContendedShare => "contended share",
        }
    }

    /// The truth, out of the line that a workload prints; its facts about holds are those of its first lock.
    pub(super) fn truth(self, workload: &Value, lock: &Value) -> Option<f64> {
        let fact = |name: &str| {
            let first = workload.pointer("/locks/0/addr") == lock.get("addr");
            first.then(|| workload["facts"].get(name)?.as_f64()).flatten()
        };
        let number = |name: &str| lock.get(name)?.as_f64();
        match self {
            Self::Acquisitions => number("acquisitions"),
            Self::HoldMean => fact("hold_mean_ns"),
            Self::HoldP99 => fact("hold_p99_ns"),
            Self::ContendedShare => Some(number("contended")? / number("acquisitions")?),
        }
    }

    /// How far that truth may be off.
    pub(super) fn uncertainty(self) -> f64 {
        match self {
            Self::Acquisitions | Self::ContendedShare => 0.0,
            Self::HoldMean | Self::HoldP99 => CLOCK_NS,
        }
    }

    /// What a report states of a lock. Where it states no interval it claims to be exact, but for holds, of which it says by how
    /// much observing has lengthened them, and for quantiles, which are right within a factor of two. The only place that
    /// knows what these fields are called.
    pub(super) fn stated(self, lock: &Value, report: &Value) -> Option<Interval> {
        let name = match self {
            Self::Acquisitions => "acquisitions",
            Self::HoldMean => "hold_mean_ns",
            Self::HoldP99 => "hold_p99_ns",
            Self::ContendedShare => "contended_share",
        };
        if let Some(estimate) = lock.pointer(&format!("/estimates/{name}")) {
            let number = |name: &str| estimate.get(name)?.as_f64();
            return Some(Interval { value: number("value")?, low: number("low")?, high: number("high")? });
        }
        let number = |pointer: &str| lock.pointer(pointer)?.as_f64();
        let exact = |value| Interval { value, low: value, high: value };
        let bias = |end: &str| report.pointer(&format!("/quality/observed/hold_bias_ns/{end}"))?.as_f64();
        let hold = |shortest: f64, hold: f64, longest: f64| {
            let [value, low, high] = [(hold, "value"), (shortest, "high"), (longest, "low")]
                .map(|(hold, end)| (hold - bias(end).unwrap_or(0.0)).max(0.0));
            Interval { value, low, high }
        };
        match self {
            Self::Acquisitions => number("/acquisitions").map(exact),
            Self::HoldMean => number("/hold_ns/mean").map(|mean| hold(mean, mean, mean)),
            Self::HoldP99 => number("/hold_ns/p99").map(|p99| hold(p99 / 2.0, p99, p99 * 2.0)),
            Self::ContendedShare => Some(exact(number("/contended")? / number("/acquisitions")?.max(1.0))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn truths_are_found() {
        let workload = json!({
            "locks": [{"addr": "0x1", "acquisitions": 10, "contended": 5}, {"addr": "0x2", "acquisitions": 4, "contended": 0}],
            "facts": {"hold_mean_ns": 70, "hold_p99_ns": 90},
        });
        let truths = |i: usize| Quantity::ALL.map(|quantity| quantity.truth(&workload, &workload["locks"][i]));
        assert_eq!(truths(0), [Some(10.0), Some(70.0), Some(90.0), Some(0.5)]);
        assert_eq!(truths(1), [Some(4.0), None, None, Some(0.0)]);
    }

    #[test]
    fn without_estimates_the_figures_are_exact() {
        let mut lock = json!({"acquisitions": 8, "contended": 2, "hold_ns": {"mean": 5.5, "p99": 9}});
        let exact = |value| Some(Interval { value, low: value, high: value });
        let p99 = Some(Interval { value: 9.0, low: 4.5, high: 18.0 });
        let report = json!({});
        assert_eq!(Quantity::ALL.map(|q| q.stated(&lock, &report)), [exact(8.0), exact(5.5), p99, exact(0.25)]);
        lock["estimates"] = json!({"acquisitions": {"value": 80, "low": 70, "high": 95}});
        let estimated = Interval { value: 80.0, low: 70.0, high: 95.0 };
        assert_eq!(Quantity::Acquisitions.stated(&lock, &report), Some(estimated));
        let report = json!({"quality": {"observed": {"hold_bias_ns": {"value": 1, "low": 0.5, "high": 2}}}});
        assert_eq!(Quantity::HoldMean.stated(&lock, &report), Some(Interval { value: 4.5, low: 3.5, high: 5.0 }));
    }
}
