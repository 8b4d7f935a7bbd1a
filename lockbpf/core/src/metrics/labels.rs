//! Names as label values: such as stay the same from process to process, and are not too long.

use crate::untrusted::shown;

/// Bytes of a label value at most.
const LONGEST: usize = 200;
/// What stands for an address.
const UNNAMED: &str = "[unnamed]";

/// The name of a lock without the number by which a report tells it from others of that name in its process.
pub(super) fn without_number(name: &str) -> &str {
    match name.rsplit_once(" #") {
        Some((base, number)) if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) => base,
        _ => name,
    }
}

/// A label value: without addresses in memory, which are others in the next process, cut off where it is too long.
pub(super) fn value(text: &str) -> String {
    let clean = shown(text);
    let mut value = String::with_capacity(clean.len().min(LONGEST));
    let mut rest = clean.as_ref();
    while let Some(at) = rest.find("0x") {
        let (before, number) = rest.split_at(at);
        let digits = number[2..].bytes().take_while(u8::is_ascii_hexdigit).count();
        value.push_str(before);
        // An offset in a file is no address.
        value.push_str(if digits == 0 || before.ends_with('+') { &number[..2 + digits] } else { UNNAMED });
        rest = &number[2 + digits..];
    }
    value.push_str(rest);
    if value.len() > LONGEST {
        value.truncate(value.floor_char_boundary(LONGEST - '…'.len_utf8()));
        value.push('…');
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_outlive_processes() {
        for (name, base) in
            [("lock in f (a.c:3) #12", "lock in f (a.c:3)"), ("a #", "a #"), ("a #b", "a #b"), ("a", "a")]
        {
            assert_eq!(without_number(name), base);
        }
        for (text, expected) in [
            ("lock 0x7f3a00001040", "lock [unnamed]"),
            ("libssl.so.3+0x1f40", "libssl.so.3+0x1f40"),
            ("table+0x28 at 0xffff", "table+0x28 at [unnamed]"),
            ("0x", "0x"),
            ("a\nb", "a\\u{a}b"),
        ] {
            assert_eq!(value(text), expected);
        }
    }

    proptest! {
        #[test]
        fn values_are_short(text in ".{0,400}") {
            let value = value(&text);
            prop_assert!(value.len() <= LONGEST, "{}", value.len());
            prop_assert!(!value.chars().any(crate::untrusted::is_unsafe));
        }
    }
}
