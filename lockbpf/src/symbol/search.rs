//! Whether there is a text in the files of a process: a library that is compiled into a program leaves its name there, at least as the
//! name of its sources in messages, also where there are no symbols.

use super::Symbols;
use super::files::FileId;
use crate::id::Process;
use std::collections::HashMap;

/// A text, and which files have it.
pub struct Search {
    text: &'static str,
    files: HashMap<FileId, bool>,
}

impl Search {
    /// Looks for this text.
    #[must_use]
    pub fn of(text: &'static str) -> Self {
        Self { text, files: HashMap::new() }
    }

    /// Whether it is in a file that the process has loaded. Each file is read once; what cannot be read has it not.
    pub fn finds(&mut self, symbols: &Symbols, process: Process) -> bool {
        let files = symbols.files_of(process, |_| true);
        files
            .into_iter()
            .any(|(id, file, _)| *self.files.entry(id).or_insert_with(|| symbols.reader.has(id, file, self.text)))
    }
}
