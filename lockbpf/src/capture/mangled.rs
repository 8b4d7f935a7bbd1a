//! Runtimes whose locks are compiled into programs: Rust's `std::sync`, parking_lot, abseil,
//! HotSpot's monitors. They take a free lock inline, so only
//! their slow paths can be probed, which are known by their mangled symbols; a stripped program has none.

use super::probe_table::{By, Function, Runtime};
use super::prologue::{self, Arch, Reason};
use super::target::Site;
use lockbpf_common::via::Via;
use memchr::memmem;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader, Sym};
use object::{Endianness, ReadRef};

/// Bytes of a function's code that are read; the probed ones are shorter.
const MAX_CODE: u64 = 16 << 10;

type Header = FileHeader64<Endianness>;

/// The probed functions, each with the parts that its symbol has, in this order, however the compiler mangles it.
const ROWS: &[(Function, &[&str])] = &[
    row("std::sync::Mutex::lock, contended", Via::RustLock, &["3std3sys", "5Mutex14lock_contended"]),
    row("std::sync::RwLock::read, contended", Via::RustReadLock, &["3std3sys", "6RwLock14read_contended"]),
    row("std::sync::RwLock::write, contended", Via::RustWriteLock, &["3std3sys", "6RwLock15write_contended"]),
    row("parking_lot::Mutex::lock, contended", Via::ParkingLock, &["11parking_lot9raw_mutex", "9lock_slow"]),
    row(
        "parking_lot::RwLock::read, contended",
        Via::ParkingReadLock,
        &["11parking_lot10raw_rwlock", "16lock_shared_slow"],
    ),
    row(
        "parking_lot::RwLock::write, contended",
        Via::ParkingWriteLock,
        &["11parking_lot10raw_rwlock", "19lock_exclusive_slow"],
    ),
    // HotSpot. `ReenterI` is for a thread that has been notified. From JDK 24 on they go by other names.
    row("ObjectMonitor::enter, contended", Via::JavaMonitor, &["_ZN13ObjectMonitor6EnterIE"]),
    row("ObjectMonitor::enter, contended", Via::JavaMonitor, &["_ZN13ObjectMonitor14enter_internalE"]),
    row("ObjectMonitor::wait, contended again", Via::JavaMonitor, &["_ZN13ObjectMonitor8ReenterIE"]),
    row("ObjectMonitor::wait, contended again", Via::JavaMonitor, &["_ZN13ObjectMonitor16reenter_internalE"]),
    row("absl::Mutex::Lock, contended", Via::AbseilLock, &["4absl", "5Mutex8LockSlowE"]),
];

const fn row(symbol: &'static str, via: Via, parts: &'static [&'static str]) -> (Function, &'static [&'static str]) {
    let runtime = Runtime::Compiled;
    (Function { symbol, runtime, args: 1, code: via as u64, by: By::Return, essential: false }, parts)
}

/// Every function that is looked for.
pub fn functions() -> impl Iterator<Item = &'static Function> {
    ROWS.iter().map(|(function, _)| function)
}

/// Whether a shared library of this name may have such locks.
#[must_use]
pub fn is_library(name: &str) -> bool {
    name.starts_with("libabsl_synchronization.so") || name == "libjvm.so"
}

/// Whether a file has a full symbol table. Reads little of it: `data` may be a cache over the open file.
#[must_use]
pub fn has_symbols<'data, R: ReadRef<'data>>(data: R) -> bool {
    let sections = Header::parse(data).and_then(|header| header.sections(header.endian()?, data).map(|s| (header, s)));
    sections.is_ok_and(|(header, sections)| {
        header.endian().is_ok_and(|endian| sections.iter().any(|s| s.sh_type.get(endian) == elf::SHT_SYMTAB))
    })
}

/// Where the slow paths in a file are probed; none in a file that has none, or is damaged.
#[must_use]
pub fn sites(data: &[u8], arch: Arch) -> Vec<Site> {
    let mut sites = read(data, arch).unwrap_or_default();
    sites.sort_by_key(|site| site.file_offset);
    sites.dedup_by_key(|site| site.file_offset);
    sites
}

fn read(data: &[u8], arch: Arch) -> object::read::Result<Vec<Site>> {
    let header = Header::parse(data)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    let segments = header.program_headers(endian, data)?;
    let mut sites = Vec::new();
    for table in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
        let symbols = sections.symbols(endian, data, table)?;
        for symbol in symbols.iter().filter(|s| s.st_type() == elf::STT_FUNC && !s.is_undefined(endian)) {
            let Ok(name) = symbol.name(endian, symbols.strings()) else { continue };
            let Some((function, _)) = ROWS.iter().find(|(_, parts)| has_parts(name, parts)) else { continue };
            sites.extend(site(function, symbol.st_value(endian), symbol.st_size(endian), segments, endian, data, arch));
        }
    }
    Ok(sites)
}

