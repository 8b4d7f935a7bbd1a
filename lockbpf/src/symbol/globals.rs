//! Names of variables: which global or static object of a file covers an address.

use super::dwarf;
use super::elf::{Data, ElfError, contents, sections, string_at};
use super::find::Kind;
use crate::demangle::{MAX_LEN, clip, demangle};
use object::Endianness;
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::FileKind;
use object::read::elf::{FileHeader, SectionHeader, Sym};
use std::cmp::Reverse;
use std::fmt::Write;
use std::fs::File;
use std::ops::Range;

/// Variables kept of one file, the first ones.
const MAX_SYMBOLS: usize = 1 << 20;

/// A variable; addresses as the file numbers them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Variable {
    pub(super) start: u64,
    /// For a symbol without a size, the end of its section until the next symbol is known.
    end: u64,
    sized: bool,
    local: bool,
    /// As in the symbol table.
    name: Box<str>,
}

impl Variable {
    /// Orders aliases: what covers for certain, is visible, and has the plainest name comes first.
    fn rank(&self) -> (bool, bool, usize, usize, &str) {
        let underscores = self.name.len() - self.name.trim_start_matches('_').len();
        (!self.sized, self.local, underscores, self.name.len(), &self.name)
    }

    /// What is at an offset in it.
    pub(super) fn name(&self, offset: u64, told: Option<&dwarf::Variable>) -> String {
        name(&self.name, offset, told)
    }
}

/// What is at an offset in the variable of a symbol: `table[4].lock` where debug information tells the type, else
/// `table+0x28`.
pub(super) fn name(symbol: &str, offset: u64, told: Option<&dwarf::Variable>) -> String {
    let mut name = demangle(symbol);
    let mut rest = offset;
    if let Some(told) = told {
        // A mangled name tells its scope itself.
        if let Some(function) = told.function.as_ref().filter(|_| name == symbol) {
            name = format!("{function}::{}", told.name);
        }
        name.push_str(&told.path);
        rest = told.rest;
    }
    if rest > 0 {
        let _ = write!(name, "+{rest:#x}");
    }
    name
}

/// The writable variables of a file (a lock is written to); thread-local ones have no address and are not among them.
#[derive(Debug, Default)]
pub(super) struct Globals {
    /// By start; of several at one start the best name is last.
    variables: Vec<Variable>,
    /// The largest end among the variables up to each one.
    reach: Vec<u64>,
}

impl Globals {
    /// Reads the symbol tables of an object and of its debug file; a table that cannot be read is left out and its error
    /// returned beside.
    pub(super) fn read<'f>(files: impl IntoIterator<Item = &'f File>) -> (Self, Option<ElfError>) {
        Self::read_kind(files, Kind::Variable)
    }

    /// As [`Globals::read`], of symbols of any kind.
    pub(super) fn read_kind<'f>(files: impl IntoIterator<Item = &'f File>, kind: Kind) -> (Self, Option<ElfError>) {
        let mut variables = Vec::new();
        let mut error = None;
        for file in files {
            let data = Data::new(file);
            let read = match FileKind::parse(&data) {
                Ok(FileKind::Elf64) => collect::<FileHeader64<Endianness>>(&data, kind, &mut variables),
                Ok(FileKind::Elf32) => collect::<FileHeader32<Endianness>>(&data, kind, &mut variables),
                _ => Err(ElfError::NotElf),
            };
            error = error.or(read.err());
        }
        (Self::index(variables), error)
    }

    fn index(mut variables: Vec<Variable>) -> Self {
        variables.sort_unstable_by(|a, b| (a.start, Reverse(a.rank())).cmp(&(b.start, Reverse(b.rank()))));
        variables.dedup();
        // A symbol without a size reaches up to the next one.
        let mut next = u64::MAX;
        let mut following = u64::MAX;
        for variable in variables.iter_mut().rev() {
            if variable.start < following {
                (next, following) = (following, variable.start);
            }
            if !variable.sized {
                variable.end = variable.end.min(next);
            }
        }
        let reach = variables.iter().scan(0, |reach, v| {
            *reach = v.end.max(*reach);
            Some(*reach)
        });
        Self { reach: reach.collect(), variables }
    }

    /// Those of which the demangled name contains `part`, with their addresses.
    pub(super) fn matching(&self, part: &str) -> impl Iterator<Item = (String, Range<u64>)> {
        // A name's identifiers are the same mangled and demangled, and most names need not be demangled to be refused.
        let identifiers = part.split(|c: char| !c.is_alphanumeric() && c != '_');
        let longest = identifiers.max_by_key(|identifier| identifier.len()).unwrap_or_default();
        let candidates = self.variables.iter().filter(move |v| v.name.contains(longest));
        candidates.map(|v| (demangle(&v.name), v.start..v.end)).filter(move |(name, _)| name.contains(part))
    }

    /// Every name.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        self.variables.iter().map(|v| demangle(&v.name))
    }

    /// The variable at an address; of nested ones the innermost.
    pub(super) fn at(&self, addr: u64) -> Option<&Variable> {
        let after = self.variables.partition_point(|v| v.start <= addr);
        let mut covering = self
            .variables
            .iter()
            .zip(&self.reach)
            .take(after)
            .rev()
            .take_while(|&(_, &reach)| reach > addr)
            .filter_map(|(v, _)| (v.end > addr).then_some(v));
        let first = covering.next()?;
        // A mark without a size inside a variable says less than the variable.
        Some(if first.sized { first } else { covering.find(|v| v.sized).unwrap_or(first) })
    }
}

