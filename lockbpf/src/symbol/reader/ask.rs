//! This side: questions, time limits, and what happens if the process does not answer.

use super::super::elf::{ElfError, Layout};
use super::super::files::{FileId, ObjectFile};
use super::super::find::Kind;
use super::super::unwind::Told;
use super::{Answer, Ask, Listed, Question, StaticName, answers};
use crate::names::Frame;
use crate::sandbox::{NotRead, Process};
use std::cell::RefCell;
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
#[cfg(fuzzing)]
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How long an answer may take: the largest programs' debug information is read in less. Code that is not optimised takes several times as
/// long.
const PATIENCE: Duration = Duration::from_secs(if cfg!(debug_assertions) { 60 } else { 10 });
/// The same where nothing but headers, unwind tables or a piece of a perf map is read, as it is while events come.
const SHORT_PATIENCE: Duration = Duration::from_secs(3);
/// How long answers that never came may take together; after that the process gets [`HURRY`] for each.
const LOST_IN_ALL: Duration = Duration::from_secs(30);
/// See [`LOST_IN_ALL`].
const HURRY: Duration = Duration::from_secs(1);
/// How often the process may fail to start before no more is asked.
const MAX_FAILURES: u32 = 3;
/// How often it may die before no more is asked.
const MAX_DEATHS: u32 = 256;
/// Memory that the process may keep while to read again would take so much of a CPU: [`Reader::rest`].
const MAY_KEEP: [(u64, f64); 2] = [(48 << 20, 0.02), (192 << 20, 0.2)];
/// Problems kept until somebody asks.
const MAX_PROBLEMS: usize = 64;

/// Asks. Handles share one process.
#[derive(Clone, Debug)]
pub(in super::super) struct Reader(Rc<RefCell<Inner>>);

#[derive(Debug)]
struct Inner {
    dirs: Vec<PathBuf>,
    running: Option<Process>,
    /// Files that the running process was sent.
    sent: HashSet<FileId>,
    /// Files of which no debug information is read.
    plain: HashSet<FileId>,
    /// Files of which nothing more is asked.
    given_up: HashSet<FileId>,
    lost: Duration,
    failures: u32,
    deaths: u32,
    problems: Vec<String>,
}

impl Reader {
    /// Starts the process when there is something to ask. `dirs` is where debug files are looked for.
    pub(in super::super) fn new(dirs: Vec<PathBuf>) -> Self {
        Self(Rc::new(RefCell::new(Inner {
            dirs,
            running: None,
            sent: HashSet::new(),
            plain: HashSet::new(),
            given_up: HashSet::new(),
            lost: Duration::ZERO,
            failures: 0,
            deaths: 0,
            problems: Vec::new(),
        })))
    }

    /// Gets answers from the other end of a socket, which has no process.
    #[cfg(fuzzing)]
    pub(super) fn told(socket: UnixStream) -> Self {
        let reader = Self::new(Vec::new());
        reader.0.borrow_mut().running = Some(Process::over(socket, None));
        reader
    }

    /// The headers of a file.
    ///
    /// # Errors
    /// When it is no ELF file, is malformed, or was not read.
    pub(in super::super) fn headers(&self, file: &File) -> Result<Layout, ElfError> {
        match self.0.borrow_mut().about(&Ask::Headers, file)? {
            Answer::Headers(Ok(layout)) => answers::layout(layout).ok_or(ElfError::TooLarge),
            Answer::Headers(Err(why)) => Err(ElfError::Told(answers::name(why))),
            Answer::NotElf => Err(ElfError::NotElf),
            _ => Err(NotRead::Nonsense.into()),
        }
    }

    /// The checksum of a file; `None` if it cannot be read.
    pub(in super::super) fn checksum(&self, file: &File) -> Option<u32> {
        match self.0.borrow_mut().about(&Ask::Checksum, file) {
            Ok(Answer::Checksum(Ok(crc))) => Some(crc),
            _ => None,
        }
    }

    /// What a part of a perf map lists, from its first byte on; `None` if that could not be read.
    pub(in super::super) fn listed(&self, name: &str, file: &File, part: Range<u64>) -> Option<Listed> {
        self.0.borrow_mut().listed(name, file, part)
    }

