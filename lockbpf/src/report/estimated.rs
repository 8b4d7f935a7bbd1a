//! Estimates as people read them: `~1.20 M ±8 %`, or their bounds where they are wide; only those where these are far apart.

use super::schema::{Ns, ObservedEntry, Report};
use super::text::{counted, percent};
use crate::estimate::{Figures, Interval};

/// Half-width of an interval from which on its bounds say more.
const WIDE: f64 = 0.5;
/// A bound this many times the estimate says nothing.
const UNKNOWN: f64 = 1_000.0;

/// A number.
pub(super) fn count(i: &Interval) -> String {
    shown(i, |n| short(n.round()))
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
        format!("{} acquisitions", range(&all, |n| short(n.round())))
    } else {
        format!("about {}", counted(report.totals.acquisitions, "acquisition"))
    }
}

/// How many were contended.
pub(super) fn contended(f: &Figures, contended: u64) -> String {
    let (all, share) = (&f.acquisitions, &f.contended_share);
    let value = contended as f64;
    let (low, high) = ((all.low * share.low).min(value), (all.high * share.high).max(value));
    without_width(&Interval { value, low, high }, |n| short(n.round()))
}

/// A sum of holds, ns.
pub(super) fn held(f: &Figures) -> String {
    let (all, mean) = (&f.acquisitions, &f.hold_mean_ns);
    let product = Interval { value: all.value * mean.value, low: all.low * mean.low, high: all.high * mean.high };
    without_width(&product, nanos)
}

/// A number without an interval.
pub(super) fn about(n: u64) -> String {
    format!("~{}", short(n as f64))
}

/// A time, in ns.
pub(super) fn time(i: &Interval) -> String {
    shown(i, nanos)
}

/// A quantile, in ns: known to within its bounds.
pub(super) fn quantile(i: &Interval) -> String {
    if i.high > i.value.max(1.0) * UNKNOWN { format!("≥{}", nanos(i.low)) } else { without_width(i, nanos) }
}

/// A share of 1.
pub(super) fn share(i: &Interval) -> String {
    if i.is_wide() && i.low > 0.0 {
        return format!("{}–{}", percent(i.low).trim_end_matches(" %"), percent(i.high));
    }
    without_width(i, percent)
}

/// What was fully observed, and what that cost.
pub(super) fn observed(entry: &ObservedEntry) -> String {
    let all = &entry.overall;
    let windows = if all.windows > 0 { format!(" ({})", counted(all.windows, "window")) } else { String::new() };
    let budget = entry.budget.map(|budget| format!(" (budget {})", percent(budget))).unwrap_or_default();
    let bias = Ns::new(entry.hold_bias_ns.value.round() as u64);
    let bias = if all.estimated { String::new() } else { format!(" It makes each hold about {bias} longer.") };
    format!(
        "Fully observed {} of the time{windows}; observing cost {} of the target's CPU time{budget}.{bias}",
        percent(all.time_share),
        percent(all.cost_share)
    )
}

fn nanos(ns: f64) -> String {
    Ns::new(ns.round() as u64).to_string()
}

/// Between the bounds, where the point says nothing.
fn range(i: &Interval, text: impl Fn(f64) -> String) -> String {
    let most = i.value.max(1.0) * UNKNOWN;
    match text(i.low) {
        low if i.high > most => format!("≥{low}"),
        low if low == text(0.0) => format!("≤{}", text(i.high)),
        low => format!("{low}–{}", text(i.high)),
    }
}

fn without_width(i: &Interval, text: impl Fn(f64) -> String) -> String {
    if i.is_wide() { range(i, text) } else { format!("~{}", text(i.value)) }
}

fn shown(i: &Interval, text: impl Fn(f64) -> String) -> String {
    match i.half_width() {
        _ if i.is_wide() => range(i, text),
        _ if i.value <= 0.0 => format!("~{}", text(i.value)),
        w if w > WIDE => format!("~{} ({}–{})", text(i.value), text(i.low), text(i.high)),
        w => format!("~{} ±{}", text(i.value), percent(w)),
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
    fn estimates_show_how_sure_they_are() {
        let interval = |value, low, high| Interval { value, low, high };
        assert_eq!(count(&interval(1_200_000.0, 1_104_000.0, 1_296_000.0)), "~1.20 M ±8.0 %");
        assert_eq!(count(&interval(120.0, 60.0, 200.0)), "~120 (60–200)");
        assert_eq!(count(&interval(120.0, 20.0, 700.0)), "20–700");
        assert_eq!(count(&interval(2_994.0, 2_871.0, 5.65e6)), "≥2.87 k");
        assert_eq!(count(&interval(3.0, 0.0, 11.0)), "≤11");
        assert_eq!(share(&interval(0.01, 0.004, 0.1)), "0.4–10 %");
        assert_eq!([share(&interval(0.0, 0.0, 0.037)), share(&interval(0.5, 0.4, 0.6))], ["≤3.7 %", "~50 %"]);
        assert_eq!(time(&interval(8_010.0, 8_010.0, 8_010.0)), "~8.01 µs ±0 %");
        assert_eq!(time(&interval(8_010.0, 700.0, 1e10)), "≥700 ns");
        assert_eq!(quantile(&interval(10_000.0, 8_192.0, 2e10)), "≥8.19 µs");
        assert_eq!(quantile(&interval(10_000.0, 8_192.0, 16_384.0)), "~10.0 µs");
        assert_eq!(quantile(&interval(10_000.0, 2_000.0, 16_384.0)), "2.00 µs–16.4 µs");
        assert_eq!([0.0, 999.0, 1_234.0, 99_960.0, 2.5e9].map(short), ["0", "999", "1.23 k", "100 k", "2.50 G"]);
    }
}
