//! A file that describes locks, as it is written (TOML): what its keys mean is in `docs/locks.md`.

use super::address::Address;
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use std::ops::Range;
use toml::Spanned;

/// Name and version of the format.
const FORMAT: &str = "lockbpf.locks/1";

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    /// [`FORMAT`].
    #[serde(rename = "format")]
    pub _format: Format,
    /// Kinds of locks.
    #[serde(default)]
    pub lock: Vec<Spanned<Lock>>,
}

/// A kind of lock.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Lock {
    /// What reports call it.
    pub kind: Spanned<String>,
    /// What sort of lock it is.
    #[serde(default)]
    pub sort: Sort,
    /// Programs and libraries that have it: patterns for their names, or, with a `/`, for their paths.
    pub files: Spanned<Vec<String>>,
    /// Whether its holder may get it once more.
    #[serde(default)]
    pub recursive: bool,
    /// How it says that it is taken.
    pub taken: Option<Spanned<Taken>>,
    /// Where it says who holds it.
    pub owner: Option<Spanned<Word>>,
    /// What single locks are called.
    pub name: Option<Spanned<Name>>,
    /// Where a process says for which of them it waits.
    pub waiting: Option<Spanned<Waiting>>,
    /// Patterns for functions that belong to these locks.
    #[serde(default)]
    pub inside: Vec<String>,
    /// The functions on it.
    #[serde(default)]
    pub function: Vec<Spanned<Function>>,
}

/// Sorts of locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Sort {
    /// One holder.
    #[default]
    Mutex,
    /// One writer or many readers.
    Rwlock,
    /// One holder; its waiters stay on the CPU.
    Spin,
}

/// The word by which a lock says that it is taken.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Taken {
    /// Where the word is.
    pub at: Text<Address>,
    /// Its bytes.
    #[serde(default)]
    pub size: Size,
    /// The bits that matter.
    pub mask: Option<u64>,
    /// The same for whoever asks for shared access.
    pub shared_mask: Option<u64>,
    /// The bits of which one is set while somebody waits.
    #[serde(default)]
    pub waiters_mask: u64,
    /// What the bits are while it is taken.
    #[serde(default)]
    pub when: When,
}

/// What bits are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum When {
    /// One of them is set.
    #[default]
    Nonzero,
    /// None is set.
    Zero,
}

/// A word of a lock.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Word {
    /// Where it is.
    pub at: Text<Address>,
    /// Its bytes.
    #[serde(default)]
    pub size: Size,
}

/// What a lock is called.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Name {
    /// Where its name is, text that ends with a NUL.
    pub text: Option<Text<Address>>,
    /// Where a number is that stands for its name.
    pub number: Option<Text<Address>>,
    /// The number's bytes.
    #[serde(default)]
    pub size: Size,
    /// Whether locks of the same number are one lock, wherever they are.
    #[serde(default)]
    pub identifies: bool,
    /// Where a second number is (4 bytes), which tells those apart whose name has a `{}` for it.
    pub part: Option<Text<Address>>,
    /// Names by number, from 0 on; empty ones stand for none.
    #[serde(default)]
    pub names: Vec<String>,
    /// What a lock is called whose number has no name, with `{}` in place of the number.
    pub other: Option<String>,
}

/// Where a process says for which lock it waits.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Waiting {
    /// Symbol of a variable of the program.
    pub variable: String,
    /// Where the lock is, from that variable (`static`) on; nowhere while it waits for none.
    pub lock: Text<Address>,
    /// Where it stands who holds that, 4 bytes, from the lock on.
    pub owner: Option<Text<Address>>,
}