    /// See [`Question::Frames`].
    pub(in super::super) fn frames(&self, id: FileId, file: &ObjectFile, addr: u64) -> Vec<Frame> {
        match self.ask(id, file, Question::Frames(addr)) {
            Some(Answer::Frames(frames)) => answers::frames(frames),
            _ => Vec::new(),
        }
    }

    /// See [`Question::Variable`].
    pub(in super::super) fn variable(&self, id: FileId, file: &ObjectFile, addr: u64) -> Option<StaticName> {
        match self.ask(id, file, Question::Variable(addr))? {
            Answer::Variable(variable, problems) => {
                self.note(problems);
                variable.map(answers::variable)
            }
            _ => None,
        }
    }

    /// See [`Question::ThreadLocal`].
    pub(in super::super) fn thread_local(&self, id: FileId, file: &ObjectFile, distance: u64) -> Option<String> {
        self.text(id, file, Question::ThreadLocal(distance))
    }

    /// See [`Question::Member`].
    pub(in super::super) fn member(&self, id: FileId, file: &ObjectFile, return_addr: u64) -> Option<String> {
        self.text(id, file, Question::Member(return_addr))
    }

    /// See [`Question::Matching`].
    pub(in super::super) fn matching(
        &self,
        id: FileId,
        file: &ObjectFile,
        kind: Kind,
        part: &str,
    ) -> Vec<(String, Range<u64>)> {
        self.symbols(id, file, Question::Matching(kind, part.to_owned()))
    }

    /// See [`Question::Exactly`].
    pub(in super::super) fn exactly(
        &self,
        id: FileId,
        file: &ObjectFile,
        kind: Kind,
        name: &str,
    ) -> Option<Range<u64>> {
        self.symbols(id, file, Question::Exactly(kind, name.to_owned())).pop().map(|(_, range)| range)
    }

    /// See [`Question::Names`].
    pub(in super::super) fn names(&self, id: FileId, file: &ObjectFile, kind: Kind) -> Vec<String> {
        match self.ask(id, file, Question::Names(kind)) {
            Some(Answer::Names(names)) => names.into_iter().map(answers::name).collect(),
            _ => Vec::new(),
        }
    }

    /// See [`Question::Row`].
    pub(in super::super) fn row(&self, id: FileId, file: &ObjectFile, addr: u64) -> Told {
        match self.ask(id, file, Question::Row(addr)) {
            Some(Answer::Row(Told::Row(row))) => row.bounded().map_or(Told::Damaged, Told::Row),
            Some(Answer::Row(told)) => told,
            _ => Told::Nothing,
        }
    }

    /// See [`Question::Function`].
    pub(in super::super) fn function(&self, id: FileId, file: &ObjectFile, addr: u64) -> Option<Range<u64>> {
        match self.ask(id, file, Question::Function(addr))? {
            Answer::Function(function) => function.map(|(start, end)| start..end),
            _ => None,
        }
    }

    /// See [`Question::Has`]; what cannot be read has it not.
    pub(in super::super) fn has(&self, id: FileId, file: &ObjectFile, text: &str) -> bool {
        self.0.borrow_mut().has(id, file, text)
    }

    /// What could not be read since the last time, each a sentence.
    pub(in super::super) fn problems(&self) -> Vec<String> {
        std::mem::take(&mut self.0.borrow_mut().problems)
    }

    /// Ends the process if it keeps much of what it has read: it is started again when there is something to ask.
    pub(in super::super) fn rest(&self) {
        let mut inner = self.0.borrow_mut();
        let keeps = |process: &Process| MAY_KEEP.iter().any(|&(bytes, share)| process.keeps_too_much(bytes, share));
        if inner.running.as_ref().is_some_and(keeps) {
            inner.leave();
        }
    }

    /// A file has a debug file now: it is sent anew.
    pub(in super::super) fn forget(&self, id: FileId) {
        self.0.borrow_mut().sent.remove(&id);
    }

