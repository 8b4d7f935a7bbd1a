//! What an ELF file says about the functions to probe: where they are, whose C library they belong to, and what stands
//! against probing them. Works on bytes alone; a damaged or hostile file is an error, never a panic.

use super::probe_table::Function;
use super::prologue::Arch;
use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader, SectionTable, Sym, SymbolTable};
use object::{Endianness, ReadRef, SymbolIndex};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Functions longer than this are not read whole; the probed ones are far shorter.
pub(super) const MAX_CODE: u64 = 16 << 10;

/// Symbols of one table that are looked at.
pub(super) const MAX_SYMBOLS: usize = 1 << 20;
/// Bytes of a name that is looked for. Many symbols may share one of any length, so longer ones are not even measured.
const MAX_NAME: usize = 512;
/// Versions of symbols that a file defines; glibc has some fifty.
const MAX_VERSIONS: usize = 4_096;

pub(super) type Header = FileHeader64<Endianness>;

/// Why a file cannot be used at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum ElfError {
    /// Not an ELF file.
    #[error("it is not an ELF file")]
    NotElf,
    /// An ELF file for 32-bit programs.
    #[error("it is a 32-bit program, and lockbpf observes 64-bit programs only")]
    ThirtyTwoBit,
    /// For a processor that lockbpf does not know.
    #[error("it is for a processor that lockbpf does not know (ELF machine {0})")]
    Machine(u16),
    /// Damaged.
    #[error("its ELF structure is damaged: {0}")]
    Damaged(String),
}

impl From<object::read::Error> for ElfError {
    fn from(error: object::read::Error) -> Self {
        Self::Damaged(error.to_string())
    }
}

/// How a file is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Linkage {
    /// A shared library.
    Library,
    /// An executable that asks for this dynamic loader.
    Dynamic {
        /// Path of the loader (`PT_INTERP`).
        interpreter: PathBuf,
    },
    /// An executable without a loader.
    Static,
}

/// What the program headers tell, without reading symbols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Instruction set.
    pub arch: Arch,
    /// How it is loaded.
    pub linkage: Linkage,
}

/// Whose C library the file contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Libc {
    /// GNU. The version is known from a library's symbol versions, not from a static executable.
    Glibc(Option<GlibcVersion>),
    /// musl.
    Musl,
    /// None that is known.
    Unknown,
}

/// A glibc release, `2.36`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GlibcVersion(pub u32, pub u32);

impl GlibcVersion {
    /// From this release on, the lock functions are in libc itself. Before it, libpthread has them, and libc only has
    /// stubs of the same names that forward to it (or do nothing in a program without threads).
    pub const LIBPTHREAD_MERGED: Self = Self(2, 34);

    /// The release in a symbol version's name, `GLIBC_2.36`.
    fn parse(name: &[u8]) -> Option<Self> {
        let release = std::str::from_utf8(name).ok()?.strip_prefix("GLIBC_")?;
        let mut parts = release.split('.').map(str::parse);
        Some(Self(parts.next()?.ok()?, parts.next()?.ok()?))
    }
}

impl fmt::Display for GlibcVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// The code of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// Address in the file's own numbering.
    pub vaddr: u64,
    /// Where it is in the file: what a uprobe is placed by.
    pub file_offset: u64,
    /// Its first bytes.
    pub bytes: Vec<u8>,
    /// Whether that is all of it: jumps inside the function can be ruled out only then.
    pub complete: bool,
}

/// What became of a function's name in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is there.
    Code(Code),
    /// Its symbol names a resolver, at this address, that chooses an implementation at run time; a probe there would see the
    /// resolver.
    Ifunc(u64),
    /// Its symbol points outside the file's code.
    NotInFile,
    /// There is no definition of that name.
    Absent,
}

/// What an ELF file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Instruction set and kind of file.
    pub headers: Headers,
    /// Whose C library it contains.
    pub libc: Libc,
    /// Whether it has a symbol table that defines anything.
    pub has_symbols: bool,
    /// Each function asked for, in the order asked.
    pub functions: Vec<(Function, Found)>,
}

