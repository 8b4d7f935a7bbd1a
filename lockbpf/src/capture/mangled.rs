//! Runtimes whose locks are compiled into programs: Rust's `std::sync`, parking_lot, abseil,
//! HotSpot's monitors, tokio's. Most take a free lock inline, so only
//! their slow paths can be probed. All are known by their mangled symbols; a stripped program has none.

use super::elf::{self, Header};
use super::probe_table::{By, Function, Runtime};
use super::prologue::Arch;
use super::site::{Lack, Missing, Site};
use crate::demangle::demangle;
use lockbpf_common::function::{
    TOKIO_CALL, TOKIO_DROP, TOKIO_POLL, TOKIO_RELEASE, TOKIO_TRY, VIRTUAL_ENTER, VIRTUAL_ENTERED, VIRTUAL_EXIT,
    VIRTUAL_GOES_ON, VIRTUAL_LEAVES,
};
use lockbpf_common::task::tokio_lock;
use lockbpf_common::via::Via;
use memchr::memmem;
use object::ReadRef;
use object::elf::{SHT_DYNSYM, SHT_SYMTAB, STT_FUNC};
use object::read::elf::{FileHeader, SectionHeader, Sym};

/// By what a symbol tells that it is that of a row's function.
#[derive(Clone, Copy, Debug)]
pub(super) enum Known {
    /// It has these parts, in this order, however the compiler mangles it.
    Parts(&'static [&'static str]),
    /// It is one of tokio's own functions that ask for a lock or give it back, by way of the others.
    TokioCalls,
}

use Known::{Parts, TokioCalls};

/// Where tokio's semaphore is.
const SEMAPHORE: &str = "5tokio4sync15batch_semaphore";

/// The probed functions.
pub(super) const ROWS: &[(Function, Known)] = &[
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
    // Its virtual threads, from JDK 24 on.
    by_virtual("ObjectMonitor::vthread_monitor_enter", VIRTUAL_ENTER, &["_ZN13ObjectMonitor21vthread_monitor_enterE"]),
    by_virtual("ObjectMonitor::vthread_epilog", VIRTUAL_ENTERED, &["_ZN13ObjectMonitor14vthread_epilogE"]),
    by_virtual("ObjectMonitor::exit_epilog", VIRTUAL_EXIT, &["_ZN13ObjectMonitor11exit_epilogE"]),
    by_virtual("Continuation::freeze", VIRTUAL_LEAVES, &["_Z6freezeI6Config", "BarrierSetEE"]),
    by_virtual("Continuation::prepare_thaw", VIRTUAL_GOES_ON, &["_ZN12Continuation12prepare_thawE"]),
    row("absl::Mutex::Lock, contended", Via::AbseilLock, &["4absl", "5Mutex8LockSlowE"]),
    tokio("tokio::sync (Acquire::poll)", TOKIO_POLL, Parts(&[SEMAPHORE, "7Acquire", "4poll"])),
    tokio("tokio::sync (Acquire::poll)", TOKIO_POLL, Parts(&["tokio..sync..batch_semaphore..Acquire$u20$as", "4poll"])),
    tokio("tokio::sync (Acquire::drop)", TOKIO_DROP, Parts(&[SEMAPHORE, "7Acquire", "4Drop4drop"])),
    tokio("tokio::sync (Acquire::drop)", TOKIO_DROP, Parts(&["tokio..sync..batch_semaphore..Acquire$u20$as", "4drop"])),
    tokio("tokio::sync (Semaphore::try_acquire)", TOKIO_TRY, Parts(&[SEMAPHORE, "9Semaphore11try_acquire"])),
    tokio(
        "tokio::sync (Semaphore::add_permits_locked)",
        TOKIO_RELEASE,
        Parts(&[SEMAPHORE, "9Semaphore18add_permits_locked"]),
    ),
    tokio("tokio::sync (callers within)", TOKIO_CALL, TokioCalls),
];