    fn text(&self, id: FileId, file: &ObjectFile, question: Question) -> Option<String> {
        match self.ask(id, file, question)? {
            Answer::Text(text, problems) => {
                self.note(problems);
                text.map(answers::name)
            }
            _ => None,
        }
    }

    fn symbols(&self, id: FileId, file: &ObjectFile, question: Question) -> Vec<(String, Range<u64>)> {
        match self.ask(id, file, question) {
            Some(Answer::Symbols(symbols)) => {
                symbols.into_iter().map(|(name, start, end)| (answers::name(name), start..end)).collect()
            }
            _ => Vec::new(),
        }
    }

    fn ask(&self, id: FileId, file: &ObjectFile, question: Question) -> Option<Answer> {
        self.0.borrow_mut().ask(id, file, question)
    }

    fn note(&self, problems: Vec<String>) {
        self.0.borrow_mut().note(answers::problems(problems));
    }
}

impl Inner {
    fn ask(&mut self, id: FileId, file: &ObjectFile, question: Question) -> Option<Answer> {
        if self.given_up.contains(&id) {
            return None;
        }
        let mut answer = self.about_file(id, file, question.clone());
        if let Err(why) = &answer
            && !matches!(why, NotRead::None(_))
            && self.plain.insert(id)
        {
            let problem = format!("failed to read {}: {why}; only its symbols are used", file.name);
            self.note([problem]);
            answer = self.about_file(id, file, question);
        }
        answer
            .inspect_err(|why| {
                self.given_up.insert(id);
                let problem =
                    format!("failed to read {}: {why}; its functions and locks stay without names", file.name);
                self.note([problem]);
            })
            .ok()
    }

    /// Takes long for a large file that the kernel has not in memory. That is no reason to do without its names.
    fn has(&mut self, id: FileId, file: &ObjectFile, text: &str) -> bool {
        if self.given_up.contains(&id) {
            return false;
        }
        match self.about_file(id, file, Question::Has(text.to_owned())) {
            Ok(answer) => matches!(answer, Answer::Has(true)),
            Err(why) => {
                self.note([format!("failed to read {}: {why}; it passes for a file without {text}", file.name)]);
                false
            }
        }
    }

    fn listed(&mut self, name: &str, file: &File, part: Range<u64>) -> Option<Listed> {
        let bytes = part.end.saturating_sub(part.start);
        let ask = Ask::Listed(part);
        let answer = match self.about(&ask, file) {
            // It may have been what it keeps of other files that ended it.
            Err(NotRead::Died(_)) => self.about(&ask, file),
            answer => answer,
        };
        let believed = |answer| match answer {
            Answer::Listed(told) => answers::listed(told, bytes),
            _ => None,
        };
        answer
            .and_then(|answer| {
                believed(answer).ok_or_else(|| {
                    self.end();
                    NotRead::Nonsense
                })
            })
            .inspect_err(|why| {
                self.note([format!("failed to read {name}: {why}; what it lists from now on stays without names")]);
            })
            .ok()
    }

    fn about_file(&mut self, id: FileId, file: &ObjectFile, question: Question) -> Result<Answer, NotRead> {
        self.send_file(id, file)?;
        self.exchange(&Ask::Of(id, question), &[])
    }

    fn about(&mut self, ask: &Ask, file: &File) -> Result<Answer, NotRead> {
        self.start()?;
        self.exchange(ask, &[file.as_fd()])
    }

    fn note(&mut self, problems: impl IntoIterator<Item = String>) {
        let room = MAX_PROBLEMS.saturating_sub(self.problems.len());
        self.problems.extend(problems.into_iter().take(room));
    }

    fn send_file(&mut self, id: FileId, file: &ObjectFile) -> Result<(), NotRead> {
        // Before that is asked, since what the last one was sent is not known to a new one.
        self.start()?;
        if self.sent.contains(&id) {
            return Ok(());
        }
        let ask = Ask::File {
            id,
            name: file.name.clone(),
            layout: file.layout.clone(),
            has_debug: file.debug.is_some(),
            has_shared: file.shared_debug.is_some(),
            plain: self.plain.contains(&id),
        };
        let files = [Some(&file.file), file.debug.as_ref(), file.shared_debug.as_ref()];
        let files: Vec<BorrowedFd<'_>> = files.into_iter().flatten().map(AsFd::as_fd).collect();
        self.send(&ask, &files)?;
        self.sent.insert(id);
        Ok(())
    }