/// Reads the program headers only. Meant for large executables: `data` may be a cache over the open file.
///
/// # Errors
/// If it is not an ELF file that lockbpf could observe.
pub fn headers<'data, R: ReadRef<'data>>(data: R) -> Result<Headers, ElfError> {
    let ident = data.read_bytes_at(0, 6).map_err(|()| ElfError::NotElf)?;
    match ident {
        [0x7f, b'E', b'L', b'F', 2, _] => {}
        [0x7f, b'E', b'L', b'F', 1, _] => return Err(ElfError::ThirtyTwoBit),
        _ => return Err(ElfError::NotElf),
    }
    let header = Header::parse(data)?;
    let endian = header.endian()?;
    let arch = match header.e_machine(endian) {
        elf::EM_X86_64 => Arch::X86_64,
        elf::EM_AARCH64 if endian == Endianness::Little => Arch::Aarch64,
        other => return Err(ElfError::Machine(other)),
    };
    let (mut interpreter, mut pie, mut soname) = (None, false, false);
    for segment in header.program_headers(endian, data)? {
        if let Some(path) = segment.interpreter(endian, data)? {
            interpreter = Some(PathBuf::from(OsStr::from_bytes(path)));
        }
        for entry in segment.dynamic(endian, data)?.unwrap_or_default() {
            match entry.tag32(endian) {
                Some(elf::DT_SONAME) => soname = true,
                Some(elf::DT_FLAGS_1) => pie |= entry.d_val(endian) & u64::from(elf::DF_1_PIE) != 0,
                _ => {}
            }
        }
    }
    let linkage = match interpreter {
        _ if soname => Linkage::Library,
        Some(interpreter) => Linkage::Dynamic { interpreter },
        None if header.e_type(endian) == elf::ET_DYN && !pie => Linkage::Library,
        None => Linkage::Static,
    };
    Ok(Headers { arch, linkage })
}

/// Finds the functions in an ELF file: in its dynamic symbols, where only the default version of a name counts (others
/// are old implementations kept for old programs), and for an executable also in its full symbol table.
///
/// # Errors
/// If it is not an ELF file that lockbpf could observe, or is damaged.
pub fn locate(data: &[u8], functions: &[Function]) -> Result<Image, ElfError> {
    let symbols = Symbols::read(data)?;
    let functions = functions.iter().map(|&function| (function, symbols.find(function.symbol)));
    Ok(Image {
        libc: libc_of(&symbols.sections, symbols.endian, data, |names| {
            names.iter().any(|name| symbols.defined(name).is_some())
        })?,
        has_symbols: symbols.tables.iter().any(|table| !table.0.is_empty()),
        functions: functions.collect(),
        headers: symbols.headers,
    })
}

/// A file's functions by name, as [`locate`] finds them, and its code by address.
pub(super) struct Symbols<'data> {
    pub(super) headers: Headers,
    pub(super) data: &'data [u8],
    pub(super) endian: Endianness,
    pub(super) sections: SectionTable<'data, Header>,
    segments: &'data [elf::ProgramHeader64<Endianness>],
    tables: Vec<Definitions<'data>>,
}

impl<'data> Symbols<'data> {
    /// Reads the symbol tables.
    ///
    /// # Errors
    /// If it is not an ELF file that lockbpf could observe, or is damaged.
    pub(super) fn read(data: &'data [u8]) -> Result<Self, ElfError> {
        let headers = headers(data)?;
        let header = Header::parse(data)?;
        let endian = header.endian()?;
        let sections = header.sections(endian, data)?;
        let dynamic = sections.symbols(endian, data, elf::SHT_DYNSYM)?;
        let full = sections.symbols(endian, data, elf::SHT_SYMTAB)?;
        let versions = sections.versions(endian, data)?;
        let is_default = |index| versions.as_ref().is_none_or(|v| !v.version_index(endian, index).is_hidden());
        let mut tables =
            vec![Definitions::of(&dynamic, strings(&dynamic, &sections, endian, data), endian, is_default)];
        if headers.linkage != Linkage::Library {
            tables.push(Definitions::of(&full, strings(&full, &sections, endian, data), endian, |_| true));
        }
        let segments = header.program_headers(endian, data)?;
        Ok(Self { headers, data, endian, sections, segments, tables })
    }