/// A function on a lock, or a point that tells of one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Function {
    /// A pattern for its symbol.
    pub symbol: Option<String>,
    /// A pattern for its name in C++ or Rust, without parameters.
    pub name: Option<String>,
    /// A pattern for a point, `provider:name`.
    pub point: Option<String>,
    /// What it does, or tells.
    pub does: Does,
    /// Where the lock is.
    #[serde(default = "first_argument")]
    pub lock: Text<Address>,
    /// Whether it asks for shared access.
    #[serde(default)]
    pub shared: Shared,
    /// By which result it tells that it did not get the lock.
    pub fails: Option<Fails>,
    /// Where it stands who holds the lock.
    pub owner: Option<Word>,
    /// The single lock, an address that who waits and who wakes both know.
    pub instance: Option<Text<Address>>,
    /// Whether it may be watched to its return.
    #[serde(default = "yes")]
    pub watch_return: bool,
    /// Whether a file without it is as it should be.
    #[serde(default)]
    pub optional: bool,
}

/// What a function does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Does {
    /// Gets a lock, and waits for it.
    Acquire,
    /// Gets a lock if it is free.
    Try,
    /// Gives a lock back.
    Release,
    /// Is called only by who has to wait, until that is over.
    Blocks,
    /// Gives it to one who waits.
    Wakes,
    /// Tells that the wait for a lock begins.
    Waits,
    /// Tells that a lock was got.
    Acquired,
    /// Tells that a lock was not got.
    Failed,
}

/// Results that tell that the lock was not got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Fails {
    /// `int` 0.
    Zero,
    /// `int` other than 0.
    Nonzero,
    /// `int` below 0.
    Negative,
    /// `bool`.
    False,
    /// `bool`.
    True,
    /// A pointer.
    Null,
}

/// Whether shared access is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shared {
    /// Always, or never.
    Fixed(bool),
    /// If an argument has a value.
    If { argument: u32, is: u32 },
}

impl Default for Shared {
    fn default() -> Self {
        Self::Fixed(false)
    }
}

impl<'de> Deserialize<'de> for Shared {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Fixed(bool),
            Condition(String),
        }
        match Either::deserialize(from) {
            Ok(Either::Fixed(fixed)) => Ok(Self::Fixed(fixed)),
            Ok(Either::Condition(text)) => Self::condition(&text).ok_or_else(|| D::Error::custom(SHARED)),
            Err(_) => Err(D::Error::custom(SHARED)),
        }
    }
}

const SHARED: &str = "`shared` is true, false, or a condition like \"arg1 == 1\"";

impl Shared {
    fn condition(text: &str) -> Option<Self> {
        let (argument, value) = text.split_once("==")?;
        let argument = argument.trim().strip_prefix("arg")?;
        let argument = argument.parse().ok().filter(|&n: &u32| n < 6 && argument.len() == 1)?;
        let value = value.trim();
        let is = match value.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok()?,
            None => value.parse::<u32>().ok().or_else(|| Some(value.parse::<i32>().ok()?.cast_unsigned()))?,
        };
        Some(Self::If { argument, is })
    }
}

/// Bytes of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size(pub u32);

impl Default for Size {
    fn default() -> Self {
        Self(4)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match u32::deserialize(from)? {
            size @ (1 | 2 | 4 | 8) => Ok(Self(size)),
            other => Err(D::Error::custom(format!("a word has 1, 2, 4 or 8 bytes, not {other}"))),
        }
    }
}

/// Something that is written as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Text<T>(pub T);

impl<'de, T: std::str::FromStr<Err: std::fmt::Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map(Self).map_err(D::Error::custom)
    }
}

/// The one format there is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Format;

impl<'de> Deserialize<'de> for Format {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        if name == FORMAT {
            Ok(Self)
        } else {
            Err(D::Error::custom(format!("this lockbpf reads {FORMAT}, not {name:?}")))
        }
    }
}

fn first_argument() -> Text<Address> {
    use super::address::Base;
    Text(Address { base: Base::Argument(0), place: lockbpf_common::custom::Place::NONE })
}

fn yes() -> bool {
    true
}

/// What is wrong, and where.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    /// Where in the text.
    pub span: Range<usize>,
    /// What.
    pub what: String,
}

/// Reads a file's text.
pub(super) fn read(text: &str) -> Result<File, Mistake> {
    toml::from_str(text)
        .map_err(|error| Mistake { span: error.span().unwrap_or_default(), what: error.message().to_owned() })
}
