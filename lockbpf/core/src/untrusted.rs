//! Text that others control: names of functions, threads, files and locks, from programs that are observed and from files that are read. It is
//! cleaned where it enters, so that no output has to think of it: what could move a terminal's cursor, forge a line or turn the
//! direction of writing is shown as an escape, `\u{1b}`.
#![forbid(unsafe_code)]

use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::fmt::Write;

/// Whether a character does something else than to be seen: control characters (C0, DEL, C1), marks that turn the direction of writing,
/// line and paragraph separators, and what has no width.
#[must_use]
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}' | '\u{2066}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The text with escapes in the place of unsafe characters. What has been cleaned stays as it is.
#[must_use]
pub fn shown(text: &str) -> Cow<'_, str> {
    let plain = |b: u8| (b' '..=b'~').contains(&b);
    if text.bytes().all(plain) || !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().fold(String::with_capacity(text.len() + 16), escaped))
}

/// [`shown`] of bytes that should be text.
#[must_use]
pub fn shown_bytes(text: &[u8]) -> String {
    shown(&String::from_utf8_lossy(text)).into_owned()
}

/// [`shown`] of owned text, which is not copied unless it has to be.
#[must_use]
pub fn cleaned(text: String) -> String {
    match shown(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(clean) => clean,
    }
}

/// A message of several lines, cleaned but for its line feeds. Lines after the first are indented: none can pass for a message of its own.
#[must_use]
pub fn shown_lines(text: &str) -> String {
    text.split('\n').map(shown).collect::<Vec<_>>().join("\n  ")
}

/// The strings in a JSON value, and the names of its fields, cleaned.
pub fn clean_json(value: &mut serde_json::Value) {
    use serde_json::Value;
    match value {
        Value::String(text) => *text = cleaned(std::mem::take(text)),
        Value::Array(items) => items.iter_mut().for_each(clean_json),
        Value::Object(fields) => {
            *fields = std::mem::take(fields)
                .into_iter()
                .map(|(name, mut value)| {
                    clean_json(&mut value);
                    (cleaned(name), value)
                })
                .collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Reads text that is cleaned: for `deserialize_with`.
///
/// # Errors
/// When it is no text.
pub fn read<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    String::deserialize(from).map(cleaned)
}

/// As [`read`], of what may be missing.
///
/// # Errors
/// As there.
pub fn read_some<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(from)?.map(cleaned))
}

/// As [`read`], of a list.
///
/// # Errors
/// When it is none of texts.
pub fn read_all<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    Ok(Vec::<String>::deserialize(from)?.into_iter().map(cleaned).collect())
}

fn escaped(mut out: String, c: char) -> String {
    if is_unsafe(c) {
        let _ = write!(out, "{}", c.escape_unicode());
    } else {
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        assert_eq!(shown("\x1b]0;title\x07\r\n\u{9b}2J\u{202e}x"), r"\u{1b}]0;title\u{7}\u{d}\u{a}\u{9b}2J\u{202e}x");
        assert!(matches!(shown("std::vector<größe, \u{1f980}>"), Cow::Borrowed(_)));
        assert_eq!(shown_bytes(b"a\xff\x7f"), "a\u{fffd}\\u{7f}");
        assert_eq!(shown_lines("a\x1b\nlockbpf: forged"), "a\\u{1b}\n  lockbpf: forged");
    }

    #[test]
    fn names_of_models_are_cleaned() {
        let json = r#"{"name":"a\u001b\u202e","share":1,"routing":[],"local_ns":[]}"#;
        let class: crate::model::schema::ClassInput = serde_json::from_str(json).unwrap();
        assert_eq!(class.name, r"a\u{1b}\u{202e}");
    }

    #[test]
    fn strings_anywhere_in_json_are_cleaned() {
        let mut value = serde_json::json!({"a\u{1}": [{"b": "\u{202e}"}, 1, null]});
        clean_json(&mut value);
        assert_eq!(value, serde_json::json!({"a\\u{1}": [{"b": "\\u{202e}"}, 1, null]}));
    }

    proptest! {
        #[test]
        fn clean_once_and_for_all(text in prop::collection::vec(any::<char>(), 0..40)) {
            let text: String = text.into_iter().collect();
            let clean = shown(&text).into_owned();
            prop_assert!(!clean.chars().any(is_unsafe));
            prop_assert_eq!(shown(&clean), clean.as_str());
            prop_assert_eq!(cleaned(text), clean);
        }
    }
}