    fn exchange(&mut self, ask: &Ask, files: &[BorrowedFd<'_>]) -> Result<Answer, NotRead> {
        self.send(ask, files)?;
        let patience = if self.lost < LOST_IN_ALL { patience(ask) } else { HURRY };
        let began = Instant::now();
        match self.process().and_then(|process| process.receive_within(patience)) {
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(answer) => Ok(answer),
                Err(_) => {
                    self.end();
                    Err(NotRead::Nonsense)
                }
            },
            Err(error) => {
                self.lost += began.elapsed();
                let too_long = error.kind() == io::ErrorKind::TimedOut;
                let status = self.end();
                Err(if too_long { NotRead::TooLong(patience) } else { NotRead::Died(status) })
            }
        }
    }

    fn send(&mut self, ask: &Ask, files: &[BorrowedFd<'_>]) -> Result<(), NotRead> {
        let bytes = serde_json::to_vec(ask).map_err(|_| NotRead::Nonsense)?;
        let sent = self.process().and_then(|process| process.send(&bytes, files));
        sent.map_err(|_| NotRead::Died(self.end()))
    }

    /// The process that was started. If that has ended since, another one would know nothing of what it was sent.
    fn process(&self) -> io::Result<&Process> {
        self.running.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Ends the process, and tells how it had ended, if it had.
    fn end(&mut self) -> String {
        self.sent.clear();
        self.deaths += 1;
        self.running.take().map_or_else(|| "it was not there".to_owned(), Process::end)
    }

    /// Ends the process, which did nothing wrong.
    fn leave(&mut self) {
        self.sent.clear();
        self.running = None;
    }

    /// Starts the process unless it runs.
    fn start(&mut self) -> Result<(), NotRead> {
        if self.failures >= MAX_FAILURES || self.deaths >= MAX_DEATHS {
            return Err(NotRead::None("it failed too often".to_owned()));
        }
        if self.running.as_ref().is_some_and(Process::is_worn) {
            self.leave();
        }
        // One that ended while nothing was asked of it was not ended by what is asked now.
        if self.running.as_mut().is_some_and(Process::has_ended) {
            let how = self.end();
            self.note([format!("the process that reads such files had ended ({how}) and was started anew")]);
        }
        if self.running.is_none() {
            let started = start(&self.dirs).and_then(Process::greeted).inspect_err(|_| self.failures += 1);
            self.running = Some(started.map_err(|error| NotRead::None(error.to_string()))?);
        }
        Ok(())
    }
}

/// How long an answer may take.
fn patience(ask: &Ask) -> Duration {
    match ask {
        Ask::Ready | Ask::Headers | Ask::Listed(_) | Ask::Of(_, Question::Row(_) | Question::Function(_)) => {
            SHORT_PATIENCE
        }
        Ask::File { .. } | Ask::Checksum | Ask::Of(..) => PATIENCE,
    }
}

/// Starts the process.
#[cfg(not(any(test, fuzzing)))]
fn start(_: &[PathBuf]) -> io::Result<Process> {
    Process::start(&[])
}

/// In tests a thread of the test answers: the program is not lockbpf. What the process itself does is tested from outside.
#[cfg(test)]
fn start(dirs: &[PathBuf]) -> io::Result<Process> {
    if let Some(program) = super::tests::program() {
        return Process::start_as(&program, &[]);
    }
    let dirs = dirs.to_vec();
    Process::in_thread(move |socket| super::serve(socket, &dirs))
}

/// Fuzz targets say what is answered ([`Reader::told`]); nobody else is there to ask.
#[cfg(all(fuzzing, not(test)))]
fn start(_: &[PathBuf]) -> io::Result<Process> {
    Err(io::ErrorKind::Unsupported.into())
}
