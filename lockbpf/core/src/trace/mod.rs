//! Recordings: events, sums, names, access records and losses in one file, `trace.bin`, that needs nothing else to be read.
//!
//! [`Writer`] writes what it gets to any [`std::io::Write`], in frames, each with its checksums: a recorder that is
//! killed loses what it had not written yet, a second at most. [`Reader`] reads from any [`std::io::Read`], keeps names
//! and sums but no events in memory, passes over damage, and tells what is missing. [`AccessLines`] reads the access
//! records. The format is described in
//! `docs/formats.md`.
#![forbid(unsafe_code)]

mod accesses;
mod damage;
mod frame;
mod header;
mod names;
mod reader;
#[cfg(test)]
mod tests;
mod tracker;
mod v1;
mod varint;
mod writer;

pub use accesses::AccessLines;
pub use damage::{Damage, Ended};
pub use header::{Capture, Header, Kept, Module, Modules, Probe};
pub use names::TraceNames;
pub use reader::{Closing, Reader};
pub use writer::{Compression, Writer, Written};

use std::io;

/// Whether a file with these first bytes is a trace (or was to become one).
#[must_use]
pub fn is_trace(first: &[u8]) -> bool {
    first.starts_with(&frame::MAGIC)
}

/// Whether these bytes, all that there are of a file, are less than a trace's first ones.
#[must_use]
pub fn is_cut(all: &[u8]) -> bool {
    !all.is_empty() && all.len() < MAGIC_BYTES && frame::MAGIC.starts_with(all)
}

/// Whether a trace that ends with these bytes is whole: what remains of one that broke off is shorter, or ends with something else.
#[must_use]
pub fn is_end(last: &[u8]) -> bool {
    frame::is_end(last)
}

/// Bytes that [`is_end`] needs.
pub const END_BYTES: usize = frame::HEADER;

/// Bytes that [`is_trace`] needs.
pub const MAGIC_BYTES: usize = frame::MAGIC.len();

/// Why a trace cannot be read (further).
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// Some other file.
    #[error("not a lockbpf trace: it begins with other bytes")]
    NotATrace,
    /// The first bytes are a trace's, but do not match their checksum, or there are too few.
    #[error("damaged within its first 16 bytes, where its version is")]
    DamagedStart,
    /// Written by a later version of lockbpf.
    #[error("written in version {0} of the format; this lockbpf reads versions up to 1")]
    Version(u32),
    /// The source failed.
    #[error("failed to read the trace at byte {at}")]
    Read {
        /// Where.
        at: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// What is wrong with the contents of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Malformed {
    #[error("it ends before its last field")]
    Truncated,
    #[error("a number in it is too large")]
    TooLarge,
    #[error("it holds more than any recording")]
    TooMany,
    #[error("unknown {0}")]
    Unknown(&'static str),
    #[error("it refers to what was not defined")]
    Undefined,
    #[error("it is no valid JSON")]
    Json,
}
