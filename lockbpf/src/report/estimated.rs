//! Estimates as people read them: `~1.20 M ±8 %`, or their bounds where they are wide.

use super::schema::{Ns, ObservedEntry};
use super::text::{counted, percent};
use crate::estimate::Interval;

/// Half-width of an interval from which on its bounds say more.
const WIDE: f64 = 0.5;
/// A bound this many times the estimate says nothing.
const UNKNOWN: f64 = 1_000.0;

/// A number.
pub(super) fn count(i: &Interval) -> String {
    shown(i, |n| short(n.round()))
}

/// A number without its interval, which another figure has.
pub(super) fn about(n: u64) -> String {
    format!("~{}", short(n as f64))
}

/// A time, in ns.
pub(super) fn time(i: &Interval) -> String {
    shown(i, |ns| Ns::new(ns.round() as u64).to_string())
}

/// A quantile, in ns: known to within its bounds.
pub(super) fn quantile(i: &Interval) -> String {
    let time = |ns: f64| Ns::new(ns.round() as u64).to_string();
    if i.high > i.value.max(1.0) * UNKNOWN { format!("≥{}", time(i.low)) } else { format!("~{}", time(i.value)) }
}

/// A share of 1.
pub(super) fn share(i: &Interval) -> String {
    format!("~{}", percent(i.value))
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

fn shown(i: &Interval, text: impl Fn(f64) -> String) -> String {
    match i.half_width() {
        _ if i.value <= 0.0 => format!("~{}", text(i.value)),
        _ if i.high > i.value * UNKNOWN => format!("~{} (≥{})", text(i.value), text(i.low)),
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
        assert_eq!(count(&interval(120.0, 20.0, 700.0)), "~120 (20–700)");
        assert_eq!(time(&interval(8_010.0, 8_010.0, 8_010.0)), "~8.01 µs ±0 %");
        assert_eq!(time(&interval(8_010.0, 700.0, 1e10)), "~8.01 µs (≥700 ns)");
        assert_eq!(quantile(&interval(10_000.0, 8_192.0, 2e10)), "≥8.19 µs");
        assert_eq!(quantile(&interval(10_000.0, 8_192.0, 16_384.0)), "~10.0 µs");
        assert_eq!([0.0, 999.0, 1_234.0, 99_960.0, 2.5e9].map(short), ["0", "999", "1.23 k", "100 k", "2.50 G"]);
    }
}
