//! What a pass saw, in a few figures for each lock and site.

use super::record::Record;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Value of [`Summary::schema`].
pub const SCHEMA: &str = "lockbpf.access/1";

/// What a pass saw, and what it took.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// [`SCHEMA`].
    pub schema: String,
    /// Whose accesses.
    pub target: String,
    /// By lock and site, the most sampled first.
    pub sections: Vec<Row>,
    /// The pass.
    pub pass: Pass,
    /// Remarks, each a sentence.
    pub notes: Vec<String>,
}

/// The sampled sections of a lock at a site.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// The lock.
    pub lock: String,
    /// The static critical section.
    pub site: String,
    /// Sections sampled.
    pub sampled: u64,
    /// How many of these were not followed to their end.
    pub cut: u64,
    /// How many of these were inside another one that was followed.
    pub nested: u64,
    /// Threads whose sections these were.
    pub threads: u64,
    /// Instructions of the middle one.
    pub instructions: u64,
    /// Times that its thread was stopped, of the middle one.
    pub stops: u64,
    /// Distinct locations read, but not written.
    pub read_only: u64,
    /// Distinct locations written.
    pub written: u64,
    /// Distinct locations that more than one thread used, and one of them wrote.
    pub conflicting: u64,
    /// Sections with system calls in them.
    pub opaque: u64,
}

/// What the pass took, and what became of the samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Pass {
    /// Sections of each lock that were asked for.
    pub samples_wanted: u64,
    /// Sections that were recorded.
    pub samples_taken: u64,
    /// Sections not followed to their end, by cause.
    pub cut: BTreeMap<String, u64>,
    /// Sections begun of which nothing is recorded, by cause.
    pub abandoned: BTreeMap<String, u64>,
    /// Times that nobody asked for a chosen lock while it was waited for.
    pub nobody: u64,
    /// Attempts on chosen locks that were seen.
    pub attempts_seen: u64,
    /// Stops that the kernel did not make.
    pub stops_refused: u64,
    /// Signals of the process that were passed on to it.
    pub signals_passed_on: u64,
    /// Threads that could not be waited for, since they block the signal that stops.
    pub threads_blocking: u64,
    /// For how long threads were held up, in all.
    pub held_up_ns: u64,
    /// Duration.
    pub duration_ns: u64,
    /// The share of that for which threads were held up.
    pub held_up_share: f64,
    /// What the budget allowed.
    pub held_up_share_allowed: f64,
    /// Threads that the budget counts.
    pub threads: u64,
    /// The budget: the share of all these threads' time for which they may be held up.
    pub budget: f64,
}

/// The figures of some records.
#[must_use]
pub fn rows(records: &[Record]) -> Vec<Row> {
    let mut groups: BTreeMap<(&str, &str), Vec<&Record>> = BTreeMap::new();
    for record in records {
        groups.entry((&record.lock, &record.site)).or_default().push(record);
    }
    let mut rows: Vec<Row> = groups.into_iter().map(|((lock, site), all)| row(lock, site, &all)).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.sampled));
    rows
}

fn row(lock: &str, site: &str, all: &[&Record]) -> Row {
    let count = |is: &dyn Fn(&Record) -> bool| all.iter().filter(|record| is(record)).count() as u64;
    let middle = |of: &dyn Fn(&Record) -> u64| {
        let mut values: Vec<u64> = all.iter().map(|record| of(record)).collect();
        values.sort_unstable();
        values.get(values.len() / 2).copied().unwrap_or(0)
    };
    let written: BTreeSet<&String> = all.iter().flat_map(|record| &record.writes).collect();
    let read: BTreeSet<&String> = all.iter().flat_map(|record| &record.reads).collect();
    let mut users: BTreeMap<&String, BTreeSet<&str>> = BTreeMap::new();
    for record in all {
        for location in record.reads.iter().chain(&record.writes) {
            users.entry(location).or_default().insert(&record.tid);
        }
    }
    Row {
        lock: lock.to_owned(),
        site: site.to_owned(),
        sampled: all.len() as u64,
        cut: count(&|record| record.cut),
        nested: count(&|record| record.nested),
        threads: all.iter().map(|record| &record.tid).collect::<BTreeSet<_>>().len() as u64,
        instructions: middle(&|record| record.instructions),
        stops: middle(&|record| record.stops),
        read_only: read.difference(&written).count() as u64,
        written: written.len() as u64,
        conflicting: written.iter().filter(|location| users.get(*location).is_some_and(|u| u.len() > 1)).count() as u64,
        opaque: count(&|record| !record.opaque.is_empty()),
    }
}
