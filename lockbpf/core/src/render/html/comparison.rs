//! Two recordings side by side, as one page.

use super::{document, fitting};
use crate::diff::schema::Diff;
use crate::diff::table;
use crate::report::Report;
use crate::report::words::{Words, words};
use serde::Serialize;
use std::io;

/// Value of [`Data::schema`]: changes when a field changes its meaning or goes away.
const SCHEMA: &str = "lockbpf.comparison-page/1";
/// Locks and sites in the text for browsers that run no scripts.
const TEXT_ROWS: usize = 10;
/// Locks and sites shown, of each.
const ROWS: usize = 40;
/// Changes in words that are shown.
const FINDINGS: usize = 100;
/// Columns of that text.
const TEXT_WIDTH: u16 = 120;

#[derive(Serialize)]
struct Data {
    schema: &'static str,
    lockbpf: &'static str,
    diff: Diff,
    /// Changes in words that matter less, and locks and sites that changed less: they are left out.
    more_findings: usize,
    more_locks: usize,
    more_sites: usize,
    a: Side,
    b: Side,
}

/// What the report on one recording says.
#[derive(Serialize)]
struct Side {
    verdict: Vec<String>,
    quality: Vec<String>,
}

/// A page that compares two recordings.
///
/// # Errors
/// When the comparison has a number that JSON does not have, or is too large for a page.
pub fn comparison(diff: &Diff, a: &Report, b: &Report) -> io::Result<String> {
    let side = |report: &Report| {
        let Words { verdict, quality, .. } = words(report);
        Side { verdict, quality }
    };
    let text = table::render(diff, TEXT_ROWS, TEXT_WIDTH);
    fitting(|divisor| {
        let mut shown = diff.clone();
        shown.findings.truncate(FINDINGS / divisor);
        shown.locks.truncate(ROWS / divisor);
        shown.sites.truncate(ROWS / divisor);
        let data = Data {
            schema: SCHEMA,
            lockbpf: env!("CARGO_PKG_VERSION"),
            more_findings: diff.findings.len() - shown.findings.len(),
            more_locks: diff.locks.len() - shown.locks.len(),
            more_sites: diff.sites.len() - shown.sites.len(),
            diff: shown,
            a: side(a),
            b: side(b),
        };
        Ok(document::page(document::COMPARISON, "two recordings", &serde_json::to_string(&data)?, &text))
    })
}
