//! Where functions of a file are, asked of a process that may do nothing but read it (`crate::sandbox`). This side: what can be asked, who is
//! asked, and what is believed of the answers. The other side is `super::serve`.

mod answers;
mod ask;
mod code;
#[cfg(fuzzing)]
pub mod fuzz;
mod row;
#[cfg(test)]
mod tests;

pub(super) use answers::Calls;
pub use answers::Described;
pub(super) use ask::{calls, interpreter, places, resolvers};
pub use ask::{described, dismiss, get_ready};

use super::described::Wanted;
use super::elf::{ElfError, Libc};
use super::judge::Role;
use super::prologue::{Cost, Reason};
use super::site::Lack;
use super::unusable::Unusable;
use serde::{Deserialize, Serialize};

/// The argument by which the process knows what it will be asked.
pub const ARGUMENT: &str = "--probes";
/// Probes in one answer.
pub(super) const MAX_SITES: usize = 16_384;

/// What is sent to the process, each with the file that it is about.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Ask {
    /// Whether the process is confined, and can answer. Without a file.
    Ready,
    /// Which loader an executable asks for.
    Interpreter,
    /// Where its lock functions are.
    Places(Asked),
    /// Which of these functions of the C library are chosen when a program begins.
    Resolvers(Vec<u16>),
    /// Where the beginnings and ends of functions of the C library are.
    Calls(AskedCalls),
    /// Where described functions are.
    Described(Vec<Wanted>),
}

/// What is looked for in a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Asked {
    /// What the file is to its process.
    pub(super) role: Role,
    /// Whether the process has a C library, so that an executable need not be one.
    pub(super) has_library: bool,
    /// What is described of it.
    pub(super) wanted: Vec<Wanted>,
}

/// Which functions of the C library are looked for, by number.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct AskedCalls {
    /// Those.
    pub(super) functions: Vec<u16>,
    /// Of such as are chosen when a program begins: the addresses that may have been, likeliest first.
    pub(super) chosen: Vec<(u16, Vec<u64>)>,
    /// Lock functions that are watched to their return in any case, and where their locks are read.
    pub(super) watched: Vec<At>,
}

/// What the process answers.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// It is confined.
    Ready,
    /// The loader's path; `None` for a program that has none.
    Interpreter(Result<Option<Vec<u8>>, ElfError>),
    /// `None` if there is nothing to be probed; an error for an executable that could not be observed.
    Places(Result<Option<Told>, ElfError>),
    /// Those, and the address of what is at the file's beginning.
    Resolvers(Vec<Resolver>, Option<u64>),
    /// `None` if the file cannot be read.
    Calls(Option<ToldCalls>),
    /// An error for a file that is none that could be probed.
    Described(Result<ToldDescribed, Unusable>),
}

/// A function that the C library has several implementations of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Resolver {
    /// The function's number.
    pub(super) function: u16,
    /// Address of what chooses.
    pub(super) resolver: u64,
    /// Address of the word into which the choice is written, if there is one.
    pub(super) word: Option<u64>,
}

/// A probed function by the table that has it, and its place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum Row {
    /// Of [`super::probe_table::FUNCTIONS`].
    Libc(u16),
    /// Of [`super::mangled::ROWS`].
    Compiled(u16),
    /// Of [`super::go::rows`].
    Go(u16),
    /// Of the catalogue.
    Described(u16),
    /// Of [`crate::measures::library::FUNCTIONS`].
    Call(u16),
}

/// What a probe tells of its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum Tells {
    /// That it is called.
    Begin,
    /// The same, and it is watched to its return though its row does not say so.
    BeginWatched,
    /// That it has failed.
    Failure,
    /// That it has succeeded.
    Success,
    /// That it ends.
    End,
}

/// A [`super::site::Site`], as it travels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct At {
    pub(super) row: Row,
    pub(super) tells: Tells,
    /// Offset in the file.
    pub(super) file_offset: u64,
    /// Offset in the function.
    pub(super) offset: u64,
    pub(super) cost: Cost,
    pub(super) reason: Reason,
    pub(super) instruction: String,
    pub(super) detail: u32,
    /// Offset in the file, or 0.
    pub(super) counter: u64,
}

/// What was found in a file.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Told {
    pub(super) libc: Option<Libc>,
    pub(super) build_id: Option<Vec<u8>>,
    pub(super) sites: Vec<At>,
    pub(super) missing: Vec<(Row, Lack)>,
    pub(super) unusable: Option<Unusable>,
}

/// What was found of functions of the C library; these by number.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct ToldCalls {
    pub(super) sites: Vec<At>,
    pub(super) functions: usize,
    pub(super) endless: Vec<u16>,
    pub(super) dear: Vec<u16>,
    pub(super) left_out: Vec<(u16, Lack)>,
    pub(super) shared: Vec<(u16, u16)>,
}

/// What was found of described functions.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct ToldDescribed {
    pub(super) sites: Vec<At>,
    pub(super) symbols: Vec<String>,
    pub(super) missing: Vec<(u16, Lack)>,
}
