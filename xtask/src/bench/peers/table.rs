//! The comparison as tables.

use comfy_table::{CellAlignment, Table, presets};

use super::{
    result::{Measured, Results, Row},
    tool::{LEGEND, Tool},
};
use crate::bench::stats::Spread;

/// One workload: a row for each tool.
pub(super) fn workload(measured: &Measured) -> String {
    let columns = ["Observer", "Slow-down (95 %)", "CPU", "Windows", "Recorded", "Own CPU, %", "Memory, MB", "Lost"];
    render(&columns, measured.rows.iter().map(|row| cells(row).into()).collect())
}

fn cells(row: &Row) -> [String; 8] {
    let name = row.tool.name().to_owned();
    let Some(slow_down) = row.slow_down else {
        let failed = row.failed.as_ref().map_or("", |_| "failed");
        return [name, failed.to_owned()]
            .into_iter()
            .chain(std::iter::repeat_n(String::new(), 6))
            .collect::<Vec<_>>()
            .try_into()
            .unwrap_or_default();
    };
    [
        name,
        format!("{} ({}–{})", factor(slow_down.median), factor(slow_down.low), factor(slow_down.high)),
        row.cpu_ratio.map_or_else(String::new, |cpu| factor(cpu.median)),
        slow_down.samples.to_string(),
        row.recorded_bytes.map_or_else(String::new, |recorded| bytes(recorded.median)),
        row.own_cpu_percent.map_or_else(|| "inside".to_owned(), |cpu| format!("{:.1}", cpu.median)),
        row.memory_bytes.map_or_else(String::new, |bytes| format!("{:.0}", bytes / 1e6)),
        row.lost.map_or_else(String::new, |lost| lost.to_string()),
    ]
}

/// Everything in one table, in Markdown: a row for each tool, a column for each workload: its slow-down, and in brackets
/// its CPU time for a unit of work by the bare one's, which other programs disturb less.
pub(super) fn all(results: &Results) -> String {
    let workloads = results.measured.iter().map(|measured| measured.workload.name());
    let columns: Vec<&str> = ["", "reports"]
        .into_iter()
        .chain(workloads)
        .chain(["recorded in a window (valgrind: in all)", "own CPU, %", "memory, MB"])
        .collect();
    let mut rows = vec![noise(results)];
    for tool in Tool::ALL {
        if let Some((_, why)) = results.missing.iter().find(|(missing, _)| *missing == tool) {
            rows.push(vec![tool.name().to_owned(), why.clone()]);
        } else if results.measured.iter().any(|measured| measured.row(tool).is_some()) {
            rows.push(summary(results, tool));
        }
    }
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(columns).add_rows(rows);
    format!("{}\n{LEGEND}", table.trim_fmt())
}

fn noise(results: &Results) -> Vec<String> {
    let noise = results
        .measured
        .iter()
        .map(|measured| format!("1 ± {:.3} (± {:.3})", measured.noise_half_width(), measured.cpu_noise_half_width()));
    ["bare".to_owned(), String::new()].into_iter().chain(noise).collect()
}

fn summary(results: &Results, tool: Tool) -> Vec<String> {
    let rows = || results.measured.iter().filter_map(|measured| measured.row(tool));
    let slow_downs = results.measured.iter().map(|measured| match measured.row(tool) {
        Some(Row { slow_down: Some(slow_down), cpu_ratio: Some(cpu), .. }) => {
            format!("{} ({})", factor(slow_down.median), factor(cpu.median))
        }
        Some(_) => "failed".to_owned(),
        None => String::new(),
    });
    let range = |value: fn(&Row) -> Option<f64>, text: fn(f64) -> String| {
        let spread = Spread::of(rows().filter_map(value));
        let mut all: Vec<f64> = rows().filter_map(value).collect();
        all.sort_unstable_by(f64::total_cmp);
        match (spread, all.first(), all.last()) {
            (Some(_), Some(&least), Some(&most)) if text(least) != text(most) => {
                format!("{}–{}", text(least), text(most))
            }
            (Some(only), ..) => text(only.median),
            _ => "inside".to_owned(),
        }
    };
    [tool.name().to_owned(), tool.reports().to_owned()]
        .into_iter()
        .chain(slow_downs)
        .chain([
            range(|row| Some(row.recorded_bytes?.median), bytes),
            range(|row| Some(row.own_cpu_percent?.median), |percent| format!("{percent:.1}")),
            range(|row| row.memory_bytes, |bytes| format!("{:.0}", bytes / 1e6)),
        ])
        .collect()
}

fn render(columns: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(columns).add_rows(rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

/// A factor to three digits, or to the thousandth about 1.
fn factor(value: f64) -> String {
    match value {
        ..2.0 => format!("{value:.3}"),
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

fn bytes(count: f64) -> String {
    match count {
        ..1e3 => format!("{count:.0} B"),
        ..1e6 => format!("{:.1} kB", count / 1e3),
        _ => format!("{:.1} MB", count / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_have_as_many_digits_as_they_deserve() {
        assert_eq!([1.0214, 2.345, 15.67, 485.3].map(factor), ["1.021", "2.35", "15.7", "485"]);
        assert_eq!([12.0, 1234.0, 5.6e7].map(bytes), ["12 B", "1.2 kB", "56.0 MB"]);
    }
}