const fn row(symbol: &'static str, via: Via, parts: &'static [&'static str]) -> (Function, Known) {
    let runtime = Runtime::Compiled;
    (Function { symbol, runtime, args: 1, code: via as u64, by: By::Return, essential: false }, Parts(parts))
}

/// A function of HotSpot's by which virtual threads come to a monitor, lose it, or leave their thread.
const fn by_virtual(symbol: &'static str, code: u64, parts: &'static [&'static str]) -> (Function, Known) {
    let by = match code {
        VIRTUAL_ENTER => By::VirtualReturn,
        VIRTUAL_LEAVES | VIRTUAL_GOES_ON => By::VirtualAbsence,
        _ => By::Virtual,
    };
    let args = if matches!(code, VIRTUAL_ENTER | VIRTUAL_EXIT) { 3 } else { 2 };
    (Function { symbol, runtime: Runtime::Compiled, args, code, by, essential: false }, Parts(parts))
}

/// A function by which tokio's locks are asked for and given back, contended or not.
const fn tokio(symbol: &'static str, code: u64, known: Known) -> (Function, Known) {
    let (args, essential) = (if code == TOKIO_CALL { 0 } else { 2 }, code == TOKIO_POLL);
    (Function { symbol, runtime: Runtime::Compiled, args, code, by: By::Tokio, essential }, known)
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

/// Where the functions in a file are probed; none in a file that has none, or is damaged.
#[must_use]
pub fn sites(data: &[u8], arch: Arch) -> Vec<Site> {
    let mut sites = read(data, arch).unwrap_or_default();
    sites.sort_by_key(|site| site.file_offset);
    sites.dedup_by_key(|site| site.file_offset);
    // A machine whose virtual threads block others when they wait.
    if !sites.iter().any(|site| site.function.code == VIRTUAL_ENTER) {
        sites.retain(|site| !matches!(site.function.by, By::Virtual | By::VirtualAbsence));
    }
    sites
}

/// Takes out tokio's functions where the one is not among them that tells who waits, and says why it is not.
#[must_use]
pub fn without_polls(sites: &mut Vec<Site>) -> Option<Missing> {
    let is = |code: u64| move |site: &Site| site.function.code == code;
    if sites.iter().any(is(TOKIO_POLL)) {
        return None;
    }
    let gives_back = sites.iter().any(is(TOKIO_RELEASE));
    sites.retain(|site| site.function.by != By::Tokio);
    let (function, _) = ROWS.iter().find(|(function, _)| function.code == TOKIO_POLL)?;
    gives_back.then_some(Missing { function: *function, reason: Lack::OtherCode })
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
            ROWS.iter().find_map(|&(function, known)| Some((symbol, function, known.told(name)?)))
        });
        for (symbol, function, detail) in known.take(MAX_SITES) {
            let code = elf::code(symbol, segments, endian, data);
            let site = code.and_then(|code| Site::of(function, &code, arch));
            sites.extend(site.map(|site| Site { detail, ..site }));
        }
    }
    Ok(sites)
}

impl Known {
    /// The detail of the function's probe; `None` if the symbol belongs to another function.
    fn told(self, name: &[u8]) -> Option<u32> {
        match self {
            Parts(parts) => has_parts(name, parts).then_some(0),
            TokioCalls => calls_tokio(name),
        }
    }
}

/// Modules of tokio's in which functions ask for its semaphore or give it back, and what it is to them.
const TOKIO: &[(&str, u32)] = &[
    ("mutex", tokio_lock::MUTEX),
    ("once_cell", tokio_lock::MUTEX),
    ("rwlock", tokio_lock::RWLOCK),
    ("semaphore", tokio_lock::SEMAPHORE),
    ("mpsc", tokio_lock::CHANNEL),
];

