//! This side: who is asked, within which time, and what happens if nobody answers.
//!
//! A process reads files of one owner only. One that was taken over by a file may answer what it likes; so it can tell lies about files of
//! whoever could have changed those files anyway, and about no others.

use super::super::described::Wanted;
use super::super::probe_table::Runtime;
use super::super::unusable::Unusable;
use super::answers::{self, Calls, Described, Places};
use super::code::CodeRanges;
use super::{Answer, Ask, Asked, AskedCalls, Resolver};
use crate::sandbox::{NotRead, Process};
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long an answer may take. Code that is not optimised takes several times as long.
pub(in crate::capture) const PATIENCE: Duration = Duration::from_secs(if cfg!(debug_assertions) { 60 } else { 10 });
/// Processes at one time; the one that was asked last longest ago goes.
const MAX_PROCESSES: usize = 4;
/// Who has read a file of more bytes is not kept: neither is the memory that this took.
const LARGE: u64 = 16 << 20;
/// How often processes may fail to start before no more is asked.
const MAX_FAILURES: u32 = 3;
/// How often they may die before no more is asked.
const MAX_DEATHS: u32 = 256;

/// The processes of this one.
static READERS: Mutex<Readers> = Mutex::new(Readers::new());

/// Whoever may change a file: its owner, and its group if that may write. On another file system, such as a container's, the same number may
/// be somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    device: u64,
    user: u32,
    group: Option<u32>,
}

impl Owner {
    pub(super) fn of(about: &Metadata) -> Self {
        let others_write = about.mode() & 0o022 != 0;
        Self { device: about.dev(), user: about.uid(), group: others_write.then(|| about.gid()) }
    }
}

pub(super) struct Readers {
    /// One that has read nothing yet.
    spare: Option<Process>,
    /// Those that are asked, the last one last.
    running: Vec<(Owner, Process)>,
    failures: u32,
    deaths: u32,
}

/// Starts a process beforehand, so that it is there when the first file is.
pub fn get_ready() {
    let mut readers = readers();
    if readers.spare.is_none() && readers.running.is_empty() {
        readers.spare = start().ok();
    }
}

/// Ends all of them.
pub fn dismiss() {
    let mut readers = readers();
    readers.spare = None;
    readers.running.clear();
}

fn readers() -> MutexGuard<'static, Readers> {
    READERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The loader that an executable asks for; `None` if it asks for none.
///
/// # Errors
/// If it is not an ELF file that lockbpf could observe, or was not read.
pub(in crate::capture) fn interpreter(open: &File) -> Result<Option<PathBuf>, Unusable> {
    match ask(open, &Ask::Interpreter)? {
        Answer::Interpreter(Ok(None)) => Ok(None),
        Answer::Interpreter(Ok(Some(path))) => {
            let path = answers::interpreter(path).ok_or_else(nonsense)?;
            Ok(Some(PathBuf::from(OsString::from_vec(path))))
        }
        Answer::Interpreter(Err(error)) => Err(Unusable::Elf(answers::damage(error))),
        _ => Err(nonsense()),
    }
}

/// Where a file's lock functions are; `None` if there is nothing to be probed.
///
/// # Errors
/// If it is an executable, but not one that lockbpf could observe, or was not read.
pub(in crate::capture) fn places(open: &File, asked: &Asked) -> Result<Option<Places>, Unusable> {
    match ask(open, &Ask::Places(asked.clone()))? {
        Answer::Places(Ok(None)) => Ok(None),
        Answer::Places(Ok(Some(told))) => {
            answers::places(told, asked, CodeRanges::read(open)).map(Some).ok_or_else(nonsense)
        }
        Answer::Places(Err(error)) => Err(Unusable::Elf(answers::damage(error))),
        _ => Err(nonsense()),
    }
}

/// Which of these functions of the C library are chosen when a program begins, and the address of what is at the file's beginning.
///
/// # Errors
/// If the file was not read.
pub(in crate::capture) fn resolvers(open: &File, functions: &[u16]) -> Result<(Vec<Resolver>, Option<u64>), Unusable> {
    match ask(open, &Ask::Resolvers(functions.to_vec()))? {
        Answer::Resolvers(told, base) => Ok((answers::resolvers(told, functions).ok_or_else(nonsense)?, base)),
        _ => Err(nonsense()),
    }
}

