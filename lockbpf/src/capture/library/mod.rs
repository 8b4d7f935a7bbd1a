//! Calls of the C library by category (`--functions`): where their beginnings and ends are probed.
//!
//! A function that cannot be left but by returning is watched by a return probe. One that a cancelled thread, or an exception, may be
//! unwound through must keep its return address: its ends are probed at its own instructions, and at those of the functions that it
//! jumps to. So must those of pthread, whose probes for locks read it, as do stacks of waits in them. Where the ends are not understood,
//! calls are only counted.

mod chosen;
mod extents;

use super::attach::ProbeSite;
use super::elf::{Code, Found, Libc, Symbols};
use super::exits;
use super::probe_table::{By, Function, Runtime};
use super::prologue::{self, Cost, Placement, Reason};
use super::target::{Library, Site, read_whole};
use crate::measures::library::{Category, FUNCTIONS, LibraryFunction};
use extents::Extents;
use lockbpf_common::gate;
use lockbpf_common::library::{END, ENDLESS};
use std::collections::{BTreeMap, HashSet};
use std::io::Seek;

/// Pieces of code looked at for the ends of one function.
const MAX_PIECES: usize = 16;

/// The probes on one file's functions, and what is not probed.
#[derive(Clone, Debug, Default)]
pub struct LibraryProbes {
    /// Where they go.
    pub sites: Vec<ProbeSite>,
    /// Functions whose calls are seen.
    pub functions: usize,
    /// Functions among these of which calls are only counted.
    pub endless: Vec<&'static str>,
    /// Functions among these with a probe that must be single-stepped.
    pub dear: Vec<&'static str>,
    /// Functions left out, each with the reason.
    pub left_out: Vec<(&'static str, &'static str)>,
    /// Names of functions that go by another name as well, by which they are known, in that order.
    pub shared: Vec<(&'static str, &'static str)>,
}

/// Finds the functions of these categories in a file that has a C library; nothing in one that has none, or cannot be read.
#[must_use]
pub fn place(library: &Library, categories: &[Category]) -> LibraryProbes {
    let Some(runtime) = runtime(library) else { return LibraryProbes::default() };
    let Some(data) = read(library) else { return LibraryProbes::default() };
    let Ok(symbols) = Symbols::read(&data) else { return LibraryProbes::default() };
    let extents = Extents::read(&data);
    let mut finder =
        Finder { library, runtime, symbols, extents, seen: BTreeMap::new(), ends: HashSet::new(), found: Vec::new() };
    let mut probes = LibraryProbes::default();
    for (number, row) in FUNCTIONS.iter().enumerate().filter(|(_, row)| categories.contains(&row.category)) {
        finder.function(number as u64, row, &mut probes);
    }
    probes.sites = finder.found.iter().filter_map(|site| library.probe_site(site, false)).collect();
    probes
}

fn runtime(library: &Library) -> Option<Runtime> {
    if library.unusable.is_some() {
        return None;
    }
    match library.libc? {
        Libc::Musl => Some(Runtime::Musl),
        Libc::Glibc(_) => Some(Runtime::Glibc),
        Libc::Unknown => None,
    }
}

fn read(library: &Library) -> Option<Vec<u8>> {
    // By the descriptor: its path may be gone. Not from where that was read to.
    let mut open = library.open.as_ref()?.try_clone().ok()?;
    open.rewind().ok()?;
    read_whole(&open).ok()
}

/// What was found in a file so far.
struct Finder<'a> {
    library: &'a Library,
    runtime: Runtime,
    symbols: Symbols<'a>,
    extents: Extents,
    /// Functions by address.
    seen: BTreeMap<u64, &'static str>,
    /// Where ends are probed, in the file.
    ends: HashSet<u64>,
    found: Vec<Site>,
}

