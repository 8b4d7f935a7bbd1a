//! Growth as tables.

use comfy_table::{Table, presets};

use super::Point;
use crate::bench::stats::Spread;

/// Up to this factor between the least and the most that observing adds, the cost is called flat.
const FLAT: f64 = 1.25;

/// A row for each point of an axis, in Markdown.
pub(super) fn points(axis: &str, points: &[&Point]) -> String {
    let header = [
        axis,
        "bare, ns",
        "observed, ns (95 %)",
        "added at least, ns",
        "counted, %",
        "lost",
        "own CPU, %",
        "memory, MB",
    ];
    let rows = points.iter().map(|point| {
        let Spread { median, low, high, .. } = point.observed_ns;
        let lost: Vec<String> = point.lost.iter().map(|(cause, count)| format!("{cause} {count}")).collect();
        [
            point.count.to_string(),
            format!("{:.1}", point.bare_ns.median),
            format!("{median:.0} ({low:.0}–{high:.0})"),
            format!("{:.0}", point.added_ns),
            point.counted.map_or_else(String::new, |counted| format!("{:.2}", 100.0 * counted.median)),
            if lost.is_empty() { "–".to_owned() } else { lost.join(", ") },
            format!("{:.1}", point.own_cpu_percent.median),
            format!("{:.0}", point.memory_bytes / 1e6),
        ]
    });
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(header).add_rows(rows);
    table.trim_fmt()
}

/// Whether the cost is flat, in a sentence.
pub(super) fn verdict(axis: &str, points: &[&Point]) -> String {
    let added = |point: &&&Point| point.added_ns;
    let by_cost = |a: &&&Point, b: &&&Point| added(a).total_cmp(&added(b));
    let (Some(least), Some(most)) = (points.iter().min_by(by_cost), points.iter().max_by(by_cost)) else {
        return format!("{axis}: nothing was measured");
    };
    let factor = most.added_ns / least.added_ns;
    let word = if factor <= FLAT { "flat" } else { "NOT flat" };
    format!(
        "{axis}: {word}: observing adds {:.0} ns (at {}) to {:.0} ns (at {}), a factor of {factor:.2}",
        least.added_ns, least.count, most.added_ns, most.count
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::bench::growth::Axis;

    fn point(count: usize, observed: f64) -> Point {
        let spread = |value| Spread::of([value]).unwrap();
        Point {
            axis: Axis::Locks,
            count,
            bare_ns: spread(10.0),
            observed_ns: spread(observed),
            added_ns: observed - 10.0,
            counted: Some(spread(0.5)),
            lost: BTreeMap::from([("sums_full".to_owned(), 7)]),
            own_cpu_percent: spread(1.0),
            memory_bytes: 1e8,
        }
    }

    #[test]
    fn a_cost_is_flat_up_to_a_quarter_more() {
        let (one, same, dear) = (point(1, 1010.0), point(10, 1210.0), point(100, 2010.0));
        assert!(verdict("locks", &[&one, &same]).contains(": flat: observing adds 1000 ns (at 1) to 1200 ns (at 10)"));
        assert!(verdict("locks", &[&one, &same, &dear]).contains("NOT flat"));
    }

    #[test]
    fn what_is_lost_is_named() {
        assert!(points("locks", &[&point(1, 1010.0)]).contains("sums_full 7"));
    }
}
