//! What a report under a budget states of itself: estimates with their intervals, and how much was observed at which cost.
//! The only place that knows what these fields are called.

use super::report::{Lock, Report};
use serde_json::Value;

/// A figure and the interval that is said to hold the truth with 95 % confidence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stated {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Stated {
    fn exact(value: f64) -> Self {
        Self { value, low: value, high: value }
    }

    fn parse(estimate: &Value) -> Option<Self> {
        let number = |name: &str| estimate.get(name)?.as_f64();
        Some(Self { value: number("value")?, low: number("low")?, high: number("high")? })
    }

    /// Demands that the truth is not far out of the interval: within it one time in twenty it is not, so a single run can only
    /// be held to three times its width, and to a `slack` (a part of the truth) where the interval is narrower than the
    /// truth itself is known.
    pub(crate) fn assert_near(&self, truth: f64, slack: f64, what: &str) {
        assert!(self.low <= self.value && self.value <= self.high, "{what}: disordered {self:?}");
        let (low, high) = (self.value - 3.0 * (self.value - self.low), self.value + 3.0 * (self.high - self.value));
        let slack = slack * truth;
        assert!(low - slack <= truth && truth <= high + slack, "{what}: {truth} in truth, {self:?} stated");
    }
}

impl Lock {
    fn stated(&self, name: &str, otherwise: f64) -> Stated {
        self.estimates.get(name).and_then(Stated::parse).unwrap_or(Stated::exact(otherwise))
    }

    /// Acquisitions; exact if they were all seen.
    pub(crate) fn stated_acquisitions(&self) -> Stated {
        self.stated("acquisitions", self.acquisitions as f64)
    }

    /// Mean hold, ns.
    pub(crate) fn stated_hold_mean(&self) -> Stated {
        self.stated("hold_mean_ns", self.hold_ns.mean)
    }

    /// 99th percentile of holds, ns.
    pub(crate) fn stated_hold_p99(&self) -> Stated {
        self.stated("hold_p99_ns", self.hold_ns.p99)
    }

    /// Contended part of the acquisitions.
    pub(crate) fn stated_contended_share(&self) -> Stated {
        self.stated("contended_share", self.contended as f64 / (self.acquisitions as f64).max(1.0))
    }
}

/// How much of a process was observed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observed {
    /// Part of the time in which its full tier was on.
    pub(crate) observed_share: f64,
    /// What that cost, as a part of its CPU time.
    pub(crate) cost_share: f64,
    pub(crate) windows: u64,
}

impl Report {
    /// Whether a budget was kept, so that not everything may have been observed.
    pub(crate) fn has_budget(&self) -> bool {
        !self.quality.observed.is_null()
    }

    /// What the report's quality says of a process.
    pub(crate) fn observed(&self, pid: u32) -> Observed {
        let processes = self.quality.observed["processes"].as_array().map(Vec::as_slice).unwrap_or_default();
        let entry = processes.iter().find(|entry| entry["pid"] == pid);
        let entry = entry.unwrap_or_else(|| panic!("nothing said of {pid} in {}", self.quality.observed));
        let number = |name: &str| entry[name].as_f64().unwrap_or_else(|| panic!("no {name} in {entry}"));
        Observed {
            observed_share: number("time_share"),
            cost_share: number("cost_share"),
            windows: number("windows") as u64,
        }
    }
}
