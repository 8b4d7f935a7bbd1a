//! The fields of one line, borrowed from it where JSON lets them.

use super::error::Problem;
use crate::json::{self, Own};
use crate::untrusted::{cleaned, shown};
use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// Every field that means something, with what is optional left open. Others are ignored; one given twice is an error.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Fields<'a> {
    #[serde(borrow)]
    pub(super) run: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) seq: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) tid: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) lock: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) site: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) reads: Option<Vec<Text<'a>>>,
    #[serde(borrow)]
    pub(super) writes: Option<Vec<Text<'a>>>,
    #[serde(borrow)]
    pub(super) accesses: Option<Text<'a>>,
    /// By access: the location; null for one that is nobody else's business (the stack, the lock itself).
    #[serde(borrow)]
    pub(super) at: Option<Vec<Option<Text<'a>>>>,
    // What follows is lockbpf's own. Other programs may give these names a meaning of theirs, which is ignored like that
    // of any other name.
    /// By access: the place in the code.
    #[serde(borrow)]
    pub(super) code: Option<Own<Vec<Option<Text<'a>>>>>,
    /// Whether the section was not followed to its end.
    pub(super) cut: Option<Own<bool>>,
    /// What readers call locations.
    pub(super) names: Option<Own<BTreeMap<String, String>>>,
    /// Conditional branches in the section.
    #[serde(borrow)]
    pub(super) branches: Option<Own<Vec<Branch<'a>>>>,
    /// System calls in the section.
    pub(super) opaque: Option<Own<Vec<String>>>,
    /// Where in a method of the lock's own class the lock is requested, if `site` is the method's caller.
    #[serde(borrow)]
    pub(super) method: Option<Own<Text<'a>>>,
    /// The lock's address, where `lock` is its name.
    #[serde(borrow)]
    pub(super) lock_addr: Option<Own<Text<'a>>>,
    #[serde(borrow)]
    pub(super) edge: Option<Edge<'a>>,
}

/// How often a conditional branch went which way.
#[derive(Debug, Deserialize)]
pub(super) struct Branch<'a> {
    /// Its location.
    #[serde(borrow)]
    pub(super) at: Text<'a>,
    /// Its place in the code.
    #[serde(borrow)]
    pub(super) code: Option<Text<'a>>,
    pub(super) taken: u64,
    pub(super) not_taken: u64,
}

/// A line's fields.
pub(super) fn parse(line: &[u8]) -> Result<Fields<'_>, Problem> {
    let parsed = match std::str::from_utf8(line) {
        Ok(text) => serde_json::from_str(text),
        // What is no text may be in a field that is ignored.
        Err(_) => serde_json::from_slice(line),
    };
    parsed.map_err(|_| named(line))
}

/// The problem of a line that has one, with its field: telling that is slower, and done for this line only.
fn named(line: &[u8]) -> Problem {
    let mut json = serde_json::Deserializer::from_slice(line);
    let parsed = serde_path_to_error::deserialize::<_, Fields<'_>>(&mut json);
    let (path, error) = match parsed {
        Err(error) => (error.path().to_string(), error.into_inner()),
        // What follows the object is wrong.
        Ok(_) => match json.end() {
            Err(error) => (".".to_owned(), error),
            Ok(()) => return Problem::NotAnObject,
        },
    };
    let text = error.to_string();
    // The parser counts lines, too, but sees only one.
    let what = text.split_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    let what = if path == "." { what.to_owned() } else { format!("`{path}`: {what}") };
    Problem::Json { what, column: error.column() }
}

/// What a field of lockbpf's own holds.
pub(super) fn own<T>(field: &Option<Own<T>>) -> Option<&T> {
    field.as_ref().and_then(|own| own.0.as_ref())
}

/// A name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = json::text(deserializer, "a string or a whole number")?;
        Ok(Self(match text {
            Cow::Borrowed(text) => shown(text),
            Cow::Owned(text) => Cow::Owned(cleaned(text)),
        }))
    }
}

/// The sections that a wait is between: exactly two.
#[derive(Debug)]
pub(super) struct Edge<'a>(pub(super) Text<'a>, pub(super) Text<'a>);

impl<'de: 'a, 'a> Deserialize<'de> for Edge<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pair;
        impl<'de> Visitor<'de> for Pair {
            type Value = Edge<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of two `seq`")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Edge<'de>, A::Error> {
                let (from, to) = (all.next_element()?, all.next_element()?);
                let more: Option<serde::de::IgnoredAny> = all.next_element()?;
                match (from, to, more) {
                    (Some(from), Some(to), None) => Ok(Edge(from, to)),
                    _ => Err(A::Error::custom("an edge is an array of two `seq`")),
                }
            }
        }
        deserializer.deserialize_seq(Pair)
    }
}