/// Where the beginnings and ends of functions of the C library are; nothing in a damaged file.
///
/// # Errors
/// If the file was not read.
pub(in crate::capture) fn calls(open: &File, asked: &AskedCalls, runtime: Runtime) -> Result<Calls, Unusable> {
    match ask(open, &Ask::Calls(asked.clone()))? {
        Answer::Calls(None) => Ok(Calls::default()),
        Answer::Calls(Some(told)) => answers::calls(told, asked, runtime, CodeRanges::read(open)).ok_or_else(nonsense),
        _ => Err(nonsense()),
    }
}

/// Where the described functions are in a file.
///
/// # Errors
/// If it is no file that could be probed, or was not read.
pub fn described(open: &File, wanted: &[Wanted]) -> Result<Described, Unusable> {
    match ask(open, &Ask::Described(wanted.to_vec()))? {
        Answer::Described(Ok(told)) => answers::described(told, wanted, CodeRanges::read(open)).ok_or_else(nonsense),
        Answer::Described(Err(why)) => Err(answers::quoted(why)),
        _ => Err(nonsense()),
    }
}

fn nonsense() -> Unusable {
    Unusable::Unreadable(NotRead::Nonsense.to_string())
}

fn ask(open: &File, ask: &Ask) -> Result<Answer, Unusable> {
    let unreadable = |error: &dyn std::fmt::Display| Unusable::Unreadable(error.to_string());
    let owner = Owner::of(&open.metadata().map_err(|error| unreadable(&error))?);
    readers().ask(owner, open, ask).map_err(|error| unreadable(&error))
}

impl Readers {
    pub(super) const fn new() -> Self {
        Self { spare: None, running: Vec::new(), failures: 0, deaths: 0 }
    }

    /// Asks once more if one dies that had read other files before: what it died of may be none of this one's.
    pub(super) fn ask(&mut self, owner: Owner, open: &File, ask: &Ask) -> Result<Answer, NotRead> {
        let bytes = serde_json::to_vec(ask).map_err(|_| NotRead::Nonsense)?;
        if let Some(process) = self.of(owner) {
            match self.exchange(owner, process, open, &bytes) {
                Err(NotRead::Died(_)) => {}
                answer => return answer,
            }
        }
        let process = self.start()?;
        self.exchange(owner, process, open, &bytes)
    }

    fn exchange(&mut self, owner: Owner, process: Process, open: &File, ask: &[u8]) -> Result<Answer, NotRead> {
        let answer = process.send(ask, &[open.as_fd()]).and_then(|()| process.receive_within(PATIENCE));
        let failed = match answer.map(|bytes| serde_json::from_slice(&bytes)) {
            Ok(Ok(answer)) => {
                if open.metadata().is_ok_and(|about| about.len() <= LARGE) {
                    self.running.push((owner, process));
                }
                return Ok(answer);
            }
            Ok(Err(_)) => None,
            Err(error) => Some(error.kind()),
        };
        self.deaths += 1;
        let status = process.end();
        Err(match failed {
            None => NotRead::Nonsense,
            Some(io::ErrorKind::TimedOut) => NotRead::TooLong(PATIENCE),
            Some(_) => NotRead::Died(status),
        })
    }

    /// The process that reads files of an owner, if there is one.
    fn of(&mut self, owner: Owner) -> Option<Process> {
        let at = self.running.iter().position(|(whose, _)| *whose == owner)?;
        let (_, mut process) = self.running.remove(at);
        (!process.is_worn() && !process.has_ended()).then_some(process)
    }

    /// One that has read nothing yet.
    fn start(&mut self) -> Result<Process, NotRead> {
        if self.failures >= MAX_FAILURES || self.deaths >= MAX_DEATHS {
            return Err(NotRead::None("it failed too often".to_owned()));
        }
        if self.running.len() >= MAX_PROCESSES {
            self.running.remove(0);
        }
        self.spare.take().map_or_else(start, Ok).and_then(Process::greeted).map_err(|error| {
            self.failures += 1;
            NotRead::None(error.to_string())
        })
    }
}

/// Starts a process.
#[cfg(not(any(test, fuzzing)))]
fn start() -> io::Result<Process> {
    Process::start(&[super::ARGUMENT])
}

/// In tests a thread answers, or a program that the test names.
#[cfg(test)]
fn start() -> io::Result<Process> {
    if let Some(program) = super::tests::program() {
        return Process::start_as(&program, &[super::ARGUMENT]);
    }
    Process::in_thread(crate::capture::serve::serve)
}

/// Fuzz targets check answers without asking.
#[cfg(all(fuzzing, not(test)))]
fn start() -> io::Result<Process> {
    Err(io::ErrorKind::Unsupported.into())
}
