//! Sentences and figures of the text report one by one, for outputs that lay them out otherwise. So all outputs use the same words.

use super::schema::{LockEntry, Report};
use super::{phrase, table, warnings, wide};
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
    /// For whom each culprit of the report locks, where its function has several callers: `called by `vacuum` (db.c:40) for 98 % of it`.
    pub callers: Vec<Option<String>>,
    /// What goes on behind the lock of each culprit of the report, if it holds others in turn: ` or one of 19 others`.
    pub others: Vec<String>,
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
        callers: report.culprits.iter().map(|c| phrase::called_by(c.callers.as_ref()?, c.wait_ns)).collect(),
        others: report.culprits.iter().map(|c| phrase::others(c.locks)).collect(),
        critical_path: wide::critical_path(report, ONE_LINE),
        deadlocks: lines(warnings::deadlocks(report, ONE_LINE)),
        inversions: lines(warnings::inversions(report, ORDERS, ONE_LINE)),
        quality: lines(Some(table::quality(report))),
    }
}

/// A critical section whose function has several callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called {
    /// The section's site: its identity, and its symbol.
    pub names: [String; 2],
    /// For whom it locks, as it goes on after the waiting that it causes: `called by `vacuum` (db.c:40) for 98 % of it`.
    pub by: String,
}

/// For whom the sections of a report lock that have several callers.
#[must_use]
pub fn called(report: &Report) -> Vec<Called> {
    let sites = report.sites.iter();
    let called = sites.filter_map(|site| {
        let by = phrase::called_by(site.callers.as_ref()?, site.apwt_ns)?;
        Some(Called { names: [site.site.clone(), site.symbol.clone()], by })
    });
    called.collect()
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
    use super::super::schema::{CallerEntry, CallersEntry, Ns, Place};
    use super::super::{Options, build, table};
    use super::*;

    #[test]
    fn for_whom_sections_lock_is_told_by_all_outputs() {
        let mut report = build(&found(&server()), &mut FakeNames, &Options::default()).unwrap();
        assert!(words(&report).callers.iter().all(Option::is_none) && called(&report).is_empty());
        let place = Place { symbol: "vacuum (db.c:40)".into(), function: Some("vacuum".into()), ..Place::default() };
        let by = |all: Ns| CallersEntry {
            functions: 3,
            known_ns: all,
            most: vec![CallerEntry { place: place.clone(), wait_ns: all, share: 0.98 }],
        };
        report.culprits[0].callers = Some(by(report.culprits[0].wait_ns));
        let site = report.sites.iter_mut().find(|site| site.apwt_ns > Ns::default()).unwrap();
        site.callers = Some(by(site.apwt_ns));
        let (words, expected) = (words(&report), "called by `vacuum` for 98 % of it");
        assert_eq!((words.callers[0].as_deref(), words.callers.len()), (Some(expected), report.culprits.len()));
        let called = called(&report);
        assert!(called.len() == 1 && called[0].by == expected, "{called:?}");
    }

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
