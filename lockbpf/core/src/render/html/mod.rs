//! A report to look at: one HTML file that opens from disk and asks no network for anything.
//!
//! The page holds the report and what its pictures are drawn from as JSON; its own scripts draw. Names reach the page only as JSON, and
//! from there only as text.

mod advised;
mod chains;
#[cfg(test)]
mod colours;
mod comparison;
mod data;
mod document;
mod swimlanes;
#[cfg(test)]
mod tests;

use super::{Format, Page, Renderer};
use crate::report::table::{self, Layout};
pub use comparison::comparison;
use data::{Data, Limits};
use std::io::{self, Write};

/// The format.
pub(super) const HTML: Format = Format {
    name: "html",
    suffixes: &[".html", ".htm"],
    about: "HTML: the report as one page to look at, without network",
    leaves_out: "of a long recording the page shows the most harmful locks and the longest waits one by one; what is left out is told in it",
    renderer: Renderer::Page(write),
};

/// A page is not larger than this, in bytes.
const MAX_BYTES: usize = 2_000_000;
/// Locks in the text for browsers that run no scripts.
const TEXT_LOCKS: usize = 10;
/// How often half of everything is left out to get there.
const ATTEMPTS: u32 = 10;

fn write(page: &Page, out: &mut dyn Write) -> io::Result<()> {
    let mut told = data::cut(&page.report, Limits::divided_by(1));
    told.totals.locks_omitted += told.locks.len().saturating_sub(TEXT_LOCKS) as u64;
    told.locks.truncate(TEXT_LOCKS);
    let text = table::render(&told, &Layout::default());
    let html = fitting(|divisor| {
        let json = serde_json::to_string(&Data::of(page, Limits::divided_by(divisor)))?;
        Ok(document::page(document::REPORT, &page.report.quality.target, &json, &text))
    })?;
    out.write_all(html.as_bytes())
}

/// Returns the fullest page that fits. `page` makes one that shows no more than a part of what can be left out: the limits over its argument.
fn fitting(page: impl Fn(usize) -> io::Result<String>) -> io::Result<String> {
    let mut bytes = 0;
    for attempt in 0..ATTEMPTS {
        let html = page(1 << attempt)?;
        bytes = html.len();
        if bytes <= MAX_BYTES {
            return Ok(html);
        }
    }
    Err(io::Error::other(format!(
        "a page of this recording has {bytes} bytes even with next to nothing on it, and {MAX_BYTES} at most are wanted: write it as JSON or text"
    )))
}
