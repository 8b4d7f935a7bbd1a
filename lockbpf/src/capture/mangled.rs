//! Runtimes whose locks are compiled into programs: Rust's `std::sync`, parking_lot, abseil,
//! HotSpot's monitors. They take a free lock inline, so only
//! their slow paths can be probed, which are known by their mangled symbols; a stripped program has none.

use super::elf::{self, Header};
use super::probe_table::{By, Function, Runtime};
use super::prologue::Arch;
use super::site::Site;
use lockbpf_common::via::Via;
use memchr::memmem;
use object::ReadRef;
use object::elf::{SHT_DYNSYM, SHT_SYMTAB, STT_FUNC};
use object::read::elf::{FileHeader, SectionHeader, Sym};

/// The probed functions, each with the parts that its symbol has, in this order, however the compiler mangles it.
pub(super) const ROWS: &[(Function, &[&str])] = &[
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

/// Slow paths in one symbol table: no program has more than some ten of each.
pub(super) const MAX_SITES: usize = 1_024;

/// Whether a shared library of this name may have such locks.
#[must_use]
pub fn is_library(name: &str) -> bool {
    name.starts_with("libabsl_synchronization.so") || name == "libjvm.so"
}

/// Whether a file has a full symbol table. Reads little of it: `data` may be a cache over the open file.
#[must_use]
pub fn has_symbols<'data, R: ReadRef<'data>>(data: R) -> bool {
    let has_table = || {
        let header = Header::parse(data)?;
        let endian = header.endian()?;
        Ok::<_, object::read::Error>(header.sections(endian, data)?.iter().any(|s| s.sh_type(endian) == SHT_SYMTAB))
    };
    has_table().unwrap_or(false)
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
    for table in [SHT_SYMTAB, SHT_DYNSYM] {
        let symbols = sections.symbols(endian, data, table)?;
        let strings = elf::strings(&symbols, &sections, endian, data);
        let functions = symbols.iter().take(elf::MAX_SYMBOLS);
        let functions = functions.filter(|s| s.st_type() == STT_FUNC && !s.is_undefined(endian));
        let known = functions.filter_map(|symbol| {
            let name = elf::name(strings, symbol.st_name(endian))?;
            let (function, _) = ROWS.iter().find(|(_, parts)| has_parts(name, parts))?;
            Some((symbol, *function))
        });
        for (symbol, function) in known.take(MAX_SITES) {
            let code = elf::code(symbol, segments, endian, data);
            sites.extend(code.and_then(|code| Site::of(function, &code, arch)));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Damage, compiled};
    use proptest::prelude::*;

    const SOURCE: &str = "int a(void *l) __asm__(\"_ZN3std3sys4sync5mutex5futex5Mutex14lock_contended17h0123456789abcdefE\");\n\
        int a(void *l) { return !l; }\n\
        int b(void *l) __asm__(\"_RNvMNtNtNtNtCsjrHSEGnQ3l9_3std3sys4sync6rwlock5futexNtB2_6RwLock15write_contended\");\n\
        int b(void *l) { return l != 0; }\n\
        int c(void *l) __asm__(\"_ZN11parking_lot9raw_mutex8RawMutex11unlock_slow17h0123456789abcdefE\");\n\
        int c(void *l) { return 3; }\n\
        int main(void) { return 0; }";

    #[test]
    fn slow_paths_are_found_however_they_are_mangled() {
        let data = compiled(&["-O2"], SOURCE);
        assert!(has_symbols(&data[..]));
        let mut found: Vec<_> = sites(&data, Arch::host().unwrap()).iter().map(|s| s.function.code).collect();
        found.sort_unstable();
        assert_eq!(found, [Via::RustLock as u64, Via::RustWriteLock as u64]);
        let stripped = compiled(&["-O2", "-s"], SOURCE);
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
        fn damage_never_panics(damage in Damage::any(16)) {
            thread_local!(static SAMPLE: Vec<u8> = compiled(&["-O2"], SOURCE));
            let data = damage.of(SAMPLE.with(Clone::clone));
            let _ = has_symbols(&data[..]);
            let _ = sites(&data, Arch::X86_64);
        }
    }
}
