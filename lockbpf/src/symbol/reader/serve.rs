//! The process's side: questions are answered one after the other, from the files that were sent.

use super::super::debug_file;
use super::super::dwarf::{DwarfError, Storage, Types};
use super::super::elf::{ElfError, Layout};
use super::super::files::{FileId, ObjectFile};
use super::super::find::Kind;
use super::super::globals::{self, Globals};
use super::super::guard::guarded;
use super::super::resolver::Resolver;
use super::super::thread_local::ThreadLocals;
use super::super::unwind::Tables;
use super::answers::{Named, StaticName};
use super::contains::contains;
use super::listed;
use super::{Answer, Ask, Problems, Question};
use crate::sandbox::socket;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// Symbols in one answer.
const MAX_SYMBOLS: usize = 65_536;
/// Bytes of the names in one answer. Each may take two as JSON.
const MAX_TEXT: usize = 4 << 20;

/// Answers until the other end of the socket is closed. What debug files share is looked for in `dirs`.
///
/// # Errors
/// When the socket fails, or what comes over it makes no sense.
pub fn serve(socket: &UnixStream, dirs: &[PathBuf]) -> io::Result<()> {
    let mut files = Files::new(dirs);
    while let Some((bytes, descriptors)) = socket::receive(socket)? {
        let ask = serde_json::from_slice(&bytes).map_err(io::Error::other)?;
        if let Some(answer) = files.take(ask, descriptors) {
            socket::send(socket, &serde_json::to_vec(&answer).map_err(io::Error::other)?, &[])?;
        }
    }
    Ok(())
}

/// The files that were sent, and what was read of them.
pub(super) struct Files {
    files: HashMap<FileId, ObjectFile>,
    resolver: Resolver,
    globals: HashMap<FileId, Globals>,
    thread_locals: HashMap<FileId, ThreadLocals>,
    types: Types,
    unwind: Tables,
    /// Files of which no debug information is read.
    plain: HashSet<FileId>,
}

impl Files {
    pub(super) fn new(dirs: &[PathBuf]) -> Self {
        Self {
            files: HashMap::new(),
            resolver: Resolver::new(dirs),
            globals: HashMap::new(),
            thread_locals: HashMap::new(),
            types: Types::default(),
            unwind: Tables::default(),
            plain: HashSet::new(),
        }
    }

    /// The answer, if there is to be one.
    pub(super) fn take(&mut self, ask: Ask, descriptors: Vec<OwnedFd>) -> Option<Answer> {
        let mut descriptors = descriptors.into_iter().map(File::from);
        match ask {
            Ask::Ready => Some(Answer::Ready),
            Ask::File { id, name, layout, has_debug, has_shared, plain } => {
                if plain {
                    self.plain.insert(id);
                }
                let file = descriptors.next()?;
                let debug = if has_debug { descriptors.next() } else { None };
                let shared_debug = if has_shared { descriptors.next() } else { None };
                self.files.insert(id, ObjectFile { name, file, debug, shared_debug, layout });
                None
            }
            Ask::Headers => Some(match descriptors.next().map(|file| guarded(|| Layout::read(&file))) {
                Some(Some(Err(ElfError::NotElf))) => Answer::NotElf,
                Some(Some(read)) => Answer::Headers(read.map_err(|error| error.to_string())),
                _ => Answer::Headers(Err("it is damaged".to_owned())),
            }),
            Ask::Checksum => {
                let read =
                    descriptors.next().map(|file| debug_file::checksum(&file).map_err(|error| error.to_string()));
                Some(Answer::Checksum(read.unwrap_or_else(|| Err("no file came".to_owned()))))
            }
            Ask::Listed(part) => {
                let read = descriptors.next().and_then(|file| listed::read(&file, &part).ok());
                Some(Answer::Listed(read.unwrap_or_default()))
            }
            Ask::Of(id, question) => Some(self.answer(id, question)),
        }
    }

