//! Names of thread-local variables of a program itself: those are at fixed distances below each thread's record.

use crate::demangle::demangle;
use object::{Object, ObjectSymbol, SymbolKind};
use std::fs::File;

/// Where the program's thread-local variables lie, and their names. Those of libraries are not told apart.
#[derive(Debug, Default)]
pub(super) struct ThreadLocals {
    /// From the beginning of a thread's variables to its record.
    below: u64,
    /// Start, size and name, sorted.
    variables: Vec<(u64, u64, Box<str>)>,
}

/// Variables kept of one file.
const MAX_VARIABLES: usize = 65_536;

impl ThreadLocals {
    /// Reads the symbols of a program and of its debug file; nothing for other machines than x86-64, whose threads are laid
    /// out differently.
    pub(super) fn read<'f>(object: &File, files: impl IntoIterator<Item = &'f File>) -> Self {
        let Some(below) = segment(object) else { return Self::default() };
        let mut variables = Vec::new();
        for file in files {
            let data = super::elf::Data::new(file);
            let Ok(elf) = object::File::parse(&data) else { continue };
            let symbols = elf.symbols().chain(elf.dynamic_symbols());
            let local = symbols.filter(|s| s.kind() == SymbolKind::Tls && !s.is_undefined() && s.size() > 0);
            variables
                .extend(local.take(MAX_VARIABLES).filter_map(|s| Some((s.address(), s.size(), s.name().ok()?.into()))));
        }
        variables.sort_unstable();
        Self { below, variables }
    }

    /// The variable so far below a thread's record, where it starts, and the bytes into it.
    pub(super) fn at(&self, distance: u64) -> Option<(String, u64, u64)> {
        let at = self.below.checked_sub(distance)?;
        let after = self.variables.partition_point(|&(start, ..)| start <= at);
        let (start, size, name) = self.variables.get(after.checked_sub(1)?)?;
        (at - start < *size).then(|| (demangle(name), *start, at - start))
    }
}

/// How far below a thread's record a program's thread-local variables begin.
fn segment(file: &File) -> Option<u64> {
    use object::elf::{EM_X86_64, FileHeader64, PT_TLS};
    use object::read::elf::{FileHeader, ProgramHeader};
    let data = super::elf::Data::new(file);
    let header = FileHeader64::<object::Endianness>::parse(&data).ok()?;
    let endian = header.endian().ok()?;
    if header.e_machine(endian) != EM_X86_64 {
        return None;
    }
    let programs = header.program_headers(endian, &data).ok()?;
    let tls = programs.iter().find(|p| p.p_type(endian) == PT_TLS)?;
    below(tls.p_memsz(endian), tls.p_align(endian), tls.p_vaddr(endian))
}

/// glibc's rule for the first module of a program.
fn below(size: u64, align: u64, vaddr: u64) -> Option<u64> {
    let align = if align.is_power_of_two() { align } else { 1 };
    let first = vaddr.wrapping_neg() & (align - 1);
    size.saturating_sub(first).checked_next_multiple_of(align)?.checked_add(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_at_fixed_distances() {
        assert_eq!(below(0x28, 8, 0x3df0), Some(0x28));
        assert_eq!(below(0x28, 64, 0x3d80), Some(0x40));
        assert_eq!(below(0, 0, 7), Some(0));
        let locals = ThreadLocals { below: 0x40, variables: vec![(0, 8, "a".into()), (16, 40, "_ZN1b4lockE".into())] };
        assert_eq!(locals.at(0x40), Some(("a".into(), 0, 0)));
        assert_eq!(locals.at(0x30), Some(("b::lock".into(), 16, 0)));
        assert_eq!(locals.at(0x2c), Some(("b::lock".into(), 16, 4)));
        assert_eq!(locals.at(0x38), None);
        assert_eq!(locals.at(0x41), None);
    }
}
