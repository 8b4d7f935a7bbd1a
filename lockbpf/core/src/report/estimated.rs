//! Estimates as people read them: `~1.20 M ±8 %`, or where they are wide their bounds, `0.4–205 M`; more is in the JSON.

use super::schema::{LockEntry, Ns, ObservedEntry, Report};
use super::table::UNKNOWN as NOTHING;
use super::text::{counted, percent};
use crate::estimate::{Figures, Interval};
use crate::governor::LEAST_USE;

/// Half-width of an interval from which on its bounds say more.
const WIDE: f64 = 0.5;
/// A bound this many times the estimate says nothing.
const UNKNOWN: f64 = 1_000.0;
/// A share so near to nothing, or to all, is no bound.
const LEAST: f64 = 0.0005;
/// Units of numbers and of times, each 1,000 of the one before.
const UNITS: [&str; 4] = ["", " k", " M", " G"];
const TIMES: [&str; 4] = [" ns", " µs", " ms", " s"];

/// A number.
pub(super) fn count(i: &Interval) -> String {
    shown(i, |n| short(n.round()), UNITS)
}

/// Acquisitions of all locks, of which some are estimated.
pub(super) fn acquisitions(report: &Report) -> String {
    let known = report.locks.iter().filter_map(|l| Some((l.acquisitions? as f64, l.estimates?.acquisitions)));
    let (mut low, mut high) = (report.totals.acquisitions as f64, report.totals.acquisitions as f64);
    for (told, interval) in known {
        low -= told - interval.low;
        high += interval.high - told;
    }
    let all = Interval { value: report.totals.acquisitions as f64, low: low.max(0.0), high };
    if all.is_wide() {
        format!("{} acquisitions", range(&all, UNITS))
    } else {
        format!("about {}", counted(report.totals.acquisitions, "acquisition"))
    }
}

/// How many were contended, of which at least these `slept`.
pub(super) fn contended(f: &Figures, contended: u64, slept: u64) -> String {
    let (all, share) = (&f.acquisitions, &f.contended_share);
    let value = contended as f64;
    let (low, high) = ((all.low * share.low).max(slept as f64).min(value), (all.high * share.high).max(value));
    without_width(&Interval { value, low, high }, |n| short(n.round()), UNITS)
}

/// A sum of holds, ns.
pub(super) fn held(sum: &Interval) -> String {
    without_width(sum, nanos, TIMES)
}

/// A number without an interval.
pub(super) fn about(n: u64) -> String {
    format!("~{}", short(n as f64))
}

/// A time, in ns.
pub(super) fn time(i: &Interval) -> String {
    shown(i, nanos, TIMES)
}

/// What a lock costs.
pub(super) fn harm(lock: &LockEntry) -> String {
    let beside = (lock.harm_ns - lock.wait_ns.sum).as_f64();
    let all = |sum: &Interval| Interval { value: sum.value + beside, low: sum.low + beside, high: sum.high + beside };
    lock.wait_estimate.map_or_else(|| lock.harm_ns.to_string(), |sum| time(&all(&sum)))
}

/// A quantile, in ns: known to within its bounds.
pub(super) fn quantile(i: &Interval) -> String {
    match i.low {
        _ if !is_unbounded(i) => without_width(i, nanos, TIMES),
        low if low < 0.5 => NOTHING.to_owned(),
        low => format!("≥{}", nanos(low)),
    }
}

/// A share of 1.
pub(super) fn share(i: &Interval) -> String {
    match (percent(i.low), percent(i.high)) {
        _ if !i.is_wide() => format!("~{}", percent(i.value)),
        _ if i.low < LEAST && i.high > 1.0 - LEAST => NOTHING.to_owned(),
        (_, high) if i.low < LEAST => format!("≤{high}"),
        (low, _) if i.high > 1.0 - LEAST => format!("≥{low}"),
        (low, high) => format!("{}–{high}", low.trim_end_matches(" %")),
    }
}

/// What was fully observed, and what that cost.
pub(super) fn observed(entry: &ObservedEntry) -> String {
    let all = &entry.overall;
    let windows = if all.windows > 0 { format!(" ({})", counted(all.windows, "window")) } else { String::new() };
    let cpus = format!(", {} of a CPU", percent(all.cost_cpus));
    let (cpus, budget) = match entry.budget {
        None => (String::new(), String::new()),
        Some(budget) if all.cost_share <= budget => (String::new(), format!(" (budget {})", percent(budget))),
        Some(budget) => (cpus, format!(" (budget {}, or {} of a CPU)", percent(budget), percent(budget * LEAST_USE))),
    };
    let bias = Ns::new(entry.hold_bias_ns.value.round() as u64);
    let bias = if all.estimated { String::new() } else { format!(" It makes each hold about {bias} longer.") };
    format!(
        "Fully observed {} of the time{windows}; observing cost {} of the target's CPU time{cpus}{budget}.{bias}",
        percent(all.time_share),
        percent(all.cost_share)
    )
}

fn nanos(ns: f64) -> String {
    Ns::new(ns.round() as u64).to_string()
}

/// Whether the upper bound says nothing.
fn is_unbounded(i: &Interval) -> bool {
    i.high > i.value.max(1.0) * UNKNOWN
}

