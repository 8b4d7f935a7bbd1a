//! The table of `bench harm`.

use comfy_table::{Table, presets};

use super::result::{Column, Row};
use crate::bench::stats::Spread;

const HEADER: [&str; 12] = [
    "mode",
    "target",
    "kills, stops, cgroup kills",
    "died",
    "hung",
    "code changed",
    "CPUs or signals changed",
    "left on the machine",
    "lockbpf failed",
    "clean after, s",
    "speed after",
    "speed while stopped",
];

/// All rows, as Markdown.
pub(super) fn rows(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(HEADER).add_rows(rows.iter().map(cells));
    table.trim_fmt()
}

/// One row, while the others are still to come.
pub(super) fn line(row: &Row) -> String {
    let mut cells = HEADER.into_iter().zip(cells(row)).filter(|(_, cell)| cell != "–");
    let named = |(name, cell)| format!("{name}: {cell}");
    cells.by_ref().map(named).collect::<Vec<_>>().join("; ")
}

fn cells(row: &Row) -> Vec<String> {
    let count = |column| row.harms.get(column).map_or("–".to_owned(), u32::to_string);
    let ratio = |ratios: &[f64]| match Spread::of(ratios.iter().copied()) {
        Some(Spread { median, low, high, .. }) => format!("{median:.3} ({low:.3}–{high:.3})"),
        None => "–".to_owned(),
    };
    let [kills, stops, cgroups] = row.rounds;
    let mut cells = vec![row.mode.to_owned(), row.target.to_owned(), format!("{kills}, {stops}, {cgroups}")];
    cells.extend(Column::ALL.iter().map(count));
    cells.extend([format!("{:.1}", row.settled_s), ratio(&row.after), ratio(&row.while_stopped)]);
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_a_cell_for_each_column() {
        let mut row = Row::new("default", "Go");
        row.after.push(0.99);
        assert_eq!(cells(&row).len(), HEADER.len());
        assert!(rows(&[row]).contains("| 0.990 (0.990–0.990) "));
    }
}
