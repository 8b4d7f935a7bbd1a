//! Where something stands in a program's memory, as it is written in a file: `arg0`, `arg0+0x10`, `*(arg0+8)`, `**(arg0+8)+4`; from a lock
//! on `lock+4`, `*(lock+8)`; `static`. At most two pointers are followed.

use lockbpf_common::custom::Place;
use std::str::FromStr;

/// Arguments that are passed in registers.
const ARGUMENTS: u32 = 6;
/// Offsets within objects are smaller.
const MAX_OFFSET: u64 = 1 << 32;

/// What an address begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// The function's argument of this number.
    Argument(u32),
    /// The lock.
    Lock,
    /// The variable that the function's code names.
    Static,
}

/// An address in terms of another one. The size of what is there is not part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// From where.
    pub base: Base,
    /// How to get from there to it.
    pub place: Place,
}

/// What was expected.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no place: arg0 to arg5, static, or lock, with an offset (arg0+0x10), or what is read there (*(arg0+8), **(arg0+8)+4)"
)]
pub(super) struct NoAddress(String);

impl FromStr for Address {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<Self, NoAddress> {
        parse(text).ok_or_else(|| NoAddress(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Address> {
    let text: String = text.chars().filter(|c| *c != ' ').collect();
    let Some(rest) = text.strip_prefix('*') else {
        let (base, before) = based(&text)?;
        return Some(Address { base, place: Place { before, ..Place::NONE } });
    };
    let (rest, reads) = rest.strip_prefix('*').map_or((rest, 1), |rest| (rest, 2));
    let (inner, behind) = match rest.strip_prefix('(') {
        Some(rest) => rest.split_once(')')?,
        // `*lock`: offsets go with parentheses, so that nobody need know what binds more tightly.
        None => (rest, ""),
    };
    let (base, before) = based(inner).filter(|&(_, before)| before == 0 || rest.starts_with('('))?;
    Some(Address { base, place: Place { before, after: offset(behind)?, reads, size: 0 } })
}

/// A base and what is added to it.
fn based(text: &str) -> Option<(Base, u64)> {
    let end = text.find(['+', '-']).unwrap_or(text.len());
    let (base, rest) = text.split_at_checked(end)?;
    let base = match base {
        "lock" => Base::Lock,
        "static" => Base::Static,
        argument => {
            let number = argument.strip_prefix("arg")?;
            let number = number.parse().ok().filter(|&n| n < ARGUMENTS && number.len() == 1)?;
            Base::Argument(number)
        }
    };
    Some((base, offset(rest)?))
}

/// `+0x10`, `-8`, or nothing.
fn offset(text: &str) -> Option<u64> {
    let Some(sign) = text.chars().next() else { return Some(0) };
    let digits = text.get(1..)?;
    let number = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'))?,
        None => digits.parse().ok().filter(|_| !digits.starts_with('+'))?,
    };
    match sign {
        _ if number >= MAX_OFFSET => None,
        '+' => Some(number),
        '-' => Some(number.wrapping_neg()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn places_of_all_forms() {
        let place = |before: u64, reads, after| Place { before, after, reads, size: 0 };
        for (text, base, expected) in [
            ("arg0", Base::Argument(0), place(0, 0, 0)),
            ("arg5 + 0x10", Base::Argument(5), place(16, 0, 0)),
            ("arg1-8", Base::Argument(1), place(8u64.wrapping_neg(), 0, 0)),
            ("*arg0", Base::Argument(0), place(0, 1, 0)),
            ("*(arg0+8)", Base::Argument(0), place(8, 1, 0)),
            ("*(lock + 8) + 4", Base::Lock, place(8, 1, 4)),
            ("**(arg2+8)+4", Base::Argument(2), place(8, 2, 4)),
            ("**lock", Base::Lock, place(0, 2, 0)),
            ("static", Base::Static, place(0, 0, 0)),
            ("static+4", Base::Static, place(4, 0, 0)),
        ] {
            assert_eq!(text.parse(), Ok(Address { base, place: expected }), "{text}");
        }
    }

    #[test]
    fn nothing_else_is_a_place() {
        for text in [
            "",
            "arg6",
            "arg",
            "arg00",
            "arg0+",
            "arg0+-8",
            "arg0++8",
            "arg0+0x",
            "arg0*8",
            "***(arg0)",
            "**lock+8",
            "*(*(arg0))",
            "*(arg0",
            "*arg0+8",
            "(arg0)",
            "rdi",
            "lock+99999999999",
            "*(arg0)8",
            "8",
            "+8",
            "*",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text: String) {
            let _ = text.parse::<Address>();
        }

        #[test]
        fn nearly_right_texts_do_not_panic(text in "\\*{0,3}\\(?(arg|lock|static)[0-9é+*x() -]{0,12}") {
            let _ = text.parse::<Address>();
        }
    }
}
