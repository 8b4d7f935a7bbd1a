//! What can be wrong with a file of event lines.

use super::reader::MAX_LINE;
use std::io;

/// Why reading stopped. Nothing after such a line is read.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The input could not be read.
    #[error("line {line}: failed to read")]
    Read {
        /// The line, counted from 1.
        line: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A time has decimals, but the reader counts whole nanoseconds: read again with 1,000 ticks per nanosecond.
    #[error("line {line}: `t` has decimals, but whole nanoseconds were asked for")]
    Decimal {
        /// The line, counted from 1.
        line: u64,
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
    /// Not valid JSON, a field of the wrong type, an unknown word or a field given twice.
    #[error("{what} (column {column})")]
    Json {
        /// What the parser says.
        what: String,
        /// Where the parser stood, in bytes from 1.
        column: usize,
        /// Whether it would have read on.
        is_cut: bool,
    },
    /// Valid or not, it does not begin an object.
    #[error("not a JSON object")]
    NotAnObject,
    /// A field that the operation needs is not there.
    #[error("missing field `{0}`")]
    Missing(&'static str),
    /// A time before zero.
    #[error("`t` is negative")]
    NegativeTime,
    /// A time with more than three decimals.
    #[error("`t` is finer than a thousandth of a nanosecond")]
    TooFine,
    /// A time that 64 bits cannot hold.
    #[error("`t` is too large")]
    TooLarge,
    /// A barrier of nobody.
    #[error("`n` is 0: a barrier has at least one participant")]
    NoParticipants,
    /// Longer than any event.
    #[error("longer than {MAX_LINE} bytes")]
    TooLong,
    /// More different names than are kept.
    #[error("too many different names of {0}")]
    TooManyNames(&'static str),
}
