//! What the readers of JSON lines share: fields that may mean nothing, and texts borrowed from the line where JSON lets them.
#![forbid(unsafe_code)]

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// A value of the given type, or one that means nothing here.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Own<T>(pub(crate) Option<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Own<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        Ok(Self(serde_json::from_str(raw.get()).ok()))
    }
}

/// A string, or a whole number, which is the same as its digits in a string; `expected` is what an error calls it. serde's own
/// `Option<Cow<str>>` would copy it always.
///
/// # Errors
/// It is something else.
pub(crate) fn text<'de, D: Deserializer<'de>>(
    deserializer: D,
    expected: &'static str,
) -> Result<Cow<'de, str>, D::Error> {
    struct Seen(&'static str);
    impl<'de> Visitor<'de> for Seen {
        type Value = Cow<'de, str>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
        fn visit_u64<E: Error>(self, number: u64) -> Result<Cow<'de, str>, E> {
            Ok(Cow::Owned(number.to_string()))
        }
        fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Cow<'de, str>, E> {
            Ok(Cow::Borrowed(text))
        }
        fn visit_str<E: Error>(self, text: &str) -> Result<Cow<'de, str>, E> {
            Ok(Cow::Owned(text.to_owned()))
        }
    }
    deserializer.deserialize_any(Seen(expected))
}
