//! Writing results to stdout.

use super::messages;
use crate::report::table::Layout;
use crate::untrusted::shown_lines;
use anyhow::{Context, Result};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;
use std::io::{self, ErrorKind, Write};

/// Locks (or changes) in a table, if the user does not say.
pub(super) const TABLE_TOP: usize = 10;
/// Columns assumed where stdout is no terminal.
const DEFAULT_WIDTH: u16 = 140;

/// Writes a result. A reader that has gone away (`lockbpf … | head`) has had enough: that is no error.
///
/// # Errors
/// When stdout cannot be written for any other reason.
pub(super) fn write(result: impl AsRef<[u8]>) -> Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(result.as_ref()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.context("failed to write to standard output"),
    }
}

/// Writes a message to the user.
pub(super) fn say(message: &str) {
    messages::write(&(shown_lines(message) + "\n"));
}

/// Writes a line of the log.
pub(super) fn log(out: &mut env_logger::fmt::Formatter, record: &log::Record<'_>) -> io::Result<()> {
    writeln!(out, "[{:<5} {}] {}", record.level(), record.target(), shown_lines(&record.args().to_string()))
}

/// A result as JSON; `what` it is, for the message.
///
/// # Errors
/// When it holds what JSON cannot express.
pub(super) fn json(value: &impl Serialize, what: &str) -> Result<String> {
    Ok(serde_json::to_string_pretty(value).with_context(|| format!("failed to write the {what} as JSON"))? + "\n")
}

/// How the table is laid out: as wide as the terminal that stdout is, or as suits a pager.
pub(super) fn layout() -> Layout {
    Layout { width: Table::new().width().unwrap_or(DEFAULT_WIDTH), ..Layout::default() }
}

/// A table without lines, its first column moved in.
pub(super) fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_header(header);
    if let Some(first) = table.column_mut(0) {
        first.set_padding((2, 1));
    }
    table
}

/// Aligns these columns to the right.
pub(super) fn right(table: &mut Table, columns: &[usize]) {
    for &column in columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}
