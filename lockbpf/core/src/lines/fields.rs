//! The fields of one line, borrowed from it where JSON lets them.

use crate::json::{self, Own};
use crate::op::{OffReason, Released};
use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// Every field that means something, with what is optional or depends on the operation left open. Others are ignored; a
/// field given twice is an error.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Fields<'a> {
    pub(super) t: Option<Stamp>,
    #[serde(borrow)]
    pub(super) tid: Option<ThreadId<'a>>,
    pub(super) op: Option<Operation>,
    #[serde(borrow)]
    pub(super) lock: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) kind: Option<Text<'a>>,
    pub(super) mode: Option<Mode>,
    #[serde(borrow)]
    pub(super) site: Option<Text<'a>>,
    pub(super) n: Option<u32>,
    #[serde(borrow)]
    pub(super) post: Option<Text<'a>>,
    pub(super) pid: Option<Pid>,
    #[serde(borrow)]
    pub(super) comm: Option<Text<'a>>,
    // What follows is lockbpf's own. Other programs may give these names a meaning of theirs, which is ignored like that
    // of any other name.
    pub(super) contended: Option<Own<bool>>,
    pub(super) round: Option<Own<u32>>,
    #[serde(borrow)]
    pub(super) owner: Option<Own<ThreadId<'a>>>,
    #[serde(borrow)]
    pub(super) waker: Option<Own<ThreadId<'a>>>,
    /// For `join`: whose exit was waited for, and how long, ns.
    #[serde(borrow)]
    pub(super) thread: Option<Own<ThreadId<'a>>>,
    pub(super) wait: Option<Own<f64>>,
    pub(super) ends_process: Option<Own<bool>>,
    pub(super) how: Option<Own<How>>,
    #[serde(borrow)]
    pub(super) reason: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) name: Option<Own<Text<'a>>>,
    #[serde(borrow)]
    pub(super) kind_name: Option<Own<Text<'a>>>,
    #[serde(borrow)]
    pub(super) symbol: Option<Own<Text<'a>>>,
    #[serde(borrow)]
    pub(super) stack: Option<Own<Vec<Text<'a>>>>,
}

/// The time alone, as it is written.
#[derive(Deserialize)]
pub(super) struct RawTime<'a> {
    #[serde(borrow)]
    pub(super) t: &'a RawValue,
}

/// What a line says its thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Attempt,
    Acquire,
    Release,
    TryFail,
    Timeout,
    Error,
    Barrier,
    CondWait,
    CondWake,
    Off,
    On,
    Join,
    Exit,
}

impl Operation {
    /// The operation that goes by this name.
    pub(super) fn named(word: &str) -> Option<Self> {
        Some(match word {
            "attempt" => Self::Attempt,
            "acquire" => Self::Acquire,
            "release" => Self::Release,
            "try_fail" => Self::TryFail,
            "timeout" => Self::Timeout,
            "error" => Self::Error,
            "barrier" => Self::Barrier,
            "cond_wait" => Self::CondWait,
            "cond_wake" => Self::CondWake,
            "off" => Self::Off,
            "on" => Self::On,
            "join" => Self::Join,
            "exit" => Self::Exit,
            _ => return None,
        })
    }
}

impl<'de> Deserialize<'de> for Operation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Text(word) = Text::deserialize(deserializer)?;
        Self::named(&word).ok_or_else(|| {
            let word: String = word.chars().take(40).collect();
            D::Error::custom(format_args!("unknown op {word:?}"))
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mode {
    Exclusive,
    Shared,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum How {
    Unlock,
    CondWait,
    Exit,
    Unseen,
}

impl From<How> for Released {
    fn from(how: How) -> Self {
        match how {
            How::Unlock => Self::Unlock,
            How::CondWait => Self::CondWait,
            How::Exit => Self::ExitedHolding,
            How::Unseen => Self::Unseen,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reason {
    Runnable,
    Blocked,
    Sleeping,
    Futex,
}

impl From<Reason> for OffReason {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Runnable => Self::Runnable,
            Reason::Blocked => Self::Blocked,
            Reason::Sleeping => Self::Sleeping,
            Reason::Futex => Self::Futex,
        }
    }
}

/// A process id.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pid(pub(super) u32);

impl<'de> Deserialize<'de> for Pid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = match ThreadId::deserialize(deserializer)? {
            ThreadId::Number(n) => u32::try_from(n).ok(),
            ThreadId::Text(text) => text.parse().ok(),
        };
        number.map(Self).ok_or_else(|| Error::custom("`pid` is not a process id"))
    }
}

/// A time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stamp {
    /// A whole number of nanoseconds.
    Whole(u64),
    /// Below zero.
    Negative,
    /// Another number: the text has it exactly.
    Number,
}

impl<'de> Deserialize<'de> for Stamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Seen;
        impl Visitor<'_> for Seen {
            type Value = Stamp;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time in ns as a number")
            }
            fn visit_u64<E: Error>(self, n: u64) -> Result<Stamp, E> {
                Ok(Stamp::Whole(n))
            }
            fn visit_i64<E: Error>(self, _: i64) -> Result<Stamp, E> {
                Ok(Stamp::Negative)
            }
            fn visit_f64<E: Error>(self, _: f64) -> Result<Stamp, E> {
                Ok(Stamp::Number)
            }
        }
        deserializer.deserialize_any(Seen)
    }
}

/// A name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        json::text(deserializer, "a string").map(Text)
    }
}

/// What a line calls a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ThreadId<'a> {
    Number(u64),
    Text(Cow<'a, str>),
}

impl<'de: 'a, 'a> Deserialize<'de> for ThreadId<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Seen;
        impl<'de> Visitor<'de> for Seen {
            type Value = ThreadId<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a thread as a whole number or a string")
            }
            fn visit_u64<E: Error>(self, n: u64) -> Result<ThreadId<'de>, E> {
                Ok(ThreadId::Number(n))
            }
            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<ThreadId<'de>, E> {
                Ok(ThreadId::Text(Cow::Borrowed(text)))
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<ThreadId<'de>, E> {
                Ok(ThreadId::Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_any(Seen)
    }
}
