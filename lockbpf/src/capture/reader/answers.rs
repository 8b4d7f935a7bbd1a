//! What is believed of answers: the process that gives them may have been taken over by what it read. A probe is believed if it is in code of
//! the file that was asked about, for a function that was asked for.

use super::super::elf::{Libc, MAX_CODE};
use super::super::judge::Role;
use super::super::mangled;
use super::super::probe_table::{By, FUNCTIONS, Runtime};
use super::super::prologue::Arch;
use super::super::site::{Lack, Missing, Site};
use super::super::unusable::Unusable;
use super::code::CodeRanges;
use super::{Asked, AskedCalls, At, MAX_SITES, Resolver, Row, Tells, Told, ToldCalls, ToldDescribed};
use crate::capture::described::Wanted;
use crate::capture::elf::ElfError;
use crate::measures::library;
use crate::untrusted::cleaned;
use std::collections::HashMap;

/// Bytes of a build id.
const MAX_BUILD_ID: usize = 64;
/// Bytes of an instruction as text, and of what a message quotes of a file.
const MAX_INSTRUCTION: usize = 128;
const MAX_QUOTED: usize = 512;
/// Bytes of a symbol.
const MAX_SYMBOL: usize = 4_096;
/// Bytes of the path of a loader.
const MAX_PATH: usize = 4_096;
/// Probes at the ends of one function.
const MAX_ENDS: usize = 512;
/// Probes of one description.
const MAX_OF_DESCRIPTION: usize = 4_096;

/// What was found in a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::capture) struct Places {
    /// Whose C library it contains; `None` if it is not looked for one.
    pub(in crate::capture) libc: Option<Libc>,
    /// Build id, if it has one.
    pub(in crate::capture) build_id: Option<Vec<u8>>,
    /// Where its probes go; empty if it is unusable.
    pub(in crate::capture) sites: Vec<Site>,
    /// What cannot be probed in it.
    pub(in crate::capture) missing: Vec<Missing>,
    /// Why nothing in it is probed, if so.
    pub(in crate::capture) unusable: Option<Unusable>,
}

/// What was found of functions of the C library.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::capture) struct Calls {
    /// Where they are probed.
    pub(in crate::capture) sites: Vec<Site>,
    /// Functions whose calls are seen.
    pub(in crate::capture) functions: usize,
    /// Functions of which calls are only counted.
    pub(in crate::capture) endless: Vec<&'static str>,
    /// Functions with a probe that must be single-stepped.
    pub(in crate::capture) dear: Vec<&'static str>,
    /// Functions left out.
    pub(in crate::capture) left_out: Vec<(&'static str, Lack)>,
    /// Names of functions that go by another name as well, by which they are known, in that order.
    pub(in crate::capture) shared: Vec<(&'static str, &'static str)>,
}

/// What was found of the described functions in a file.
#[derive(Clone, Debug, Default)]
pub struct Described {
    /// Where they are probed; the detail has the number of the description.
    pub sites: Vec<Site>,
    /// Symbols, one for each of the sites.
    pub symbols: Vec<String>,
    /// What cannot be probed.
    pub missing: Vec<Missing>,
}

/// What there may be in an answer about a file.
pub(in crate::capture) struct Expected<'a> {
    /// Where the file's code is.
    pub(in crate::capture) code: CodeRanges,
    /// Whose functions of a C library there may be; the row's own, if it is not known.
    pub(in crate::capture) runtime: Runtime,
    /// Whether a probe of this row may be there.
    pub(in crate::capture) rows: &'a dyn Fn(Row) -> bool,
}

impl Expected<'_> {
    /// The probes, if all of them can be there.
    fn sites(&self, all: Vec<At>) -> Option<Vec<Site>> {
        if all.len() > MAX_SITES {
            return None;
        }
        let mut counts: HashMap<(Row, Tells), usize> = HashMap::new();
        all.into_iter()
            .map(|at| {
                let (row, tells) = (at.row, at.tells);
                let count = counts.entry((row, tells)).or_default();
                *count += 1;
                let fits = *count <= most(row, tells);
                self.site(at).filter(|_| fits)
            })
            .collect()
    }

    fn site(&self, at: At) -> Option<Site> {
        let row = at.row;
        // Where it begins matters as well: that is where a probe goes if the user has it so.
        let first = at.file_offset.checked_sub(at.offset)?;
        let is_in_code = at.offset < MAX_CODE && self.code.contain(first, at.file_offset);
        let counter = at.counter;
        let is_whole = Arch::host() != Some(Arch::Aarch64) || at.file_offset.is_multiple_of(4);
        let mut site = at.site(self.runtime)?;
        // The kernel writes there, so nobody but a point says where.
        let is_counted = counter == 0 || site.function.by == By::CustomPoint && self.code.may_count(counter);
        site.placement.instruction = text(site.placement.instruction, MAX_INSTRUCTION);
        (is_in_code && is_counted && is_whole && (self.rows)(row)).then_some(site)
    }

    fn missing(&self, all: Vec<(Row, Lack)>, most: usize) -> Option<Vec<Missing>> {
        let missing = |(row, reason): (Row, Lack)| {
            let function = row.function(self.runtime).filter(|_| (self.rows)(row))?;
            Some(Missing { function, reason })
        };
        if all.len() > most { None } else { all.into_iter().map(missing).collect() }
    }
}

/// How often a function can be probed in a file.
fn most(row: Row, tells: Tells) -> usize {
    match (row, tells) {
        (Row::Libc(_), _) | (Row::Call(_), Tells::Begin | Tells::BeginWatched) => 1,
        (Row::Compiled(_), _) => 2 * mangled::MAX_SITES,
        (Row::Go(_) | Row::Call(_), _) => MAX_ENDS,
        (Row::Described(_), _) => MAX_OF_DESCRIPTION,
    }
}

