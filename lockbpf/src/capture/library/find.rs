//! What is found of the functions in a file's bytes.

use super::extents::Extents;
use crate::capture::elf::{Code, Found, Symbols};
use crate::capture::exits;
use crate::capture::probe_table::{By, Function, Runtime};
use crate::capture::prologue::{self, Cost, Placement, Reason};
use crate::capture::reader::{AskedCalls, At, MAX_SITES, Resolver, ToldCalls};
use crate::capture::site::{Lack, Site};
use crate::measures::library::{Category, FUNCTIONS, LibraryFunction};
use lockbpf_common::gate;
use lockbpf_common::library::{END, ENDLESS};
use object::elf::{R_AARCH64_IRELATIVE, R_X86_64_IRELATIVE, SHT_RELA};
use object::read::elf::{Rela, SectionHeader};
use std::collections::{BTreeMap, HashSet};

/// Pieces of code looked at for the ends of one function.
const MAX_PIECES: usize = 16;

/// Which of these functions are chosen when a program begins, and the address of what is at the file's beginning.
pub(in crate::capture) fn resolvers(data: &[u8], functions: &[u16]) -> (Vec<Resolver>, Option<u64>) {
    let Ok(symbols) = Symbols::read(data) else { return (Vec::new(), None) };
    let resolver = |&number: &u16| match symbols.find(FUNCTIONS.get(usize::from(number))?.symbol) {
        Found::Ifunc(resolver) => Some(Resolver { function: number, resolver, word: word(&symbols, resolver) }),
        _ => None,
    };
    (functions.iter().filter_map(resolver).collect(), symbols.base())
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

/// Finds these functions; `None` in a damaged file.
pub(in crate::capture) fn calls(data: &[u8], asked: &AskedCalls) -> Option<ToldCalls> {
    let symbols = Symbols::read(data).ok()?;
    let extents = Extents::read(data);
    // Which C library's they are does not matter here.
    let watched = asked.watched.iter().filter_map(|at| at.clone().site(Runtime::Glibc)).collect();
    let mut finder =
        Finder { asked, watched, symbols, extents, seen: BTreeMap::new(), ends: HashSet::new(), found: Vec::new() };
    let mut told = ToldCalls::default();
    for &number in &asked.functions {
        if let Some(row) = FUNCTIONS.get(usize::from(number)) {
            finder.function(number, row, &mut told);
        }
    }
    told.sites = finder.found.iter().filter_map(At::of).take(MAX_SITES).collect();
    Some(told)
}

/// What was found in a file so far.
struct Finder<'a> {
    asked: &'a AskedCalls,
    watched: Vec<Site>,
    symbols: Symbols<'a>,
    extents: Extents,
    /// Functions by address.
    seen: BTreeMap<u64, u16>,
    /// Where ends are probed, in the file.
    ends: HashSet<u64>,
    found: Vec<Site>,
}

impl Finder<'_> {
    /// Probes a function, if the file has it.
    fn function(&mut self, number: u16, row: &'static LibraryFunction, probes: &mut ToldCalls) {
        let arch = self.symbols.headers.arch;
        let code = match self.code(number, row.symbol) {
            Ok(Some(code)) => code,
            // What is not defined here is not called here.
            Ok(None) => return,
            Err(why) => return probes.left_out.push((number, why)),
        };
        if let Some(&known) = self.seen.get(&code.vaddr) {
            return probes.shared.push((number, known));
        }
        if prologue::is_refused(arch, &code.bytes, code.vaddr) {
            return probes.left_out.push((number, Lack::Refused));
        }
        self.seen.insert(code.vaddr, number);
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
                probes.endless.push(number);
                (usual(), By::Library, ENDLESS, Vec::new())
            }
        };
        if prologue::is_rewritten(arch, &code.bytes, placement.offset) {
            return probes.left_out.push((number, Lack::Rewritten));
        }
        let Some(file_offset) = code.file_offset.checked_add(placement.offset) else { return };
        let function = probed(row, number.into(), by);
        let entry = Site { function, file_offset, placement, detail, counter: 0 };
        if ends.iter().chain([&entry]).any(|site| site.placement.cost == Cost::SingleStepped) {
            probes.dear.push(number);
        }
        probes.functions += 1;
        ends.retain(|site| self.ends.insert(site.file_offset));
        self.found.extend(ends);
        self.found.push(entry);
    }

    /// Where a function's lock is read, if that is watched to its return.
    fn watched(&self, symbol: &str) -> Option<Placement> {
        let mut sites = self.watched.iter();
        sites.find(|site| site.function.symbol == symbol && site.function.by == By::Return).map(|s| s.placement.clone())
    }

    /// The code of a function; `None` if the file does not define it.
    fn code(&self, number: u16, symbol: &str) -> Result<Option<Code>, Lack> {
        match self.symbols.find(symbol) {
            Found::Absent => Ok(None),
            Found::NotInFile => Err(Lack::Outside),
            Found::Code(code) if !code.complete => Ok(Some(self.whole(code.vaddr).unwrap_or(code))),
            Found::Code(code) => Ok(Some(code)),
            Found::Ifunc(resolver) => {
                let candidates = self.asked.chosen.iter().filter(|(function, _)| *function == number);
                let is_chosen =
                    |&vaddr: &u64| vaddr != 0 && vaddr != resolver && self.symbols.code_at(vaddr, 0).is_some();
                let vaddr = candidates.flat_map(|(_, all)| all).copied().find(is_chosen).ok_or(Lack::Unresolved)?;
                let code = self.whole(vaddr).or_else(|| self.symbols.code_at(vaddr, 0));
                code.map(Some).ok_or(Lack::Unresolved)
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
                sites.push(Site {
                    function: probed(row, END, By::Library),
                    file_offset,
                    placement,
                    detail,
                    counter: 0,
                });
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
}

/// A function of whatever C library it is.
fn probed(row: &LibraryFunction, code: u64, by: By) -> Function {
    Function { symbol: row.symbol, runtime: Runtime::Glibc, args: 0, code, by, essential: false }
}
