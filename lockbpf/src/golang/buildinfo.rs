//! The release of Go that made a program (`debug/buildinfo` in Go's library reads the same).

use super::Program;
use object::ReadRef;
use std::fmt;

/// What the record begins with.
const MAGIC: &[u8] = b"\xff Go buildinf:";
/// Alignment of the record.
const ALIGN: usize = 16;
/// Bytes before the strings.
const HEADER: usize = 32;
/// Flag: the strings follow, rather than pointers to them (Go 1.18).
const INLINE: u8 = 2;
/// Where Go's own reader looks for the record: it is the first thing in the data.
const SEARCHED: u64 = 64 << 10;
/// Bytes of a release's name.
const MAX_NAME: usize = 256;

/// A release of Go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// As Go names it: `go1.22.4`, `devel go1.25-abcdef`.
    pub name: String,
    /// Its numbers, `(1, 22)`; `None` in a name of another form.
    pub version: Option<(u32, u32)>,
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Which release made a program: `None` if Go did not make it, an empty name if it is one before 1.18, which keeps its
/// name elsewhere.
#[must_use]
pub fn release<'data, R: ReadRef<'data>>(program: &Program<R>) -> Option<Release> {
    let named = program.section(".go.buildinfo").map(|(_, bytes)| bytes);
    let data = || {
        let data = program.segments().iter().find(|s| s.writable)?;
        program.segment(data, SEARCHED)
    };
    let record = named.filter(|bytes| bytes.starts_with(MAGIC)).or_else(|| {
        let data = data()?;
        data.chunks(ALIGN).position(|chunk| chunk.starts_with(MAGIC)).and_then(|n| data.get(n * ALIGN..))
    })?;
    parse(record)
}

fn parse(record: &[u8]) -> Option<Release> {
    let flags = *record.get(MAGIC.len() + 1)?;
    let name = if flags & INLINE == 0 { "" } else { string(record.get(HEADER..)?)? };
    Some(Release { name: name.to_owned(), version: version(name) })
}

/// A string behind its length.
fn string(bytes: &[u8]) -> Option<&str> {
    let (len, used) = super::pclntab::varint(bytes)?;
    let len = usize::try_from(len).ok().filter(|&len| len <= MAX_NAME)?;
    std::str::from_utf8(bytes.get(used..used.checked_add(len)?)?).ok()
}

fn version(name: &str) -> Option<(u32, u32)> {
    let numbers = &name[name.find("go1.")? + 2..];
    let mut parts = numbers.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(flags: u8, rest: &[u8]) -> Vec<u8> {
        let mut record = [MAGIC, &[8, flags]].concat();
        record.resize(HEADER, 0);
        record.extend_from_slice(rest);
        record
    }

    #[test]
    fn releases() {
        for (name, version) in [
            ("go1.19.8", Some((1, 19))),
            ("go1.22", Some((1, 22))),
            ("go1.24rc1", Some((1, 24))),
            ("devel go1.25-5a2 X:nocoverageredesign", Some((1, 25))),
            ("custom", None),
            ("go1.", None),
        ] {
            let mut rest = vec![name.len() as u8];
            rest.extend_from_slice(name.as_bytes());
            let release = parse(&record(2, &rest)).unwrap();
            assert_eq!((release.to_string().as_str(), release.version), (name, version));
        }
        assert_eq!(parse(&record(0, &[])).unwrap().name, "");
        assert_eq!(parse(&record(2, &[200, 1])), None);
    }

    proptest! {
        #[test]
        fn noise_never_panics(flags: u8, rest: Vec<u8>, keep in 0usize..64) {
            let mut record = record(flags, &rest);
            let _ = parse(&record);
            record.truncate(keep);
            let _ = parse(&record);
        }
    }
}