/// What is told of a file that was asked about, if it can be so.
pub(super) fn places(told: Told, asked: &Asked, code: CodeRanges) -> Option<Places> {
    let Told { libc, build_id, sites, missing, unusable } = told;
    let runtime = if libc == Some(Libc::Musl) { Runtime::Musl } else { Runtime::Glibc };
    let may_have = |row| match row {
        Row::Libc(at) => {
            let is_own = FUNCTIONS.get(usize::from(at)).is_some_and(|function| function.runtime == runtime);
            libc.is_some() && is_own && asked.role != Role::Library
        }
        Row::Compiled(_) => asked.role != Role::CLibrary,
        Row::Go(_) => asked.role == Role::Executable,
        Row::Described(number) => {
            asked.role != Role::CLibrary && asked.wanted.iter().any(|wanted| wanted.number == number)
        }
        Row::Call(_) => false,
    };
    let expected = Expected { code, runtime, rows: &may_have };
    let sites = expected.sites(sites)?;
    let missing = expected.missing(missing, FUNCTIONS.len() + asked.wanted.len())?;
    let build_id = build_id.filter(|id| id.len() <= MAX_BUILD_ID);
    let fits = unusable.is_none() || sites.is_empty();
    fits.then_some(Places { libc, build_id, sites, missing, unusable: unusable.map(quoted) })
}

/// What is told of functions of the C library, if it can be so.
pub(super) fn calls(told: ToldCalls, asked: &AskedCalls, runtime: Runtime, code: CodeRanges) -> Option<Calls> {
    let is_asked = |number: u16| asked.functions.contains(&number);
    let may_have = |row| matches!(row, Row::Call(number) if is_asked(number));
    let sites = Expected { code, runtime, rows: &may_have }.sites(told.sites)?;
    let name =
        |number: u16| library::FUNCTIONS.get(usize::from(number)).filter(|_| is_asked(number)).map(|row| row.symbol);
    let most = asked.functions.len();
    let lengths = [told.functions, told.endless.len(), told.dear.len(), told.left_out.len(), told.shared.len()];
    if lengths.iter().any(|&length| length > most) {
        return None;
    }
    Some(Calls {
        sites,
        functions: told.functions,
        endless: told.endless.into_iter().map(name).collect::<Option<_>>()?,
        dear: told.dear.into_iter().map(name).collect::<Option<_>>()?,
        left_out: told.left_out.into_iter().map(|(n, why)| Some((name(n)?, why))).collect::<Option<_>>()?,
        shared: told.shared.into_iter().map(|(n, known)| Some((name(n)?, name(known)?))).collect::<Option<_>>()?,
    })
}

/// What is told of described functions, if it can be so.
pub(super) fn described(told: ToldDescribed, wanted: &[Wanted], code: CodeRanges) -> Option<Described> {
    let may_have = |row| matches!(row, Row::Described(number) if wanted.iter().any(|wanted| wanted.number == number));
    let expected = Expected { code, runtime: Runtime::Described, rows: &may_have };
    let sites = expected.sites(told.sites)?;
    let missing = told.missing.into_iter().map(|(number, why)| (Row::Described(number), why)).collect();
    let missing = expected.missing(missing, wanted.len())?;
    let symbols: Vec<_> = told.symbols.into_iter().take(MAX_SITES).map(|symbol| text(symbol, MAX_SYMBOL)).collect();
    (symbols.len() == sites.len()).then_some(Described { sites, symbols, missing })
}

/// Those of the functions that were asked about.
pub(super) fn resolvers(told: Vec<Resolver>, asked: &[u16]) -> Option<Vec<Resolver>> {
    let fits = told.len() <= asked.len() && told.iter().all(|resolver| asked.contains(&resolver.function));
    fits.then_some(told)
}

/// A path that can be executed.
pub(super) fn interpreter(path: Vec<u8>) -> Option<Vec<u8>> {
    let fits = path.starts_with(b"/") && path.len() < MAX_PATH && !path.contains(&0);
    fits.then_some(path)
}

/// A reason whose quotations cannot write on a terminal.
pub(super) fn quoted(why: Unusable) -> Unusable {
    let quote = |quoted: String| text(quoted, MAX_QUOTED);
    match why {
        Unusable::OldGo(release) => Unusable::OldGo(quote(release)),
        Unusable::GoTable(release) => Unusable::GoTable(quote(release)),
        Unusable::GoCode { release, function } => {
            Unusable::GoCode { release: quote(release), function: quote(function) }
        }
        Unusable::Lacks(functions) => Unusable::Lacks(text(functions, MAX_SYMBOL)),
        Unusable::Unreadable(why) => Unusable::Unreadable(quote(why)),
        Unusable::Elf(error) => Unusable::Elf(damage(error)),
        Unusable::StaticWithoutSymbols
        | Unusable::StaticWithoutLocks
        | Unusable::NoLibc
        | Unusable::UnknownLibc
        | Unusable::Stubs(_)
        | Unusable::NoThreads(_)
        | Unusable::Translated(_)
        | Unusable::ForeignProcessor
        | Unusable::Replaced
        | Unusable::OutOfTime
        | Unusable::TooManyFiles => why,
    }
}

/// See [`quoted`].
pub(super) fn damage(error: ElfError) -> ElfError {
    match error {
        ElfError::Damaged(why) => ElfError::Damaged(text(why, MAX_QUOTED)),
        ElfError::NotElf | ElfError::ThirtyTwoBit | ElfError::Machine(_) => error,
    }
}

fn text(mut text: String, most: usize) -> String {
    text.truncate(text.floor_char_boundary(most));
    cleaned(text)
}
