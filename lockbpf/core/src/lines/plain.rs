//! A short way through the lines that nearly all are: one object of known fields with whole numbers and strings without
//! escapes. Whatever else there is in a line is left to the JSON parser, which is four times slower and complains.

use super::fields::{Fields, Mode, Operation, Pid, Stamp, Text, ThreadId};
use std::borrow::Cow;

/// The fields of a plain line; `None` for any other line.
pub(super) fn parse(line: &[u8]) -> Option<Fields<'_>> {
    let mut rest = Rest(line);
    let mut fields = Fields::default();
    rest.expect(b'{')?;
    loop {
        let key = rest.string()?;
        rest.expect(b':')?;
        match key {
            "t" => set(&mut fields.t, Stamp::Whole(rest.number()?))?,
            "tid" => set(&mut fields.tid, rest.thread()?)?,
            "op" => set(&mut fields.op, operation(rest.string()?)?)?,
            "lock" => set(&mut fields.lock, rest.text()?)?,
            "site" => set(&mut fields.site, rest.text()?)?,
            "kind" => set(&mut fields.kind, rest.text()?)?,
            "mode" => set(&mut fields.mode, mode(rest.string()?)?)?,
            "n" => set(&mut fields.n, u32::try_from(rest.number()?).ok()?)?,
            "post" => set(&mut fields.post, rest.text()?)?,
            "pid" => set(&mut fields.pid, Pid(u32::try_from(rest.number()?).ok()?))?,
            "comm" => set(&mut fields.comm, rest.text()?)?,
            _ => return None,
        }
        match rest.next()? {
            b',' => {}
            b'}' => break,
            _ => return None,
        }
    }
    rest.skip_spaces();
    rest.0.is_empty().then_some(fields)
}

/// Fills a field, once.
fn set<T>(field: &mut Option<T>, value: T) -> Option<()> {
    field.replace(value).is_none().then_some(())
}

/// What a line without a reason can say.
fn operation(word: &str) -> Option<Operation> {
    Operation::named(word).filter(|&operation| operation != Operation::Off)
}

fn mode(word: &str) -> Option<Mode> {
    match word {
        "exclusive" => Some(Mode::Exclusive),
        "shared" => Some(Mode::Shared),
        _ => None,
    }
}

/// What is left of the line.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn skip_spaces(&mut self) {
        while let [b' ' | b'\t' | b'\r', rest @ ..] = self.0 {
            self.0 = rest;
        }
    }

    /// The next byte that is no space.
    fn next(&mut self) -> Option<u8> {
        self.skip_spaces();
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    fn string(&mut self) -> Option<&'a str> {
        self.expect(b'"')?;
        let length = self.0.iter().position(|&b| b == b'"' || b == b'\\' || b < b' ')?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest.strip_prefix(b"\"")?;
        std::str::from_utf8(text).ok()
    }

    fn text(&mut self) -> Option<Text<'a>> {
        self.string().map(|text| Text(Cow::Borrowed(text)))
    }

    /// A whole number; what follows must not belong to it.
    fn number(&mut self) -> Option<u64> {
        self.skip_spaces();
        let start = self.0;
        let mut number = 0u64;
        while let [digit @ b'0'..=b'9', rest @ ..] = self.0 {
            number = number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
            self.0 = rest;
        }
        let digits = start.len() - self.0.len();
        let ends = matches!(self.0, [b',' | b'}' | b' ' | b'\t' | b'\r', ..]);
        (ends && (digits == 1 || digits > 1 && start.first() != Some(&b'0'))).then_some(number)
    }

    fn thread(&mut self) -> Option<ThreadId<'a>> {
        self.skip_spaces();
        match self.0.first()? {
            b'"' => self.string().map(|text| ThreadId::Text(Cow::Borrowed(text))),
            _ => self.number().map(ThreadId::Number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: &str = concat!(
        r#"{"t":10, "tid":"T3" ,"op":"attempt","lock":"L1","kind":"rwlock","mode":"shared","site":"é","#,
        r#""n":3,"post":"p","pid":7,"comm":"c"} "#
    );

    /// Fields in a form that can be compared; there must be some.
    fn told(fields: Option<Fields<'_>>) -> String {
        format!("{:?}", fields.unwrap())
    }

    #[test]
    fn plain_lines_need_no_json_parser() {
        assert_eq!(told(parse(LINE.as_bytes())), told(serde_json::from_str(LINE).ok()));
        let number = r#"{"t":18446744073709551615,"tid":0,"op":"exit"}"#;
        assert_eq!(told(parse(number.as_bytes())), told(serde_json::from_str(number).ok()));
        for other in [
            r#"{"t":01,"tid":1,"op":"exit"}"#,
            r#"{"t":1,"t":1,"tid":1,"op":"exit"}"#,
            r#"{"t":1.5,"tid":1,"op":"exit"}"#,
            r#"{"t":18446744073709551616,"tid":1,"op":"exit"}"#,
            r#"{"t":1,"tid":"\n","op":"exit"}"#,
            r#"{"t":1,"tid":1,"op":"exit",}"#,
            r#"{"t":1,"tid":1,"op":"exit"} {}"#,
            r#"{"t":,"tid":1,"op":"exit"}"#,
            "{}",
            "",
        ] {
            assert!(parse(other.as_bytes()).is_none(), "{other}");
        }
    }

    proptest! {
        #[test]
        fn what_the_short_way_accepts_the_json_parser_reads_the_same(
            changes in prop::collection::vec((0..LINE.len(), prop::sample::select(br#"{}":,\ 0159-.et[]"#.to_vec())), 0..4),
        ) {
            let mut bytes = LINE.as_bytes().to_vec();
            for (at, byte) in changes {
                bytes[at] = byte;
            }
            if let Some(fields) = parse(&bytes) {
                prop_assert_eq!(told(Some(fields)), told(serde_json::from_slice(&bytes).ok()));
            }
        }
    }
}