    fn defined(&self, name: &str) -> Option<&'data elf::Sym64<Endianness>> {
        self.tables.iter().find_map(|table| table.get(name.as_bytes()))
    }

    /// What became of a function's name.
    pub(super) fn find(&self, name: &str) -> Found {
        match self.defined(name) {
            None => Found::Absent,
            Some(symbol) if symbol.st_type() == elf::STT_GNU_IFUNC => Found::Ifunc(symbol.st_value(self.endian)),
            Some(symbol) => code(symbol, self.segments, self.endian, self.data).map_or(Found::NotInFile, Found::Code),
        }
    }

    /// The code at an address; with `size` 0 it is not known how much.
    pub(super) fn code_at(&self, vaddr: u64, size: u64) -> Option<Code> {
        code_at(vaddr, size, self.segments, self.endian, self.data)
    }

    /// The address of what is at the file's beginning.
    pub(super) fn base(&self) -> Option<u64> {
        let first = self.segments.iter().find(|s| s.p_type(self.endian) == elf::PT_LOAD)?;
        first.p_vaddr(self.endian).checked_sub(first.p_offset(self.endian))
    }
}

/// Functions and resolvers that a symbol table defines, sorted by name. Local ones count, after others of their name: in
/// a static position-independent executable the linker makes all that was hidden local.
struct Definitions<'data>(Vec<(&'data [u8], &'data elf::Sym64<Endianness>)>);

impl<'data> Definitions<'data> {
    fn of(
        table: &SymbolTable<'data, Header>,
        strings: &'data [u8],
        endian: Endianness,
        counts: impl Fn(SymbolIndex) -> bool,
    ) -> Self {
        let functions = table.enumerate().take(MAX_SYMBOLS).filter(|(index, symbol)| {
            matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC)
                && !symbol.is_undefined(endian)
                && counts(*index)
        });
        let mut named: Vec<_> =
            functions.filter_map(|(_, symbol)| Some((name(strings, symbol.st_name(endian))?, symbol))).collect();
        named.sort_by_key(|&(name, symbol)| (name, symbol.st_bind() == elf::STB_LOCAL));
        Self(named)
    }

    fn get(&self, name: &[u8]) -> Option<&'data elf::Sym64<Endianness>> {
        let index = self.0.partition_point(|&(n, _)| n < name);
        self.0.get(index).filter(|&&(n, _)| n == name).map(|&(_, symbol)| symbol)
    }
}

/// The bytes of a symbol table's names.
pub(super) fn strings<'data>(
    table: &SymbolTable<'data, Header>,
    sections: &SectionTable<'data, Header>,
    endian: Endianness,
    data: &'data [u8],
) -> &'data [u8] {
    let section = sections.section(table.string_section());
    section.and_then(|section| section.data(endian, data)).unwrap_or_default()
}

/// The name at an offset; `None` for one that is longer than any that is looked for.
pub(super) fn name(strings: &[u8], offset: u32) -> Option<&[u8]> {
    let rest = strings.get(offset as usize..)?;
    let rest = rest.get(..=MAX_NAME).unwrap_or(rest);
    rest.get(..memchr::memchr(0, rest)?)
}

/// The code that a function's symbol names; `None` if it names none in the file.
pub(super) fn code(
    symbol: &elf::Sym64<Endianness>,
    segments: &[elf::ProgramHeader64<Endianness>],
    endian: Endianness,
    data: &[u8],
) -> Option<Code> {
    code_at(symbol.st_value(endian), symbol.st_size(endian), segments, endian, data)
}