fn collect<E: FileHeader<Endian = Endianness>>(
    data: &Data<'_>,
    kind: Kind,
    out: &mut Vec<Variable>,
) -> Result<(), ElfError> {
    let (wanted, access) = match kind {
        Kind::Variable => (elf::STT_OBJECT, elf::SHF_WRITE),
        Kind::Constant => (elf::STT_OBJECT, 0),
        Kind::Function => (elf::STT_FUNC, elf::SHF_EXECINSTR),
    };
    let needed = u64::from(elf::SHF_ALLOC | access);
    let header = E::parse(data)?;
    let endian = header.endian()?;
    let sections = sections(header, endian, data)?;
    for table in sections.iter().filter(|s| matches!(s.sh_type(endian), elf::SHT_SYMTAB | elf::SHT_DYNSYM)) {
        let symbols = contents::<E>(table, endian, data)?;
        let (symbols, _) = object::pod::slice_from_bytes::<E::Sym>(symbols, symbols.len() / size_of::<E::Sym>())
            .map_err(|()| ElfError::TooLarge)?;
        let Some(strings) = sections.get(table.sh_link(endian) as usize) else { continue };
        let strings = contents::<E>(strings, endian, data)?;
        for symbol in symbols.iter().filter(|s| s.st_type() == wanted) {
            let Some(section) = sections.get(usize::from(symbol.st_shndx(endian))) else { continue };
            let flags: u64 = section.sh_flags(endian).into();
            let (start, size): (u64, u64) = (symbol.st_value(endian).into(), symbol.st_size(endian).into());
            let name = string_at(strings, symbol.st_name(endian));
            let section_end = section.sh_addr(endian).into().saturating_add(section.sh_size(endian).into());
            if flags & needed != needed || name.is_empty() || out.len() >= MAX_SYMBOLS {
                continue;
            }
            out.push(Variable {
                start,
                end: if size > 0 { start.saturating_add(size) } else { section_end },
                sized: size > 0,
                local: symbol.st_bind() == elf::STB_LOCAL,
                name: clip(&String::from_utf8_lossy(name.get(..2 * MAX_LEN).unwrap_or(name))).into(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn named(globals: &Globals, addr: u64) -> Option<String> {
        globals.at(addr).map(|v| v.name(addr - v.start, None))
    }

    fn variable(name: &str, start: u64, size: u64, local: bool) -> Variable {
        let end = if size > 0 { start + size } else { 0x9000 };
        Variable { start, end, sized: size > 0, local, name: name.into() }
    }

    #[test]
    fn offsets_and_gaps() {
        let globals = Globals::index(vec![variable("table", 0x100, 0x80, false), variable("_Z3runv", 0x200, 8, false)]);
        assert_eq!(named(&globals, 0x100).as_deref(), Some("table"));
        assert_eq!(named(&globals, 0x128).as_deref(), Some("table+0x28"));
        assert_eq!(named(&globals, 0x180), None);
        assert_eq!(named(&globals, 0xff), None);
        assert_eq!(named(&globals, 0x204).as_deref(), Some("run+0x4"));
        assert_eq!(named(&Globals::default(), 0), None);
    }

    #[test]
    fn aliases_give_the_plainest_visible_name_in_any_order() {
        let mut aliases = vec![
            variable("__environ", 0x100, 8, false),
            variable("a", 0x100, 8, true),
            variable("environ", 0x100, 8, false),
            variable("_environ", 0x100, 8, false),
            variable("e", 0x100, 0, false),
        ];
        for _ in 0..aliases.len() {
            aliases.rotate_left(1);
            assert_eq!(named(&Globals::index(aliases.clone()), 0x100).as_deref(), Some("environ"));
        }
    }

    #[test]
    fn nested_and_sizeless_symbols() {
        let globals = Globals::index(vec![
            variable("arena", 0x100, 0x100, false),
            variable("arena_lock", 0x120, 0x28, false),
            variable("mark", 0x160, 0, false),
            variable("tail", 0x300, 0, false),
            variable("alias_of_tail", 0x300, 0, true),
            variable("last", 0x380, 0, false),
        ]);
        for (addr, name) in [
            (0x11f, Some("arena+0x1f")),
            (0x128, Some("arena_lock+0x8")),
            (0x148, Some("arena+0x48")),
            (0x168, Some("arena+0x68")),
            (0x210, Some("mark+0xb0")),
            (0x300, Some("tail")),
            (0x37f, Some("tail+0x7f")),
            (0x8fff, Some("last+0x8c7f")),
            (0x9000, None),
        ] {
            assert_eq!(named(&globals, addr).as_deref(), name, "{addr:#x}");
        }
    }

    proptest! {
        #[test]
        fn the_innermost_sized_variable_is_named(spans in prop::collection::vec((0u64..200, 1u64..50), 1..40), addr in 0u64..260) {
            let all = spans.iter().enumerate().map(|(i, &(start, size))| variable(&format!("v{i:02}"), start, size, false));
            let name = named(&Globals::index(all.collect()), addr);
            let best = spans.iter().filter(|&&(start, size)| start <= addr && addr < start + size).map(|s| s.0).max();
            let start = name.as_ref().map(|n| addr - n.split_once("+0x").map_or(0, |(_, hex)| u64::from_str_radix(hex, 16).unwrap()));
            prop_assert_eq!(start, best);
        }
    }
}
