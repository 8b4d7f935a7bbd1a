//! Functions of which a program has several implementations and chooses one when it begins (IFUNC): which one a process uses is
//! told by the word that its own calls go through.

use crate::capture::elf::Symbols;
use crate::capture::target::Library;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use object::elf::{R_AARCH64_IRELATIVE, R_X86_64_IRELATIVE, SHT_RELA};
use object::read::elf::{Rela, SectionHeader};
use std::fs;
use std::io::IoSliceMut;
use std::path::Path;

/// The address, in the file's own numbering, of the implementation that the resolver at an address has chosen: in a process that uses
/// the file, else in this one, which is on the same processor.
pub(super) fn implementation(library: &Library, symbols: &Symbols<'_>, resolver: u64) -> Option<u64> {
    let word = word(symbols, resolver)?;
    let base = symbols.base()?;
    let pids = library.pids.iter().copied().chain([std::process::id()]);
    pids.filter_map(|pid| {
        let moved = start(library, pid)?.checked_sub(base)?;
        read(pid, word.checked_add(moved)?)?.checked_sub(moved)
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
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let name = Path::new(&library.display).file_name()?.to_str()?;
    maps.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let &[range, _, offset, _, inode, path, ..] = fields.as_slice() else { return None };
        let same = inode.parse() == Ok(library.ino) && path.ends_with(name);
        let begins = u64::from_str_radix(offset, 16) == Ok(0);
        if same && begins { u64::from_str_radix(range.split_once('-')?.0, 16).ok() } else { None }
    })
}

fn read(pid: u32, address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    let remote = RemoteIoVec { base: usize::try_from(address).ok()?, len: bytes.len() };
    let pid = Pid::from_raw(pid.try_into().ok()?);
    let got = process_vm_readv(pid, &mut [IoSliceMut::new(&mut bytes)], &[remote]).ok()?;
    (got == bytes.len()).then(|| u64::from_ne_bytes(bytes))
}
