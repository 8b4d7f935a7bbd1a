//! Event lines: one JSON object a line, one step of a lock operation each. The format is defined in `docs/formats.md`.
//!
//! [`Reader`] gives events, [`Labels`] the names that the lines use, [`Writer`] writes steps as lines again.
#![forbid(unsafe_code)]

mod error;
mod fields;
mod labels;
mod plain;
mod reader;
#[cfg(test)]
mod tests;
mod time;
mod writer;

pub use error::{LineError, Problem};
pub use labels::Labels;
pub use reader::{MAX_LINE, Reader};
pub use writer::{Stacks, Writer};