impl Finder<'_> {
    /// Probes a function, if the file has it.
    fn function(&mut self, number: u64, row: &'static LibraryFunction, probes: &mut LibraryProbes) {
        let arch = self.symbols.headers.arch;
        let code = match self.code(row.symbol) {
            Ok(Some(code)) => code,
            // What is not defined here is not called here.
            Ok(None) => return,
            Err(why) => return probes.left_out.push((row.symbol, why)),
        };
        if let Some(&known) = self.seen.get(&code.vaddr) {
            return probes.shared.push((row.symbol, known));
        }
        if prologue::is_refused(arch, &code.bytes, code.vaddr) {
            return probes.left_out.push((row.symbol, prologue::REFUSED));
        }
        self.seen.insert(code.vaddr, row.symbol);
        let usual = || {
            if code.complete {
                prologue::place(arch, &code.bytes, code.vaddr, 0)
            } else {
                prologue::at_entry(arch, &code.bytes, code.vaddr, Reason::ExtentUnknown)
            }
        };
        let keeps = row.unwound || row.category == Category::Pthread;
        let (placement, by, detail, mut ends) = match self.ends(row, &code) {
            _ if !keeps => (usual(), By::LibraryReturn, 0, Vec::new()),
            Some(ends) => {
                let (placement, frame) = prologue::place_early(arch, &code.bytes, code.vaddr);
                match gate::end(frame, 0) {
                    Some(detail) => (placement, By::Library, detail, ends),
                    None => (usual(), By::Library, 0, ends),
                }
            }
            // It is watched to its return in any case, from where its lock is read.
            None if let Some(placement) = self.watched(row.symbol) => (placement, By::LibraryReturn, 0, Vec::new()),
            None => {
                probes.endless.push(row.symbol);
                (usual(), By::Library, ENDLESS, Vec::new())
            }
        };
        if prologue::is_rewritten(arch, &code.bytes, placement.offset) {
            return probes.left_out.push((row.symbol, prologue::REWRITTEN));
        }
        let Some(file_offset) = code.file_offset.checked_add(placement.offset) else { return };
        let function = self.probed(row, number, by);
        let entry = Site { function, file_offset, placement, detail };
        if ends.iter().chain([&entry]).any(|site| site.placement.cost == Cost::SingleStepped) {
            probes.dear.push(row.symbol);
        }
        probes.functions += 1;
        ends.retain(|site| self.ends.insert(site.file_offset));
        self.found.extend(ends);
        self.found.push(entry);
    }

    /// Where a function's lock is read, if that is watched to its return.
    fn watched(&self, symbol: &str) -> Option<Placement> {
        let mut sites = self.library.sites.iter();
        sites.find(|site| site.function.symbol == symbol && site.function.by == By::Return).map(|s| s.placement.clone())
    }

    /// The code of a function; `None` if the file does not define it.
    fn code(&self, symbol: &str) -> Result<Option<Code>, &'static str> {
        match self.symbols.find(symbol) {
            Found::Absent => Ok(None),
            Found::NotInFile => Err("its symbol points outside the code"),
            Found::Code(code) if !code.complete => Ok(Some(self.whole(code.vaddr).unwrap_or(code))),
            Found::Code(code) => Ok(Some(code)),
            Found::Ifunc(resolver) => {
                let code = chosen::implementation(self.library, &self.symbols, symbol, resolver)
                    .and_then(|vaddr| self.whole(vaddr).or_else(|| self.symbols.code_at(vaddr, 0)));
                code.map(Some)
                    .ok_or("which implementation is used is decided at run time (IFUNC), and could not be read")
            }
        }
    }

    /// The code from an address to the end of the function that is there by the unwind information.
    fn whole(&self, vaddr: u64) -> Option<Code> {
        let extent = self.extents.around(vaddr)?;
        self.symbols.code_at(vaddr, extent.end.checked_sub(vaddr)?)
    }

    /// Probes at a function's ends; `None` if they are not all understood.
    fn ends(&self, row: &LibraryFunction, code: &Code) -> Option<Vec<Site>> {
        let arch = self.symbols.headers.arch;
        let mut sites = Vec::new();
        let mut pieces = vec![code.clone()];
        let mut at = 0;
        while let Some(piece) = pieces.get(at).cloned() {
            if !piece.complete || at >= MAX_PIECES {
                return None;
            }
            let exits = exits::of(arch, &piece.bytes, piece.vaddr)?;
            for exit in exits.ends {
                let file_offset = piece.file_offset.checked_add(exit.offset)?;
                let cost = if exit.emulated { Cost::Emulated } else { Cost::SingleStepped };
                let reason = Reason::Return;
                let placement = Placement { offset: exit.offset, cost, instruction: exit.instruction, reason };
                let detail = gate::end(exit.frame, exit.condition)?;
                sites.push(Site { function: self.probed(row, END, By::Library), file_offset, placement, detail });
            }
            for to in exits.jumps {
                let known = |piece: &Code| to.wrapping_sub(piece.vaddr) < piece.bytes.len() as u64;
                if !pieces.iter().any(known) {
                    let extent = self.extents.around(to)?;
                    pieces.push(self.symbols.code_at(extent.start, extent.end.checked_sub(extent.start)?)?);
                }
            }
            at += 1;
        }
        (!sites.is_empty()).then_some(sites)
    }

    fn probed(&self, row: &LibraryFunction, code: u64, by: By) -> Function {
        Function { symbol: row.symbol, runtime: self.runtime, args: 0, code, by, essential: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::target;

    fn own(categories: &[Category]) -> LibraryProbes {
        let targets = target::of_pids(&[std::process::id()]).unwrap();
        let with_libc = targets.libraries.iter().find(|library| library.libc.is_some());
        place(with_libc.expect("the tests run on a C library"), categories)
    }

    fn entries(probes: &LibraryProbes) -> Vec<&'static str> {
        probes.sites.iter().filter(|s| s.function.code != END).map(|s| s.function.symbol).collect()
    }

    #[test]
    fn the_running_c_library_has_what_the_categories_are_named_for() {
        let probes = own(&Category::ALL);
        let entries = entries(&probes);
        assert_eq!(entries.len(), probes.functions);
        for symbol in ["read", "write", "pwrite", "printf", "fwrite", "malloc", "free", "pthread_mutex_lock"] {
            assert!(entries.contains(&symbol), "{symbol}: {probes:?}");
        }
        // Points of cancellation keep their return addresses, and what locks is left as it is.
        let keeps = ["pthread_mutex_lock", "pthread_mutex_unlock", "pthread_cond_signal", "pthread_create"];
        assert!(probes.sites.iter().all(|s| s.function.by == By::Library || !keeps.contains(&s.function.symbol)));
        for site in &probes.sites {
            let row = FUNCTIONS.iter().find(|row| row.symbol == site.function.symbol).unwrap();
            assert!(!row.unwound || site.function.by == By::Library, "{site:?}");
        }
        for symbol in ["read", "write", "fwrite", "printf", "pthread_mutex_lock", "pthread_mutex_unlock"] {
            assert!(!probes.endless.contains(&symbol), "{symbol}: {probes:?}");
        }
    }

    #[test]
    fn implementations_chosen_at_run_time_are_found() {
        let probes = own(&[Category::Memory]);
        let entries = entries(&probes);
        let name = |symbol| probes.shared.iter().find(|s| s.0 == symbol).map_or(symbol, |s| s.1);
        for symbol in ["memcpy", "memmove", "memset"] {
            assert!(entries.contains(&name(symbol)), "{symbol}: {probes:?}");
        }
    }

    #[test]
    fn only_what_was_asked_for() {
        let of = |category| entries(&own(&[category]));
        assert!(!of(Category::Io).contains(&"malloc") && !of(Category::Memory).contains(&"read"));
    }
}
