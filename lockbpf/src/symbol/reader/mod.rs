//! What is read of files of observed programs, asked of a process that may do nothing else (`crate::sandbox`).
//!
//! A file is sent once, as descriptors ([`Opened`]); questions name it by its number. If the process dies of one, takes too long or answers
//! nonsense, it is started anew, and of that file only symbols are asked for. If that ends it, too, the file is given up: what it would have named
//! stays without a name. The report says so. Perf maps are sent with each question, since they grow.

mod answers;
mod ask;
mod contains;
#[cfg(fuzzing)]
pub mod fuzz;
mod listed;
mod serve;
#[cfg(test)]
mod tests;

pub(super) use answers::StaticName;
pub(super) use ask::Reader;
pub(super) use listed::{Listed, PIECE};
pub use serve::serve;

use super::elf::Layout;
use super::files::FileId;
use super::find::Kind;
use super::unwind::Told;
use answers::Named;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// What is sent to the process. Descriptors go with it: of [`Ask::File`] the file, its debug file and what that shares, as far as there
/// are such; of those without a number the file that they are about.
#[derive(Debug, Serialize, Deserialize)]
enum Ask {
    /// Whether the process is confined, and can answer.
    Ready,
    /// From now on a file has this number. There is no answer. Of a `plain` one no debug information is read.
    File { id: FileId, name: String, layout: Layout, has_debug: bool, has_shared: bool, plain: bool },
    /// What its headers say.
    Headers,
    /// Its checksum, as debug links have it.
    Checksum,
    /// The functions that a part of a perf map lists.
    Listed(Range<u64>),
    /// Something about a file that was sent.
    Of(FileId, Question),
}

/// A question about a file. Addresses are as the file numbers them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Question {
    /// The functions at an address, most deeply inlined first.
    Frames(u64),
    /// The writable variable at an address.
    Variable(u64),
    /// The thread-local variable so far below a thread's record.
    ThreadLocal(u64),
    /// The member that a lock call's first argument points to; the address is that to which the call returns.
    Member(u64),
    /// The symbols whose names contain a text.
    Matching(Kind, String),
    /// The symbol of just this name.
    Exactly(Kind, String),
    /// Names of symbols.
    Names(Kind),
    /// The unwind rules at an address.
    Row(u64),
    /// The function around an address, as unwind information has it.
    Function(u64),
    /// Whether the file contains a text.
    Has(String),
}

/// What the process answers.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Ready,
    Headers(Result<Layout, String>),
    /// It is no ELF file.
    NotElf,
    Checksum(Result<u32, String>),
    Listed(Listed),
    Frames(Vec<Named>),
    Variable(Option<StaticName>, Problems),
    Text(Option<String>, Problems),
    Symbols(Vec<(String, u64, u64)>),
    Names(Vec<String>),
    Row(Told),
    Function(Option<(u64, u64)>),
    Has(bool),
}

/// What could not be read, each a sentence.
type Problems = Vec<String>;
