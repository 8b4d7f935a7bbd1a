//! The results as a table, and in a sentence for each mode.

use comfy_table::{CellAlignment, Table, presets};

use super::{InMode, Row, observation::Mode};
use crate::bench::stats::Spread;

/// The least median of throughput over all programs, and the least of one.
const GOALS: (f64, f64) = (0.97, 0.9);

/// A row for each program.
pub(super) fn rows(rows: &[Row]) -> String {
    let modes = rows.first().map(|row| row.modes.as_slice()).unwrap_or_default();
    let head = ["program", "language", "culprit", "gain without"].map(str::to_owned);
    let columns = modes.iter().flat_map(|mode| [mode.mode.name().to_owned(), "of bare".to_owned()]);
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(head.into_iter().chain(columns));
    for row in rows {
        let gain = row.gain.map_or_else(|| "∞".to_owned(), |gain| format!("{gain:.1}"));
        let gain = if row.is_proven() { gain } else { format!("{gain} NOT PROVEN") };
        let first = [row.program.to_owned(), row.language.to_owned(), row.about.to_owned(), gain];
        table.add_row(first.into_iter().chain(row.modes.iter().flat_map(cells)));
    }
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

/// What is right, of `lock`, `place` and `reason`, and the throughput kept.
fn cells(mode: &InMode) -> [String; 2] {
    let wrong = |part: fn(&super::Judgement) -> bool, name| {
        let count = mode.judgements.iter().filter(|judgement| !part(judgement)).count();
        match (count, mode.judgements.len()) {
            (0, _) => None,
            (_, 1) => Some(format!("no {name}")),
            (count, of) => Some(format!("no {name} ({count} of {of})")),
        }
    };
    let wrong = [wrong(|j| j.lock, "lock"), wrong(|j| j.place, "place"), wrong(|j| j.reason, "reason")];
    let wrong: Vec<_> = wrong.into_iter().flatten().collect();
    let right = if wrong.is_empty() { "right".to_owned() } else { wrong.join(", ") };
    [right, mode.kept.map_or_else(|| "–".to_owned(), |kept| format!("{:.2}", kept.median))]
}

/// How many programs a mode is right about, and what it leaves of their throughput.
pub(super) fn sum(rows: &[Row], mode: Mode) -> String {
    let seen: Vec<_> = rows.iter().flat_map(|row| &row.modes).filter(|seen| seen.mode == mode).collect();
    let right = seen.iter().filter(|seen| seen.judgements.iter().all(|judgement| judgement.is_right())).count();
    let kept: Vec<_> = seen.iter().filter_map(|seen| Some(seen.kept?.median)).collect();
    let least = kept.iter().copied().fold(f64::INFINITY, f64::min);
    let median = Spread::of(kept).map_or(f64::NAN, |spread| spread.median);
    let (goal, least_goal) = GOALS;
    format!(
        "{}: right in all three in {right} of {}; throughput {median:.2} in the median (goal {goal}), {least:.2} at least \
         (goal {least_goal})",
        mode.name(),
        seen.len()
    )
}

#[cfg(test)]
mod tests {
    use super::{super::oracle::Judgement, *};

    fn row(kept: f64, judgements: &[Judgement]) -> Row {
        let mode = InMode {
            mode: Mode::Full,
            judgements: judgements.to_vec(),
            kept: Spread::of([kept]),
            sentence: String::new(),
            explained: None,
        };
        let per_s = Spread::of([1.0]);
        Row { program: "p", about: "a", language: "C", per_s, gain: Some(1.2), modes: vec![mode] }
    }

    #[test]
    fn what_is_wrong_is_named_and_summed() {
        let right = Judgement { lock: true, place: true, reason: true };
        let wrong = Judgement { reason: false, ..right };
        let all = [row(0.5, &[right]), row(1.0, &[right, wrong]), row(0.9, &[wrong])];
        let table = rows(&all);
        assert!(
            table.contains("NOT PROVEN") && table.contains("right") && table.contains("no reason (1 of 2)"),
            "{table}"
        );
        let sum = sum(&all, Mode::Full);
        assert!(
            sum.contains("in 1 of 3") && sum.contains("0.90 in the median") && sum.contains("0.50 at least"),
            "{sum}"
        );
    }
}
