//! Writing results to stdout.

use crate::report::table::Layout;
use anyhow::{Context, Result};
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

/// A result as JSON; `what` it is, for the message.
///
/// # Errors
/// When it holds what JSON cannot express.
pub(super) fn json(value: &impl Serialize, what: &str) -> Result<String> {
    Ok(serde_json::to_string_pretty(value).with_context(|| format!("failed to write the {what} as JSON"))? + "\n")
}

/// How the table is laid out: as wide as the terminal that stdout is, or as suits a pager.
pub(super) fn layout() -> Layout {
    Layout { width: comfy_table::Table::new().width().unwrap_or(DEFAULT_WIDTH), ..Layout::default() }
}
