//! Whether there is a text in a file.

use memchr::memmem::Finder;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes read at once.
const PIECE: usize = 1 << 20;
/// Bytes of one file that are looked through.
const MAX_BYTES: u64 = 1 << 30;

pub(super) fn contains(file: &File, text: &str) -> io::Result<bool> {
    let text = Finder::new(text);
    // What is cut by the end of a piece is whole in the next one.
    let overlap = text.needle().len().saturating_sub(1);
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while at < MAX_BYTES {
        let len = file.read_at(&mut piece, at)?;
        if text.find(&piece[..len]).is_some() {
            return Ok(true);
        }
        if len <= overlap {
            return Ok(false);
        }
        at += (len - overlap) as u64;
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_text_is_found_across_pieces() {
        let finds = |before: usize| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&vec![b'x'; before]).unwrap();
            file.write_all(b"needle").unwrap();
            [contains(&file, "needle").unwrap(), contains(&file, "needles").unwrap()]
        };
        for before in [0, PIECE - 6, PIECE - 3, PIECE, 2 * PIECE - 8] {
            assert_eq!(finds(before), [true, false], "{before}");
        }
    }
}
