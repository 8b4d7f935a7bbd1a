//! What can be wrong with access records.

use super::reader::MAX_LINE;
use std::io;

/// Why reading stopped. Nothing after such a line is read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The input could not be read.
    #[error("line {line}: failed to read")]
    Read {
        /// The line, counted from 1.
        line: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The line is not one that the format allows.
    #[error("line {line}: {problem}")]
    Invalid {
        /// The line, counted from 1.
        line: u64,
        /// What is wrong with it.
        problem: Problem,
    },
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Not valid JSON, a field of the wrong type, or a field given twice.
    #[error("{what} (column {column})")]
    Json {
        /// What the parser says, and of which field.
        what: String,
        /// Where the parser stood, in bytes from 1.
        column: usize,
    },
    /// It does not begin an object.
    #[error("not a JSON object")]
    NotAnObject,
    /// A field that the line needs is not there.
    #[error("missing field `{0}`")]
    Missing(&'static str),
    /// A letter that stands for no access.
    #[error("`accesses`: {0:?} is neither `r` nor `w`")]
    NoAccess(char),
    /// An array that goes with `accesses` is longer or shorter than it.
    #[error("`{field}` has {has} entries, but `accesses` has {accesses}")]
    Length {
        /// The array.
        field: &'static str,
        /// Its length.
        has: usize,
        /// Letters of `accesses`.
        accesses: usize,
    },
    /// An array that means nothing without `accesses`.
    #[error("`{0}` without `accesses`")]
    NoAccesses(&'static str),
    /// Two sections with one number.
    #[error("`seq`: {seq} was given before in run {run}")]
    Twice {
        /// The run.
        run: String,
        /// The number.
        seq: String,
    },
    /// A wait for a section that is not there.
    #[error("`edge`: there is no section with `seq` {seq} in run {run}")]
    NoSection {
        /// The run.
        run: String,
        /// The number.
        seq: String,
    },
    /// Longer than any section.
    #[error("longer than {MAX_LINE} bytes")]
    TooLong,
    /// More than can be numbered.
    #[error("too many different {0}")]
    TooMany(&'static str),
}