/// The code of this size at an address; of unknown extent with 0.
pub(super) fn code_at(
    vaddr: u64,
    size: u64,
    segments: &[elf::ProgramHeader64<Endianness>],
    endian: Endianness,
    data: &[u8],
) -> Option<Code> {
    let segment = segments.iter().find(|s| {
        s.p_type(endian) == elf::PT_LOAD
            && s.p_flags(endian) & elf::PF_X != 0
            && vaddr.checked_sub(s.p_vaddr(endian)).is_some_and(|offset| offset < s.p_filesz(endian))
    })?;
    let inside = vaddr - segment.p_vaddr(endian);
    let file_offset = segment.p_offset(endian).checked_add(inside)?;
    let available = segment.p_filesz(endian) - inside;
    let complete = (1..=MAX_CODE.min(available)).contains(&size);
    let len = if complete { size } else { MAX_CODE.min(available) };
    let start = usize::try_from(file_offset).ok()?;
    let rest = data.get(start..)?;
    let bytes = rest.get(..rest.len().min(len as usize))?.to_vec();
    Some(Code { vaddr, file_offset, complete: complete && bytes.len() as u64 == size, bytes })
}

fn libc_of(
    sections: &SectionTable<'_, Header>,
    endian: Endianness,
    data: &[u8],
    defines_any: impl Fn(&[&str]) -> bool,
) -> Result<Libc, ElfError> {
    let mut newest = None;
    if let Some((mut definitions, link)) = sections.gnu_verdef(endian, data)? {
        let strings = sections.section(link)?.data(endian, data)?;
        for _ in 0..MAX_VERSIONS {
            let Some((_, mut names)) = definitions.next()? else { break };
            if let Some(version) = names.next()? {
                let named = name(strings, version.vda_name.get(endian));
                newest = newest.max(named.and_then(GlibcVersion::parse));
            }
        }
    }
    Ok(if newest.is_some() || defines_any(&["gnu_get_libc_version", "__libc_early_init", "__libc_setup_tls"]) {
        Libc::Glibc(newest)
    } else if defines_any(&["__dls3", "__copy_tls"]) {
        Libc::Musl
    } else {
        Libc::Unknown
    })
}