/// Whether a name has these parts, one behind the other, and at its end at most a hash, or a C++ function's parameters: what comes
/// behind a function of Rust is a closure in it.
fn has_parts(name: &[u8], parts: &[&str]) -> bool {
    let mut rest = name;
    let all = parts.iter().all(|part| {
        let found = memmem::find(rest, part.as_bytes());
        found.and_then(|at| rest.get(at + part.len()..)).is_some_and(|behind| {
            rest = behind;
            true
        })
    });
    all && (rest.is_empty() || rest.starts_with(b"17h") || parts.last().is_some_and(|part| part.ends_with('E')))
}

#[allow(clippy::too_many_arguments, reason = "a symbol, and the file it is in")]
fn site(
    function: &Function,
    vaddr: u64,
    size: u64,
    segments: &[elf::ProgramHeader64<Endianness>],
    endian: Endianness,
    data: &[u8],
    arch: Arch,
) -> Option<Site> {
    let segment = segments.iter().find(|s| {
        s.p_type(endian) == elf::PT_LOAD
            && s.p_flags(endian) & elf::PF_X != 0
            && vaddr.checked_sub(s.p_vaddr(endian)).is_some_and(|inside| inside < s.p_filesz(endian))
    })?;
    let start = segment.p_offset(endian).checked_add(vaddr - segment.p_vaddr(endian))?;
    let whole = (1..=MAX_CODE).contains(&size);
    let code = data.get(usize::try_from(start).ok()?..)?;
    let code = code.get(..code.len().min(if whole { size } else { MAX_CODE } as usize))?;
    if prologue::is_refused(arch, code, vaddr) {
        return None;
    }
    let placement = if whole && code.len() as u64 == size {
        prologue::place(arch, code, vaddr, function.args)
    } else {
        prologue::at_entry(arch, code, vaddr, Reason::ExtentUnknown)
    };
    Some(Site { function: *function, file_offset: start.checked_add(placement.offset)?, placement, detail: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    const SOURCE: &str = "int a(void *l) __asm__(\"_ZN3std3sys4sync5mutex5futex5Mutex14lock_contended17h0123456789abcdefE\");\n\
        int a(void *l) { return !l; }\n\
        int b(void *l) __asm__(\"_RNvMNtNtNtNtCsjrHSEGnQ3l9_3std3sys4sync6rwlock5futexNtB2_6RwLock15write_contended\");\n\
        int b(void *l) { return l != 0; }\n\
        int c(void *l) __asm__(\"_ZN11parking_lot9raw_mutex8RawMutex11unlock_slow17h0123456789abcdefE\");\n\
        int c(void *l) { return 3; }\n\
        int main(void) { return 0; }";

    fn program(flags: &[&str]) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let (source, program) = (dir.path().join("t.c"), dir.path().join("t"));
        std::fs::write(&source, SOURCE).unwrap();
        let status = Command::new("cc").args(flags).arg("-O2").arg("-o").arg(&program).arg(&source).status();
        assert!(status.expect("a C compiler").success());
        std::fs::read(program).unwrap()
    }

    #[test]
    fn slow_paths_are_found_however_they_are_mangled() {
        let data = program(&[]);
        assert!(has_symbols(&data[..]));
        let mut found: Vec<_> = sites(&data, Arch::host().unwrap()).iter().map(|s| s.function.code).collect();
        found.sort_unstable();
        assert_eq!(found, [Via::RustLock as u64, Via::RustWriteLock as u64]);
        let stripped = program(&["-s"]);
        assert!(!has_symbols(&stripped[..]) && sites(&stripped, Arch::host().unwrap()).is_empty());
    }

    #[test]
    fn parts_come_in_order() {
        assert!(has_parts(b"abcabd", &["ab", "abd"]) && has_parts(b"abd17h0E", &["ab", "d"]));
        assert!(has_parts(b"abdEPv", &["abdE"]) && !has_parts(b"abd28_closure", &["abd"]));
        assert!(!has_parts(b"abdab", &["abd", "abd"]));
        assert!(!has_parts(b"", &["a"]) && has_parts(b"", &[]));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn damage_never_panics(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..16),
                               keep in any::<prop::sample::Index>(), cut: bool) {
            thread_local!(static SAMPLE: Vec<u8> = program(&[]));
            let mut data = SAMPLE.with(Clone::clone);
            for (at, byte) in changes {
                let at = at.index(data.len());
                data[at] = byte;
            }
            if cut {
                data.truncate(keep.index(data.len()));
            }
            let _ = has_symbols(&data[..]);
            let _ = sites(&data, Arch::X86_64);
        }
    }
}
