//! A recording as tables in a folder, one file of each: for questions about many machines (docs/fleet.md).

use super::args::TablesArgs;
use super::destination::Whole;
use super::parquet;
use super::report::Recording;
use super::source::Input;
use crate::fleet::{Run, Table, Tables, Threads};
use crate::report::Rows;
use crate::report::schema::Ns;
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// What Hive calls a partition of which the value is not known.
const UNKNOWN: &str = "__HIVE_DEFAULT_PARTITION__";

/// Writes all tables of a recording into a folder. Files of the same recording are replaced. Returns whether it is incomplete.
///
/// It is read twice: once for the report, and for the names, then for its waits and holds, which are written while it is read.
///
/// # Errors
/// When the recording cannot be read, or a file not be written.
pub(super) fn write(input: &Input, to: &Path, how: &TablesArgs) -> Result<bool> {
    let (mut recording, again) = Recording::twice(input)?;
    let run = Run { version: how.program_version.clone(), ..recording.run.clone() };
    let (report, (id, not_shown)) = recording.rows(|report, mut rows, started_ns| {
        let period = (rows.timeline().start_ns, rows.timeline().end_ns);
        let id = run.id(report, period, started_ns);
        let mut partition = PathBuf::new();
        if how.partition {
            partition.push(format!("date={}", started_ns.map_or_else(|| UNKNOWN.to_owned(), date)));
            let host = if run.host.is_empty() { UNKNOWN.to_owned() } else { escaped(&run.host) };
            partition.push(format!("host={host}"));
        }
        let place = Place { folder: to, partition, file: format!("{id}.parquet") };
        let tables = Tables::new(&id, &run, report, started_ns);
        // All of them appear at the end: what fails leaves nothing that could be counted.
        let mut files = Vec::new();
        for table in tables.of_report(&run) {
            files.push(place.whole(&table)?);
        }
        let mut waits = place.file(&tables.waits(rows.timeline()))?;
        let mut holds = place.file(&tables.holds(rows.timeline()))?;
        let mut threads = Threads::default();
        let mut flush = |rows: &mut Rows<'_, '_>, full: usize| -> Result<()> {
            if rows.len().0 >= full {
                threads.take(rows.timeline());
                waits.add(&tables.waits(rows.timeline()))?;
                rows.forget_waits();
            }
            if rows.len().1 >= full {
                holds.add(&tables.holds(rows.timeline()))?;
                rows.forget_holds();
            }
            Ok(())
        };
        again.read(input, &mut rows, |rows| flush(rows, parquet::GROUP))?;
        flush(&mut rows, 0)?;
        files.push(place.whole(&tables.edges(rows.timeline(), &threads))?);
        files.extend([waits, holds, place.whole(&tables.stacks(rows.timeline()))?]);
        files.into_iter().try_for_each(Growing::finish)?;
        Ok((id, rows.not_shown_ns()))
    })?;
    say!("lockbpf: run {id} to {}", to.display());
    if not_shown > Ns::default() {
        say!(
            "lockbpf: {not_shown} of waiting was counted, but not recorded one by one: it is left out of `waits`, and in `locks`"
        );
    }
    for note in &report.quality.notes {
        say!("lockbpf: {note}");
    }
    Ok(report.quality.incomplete)
}

/// Where the files of a recording are.
struct Place<'a> {
    folder: &'a Path,
    partition: PathBuf,
    file: String,
}

impl Place<'_> {
    /// A file for a table with these columns.
    fn file(&self, table: &Table) -> Result<Growing> {
        let folder = self.folder.join(table.name).join(&self.partition);
        make(&folder)?;
        let path = folder.join(&self.file);
        let whole = Whole::create(&path)?;
        let writer = parquet::Writer::new(table, whole).with_context(|| failed(&path))?;
        Ok(Growing { writer, path })
    }

    /// The same, with all its rows.
    fn whole(&self, table: &Table) -> Result<Growing> {
        let mut file = self.file(table)?;
        file.add(table)?;
        Ok(file)
    }
}

/// A table that is written part by part. It is seen by others when it is complete.
struct Growing {
    writer: parquet::Writer<Whole>,
    path: PathBuf,
}

impl Growing {
    fn add(&mut self, table: &Table) -> Result<()> {
        self.writer.add(table).with_context(|| failed(&self.path))
    }

    fn finish(self) -> Result<()> {
        self.writer.finish().with_context(|| failed(&self.path))?.finish()
    }
}

fn failed(path: &Path) -> String {
    format!("failed to write {}", path.display())
}

/// Makes a folder, and those above it, as the user for whom lockbpf runs.
///
/// # Errors
/// When it cannot be made.
pub(super) fn make(folder: &Path) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
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
