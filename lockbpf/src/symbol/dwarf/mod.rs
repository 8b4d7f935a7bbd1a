//! What the debug information of a program says about its variables: which member of which structure is at an address.
//!
//! Nothing is read before it is asked for; then what is needed of a file's debug information is in memory until that of
//! another file takes its place ([`load::MAX_BYTES`]). Each question looks at one unit, found by the address's bytes
//! ([`index`]), and at the types that the path leads through.

mod call;
mod index;
mod info;
mod load;
mod lock_type;
mod path;
#[cfg(test)]
mod tests;

use super::argument::first_argument;
use super::files::{FileId, ObjectFile};
use super::guard::guarded;
use super::runtime;
use call::Call;
use gimli::constants as dw;
use index::Index;
pub(super) use index::Storage;
use info::{Info, Ref};
pub(super) use load::DwarfError;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

/// Variables that are remembered.
const MAX_KNOWN: usize = 65_536;

/// What debug information calls a place in a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Variable {
    /// As in the source, without a scope.
    pub(super) name: String,
    /// The function that it is a static variable of.
    pub(super) function: Option<String>,
    /// `.shards[3].lock`; empty for the whole.
    pub(super) path: String,
    /// Bytes from what the path leads to.
    pub(super) rest: u64,
}

/// Debug information that is in memory.
struct Open {
    info: Info,
    variables: Index,
    /// What was found of variables, by their starts.
    known: RefCell<HashMap<(Storage, u64), Option<Known>>>,
    bytes: u64,
}

/// What a variable is.
#[derive(Clone, Debug)]
struct Known {
    name: String,
    function: Option<String>,
    ty: Ref,
}

/// Debug information of files, as far as it was asked for.
#[derive(Default)]
pub(super) struct Types {
    open: HashMap<FileId, Open>,
    /// Those of which nothing more is to be had.
    given_up: HashSet<FileId>,
}

impl std::fmt::Debug for Types {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Types").field("open", &self.open.len()).finish_non_exhaustive()
    }
}

impl Types {
    /// What is `offset` bytes into the variable that begins at `start`, as the file numbers addresses (of thread-local
    /// variables: offsets in a thread's).
    ///
    /// # Errors
    /// When the file's debug information cannot be used; once for each file.
    pub(super) fn variable(
        &mut self,
        id: FileId,
        file: &ObjectFile,
        (storage, start): (Storage, u64),
        offset: u64,
    ) -> Result<Option<Variable>, DwarfError> {
        let Some(open) = self.open(id, file)? else { return Ok(None) };
        match guarded(|| variable(open, (storage, start), offset)) {
            Some(variable) => Ok(variable),
            None => {
                self.give_up(id);
                Err(DwarfError::Damaged)
            }
        }
    }

    /// The member that the first argument of a lock call points to, behind its object's type, as far as that is certain;
    /// the call returns to `return_addr`, as the file numbers addresses.
    ///
    /// # Errors
    /// When the file's debug information cannot be used; once for each file.
    pub(super) fn member(
        &mut self,
        id: FileId,
        file: &ObjectFile,
        return_addr: u64,
    ) -> Result<Option<String>, DwarfError> {
        if !file.layout.is_x86_64 {
            return Ok(None);
        }
        let Some(open) = self.open(id, file)? else { return Ok(None) };
        match guarded(|| member(open, file, return_addr)) {
            Some(member) => Ok(member),
            None => {
                self.give_up(id);
                Err(DwarfError::Damaged)
            }
        }
    }

    fn give_up(&mut self, id: FileId) {
        self.open.remove(&id);
        self.given_up.insert(id);
    }

    fn open(&mut self, id: FileId, file: &ObjectFile) -> Result<Option<&Open>, DwarfError> {
        if self.given_up.contains(&id) {
            return Ok(None);
        }
        if !self.open.contains_key(&id) {
            match guarded(|| read(file)).unwrap_or(Err(DwarfError::Damaged)) {
                Ok(Some(open)) => {
                    let held: u64 = self.open.values().map(|open| open.bytes).sum();
                    if held.saturating_add(open.bytes) > load::MAX_BYTES {
                        self.open.clear();
                    }
                    self.open.insert(id, open);
                }
                Ok(None) => self.give_up(id),
                Err(error) => {
                    self.give_up(id);
                    return Err(error);
                }
            }
        }
        Ok(self.open.get(&id))
    }
}

fn read(file: &ObjectFile) -> Result<Option<Open>, DwarfError> {
    let Some(sections) = load::load(file.debug.as_ref().unwrap_or(&file.file))? else { return Ok(None) };
    let mut bytes = sections.bytes;
    let shared = match &file.shared_debug {
        Some(shared) => load::load(shared)?,
        None => None,
    };
    bytes += shared.as_ref().map_or(0, |sections| sections.bytes);
    let info = Info::new(sections, shared)?;
    let variables = info.index(|addr| file.layout.covers(addr) && !file.layout.is_code(addr));
    log::debug!("{}: {} MiB of debug information, {} units", file.name, bytes >> 20, info.units());
    Ok(Some(Open { info, variables, known: RefCell::default(), bytes }))
}

fn variable(open: &Open, start: (Storage, u64), offset: u64) -> Option<Variable> {
    open.info.begin();
    let known = open.known.borrow().get(&start).cloned();
    let Known { name, function, ty } = match known {
        Some(known) => known?,
        None => {
            let known = find(open, start);
            let mut all = open.known.borrow_mut();
            if all.len() >= MAX_KNOWN {
                all.clear();
            }
            all.entry(start).or_insert(known).clone()?
        }
    };
    let path = path::path(&open.info, ty, offset).unwrap_or(path::Path { rest: offset, ..path::Path::default() });
    Some(Variable { name, function, path: path.text, rest: path.rest })
}

/// The variable that begins at an address.
fn find(Open { info, variables, .. }: &Open, start: (Storage, u64)) -> Option<Known> {
    variables.at(start.0, start.1).find_map(|at| {
        let (at, die, outer) = info.enclosing(at)?;
        if die.tag() != dw::DW_TAG_variable || info.place(at, &die) != Some(start) {
            return None;
        }
        let function = outer.iter().rev().find_map(|&at| {
            let die = info.die(at)?;
            let is_function = matches!(die.tag(), dw::DW_TAG_subprogram | dw::DW_TAG_inlined_subroutine);
            is_function.then(|| info.name(at, &die)).flatten()
        });
        Some(Known { name: info.name(at, &die)?, function, ty: info.type_of(at, &die)? })
    })
}

fn member(Open { info, .. }: &Open, file: &ObjectFile, return_addr: u64) -> Option<String> {
    info.begin();
    let call = Call::at(info, info.unit_of_code(return_addr.checked_sub(1)?)?, return_addr)?;
    // A function that is called instead and goes on to the lock function may pass on something else.
    if !runtime::takes_lock_first(&call.callee) {
        return None;
    }
    let code = file.code(&call.function)?;
    call.member(info, &first_argument(&code, call.function.start, return_addr)?)
}
