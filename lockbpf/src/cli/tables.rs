//! A recording as tables in a folder, one file of each: for questions about many machines (docs/fleet.md).

use super::args::TablesArgs;
use super::destination::Whole;
use super::parquet;
use super::report::Recording;
use super::source::Input;
use crate::analysis;
use crate::capture::lent;
use crate::fleet::{self, Run};
use crate::report::Selection;
use crate::report::schema::Ns;
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::fs::DirBuilder;
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

/// What Hive calls a partition of which the value is not known.
const UNKNOWN: &str = "__HIVE_DEFAULT_PARTITION__";

/// Writes all tables of a recording into a folder. Files of the same recording are replaced. Returns whether it is incomplete.
///
/// # Errors
/// When the recording cannot be read, or a file not be written.
pub(super) fn write(input: &Input, to: &Path, how: &TablesArgs) -> Result<bool> {
    let options = analysis::Options { detail: true, ..analysis::Options::default() };
    let mut recording = Recording::of(input, options)?;
    let page = recording.page(Selection::default())?;
    let run = Run { version: how.program_version.clone(), ..recording.run };
    let id = run.id(&page);
    for table in fleet::tables(&run, &page) {
        let mut folder = to.join(table.name);
        if how.partition {
            folder.push(format!("date={}", page.started_ns.map_or_else(|| UNKNOWN.to_owned(), date)));
            folder.push(format!("host={}", if run.host.is_empty() { UNKNOWN.to_owned() } else { escaped(&run.host) }));
        }
        let file = folder.join(format!("{id}.parquet"));
        let failed = || format!("failed to write {}", file.display());
        make(&folder)?;
        let mut bytes = Vec::new();
        parquet::write(&table, &mut bytes).with_context(failed)?;
        let mut out = Whole::create(&file)?;
        out.write_all(&bytes).with_context(failed)?;
        out.finish()?;
    }
    say!("lockbpf: run {id} to {}", to.display());
    let not_shown = page.pictures.timeline.not_shown_ns;
    if not_shown > Ns::default() {
        say!(
            "lockbpf: {not_shown} of waiting was counted, but not recorded one by one: it is left out of `waits`, and in `locks`"
        );
    }
    for note in &page.report.quality.notes {
        say!("lockbpf: {note}");
    }
    Ok(page.report.quality.incomplete)
}

/// Makes a folder, and those above it, as the user for whom lockbpf runs.
///
/// # Errors
/// When it cannot be made.
pub(super) fn make(folder: &Path) -> Result<()> {
    lent::as_user(|| DirBuilder::new().recursive(true).mode(0o700).create(folder))
        .with_context(|| format!("failed to make the folder {}", folder.display()))
}

/// The day of a moment in ns since 1970 (UTC).
fn date(ns: u64) -> String {
    let mut text = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_nanos(ns)).to_string();
    text.truncate("2026-11-25".len());
    text
}

/// A value in the name of a folder, as Hive writes it.
fn escaped(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.') {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_called_as_hive_calls_them() {
        assert_eq!(date(1_764_072_000_000_000_000), "2025-11-25");
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(escaped("db-1.example"), "db-1.example");
        assert_eq!(escaped("../a b="), "..%2Fa%20b%3D");
    }
}
