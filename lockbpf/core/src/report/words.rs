//! Sentences and figures of the text report one by one, for outputs that lay them out otherwise. So all outputs use the same words.

use super::schema::{LockEntry, Report};
use super::{table, warnings, wide};
use serde::Serialize;

/// Lock orders told that could deadlock.
const ORDERS: usize = 20;
/// No line is broken.
const ONE_LINE: u16 = u16::MAX;

/// What the text report says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Words {
    /// The verdict, sentence by sentence.
    pub verdict: Vec<String>,
    /// Figures of each lock of the report: the table's header, and what it shows. What does not apply is missing.
    pub locks: Vec<Vec<(String, String)>>,
    /// The critical path, if some of it is waiting.
    pub critical_path: Option<String>,
    /// Stacks of threads that wait for one another, line by line.
    pub deadlocks: Vec<String>,
    /// Lock orders that could deadlock, line by line.
    pub inversions: Vec<String>,
    /// How far to trust the report, line by line.
    pub quality: Vec<String>,
}

/// What the text report says of this one.
#[must_use]
pub fn words(report: &Report) -> Words {
    let lines = |text: Option<String>| text.iter().flat_map(|text| text.lines()).map(str::to_owned).collect();
    Words {
        verdict: report.verdict.clone(),
        locks: report.locks.iter().map(figures).collect(),
        critical_path: wide::critical_path(report, ONE_LINE),
        deadlocks: lines(warnings::deadlocks(report, ONE_LINE)),
        inversions: lines(warnings::inversions(report, ORDERS, ONE_LINE)),
        quality: lines(Some(table::quality(report))),
    }
}

fn figures(lock: &LockEntry) -> Vec<(String, String)> {
    let columns = table::COLUMNS.iter().skip(2).map(|(header, _, show)| {
        let header = if header.is_empty() { "Traits".to_owned() } else { header.replace('\n', " ") };
        (if header == "%" { "Contended share".to_owned() } else { header }, show(lock))
    });
    columns.filter(|(_, text)| !text.is_empty() && text != table::UNKNOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{FakeNames, found, server};
    use super::super::{Options, build, table};
    use super::*;

    #[test]
    fn words_are_those_of_the_table() {
        let report = build(&found(&server()), &mut FakeNames, &Options::default()).unwrap();
        let words = words(&report);
        let text = table::render(&report, &table::Layout { width: 10_000, ..table::Layout::default() });
        let all = words.locks.iter().flatten().map(|(_, text)| text);
        for word in all.chain(&words.verdict).chain(&words.quality).chain(&words.critical_path) {
            assert!(text.contains(word.as_str()), "{word} in {text}");
        }
        assert!(words.locks[0].contains(&("Acquired".to_owned(), "300".to_owned())), "{words:?}");
        assert_eq!(words.locks.len(), report.locks.len());
    }
}
