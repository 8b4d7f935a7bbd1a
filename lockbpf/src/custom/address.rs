//! Where something stands in a program's memory, as it is written in a file: `arg0`, `arg0+0x10`, `*(arg0+8)`, `**(arg0+8)+4`; from a lock
//! on `lock+4`, `*(lock+8)`; `static`. At most three pointers are followed: `*(*(*(arg0+8)+16)-8)+4`.

use lockbpf_common::custom::{MAX_READS, Place};
use std::str::FromStr;

/// Arguments that are passed in registers.
const ARGUMENTS: u32 = 6;

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
    place(&text)
}

fn place(text: &str) -> Option<Address> {
    let rest = text.trim_start_matches('*');
    let reads = text.len() - rest.len();
    if reads == 0 {
        let (base, before) = based(text)?;
        return Some(Address { base, place: Place { offsets: [before, 0, 0, 0], ..Place::NONE } });
    }
    if reads > MAX_READS {
        return None;
    }
    let (inner, behind) = match rest.strip_prefix('(') {
        Some(rest) => rest.rsplit_once(')')?,
        // `*lock`: offsets go with parentheses, so that nobody need know what binds more tightly.
        None if rest.contains(['+', '-']) => return None,
        None => (rest, ""),
    };
    let mut address = place(inner)?;
    let place = &mut address.place;
    place.reads += reads as u32;
    *place.offsets.get_mut(place.reads as usize)? = offset(behind)?;
    Some(address)
}

/// A base and what is added to it.
fn based(text: &str) -> Option<(Base, i32)> {
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
fn offset(text: &str) -> Option<i32> {
    let Some(sign) = text.chars().next() else { return Some(0) };
    let digits = text.get(1..)?;
    let number = match digits.strip_prefix("0x") {
        Some(digits) => i32::from_str_radix(digits, 16).ok(),
        None => digits.parse().ok(),
    };
    let number = number.filter(|&number| number >= 0 && !digits.contains(['+', '-']))?;
    match sign {
        '+' => Some(number),
        '-' => Some(-number),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn places_of_all_forms() {
        let place = |offsets: &[i32]| {
            let mut all = [0; MAX_READS + 1];
            all[..offsets.len()].copy_from_slice(offsets);
            Place { offsets: all, reads: offsets.len() as u32 - 1, size: 0 }
        };
        for (text, base, expected) in [
            ("arg0", Base::Argument(0), place(&[0])),
            ("arg5 + 0x10", Base::Argument(5), place(&[16])),
            ("arg1-8", Base::Argument(1), place(&[-8])),
            ("*arg0", Base::Argument(0), place(&[0, 0])),
            ("*(arg0+8)", Base::Argument(0), place(&[8, 0])),
            ("*(lock + 8) + 4", Base::Lock, place(&[8, 4])),
            ("**(arg2+8)+4", Base::Argument(2), place(&[8, 0, 4])),
            ("**lock", Base::Lock, place(&[0, 0, 0])),
            ("***lock", Base::Lock, place(&[0, 0, 0, 0])),
            ("*(*(arg0+24)+32)-8", Base::Argument(0), place(&[24, 32, -8])),
            ("*(*(*(arg0+24)+32)-24)+64", Base::Argument(0), place(&[24, 32, -24, 64])),
            ("*(**(arg0+24)-24)+64", Base::Argument(0), place(&[24, 0, -24, 64])),
            ("static", Base::Static, place(&[0])),
            ("static+4", Base::Static, place(&[4])),
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
            "****arg0",
            "*(***arg0)",
            "((arg0))",
            "*((arg0))",
            "*(*(arg0+8)",
            "**lock+8",
            "*(arg0",
            "*arg0+8",
            "(arg0)",
            "rdi",
            "lock+99999999999",
            "lock+0x80000000",
            "lock+0x-8",
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
