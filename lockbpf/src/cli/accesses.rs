//! Access records as input and output: files of lines, and traces that hold such lines.

use super::destination;
use super::formats::ExportFormat;
use super::source::{Format, Input};
use crate::access::record::Record;
use crate::advice::{self, Records};
use crate::observation::Harvest;
use crate::trace::{Compression, Ended, Header, TraceNames, Writer};
use crate::units::Time;
use anyhow::{Context, Result, bail};
use std::io::{self, BufRead, Write};
use std::path::Path;

/// Access records, read.
pub(super) struct Accesses {
    /// The records.
    pub records: Records,
    /// What of them is missing.
    pub remarks: Vec<String>,
    /// Whether the file is a recording of events, too.
    pub has_events: bool,
}

/// Reads the access records of a file.
///
/// # Errors
/// When it cannot be read, a record is not what the format allows, or there is none.
pub(super) fn read(input: &Input) -> Result<Accesses> {
    let failed = || format!("failed to read {}", input.name());
    let accesses = match input.format() {
        Format::Lines => {
            let records = advice::read(input.lines()?).with_context(failed)?;
            Accesses { records, remarks: Vec::new(), has_events: false }
        }
        Format::Trace => {
            let mut lines = input.access_lines()?;
            let (records, left_out) = advice::read_gapped(&mut lines, |lines| lines.has_gaps())
                .with_context(|| failed() + "'s access records")?;
            let mut remarks = lines.damage().sentences(lines.ended().unwrap_or(Ended::Clean));
            if left_out > 0 {
                remarks.push(format!("{left_out} waits of sections that are missing were left out."));
            }
            Accesses { records, remarks, has_events: lines.has_events() }
        }
    };
    if accesses.records.executions.is_empty() {
        bail!("{}: it has no record of a critical section", input.name());
    }
    Ok(accesses)
}

/// Whether access records are to be written as a trace: the suffix says so.
pub(super) fn is_trace(to: &Path) -> bool {
    matches!(destination::format(to, None), Ok(ExportFormat::Bin))
}

/// Writes records, one a line.
///
/// # Errors
/// When they cannot be written.
pub(super) fn write_lines(out: &mut impl Write, records: &[Record]) -> Result<()> {
    for record in records {
        serde_json::to_writer(&mut *out, record)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Writes a trace of nothing but access records; their lines are copied.
///
/// # Errors
/// When the lines cannot be read, or the trace not be written.
pub(super) fn write_trace(out: impl Write, header: &Header, lines: impl BufRead) -> io::Result<()> {
    let mut writer = Writer::new(out, header, Compression::None)?;
    copy(lines, &mut writer)?;
    let end = Time(header.start);
    writer.finish(&Harvest::default(), &mut TraceNames::default(), end)?;
    Ok(())
}

/// Copies the lines of access records into a trace.
///
/// # Errors
/// When they cannot be read, or not be written.
pub(super) fn copy<W: Write>(mut lines: impl BufRead, writer: &mut Writer<W>) -> io::Result<()> {
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        let record = line.trim_ascii();
        if !record.is_empty() {
            writer.access_line(record)?;
        }
        line.clear();
    }
    Ok(())
}
