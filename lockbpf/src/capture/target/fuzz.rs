//! What the targets in `fuzz/` feed: files in which functions to be probed are looked for, and what `/proc` says.

use super::file::File;
use super::library::{Library, Role};
use super::process;
use crate::capture::{elf, go, mangled};
use object::ReadCache;
use std::io::Cursor;

/// Looks for functions in a file, whatever it is to its process: each place found is in the file.
pub fn probes(data: &[u8]) {
    let cache = ReadCache::new(Cursor::new(data));
    let _ = elf::headers(&cache);
    let _ = mangled::has_symbols(&cache);
    let _ = go::is_go(&cache);
    for role in [Role::CLibrary, Role::Executable, Role::Library] {
        let mut library = Library::unread(&File::none(), std::path::Path::new("fuzz"));
        let _ = library.judge(data, role);
        assert!(library.sites.iter().all(|site| site.file_offset < data.len() as u64));
    }
}

/// Text as a process's mappings and status.
pub fn proc(text: &[u8]) {
    process::fuzz(text);
}
