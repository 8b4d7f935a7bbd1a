//! Lines of perf maps, one `START SIZE NAME` each, both numbers hexadecimal.

use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Bytes of a part at most. As an answer they take at most six times as many.
pub(in super::super) const PIECE: u64 = 1 << 18;
/// Longest line.
const MAX_LINE: usize = 1 << 15;

/// What a part of a perf map lists.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(in super::super) struct Listed {
    /// Bytes up to the end of the last whole line.
    pub(in super::super) whole: u64,
    /// Where functions begin and end, and their names.
    pub(in super::super) functions: Vec<(u64, u64, String)>,
}

/// Reads a part. Nothing is whole before a line has ended.
pub(in super::super) fn read(file: &File, part: &Range<u64>) -> io::Result<Listed> {
    let mut bytes = vec![0; part.end.saturating_sub(part.start).min(PIECE) as usize];
    let read = file.read_at(&mut bytes, part.start)?;
    bytes.truncate(read);
    match memchr::memrchr(b'\n', &bytes) {
        Some(end) => bytes.truncate(end + 1),
        // No name is that long: it is passed over in pieces.
        None if read > MAX_LINE => {}
        None => bytes.clear(),
    }
    let functions = bytes.split(|&b| b == b'\n').filter_map(parse_line).collect();
    Ok(Listed { whole: bytes.len() as u64, functions })
}

/// Lines that make no sense are passed over.
fn parse_line(line: &[u8]) -> Option<(u64, u64, String)> {
    let line = String::from_utf8_lossy(line);
    let (start, rest) = line.trim().split_once(' ')?;
    let (size, name) = rest.trim_start().split_once(' ')?;
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let (start, name) = (number(start)?, name.trim());
    let end = start.checked_add(number(size)?)?;
    (end > start && !name.is_empty()).then(|| (start, end, name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::socket;

    fn told(text: &[u8], part: Range<u64>) -> Listed {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(text, 0).unwrap();
        read(&file, &part).unwrap()
    }

    #[test]
    fn whole_lines_of_a_part() {
        let text = b"1000 10 first\n2000 10 second\n3000 10 cut";
        let first = (0x1000, 0x1010, "first".to_owned());
        assert_eq!((told(text, 0..20).whole, told(text, 0..20).functions), (14, vec![first]));
        assert_eq!((told(text, 14..1 << 40).whole, told(text, 14..1 << 40).functions.len()), (15, 1));
        for part in [29..41, 7..7, 41..50, 0..5] {
            assert_eq!((told(text, part.clone()).whole, told(text, part).functions.len()), (0, 0));
        }
    }

    #[test]
    fn whatever_a_part_contains_fits_into_an_answer() {
        for line in ["1 1 a\n", "1 1 \u{1}\n", "1 ffffffffffffff a\n", "ffffffffffffff 1 a\n"] {
            let text = line.repeat(PIECE as usize / line.len());
            let answer = serde_json::to_vec(&told(text.as_bytes(), 0..PIECE)).unwrap();
            assert!(answer.len() > PIECE as usize && answer.len() < socket::MAX_BYTES / 2, "{}", answer.len());
        }
        for byte in [b"\x01", b"\xff"] {
            let text = [b"1 1 ", &*byte.repeat(PIECE as usize - 5), b"\n"].concat();
            let answer = serde_json::to_vec(&told(&text, 0..PIECE)).unwrap();
            assert!(answer.len() > 2 * PIECE as usize && answer.len() < socket::MAX_BYTES / 2, "{}", answer.len());
        }
    }
}
