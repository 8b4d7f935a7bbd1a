//! Functions of which a program has several implementations and chooses one when it begins (IFUNC): which one a process uses is
//! told by the word that its own calls go through.

use crate::capture::elf::Symbols;
use crate::capture::maps::{self, Mapping};
use crate::capture::owner;
use crate::capture::target::Library;
use object::elf::{R_AARCH64_IRELATIVE, R_X86_64_IRELATIVE, SHT_RELA};
use object::read::elf::{Rela, SectionHeader};
use std::path::Path;

/// The address, in the file's own numbering, of the implementation that the resolver at an address has chosen: in a process that uses
/// the file, else in this one, which is on the same processor.
pub(super) fn implementation(library: &Library, symbols: &Symbols<'_>, resolver: u64) -> Option<u64> {
    let word = word(symbols, resolver)?;
    let base = symbols.base()?;
    let pids = library.pids.iter().copied().chain([std::process::id()]);
    pids.filter_map(|pid| {
        let moved = start(library, pid)?.checked_sub(base)?;
        let chosen = u64::from_ne_bytes(owner::read(pid, word.checked_add(moved)?)?);
        chosen.checked_sub(moved)
    })
    // Before the program has begun, the word is another.
    .find(|&vaddr| vaddr != 0 && vaddr != resolver && symbols.code_at(vaddr, 0).is_some())
}

/// Where a word is into which the resolver's choice is written.
fn word(symbols: &Symbols<'_>, resolver: u64) -> Option<u64> {
    let kinds = [R_X86_64_IRELATIVE, R_AARCH64_IRELATIVE];
    let relocations = symbols.sections.iter().filter(|section| section.sh_type(symbols.endian) == SHT_RELA);
    relocations
        .filter_map(|section| section.rela(symbols.endian, symbols.data).ok()?)
        .flat_map(|(relocations, _)| relocations.to_vec())
        .find(|relocation| {
            kinds.contains(&relocation.r_type(symbols.endian, false))
                && relocation.r_addend(symbols.endian).cast_unsigned() == resolver
        })
        .map(|relocation| relocation.r_offset(symbols.endian))
}

/// Where a process has mapped the beginning of a file.
fn start(library: &Library, pid: u32) -> Option<u64> {
    let name = Path::new(&library.display).file_name()?.to_str()?;
    let same = |mapping: &&Mapping| {
        let path = mapping.path.strip_suffix(" (deleted)").unwrap_or(&mapping.path);
        mapping.inode == library.ino && mapping.offset == 0 && path.ends_with(name)
    };
    maps::read(pid).ok()?.iter().find(same).map(|mapping| mapping.range.start)
}