    fn answer(&mut self, id: FileId, question: Question) -> Answer {
        let mut problems = Problems::new();
        match question {
            Question::Frames(addr) => Answer::Frames(self.frames(id, addr)),
            Question::Variable(addr) => Answer::Variable(self.variable(id, addr, &mut problems), problems),
            Question::ThreadLocal(distance) => Answer::Text(self.thread_local(id, distance, &mut problems), problems),
            Question::Member(addr) => {
                let file = self.files.get(&id).filter(|_| !self.plain.contains(&id));
                let member = file.and_then(|file| {
                    let told = self.types.member(id, file, addr);
                    or_problem(&mut problems, &file.name, told)
                });
                Answer::Text(member, problems)
            }
            Question::Matching(kind, part) => {
                let symbols = self.table(id, kind);
                let found = symbols.iter().flat_map(|symbols| symbols.matching(&part));
                Answer::Symbols(bounded(found.map(|(name, range)| (name, range.start, range.end)), |(name, ..)| {
                    name.len()
                }))
            }
            Question::Exactly(kind, name) => {
                let symbols = self.table(id, kind);
                let found =
                    symbols.iter().flat_map(|symbols| symbols.matching(&name)).find(|(found, _)| *found == name);
                Answer::Symbols(found.into_iter().map(|(name, range)| (name, range.start, range.end)).collect())
            }
            Question::Row(addr) => {
                let file = self.files.get(&id);
                Answer::Row(file.map(|file| self.unwind.row(id, file, addr)).unwrap_or_default())
            }
            Question::Function(addr) => {
                let function = self.files.get(&id).and_then(|file| self.unwind.function(id, file, addr));
                Answer::Function(function.map(|function| (function.start, function.end)))
            }
            Question::Has(text) => {
                let file = self.files.get(&id);
                Answer::Has(file.is_some_and(|file| contains(&file.file, &text).unwrap_or(false)))
            }
            Question::Names(kind) => {
                Answer::Names(bounded(self.table(id, kind).iter().flat_map(Globals::names), String::len))
            }
        }
    }

    fn frames(&mut self, id: FileId, addr: u64) -> Vec<Named> {
        let Some(file) = self.files.get(&id) else { return Vec::new() };
        let frames = self.resolver.frames(id, file, addr, self.plain.contains(&id));
        let named = |frame: &crate::names::Frame| Named {
            function: frame.function.clone(),
            location: frame.location.clone(),
            inlined: frame.inlined,
        };
        bounded(frames.iter().map(named), |named| {
            let path = named.location.as_ref().map_or(0, |(path, _)| path.len());
            path + named.function.as_ref().map_or(0, String::len)
        })
    }

    /// Symbols of a file and its debug file; what cannot be read has none.
    fn table(&self, id: FileId, kind: Kind) -> Option<Globals> {
        let file = self.files.get(&id)?;
        guarded(|| Globals::read_kind([&file.file].into_iter().chain(&file.debug), kind).0)
    }

    fn variable(&mut self, id: FileId, addr: u64, problems: &mut Problems) -> Option<StaticName> {
        let file = self.files.get(&id)?;
        let globals = self.globals.entry(id).or_insert_with(|| {
            let (globals, error) = Globals::read([&file.file].into_iter().chain(&file.debug));
            if let Some(error) = error {
                problems.push(format!(
                    "failed to read the symbols of {}: {error}; its locks stay without names",
                    file.name
                ));
            }
            globals
        });
        let found = globals.at(addr)?;
        let (start, offset) = (found.start, addr - found.start);
        let told = if self.plain.contains(&id) {
            None
        } else {
            let told = self.types.variable(id, file, (Storage::Static, start), offset);
            or_problem(problems, &file.name, told)
        };
        Some(StaticName { symbol: found.name(0, None), offset, told: found.name(offset, told.as_ref()) })
    }

    fn thread_local(&mut self, id: FileId, distance: u64, problems: &mut Problems) -> Option<String> {
        let file = self.files.get(&id)?;
        let variables = self.thread_locals.entry(id);
        let variables =
            variables.or_insert_with(|| ThreadLocals::read(&file.file, [&file.file].into_iter().chain(&file.debug)));
        let (name, start, offset) = variables.at(distance)?;
        if self.plain.contains(&id) {
            return Some(globals::name(&name, offset, None));
        }
        let told = self.types.variable(id, file, (Storage::ThreadLocal, start), offset);
        Some(globals::name(&name, offset, or_problem(problems, &file.name, told).as_ref()))
    }
}

/// As many as fit into an answer.
fn bounded<T>(all: impl Iterator<Item = T>, length: impl Fn(&T) -> usize) -> Vec<T> {
    let mut left = MAX_TEXT;
    all.take(MAX_SYMBOLS)
        .take_while(|one| {
            let fits = length(one) <= left;
            left = left.saturating_sub(length(one));
            fits
        })
        .collect()
}

/// What debug information told; that it could not be used is a problem.
fn or_problem<T>(problems: &mut Problems, file: &str, told: Result<Option<T>, DwarfError>) -> Option<T> {
    told.unwrap_or_else(|error| {
        problems.push(format!("failed to find types in {file}: {error}; its locks are named by their symbols only"));
        None
    })
}
