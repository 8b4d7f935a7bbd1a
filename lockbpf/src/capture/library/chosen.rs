//! Functions of which a program has several implementations and chooses one when it begins (IFUNC): which one a process uses is
//! told by the word that its own calls go through, or, where it has none, by what this process has chosen.

use crate::capture::elf::Symbols;
use crate::capture::maps::{self, Mapping};
use crate::capture::owner;
use crate::capture::target::Library;
use object::elf::{R_AARCH64_IRELATIVE, R_X86_64_IRELATIVE, SHT_RELA};
use object::read::elf::{Rela, SectionHeader};
use std::ffi::CString;
use std::path::Path;

/// The address, in the file's own numbering, of the implementation that a function's resolver has chosen: in a process that uses
/// the file, else in this one, which is on the same processor.
pub(super) fn implementation(library: &Library, symbols: &Symbols<'_>, function: &str, resolver: u64) -> Option<u64> {
    let base = symbols.base()?;
    let moved = |pid: u32| start(library, pid)?.checked_sub(base);
    let read = |pid: u32, word: u64| Some(u64::from_ne_bytes(owner::read(pid, word.checked_add(moved(pid)?)?)?));
    let own = std::process::id();
    let pids = library.pids.iter().copied().chain([own]);
    let mut called = word(symbols, resolver)
        .into_iter()
        .flat_map(|word| pids.clone().filter_map(move |pid| read(pid, word)?.checked_sub(moved(pid)?)));
    // glibc on aarch64 calls no function that it chooses for others.
    let linked = || linked(function)?.checked_sub(moved(own)?);
    let is_chosen = |&vaddr: &u64| vaddr != 0 && vaddr != resolver && symbols.code_at(vaddr, 0).is_some();
    // Before the program has begun, the word is another.
    called.find(is_chosen).or_else(|| linked().filter(is_chosen))
}

/// Where this process calls a function.
fn linked(function: &str) -> Option<u64> {
    let name = CString::new(function).ok()?;
    // SAFETY: the name is a live string; what is at the address is neither read nor called.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address as u64)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::elf::Found;
    use crate::capture::target;

    /// glibc on x86_64 has the words, so both ways can be compared.
    #[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
    #[test]
    fn what_is_called_is_what_is_linked() {
        let own = std::process::id();
        let targets = target::of_pids(&[own]).unwrap();
        let library = targets.libraries.iter().find(|library| library.libc.is_some()).expect("a C library");
        let data = super::super::read(library).unwrap();
        let symbols = Symbols::read(&data).unwrap();
        let moved = start(library, own).unwrap() - symbols.base().unwrap();
        for name in ["memset", "memmove"] {
            let Found::Ifunc(resolver) = symbols.find(name) else { panic!("{name} is not chosen at run time") };
            let chosen = implementation(library, &symbols, name, resolver);
            assert!(chosen.is_some() && chosen == linked(name).map(|address| address - moved), "{name}: {chosen:x?}");
        }
        assert_eq!(linked("no_such_function"), None);
    }
}