/// What tokio's semaphore is to a function, by its symbol: to the body of an asynchronous function, whatever it is instantiated with, or to one
/// that gives back a permit, or room in a channel.
fn calls_tokio(name: &[u8]) -> Option<u32> {
    memmem::find(name, b"5tokio4sync").or_else(|| memmem::find(name, b"tokio..sync.."))?;
    let name = demangle(std::str::from_utf8(name).ok()?);
    let name = name.trim_start_matches('<').strip_prefix("tokio::sync::")?;
    let ends = |with: &[&str]| with.iter().any(|end| name.ends_with(end));
    let calls = ends(&[
        "::{{closure}}",
        "::{closure#0}",
        "::add_permit",
        "::add_permits",
        "SemaphorePermit as core::ops::drop::Drop>::drop",
    ]);
    let is_in = |module| name.strip_prefix(module).is_some_and(|rest| rest.starts_with("::"));
    TOKIO.iter().find(|&&(module, _)| calls && is_in(module)).map(|&(_, lock)| lock)
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
    // LLVM makes functions known by another name where it divides a crate.
    let ends = rest.is_empty() || rest.starts_with(b"17h") || rest.starts_with(b".llvm.");
    all && (ends || parts.last().is_some_and(|part| part.ends_with('E')))
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
    fn functions_of_tokio_are_found_by_what_they_do() {
        let told = |name: &str| {
            let all = ROWS.iter().filter_map(|(function, known)| Some((function.code, known.told(name.as_bytes())?)));
            all.collect::<Vec<_>>()
        };
        let future = "batch_semaphore..Acquire$u20$as$u20$core";
        for (name, expected) in [
            (format!("_ZN86_$LT$tokio..sync..{future}..future..future..Future$GT$4poll17h0123456789abcdefE"), (TOKIO_POLL, 0)),
            (
                "_RNvXs1_NtNtCs45TmYipNivD_5tokio4sync15batch_semaphoreNtB5_7AcquireNtNtNtCsgEmfK2I1SDS_4core6future6future6Future4poll"
                    .to_owned(),
                (TOKIO_POLL, 0),
            ),
            (format!("_ZN79_$LT$tokio..sync..{future}..ops..drop..Drop$GT$4drop17h0123456789abcdefE"), (TOKIO_DROP, 0)),
            // Known by another name, since LLVM has divided the crate.
            (
                "_RNvMNtNtCs45TmYipNivD_5tokio4sync15batch_semaphoreNtB2_9Semaphore18add_permits_locked.llvm.2960463799035776821"
                    .to_owned(),
                (TOKIO_RELEASE, 0),
            ),
            (
                "_ZN5tokio4sync5mutex14Mutex$LT$T$GT$4lock28_$u7b$$u7b$closure$u7d$$u7d$17h18a64ecc4161f2f6E".to_owned(),
                (TOKIO_CALL, tokio_lock::MUTEX),
            ),
            (
                "_ZN81_$LT$tokio..sync..semaphore..SemaphorePermit$u20$as$u20$core..ops..drop..Drop$GT$4drop17h0123456789abcdefE"
                    .to_owned(),
                (TOKIO_CALL, tokio_lock::SEMAPHORE),
            ),
            (
                "_ZN92_$LT$tokio..sync..mpsc..bounded..Semaphore$u20$as$u20$tokio..sync..mpsc..chan..Semaphore$GT$10add_permit17hc63031587da43525E"
                    .to_owned(),
                (TOKIO_CALL, tokio_lock::CHANNEL),
            ),
        ] {
            assert_eq!(told(&name), [expected], "{name}");
        }
        for other in [
            "_ZN4core3ptr58drop_in_place$LT$tokio..sync..batch_semaphore..Acquire$GT$17h25bf9405bb436641E",
            "_ZN5tokio4sync6notify6Notify8notified17h8260194d6f98ccceE",
            "_ZN5tokio4sync15batch_semaphore9Semaphore7release17h9ca2bfa02d5f894cE",
        ] {
            assert_eq!(told(other), [], "{other}");
        }
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
