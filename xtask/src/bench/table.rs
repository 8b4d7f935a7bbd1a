//! The figures as tables.

use std::iter;

use comfy_table::{CellAlignment, Table, TableComponent, presets};

use super::{
    kinds::Kind,
    pairs::{Pairs, Row},
    result::ObserverUse,
    server::Server,
    stats::Spread,
};

/// What the observer itself uses.
const OBSERVER_COLUMNS: [&str; 3] = ["Own CPU,\n% of a core", "RSS + maps,\nMB", "Attach, detach,\ns"];

/// The uncontended pair: a row for each mode.
pub(super) fn pairs(pairs: &Pairs) -> String {
    let bare = &pairs.bare;
    let cells = |name: &str, row: &Row| {
        let digits = if row.pair_cpu_ns.median < 100.0 { 1 } else { 0 };
        vec![
            name.to_owned(),
            with_interval(row.pair_cpu_ns, digits),
            format!("{:.digits$}", row.pair_least_cpu_ns),
            format!("{:.digits$}", row.pair_wall_ns.median),
            format!("{:.1}", row.pair_cpu_ns.median / bare.pair_cpu_ns.median),
            format!("{:.0}", row.call_cpu_ns.median),
        ]
    };
    let observed = pairs.observed.iter().map(|observed| {
        let mut cells = cells(observed.mode.name(), &observed.row.row);
        cells.extend(observer(&observed.row.observer));
        cells
    });
    let rows = iter::once(cells("none", bare)).chain(observed).collect();
    render(
        &[
            "Observer",
            "Pair, ns of CPU\n(95 %)",
            "Least\nof all",
            "Pair, ns\nof wall time",
            "× bare",
            "System call,\nns of CPU",
        ],
        rows,
    )
}

/// The kinds of locks: a row for each.
pub(super) fn kinds(kinds: &[Kind]) -> String {
    let cells = |kind: &Kind| {
        vec![
            kind.name.to_owned(),
            with_interval(kind.bare_ns, 1),
            with_interval(kind.observed_ns, 0),
            format!("{:.0}", kind.observed_ns.median - kind.bare_ns.median),
        ]
    };
    render(&["A use of", "Bare, ns\n(95 %)", "Observed, ns\n(95 %)", "Cost,\nns"], kinds.iter().map(cells).collect())
}

/// A server: a row for each mode.
pub(super) fn server(server: &Server) -> String {
    let columns = [
        "Observer",
        "Requests/s",
        "Of bare\n(95 %)",
        "Windows",
        "µs of CPU\nper request",
        "Of bare\n(95 %)",
        "Locks per\nrequest",
        "Contended\nper request",
        "Records/s",
        "Lost",
    ];
    let bare = &server.bare;
    let microseconds = |cpu: Spread| format!("{:.2}", cpu.median / 1e3);
    let mut rows = vec![vec![
        "none".to_owned(),
        format!("{:.0}", bare.throughput.median),
        String::new(),
        bare.throughput.samples.to_string(),
        microseconds(bare.cpu_ns),
    ]];
    for observed in &server.observed {
        let row = &observed.row;
        let number = |seen: Option<Spread>, digits| seen.map_or_else(String::new, |s| format!("{:.digits$}", s.median));
        let mut cells = vec![
            observed.mode.name().to_owned(),
            format!("{:.0}", row.throughput.median),
            with_interval(row.ratio, 3),
            row.ratio.samples.to_string(),
            microseconds(row.cpu_ns),
            with_interval(row.cpu_ratio, 3),
            number(row.acquisitions_per_request, 2),
            number(row.contended_per_request, 4),
            number(row.events_per_s, 0),
            row.lost.map_or_else(String::new, |lost| lost.to_string()),
        ];
        cells.extend(observer(&row.observer));
        rows.push(cells);
    }
    render(&columns, rows)
}

/// A table with numbers in all columns but the first.
fn render(columns: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_style(TableComponent::HeaderLines, '─')
        .set_style(TableComponent::MiddleHeaderIntersections, '─')
        .set_header(columns.iter().chain(&OBSERVER_COLUMNS))
        .add_rows(rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

fn observer(used: &ObserverUse) -> [String; 3] {
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    [
        format!("{:.1}", used.cpu_percent.median),
        format!("{:.0} + {:.0}", megabytes(used.peak_rss_bytes), megabytes(used.map_bytes)),
        format!("{:.1}, {:.1}", used.attach_s.median, used.detach_s.median),
    ]
}

fn with_interval(spread: Spread, digits: usize) -> String {
    format!("{:.digits$} ({:.digits$}–{:.digits$})", spread.median, spread.low, spread.high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_shows_its_interval() {
        let spread = Spread::of([0.98, 0.99, 1.0]).unwrap();
        assert_eq!(with_interval(spread, 2), "0.99 (0.98–1.00)");
    }
}