/// A file's build id, if it has one.
#[must_use]
pub fn build_id(data: &[u8]) -> Option<Vec<u8>> {
    let header = Header::parse(data).ok()?;
    let endian = header.endian().ok()?;
    header.program_headers(endian, data).ok()?.iter().find_map(|segment| {
        let mut notes = segment.notes(endian, data).ok()??;
        while let Ok(Some(note)) = notes.next() {
            if note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID {
                return Some(note.desc().to_vec());
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::go;
    use crate::capture::probe_table::{FUNCTIONS, Runtime};
    use crate::fixture::{Damage, compiled};
    use proptest::prelude::*;
    use std::process::Command;

    /// The C library that this test itself runs on.
    fn own_libc() -> Vec<u8> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let path = maps.lines().find_map(|line| line.split_whitespace().last().filter(|p| p.contains("/libc.so.6")));
        std::fs::read(path.expect("the tests run on glibc")).unwrap()
    }

    fn code_of<'a>(image: &'a Image, symbol: &str) -> &'a Code {
        match &image.functions.iter().find(|(f, _)| f.symbol == symbol).unwrap().1 {
            Found::Code(code) => code,
            other => panic!("{symbol}: {other:?}"),
        }
    }

    /// Of the functions of glibc.
    fn symbols() -> impl Iterator<Item = &'static str> {
        FUNCTIONS.iter().filter(|f| f.runtime == Runtime::Glibc).map(|f| f.symbol)
    }

    const LOCKS: &str = "#include <pthread.h>\nstatic pthread_mutex_t m;\n\
        int main(void) { pthread_mutex_lock(&m); return pthread_mutex_unlock(&m); }";

    #[test]
    fn the_running_c_library_has_every_function() {
        let data = own_libc();
        let image = locate(&data, FUNCTIONS).unwrap();
        assert_eq!(Some(image.headers.arch), Arch::host());
        assert_eq!(image.headers.linkage, Linkage::Library);
        assert!(matches!(image.libc, Libc::Glibc(Some(v)) if v >= GlibcVersion::LIBPTHREAD_MERGED), "{:?}", image.libc);
        assert!(image.has_symbols && !go::is_go(&data[..]) && build_id(&data).is_some());
        for function in FUNCTIONS.iter().filter(|f| f.runtime == Runtime::Glibc) {
            let code = code_of(&image, function.symbol);
            assert!(code.complete && !code.bytes.is_empty());
            assert_eq!(code.bytes, data[code.file_offset as usize..][..code.bytes.len()]);
        }
    }

    /// dlsym gives what programs bind to: the default version.
    #[test]
    fn the_default_version_is_chosen() {
        let source = "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdio.h>\n#include <link.h>\n\
            int main(int argc, char **argv) { for (int i = 1; i < argc; i++) { Dl_info d; \
            void *p = dlsym(RTLD_DEFAULT, argv[i]); if (!dladdr(p, &d)) return 1; \
            printf(\"%s %lx\\n\", argv[i], (unsigned long)((char *)p - (char *)d.dli_fbase)); } }";
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("resolve");
        std::fs::write(&program, compiled(&[], source)).unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let output = Command::new(&program).args(symbols()).output().unwrap();
        let image = locate(&own_libc(), FUNCTIONS).unwrap();
        let answer = String::from_utf8(output.stdout).unwrap();
        assert_eq!(answer.lines().count(), symbols().count());
        for line in answer.lines() {
            let (symbol, address) = line.split_once(' ').unwrap();
            assert_eq!(format!("{:x}", code_of(&image, symbol).vaddr), address, "{symbol}");
        }
    }

    #[test]
    fn a_static_program_has_its_own_functions() {
        for flags in [&["-static"][..], &["-static-pie"]] {
            let image = locate(&compiled(flags, LOCKS), FUNCTIONS).unwrap();
            assert_eq!(image.headers.linkage, Linkage::Static, "{flags:?}");
            assert_eq!(image.libc, Libc::Glibc(None));
            assert!(code_of(&image, "pthread_mutex_lock").complete);
        }
        let stripped = locate(&compiled(&["-static", "-s"], LOCKS), FUNCTIONS).unwrap();
        assert!(!stripped.has_symbols && stripped.functions.iter().all(|(_, found)| *found == Found::Absent));
    }

    #[test]
    fn a_dynamic_program_has_none() {
        let image = locate(&compiled(&[], LOCKS), FUNCTIONS).unwrap();
        assert!(matches!(&image.headers.linkage, Linkage::Dynamic { interpreter } if interpreter.is_absolute()));
        assert!(image.functions.iter().all(|(_, found)| *found == Found::Absent));
        assert_eq!(image.libc, Libc::Unknown);
    }

    #[test]
    fn resolvers_and_old_versions_are_told_apart() {
        let ifunc = "static int f(void *m) { return 0; }\n\
            static void *choose(void) { return f; }\n\
            int pthread_mutex_lock(void *m) __attribute__((ifunc(\"choose\")));";
        let image = locate(&compiled(&["-shared", "-fPIC"], ifunc), FUNCTIONS).unwrap();
        assert!(matches!(image.functions[0].1, Found::Ifunc(resolver) if resolver > 0));

        let old = "int old(void *m) { return 1; }\n__asm__(\".symver old,pthread_mutex_lock@V1\");";
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("versions");
        std::fs::write(&script, "V1 { global: pthread_mutex_lock; local: *; };").unwrap();
        let option = format!("-Wl,--version-script={}", script.display());
        let image = locate(&compiled(&["-shared", "-fPIC", &option], old), FUNCTIONS).unwrap();
        assert_eq!(image.functions[0].1, Found::Absent);
    }

    #[test]
    fn releases_are_read_from_version_names() {
        assert_eq!(GlibcVersion::parse(b"GLIBC_2.36"), Some(GlibcVersion(2, 36)));
        assert_eq!(GlibcVersion::parse(b"GLIBC_2.2.5"), Some(GlibcVersion(2, 2)));
        assert_eq!(GlibcVersion::parse(b"GLIBC_PRIVATE"), None);
        assert_eq!(GlibcVersion::parse(b"V1"), None);
        assert!(GlibcVersion(2, 4) < GlibcVersion::LIBPTHREAD_MERGED);
    }

    #[test]
    fn other_files_are_refused() {
        assert_eq!(locate(b"#!/bin/sh\n", FUNCTIONS), Err(ElfError::NotElf));
        assert_eq!(locate(b"", FUNCTIONS), Err(ElfError::NotElf));
        let mut data = compiled(&[], LOCKS);
        data[4] = 1;
        assert_eq!(locate(&data, FUNCTIONS), Err(ElfError::ThirtyTwoBit));
        data[4] = 2;
        data[18] = 243;
        assert_eq!(locate(&data, FUNCTIONS), Err(ElfError::Machine(243)));
    }

    /// A file whose dynamic symbols are so many functions at its first code, all of one name of so many bytes.
    fn of_one_name(symbols: usize, name: &str, length: usize) -> Vec<u8> {
        use object::{Object, ObjectSection, SectionIndex};
        let mut data = compiled(&["-shared", "-fPIC"], "int first(void) { return 0; }");
        let elf = object::File::parse(&*data).unwrap();
        let header = |index: SectionIndex| u64_at(&data, 40) as usize + 64 * index.0;
        let (table, text) = (elf.section_by_name(".dynsym").unwrap().index(), elf.section_by_name(".text").unwrap());
        let (table_at, strings_at) = (header(table), header(elf.section_by_name(".dynstr").unwrap().index()));
        let (code, address) = (text.index().0 as u16, text.address());
        let mut put = |at: usize, bytes: Vec<u8>| {
            let (start, size) = (data.len().next_multiple_of(8), bytes.len());
            data.resize(start, 0);
            data.extend(bytes);
            data[at + 24..at + 32].copy_from_slice(&(start as u64).to_le_bytes());
            data[at + 32..at + 40].copy_from_slice(&(size as u64).to_le_bytes());
        };
        let mut symbol = 1_u32.to_le_bytes().to_vec();
        symbol.extend([0x12, 0]);
        symbol.extend(code.to_le_bytes());
        symbol.extend(address.to_le_bytes());
        symbol.extend(16_u64.to_le_bytes());
        put(table_at, [vec![0; 24], symbol.repeat(symbols)].concat());
        put(strings_at, [b"\0", name.as_bytes(), &vec![b'x'; length], b"\0"].concat());
        data
    }

    fn u64_at(data: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(data[at..at + 8].try_into().unwrap())
    }

    #[test]
    fn what_many_symbols_share_costs_once() {
        // CPU time, whoever else wants it.
        let clock = || {
            let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap();
            std::time::Duration::from(time)
        };
        let began = clock();
        let data = of_one_name(200_000, "pthread_mutex_lock", 0);
        let image = locate(&data, FUNCTIONS).unwrap();
        assert!(matches!(code_of(&image, "pthread_mutex_lock"), Code { complete: true, .. }));
        let data = of_one_name(200_000, "pthread_mutex_lock", 4 << 20);
        let image = locate(&data, FUNCTIONS).unwrap();
        assert!(image.functions.iter().all(|(_, found)| *found == Found::Absent));
        let data = of_one_name(200_000, "_ZN13ObjectMonitor6EnterIE", 0);
        assert_eq!(crate::capture::mangled::sites(&data, Arch::X86_64).len(), 1);
        // Measuring the names alone would be 800 GB.
        let took = clock().saturating_sub(began);
        assert!(took < std::time::Duration::from_secs(30), "{took:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// Bytes changed anywhere in the headers, and the file cut anywhere, give an answer or an error.
        #[test]
        fn damage_never_panics(damage in Damage::any(8)) {
            thread_local!(static SAMPLE: Vec<u8> = compiled(&["-shared", "-fPIC"], "int pthread_mutex_lock(void *m) { return 0; }"));
            let data = damage.of(SAMPLE.with(Clone::clone));
            let _ = locate(&data, FUNCTIONS);
            let _ = build_id(&data);
        }
    }
}