/// Between the bounds, where the point says nothing.
fn range(i: &Interval, units: [&str; 4]) -> String {
    let (low, high) = (Rough::of(i.low.max(0.0)), Rough::of(i.high));
    // Both in one unit, if the lower one has a digit there.
    match high.unit.checked_sub(low.unit) {
        _ if is_unbounded(i) && low.is_nothing() => NOTHING.to_owned(),
        _ if is_unbounded(i) => format!("≥{}", low.text(units)),
        // `5–1.7 M` would read as 5 M.
        _ if low.is_nothing() || low.unit < high.unit && units[low.unit].is_empty() => format!("≤{}", high.text(units)),
        Some(0) => format!("{}–{}", low.digits(), high.text(units)),
        Some(1) if low.value >= 95.0 => {
            let low = Rough { value: low.value / 1e3, unit: high.unit };
            format!("{}–{}", low.digits(), high.text(units))
        }
        _ => format!("{}–{}", low.text(units), high.text(units)),
    }
}

fn without_width(i: &Interval, text: impl Fn(f64) -> String, units: [&str; 4]) -> String {
    if i.is_wide() { range(i, units) } else { format!("~{}", text(i.value)) }
}

fn shown(i: &Interval, text: impl Fn(f64) -> String, units: [&str; 4]) -> String {
    match i.half_width() {
        w if i.is_wide() || w > WIDE && i.value > 0.0 => range(i, units),
        _ if i.value <= 0.0 => format!("~{}", text(i.value)),
        w => format!("~{} ±{:.0} %", text(i.value), (w * 100.0).ceil()),
    }
}

/// A bound in two significant digits or three before the decimal point: it is not known better.
struct Rough {
    value: f64,
    /// How many times 1,000 it is of.
    unit: usize,
}

impl Rough {
    fn of(n: f64) -> Self {
        let unit = (0..UNITS.len() - 1).find(|&unit| n / 1e3_f64.powi(unit as i32) < 999.5).unwrap_or(UNITS.len() - 1);
        Self { value: n / 1e3_f64.powi(unit as i32), unit }
    }

    fn is_nothing(&self) -> bool {
        self.unit == 0 && self.value < 0.5
    }

    fn digits(&self) -> String {
        // What is counted one by one has no parts.
        if self.value < 9.95 && self.unit > 0 {
            format!("{:.1}", self.value).trim_end_matches(".0").to_owned()
        } else {
            format!("{:.0}", self.value)
        }
    }

    fn text(&self, units: [&str; 4]) -> String {
        format!("{}{}", self.digits(), units.get(self.unit).unwrap_or(&""))
    }
}

/// Three significant digits: `950`, `1.20 k`, `12.3 M`.
fn short(n: f64) -> String {
    let (value, unit) = match n {
        n if n < 999.5 => return format!("{n:.0}"),
        n if n < 999_500.0 => (n / 1e3, "k"),
        n if n < 999_500_000.0 => (n / 1e6, "M"),
        n => (n / 1e9, "G"),
    };
    let decimals = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_slept_was_contended() {
        let interval = |value, low, high| Interval { value, low, high };
        let figures = Figures {
            acquisitions: interval(40.0, 1.0, 1_200.0),
            contended_share: interval(0.02, 0.001, 1.0),
            ..Figures::default()
        };
        assert_eq!([0, 1].map(|slept| contended(&figures, 1, slept)), ["–", "≥1"]);
        assert_eq!([0, 30].map(|slept| contended(&figures, 30, slept)), ["≤1.2 k", "≤1.2 k"]);
    }

    #[test]
    fn estimates_show_how_sure_they_are() {
        let interval = |value, low, high| Interval { value, low, high };
        assert_eq!(count(&interval(1_200_000.0, 1_104_000.0, 1_296_000.0)), "~1.20 M ±8 %");
        assert_eq!(count(&interval(120.0, 60.0, 200.0)), "60–200");
        assert_eq!(count(&interval(120.0, 20.0, 700.0)), "20–700");
        assert_eq!(count(&interval(2e6, 4e5, 2.05e8)), "0.4–205 M");
        assert_eq!(count(&interval(2e6, 2.87e3, 2.05e8)), "2.9 k–205 M");
        assert_eq!(count(&interval(2_994.0, 2_871.0, 5.65e6)), "≥2.9 k");
        assert_eq!(count(&interval(3.0, 0.0, 11.0)), "≤11");
        assert_eq!(share(&interval(0.01, 0.004, 0.1)), "0.4–10 %");
        assert_eq!([share(&interval(0.0, 0.0, 0.037)), share(&interval(0.5, 0.4, 0.6))], ["≤3.7 %", "~50 %"]);
        assert_eq!(share(&interval(0.1, 0.02, 1.0)), "≥2.0 %");
        assert_eq!(share(&interval(0.1, 0.0, 1.0)), "–");
        assert_eq!([count(&interval(1.0, 0.0, 1.2e3)), quantile(&interval(3.0, 0.0, 1e4))], ["–", "–"]);
        assert_eq!(count(&interval(9e3, 5.0, 1.7e6)), "≤1.7 M");
        assert_eq!(time(&interval(8_010.0, 8_010.0, 8_010.0)), "~8.01 µs ±0 %");
        assert_eq!(time(&interval(8_010.0, 700.0, 1e10)), "≥700 ns");
        assert_eq!(time(&interval(8_010.0, 700.0, 64_000.0)), "0.7–64 µs");
        assert_eq!(quantile(&interval(10_000.0, 8_192.0, 2e10)), "≥8.19 µs");
        assert_eq!(quantile(&interval(10_000.0, 8_192.0, 16_384.0)), "~10.0 µs");
        assert_eq!(quantile(&interval(10_000.0, 2_000.0, 16_384.0)), "2–16 µs");
        assert_eq!([0.0, 999.0, 1_234.0, 99_960.0, 2.5e9].map(short), ["0", "999", "1.23 k", "100 k", "2.50 G"]);
    }
}
