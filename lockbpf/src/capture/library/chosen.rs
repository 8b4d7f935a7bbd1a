//! Functions of which a program has several implementations and chooses one when it begins (IFUNC): which one a process uses is
//! told by the word that its own calls go through, or, where it has none, by what this process has chosen.

use crate::capture::maps::{self, Mapping};
use crate::capture::owner;
use crate::capture::target::Library;
use std::ffi::CString;
use std::path::Path;

/// Processes that are asked which implementation they use.
const MAX_PROCESSES: usize = 8;

/// Processes that have a file, each with how far it is moved there against the file's own numbering. The last is this one, if it has it.
pub(super) fn moved(library: &Library, base: u64) -> Vec<(u32, u64)> {
    let pids = library.pids.iter().copied().take(MAX_PROCESSES).chain([std::process::id()]);
    pids.filter_map(|pid| Some((pid, start(library, pid)?.checked_sub(base)?))).collect()
}

/// Addresses, in the file's own numbering, where the implementation of a function may be that is used: by what processes that use the file
/// have at `word`, else by what this one has chosen, which is on the same processor. Likeliest first.
pub(super) fn candidates(moved: &[(u32, u64)], function: &str, word: Option<u64>) -> Vec<u64> {
    let called = moved.iter().filter_map(|&(pid, moved)| {
        u64::from_ne_bytes(owner::read(pid, word?.checked_add(moved)?)?).checked_sub(moved)
    });
    // glibc on aarch64 calls no function that it chooses for others.
    let own = moved.last().filter(|(pid, _)| *pid == std::process::id());
    let linked = own.and_then(|(_, moved)| linked(function)?.checked_sub(*moved));
    called.chain(linked).collect()
}

/// Where this process calls a function.
fn linked(function: &str) -> Option<u64> {
    let name = CString::new(function).ok()?;
    // SAFETY: the name is a live string; what is at the address is neither read nor called.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address as u64)
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
    use crate::capture::{reader, target};
    use crate::measures::library::FUNCTIONS;

    /// glibc on x86_64 has the words, so both ways can be compared.
    #[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
    #[test]
    fn what_is_called_is_what_is_linked() {
        let targets = target::of_pids(&[std::process::id()]).unwrap();
        let library = targets.libraries.iter().find(|library| library.libc.is_some()).expect("a C library");
        let number = |name: &str| FUNCTIONS.iter().position(|row| row.symbol == name).unwrap() as u16;
        let asked = ["memset", "memmove"].map(number);
        let (resolvers, base) = reader::resolvers(library.open.as_ref().unwrap(), &asked).unwrap();
        assert_eq!(resolvers.iter().map(|resolver| resolver.function).collect::<Vec<_>>(), asked);
        for resolver in resolvers {
            let name = FUNCTIONS[usize::from(resolver.function)].symbol;
            let found = candidates(&moved(library, base.unwrap()), name, resolver.word);
            assert!(found.len() >= 2 && found.iter().all(|one| *one == found[0]), "{name}: {found:x?}");
        }
        assert_eq!(linked("no_such_function"), None);
    }
}
