//! Whether there is a text in the files of a process: a library that is compiled into a program leaves its name there, at least as the
//! name of its sources in messages, also where there are no symbols.

use super::Symbols;
use super::files::FileId;
use crate::id::Process;
use memchr::memmem::Finder;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Bytes read at once.
const PIECE: usize = 1 << 20;
/// Bytes of one file that are looked through.
const MAX_BYTES: u64 = 1 << 30;

/// A text, and which files have it.
pub struct Search {
    text: Finder<'static>,
    files: HashMap<FileId, bool>,
}

impl Search {
    /// Looks for this text.
    #[must_use]
    pub fn of(text: &'static str) -> Self {
        Self { text: Finder::new(text), files: HashMap::new() }
    }

    /// Whether it is in a file that the process has loaded. Each file is read once; what cannot be read has it not.
    pub fn finds(&mut self, symbols: &Symbols, process: Process) -> bool {
        let files = symbols.files_of(process, |_| true);
        files.into_iter().any(|(id, file, _)| {
            *self.files.entry(id).or_insert_with(|| contains(&file.file, &self.text).unwrap_or(false))
        })
    }
}

fn contains(file: &File, text: &Finder<'_>) -> std::io::Result<bool> {
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
            [contains(&file, &Finder::new("needle")).unwrap(), contains(&file, &Finder::new("needles")).unwrap()]
        };
        for before in [0, PIECE - 6, PIECE - 3, PIECE, 2 * PIECE - 8] {
            assert_eq!(finds(before), [true, false], "{before}");
        }
    }
}
