//! Names for the addresses of real processes, also of those that have exited by the time the names are wanted.
//!
//! What names need is taken while a process lives: its executable mappings and an open handle of each file behind them
//! ([`Symbols::observe`], [`Symbols::refresh`]). Symbol tables and DWARF are read from those handles later, once per
//! file and only for files that an address is asked of.

mod argument;
mod call_instruction;
mod callers;
mod debug_file;
mod debuginfod;
mod dwarf;
mod elf;
mod files;
mod find;
mod frames;
mod generated;
mod globals;
mod guard;
mod identity;
mod kept;
mod known;
mod maps;
mod perf_map;
mod reader;
mod resolver;
mod runtime;
mod search;
mod space;
mod system_call;
mod tail_call;
mod thread_local;
mod threads;
mod unwind;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;

use crate::id::{Lock, Process, Site};
use crate::kallsyms::Kallsyms;
use crate::leader;
use crate::names::{Frame, Names};
use crate::stack::{Role, call_stack};
use crate::untrusted::cleaned;
use crate::unwind::{End, StackCopy, Unwind, Unwound};
use files::{FileId, Files};
pub use find::{Found, Kind};
pub use generated::{Frames, Piece};
use identity::Layout;
use kept::Kept;
use known::Known;
use lockbpf_common::python::PythonFrame;
use maps::Mapping;
#[cfg(fuzzing)]
pub use reader::fuzz;
pub use reader::serve;
use reader::{Reader, StaticName};
pub use search::Search;
use space::{Image, Place, Region};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use unwind::Unwinder;

/// Process images known at one time, as many as the kernel side can number.
const MAX_PROCESSES: usize = lockbpf_common::config::MAX_PROCESSES as usize;
/// Locks of kinds that users have described, as many as the kernel side enters.
const MAX_KINDS: usize = lockbpf_common::custom::MAX_LOCKS as usize;
/// Distinct problems remembered.
const MAX_PROBLEMS: usize = 64;

/// Why a process has no names.
#[derive(Debug, thiserror::Error)]
enum ProcessError {
    #[error("failed to read the mappings of process {pid}: {source}; its functions and locks stay without names")]
    Mappings { pid: u32, source: io::Error },
    #[error("functions and locks of further processes stay without names: {MAX_PROCESSES} have some already")]
    Full,
}

/// A file in the memory of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Last component of its path.
    pub name: String,
    /// GNU build id.
    pub build_id: Option<Vec<u8>>,
    /// Where it lies.
    pub range: Range<u64>,
    /// What is added to an address in the file to get one in memory; it may wrap around.
    pub bias: u64,
}

/// Names of functions and variables in observed processes.
///
/// Bounded: 8,192 processes, each with 4,096 images, 32 MiB of maps, a perf map of 128 MiB or 1,048,576 functions, 262,144 others; a
/// sixth of the descriptors allowed and at most 4,096 files, 1,048,576 variables a file; 65,536 resolved addresses; 512 MiB of
/// debug information for types.
/// What exceeds a bound stays unnamed, and [`Symbols::problems`] says so where whole files or processes are concerned.
#[derive(Debug)]
pub struct Symbols {
    files: Files,
    reader: Reader,
    frames: frames::Frames,
    processes: HashMap<Process, Known>,
    /// A process of each image: those that are forked from it have the same mappings.
    images: HashMap<Layout, Process>,
    /// What locks are called that no symbol names.
    given: HashMap<Lock, String>,
    /// What their kinds are called that users have described.
    kinds: HashMap<Lock, String>,
    /// `None` until it is needed; empty if it cannot be had.
    kernel: Option<Kallsyms>,
    unwinder: Unwinder,
    /// Calls of functions that were left by a jump, and where; by return addresses.
    left: Kept<(FileId, u64), Option<u64>>,
    /// Whether the code around an address is part of locking, where only the code tells.
    locking: Kept<(FileId, u64), bool>,
    /// Whether a call comes before an address.
    calls: Kept<(FileId, u64), bool>,
    /// Parts of locking functions that have no symbols of their own, by where they begin.
    parts: Kept<FileId, Vec<(u64, &'static str)>>,
    /// What all perf maps may take together.
    perf_maps: perf_map::Budget,
    problems: BTreeSet<String>,
}

impl Default for Symbols {
    fn default() -> Self {
        Self::new()
    }
}

impl Symbols {
    /// Knows no process yet; separate debug files are looked for where distributions install them.
    #[must_use]
    pub fn new() -> Self {
        Self::with_debug_dirs(debug_file::DEFAULT_DIRS.iter().map(PathBuf::from).collect())
    }

    /// As [`Symbols::new`], with other directories laid out like `/usr/lib/debug`.
    #[must_use]
    pub fn with_debug_dirs(dirs: Vec<PathBuf>) -> Self {
        let reader = Reader::new(dirs.clone());
        Self {
            frames: frames::Frames::new(reader.clone()),
            files: Files::new(dirs, reader.clone()),
            processes: HashMap::new(),
            images: HashMap::new(),
            given: HashMap::new(),
            kinds: HashMap::new(),
            kernel: None,
            unwinder: Unwinder::new(reader.clone()),
            reader,
            left: Kept::default(),
            locking: Kept::default(),
            calls: Kept::default(),
            parts: Kept::default(),
            perf_maps: perf_map::Budget::default(),
            problems: BTreeSet::new(),
        }
    }

    /// Takes what names need from a process that runs now under this pid (of the initial pid namespace). Errors are not
    /// fatal: see [`Symbols::problems`].
    pub fn observe(&mut self, process: Process, pid: u32) {
        if self.processes.len() >= MAX_PROCESSES && !self.processes.contains_key(&process) {
            self.problem(&ProcessError::Full);
            return;
        }
        self.processes.entry(process).or_insert_with(|| Known::new(pid));
        let Some((identity, Some(layout))) = identity::of(pid, pid) else { return self.refresh(process) };
        let twin = *self.images.entry(layout).or_insert(process);
        if twin != process && self.share(process, twin) {
            if let Some(known) = self.processes.get_mut(&process) {
                known.identity = Some(identity);
            }
        } else {
            self.refresh(process);
        }
    }

    /// As [`Symbols::observe`], of a process that `parent` has just forked: it has that one's mappings, even if it has exited by now.
    pub fn observe_forked(&mut self, process: Process, pid: u32, parent: Process) {
        let is_new = self.processes.len() < MAX_PROCESSES && !self.processes.contains_key(&process);
        if is_new {
            self.processes.insert(process, Known::new(pid));
        }
        if !is_new || !self.share(process, parent) {
            self.observe(process, pid);
        }
    }

    /// Has a new process share the mappings of another one with the same image: to read them would take most of the time that a process
    /// takes. What it loads later is found by [`Symbols::refresh`].
    fn share(&mut self, process: Process, twin: Process) -> bool {
        let Some(twin) = self.processes.get(&twin).filter(|twin| !twin.space.is_empty()) else { return false };
        let (space, program, layout) = (twin.space.clone(), twin.program, twin.layout);
        let known = self.processes.get_mut(&process).filter(|known| known.space.is_empty());
        let Some((known, layout)) = known.zip(layout) else { return false };
        (known.space, known.program, known.layout) = (space, program, Some(layout));
        known.threads.begin(layout.stack());
        true
    }

    /// Adds what the process has loaded or generated since. Nothing is forgotten, so that a process that has exited, or
    /// a library that was unloaded, keeps its names; a process that meanwhile became another adds nothing.
    pub fn refresh(&mut self, process: Process) {
        let Some(known) = self.processes.get(&process) else { return };
        let (pid, is_known) = (known.pid, !known.space.is_empty());
        if is_known && leader::is_gone(pid) {
            return;
        }
        let (tid, mappings) = match maps::read(pid) {
            Ok(read) => read,
            // Exit after a good snapshot is what snapshots are for.
            Err(_) if is_known => return,
            Err(source) => return self.problem(&ProcessError::Mappings { pid, source }),
        };
        let (identity, layout) = identity::of(pid, tid).unzip();
        let layout = layout.flatten();
        if !known.is(identity, layout) {
            return;
        }
        let (images, regions) = self.keep(tid, &mappings);
        let program = self.files.at(Path::new(&format!("/proc/{tid}/exe")));
        if let Some(known) = self.processes.get_mut(&process) {
            known.space.merge(images, regions);
            known.generated.refresh(tid, &self.reader, &mut self.perf_maps);
            known.threads.refresh(tid, identity.map_or(0, |identity| identity.stack));
            known.program = known.program.or(program);
            known.identity = known.identity.or(identity);
            known.layout = known.layout.or(layout);
        }
    }

    /// As [`Symbols::refresh`], but only of what changes often: threads, and code that the process generates itself and lists somewhere.
    pub fn refresh_made(&mut self, process: Process) {
        if let Some(known) = self.processes.get_mut(&process)
            && !known.space.is_empty()
            && !leader::is_gone(known.pid)
            && let Some((identity, layout)) = identity::of(known.pid, known.pid)
            && known.is(Some(identity), layout)
        {
            known.identity = Some(identity);
            known.generated.refresh(known.pid, &self.reader, &mut self.perf_maps);
            known.threads.refresh(known.pid, 0);
        }
        if self.perf_maps.is_full() {
            remember(&mut self.problems, &perf_map::FULL);
        }
    }

    /// Takes in code that a process has generated, as its memory tells.
    pub fn know_generated(&mut self, process: Process, pieces: impl IntoIterator<Item = Piece>) {
        if let Some(known) = self.processes.get_mut(&process) {
            known.generated.know(pieces);
        }
    }

    /// The function that a process has generated into which a return address leads.
    #[must_use]
    pub fn generated(&self, process: Process, return_addr: u64) -> Option<&str> {
        self.processes.get(&process)?.generated.function(return_addr.wrapping_sub(1))
    }

    /// Whether a return address leads into code that is of no file, and of which nothing is known.
    #[must_use]
    pub fn is_unknown(&self, process: Process, return_addr: u64) -> bool {
        let call = return_addr.wrapping_sub(1);
        self.processes.get(&process).is_some_and(|known| {
            !matches!(known.space.place(call, &self.files), Some(Place::File(..)))
                && known.generated.function(call).is_none()
        })
    }

    /// Takes note of the code of an interpreter: what it runs is read from memory, and stands in stacks in its place.
    pub fn know_interpreter(&mut self, process: Process, code: Range<u64>) {
        if let Some(known) = self.processes.get_mut(&process) {
            known.interpreter = Some(code);
        }
    }

    /// Opens the files behind mappings.
    fn keep(&mut self, tid: u32, mappings: &[Mapping]) -> (Vec<Image>, Vec<Region>) {
        let (mut images, mut regions) = (Vec::new(), Vec::new());
        // Generated code may be mapped thousands of times from one file that is no program.
        let mut seen = HashMap::<(&Path, (u32, u32), u64), Option<FileId>>::new();
        for mapping in mappings.iter().take(space::MAX_ENTRIES) {
            let file = if mapping.inode == 0 {
                None
            } else {
                *seen.entry((&mapping.path, mapping.dev, mapping.inode)).or_insert_with(|| {
                    self.files.keep(tid, mapping).unwrap_or_else(|error| {
                        remember(&mut self.problems, &error);
                        None
                    })
                })
            };
            match file.and_then(|id| Image::of(mapping, id, &self.files)) {
                Some(image) => images.push(image),
                None => regions.push(Region::of(mapping)),
            }
        }
        (images, regions)
    }

    /// The files that a process has or had in memory.
    pub fn loaded(&self, process: Process) -> impl Iterator<Item = Loaded> {
        let images = self.processes.get(&process).into_iter().flat_map(|known| known.space.images());
        images.filter_map(|(range, bias, id)| {
            let file = self.files.get(id)?;
            Some(Loaded { name: file.name.clone(), build_id: file.layout.build_id.clone(), range, bias })
        })
    }

    /// What could not be read, each a sentence for the reader of a report.
    pub fn problems(&mut self) -> impl Iterator<Item = &str> {
        for problem in self.reader.problems() {
            remember(&mut self.problems, &problem);
        }
        self.problems.iter().map(String::as_str)
    }

    /// Gives back memory of what was read and need not be kept; to be called now and then.
    pub fn rest(&self) {
        self.reader.rest();
    }

    /// Whether a return address leads into code of the program itself or of its libraries, but the C library; as far as
    /// mappings tell, for it is asked of every address.
    #[must_use]
    pub fn is_own_code(&self, process: Process, return_addr: u64) -> bool {
        let Some(known) = self.processes.get(&process) else { return false };
        if known.generated.interpreted(return_addr.wrapping_sub(1)).is_some() {
            return true;
        }
        match known.space.place(return_addr.wrapping_sub(1), &self.files) {
            Some(Place::File(id, addr)) => {
                self.files.get(id).is_some_and(|file| !runtime::is_libc(&file.name) && file.layout.is_code(addr))
            }
            Some(Place::Region(..)) | None => false,
        }
    }

    /// The file in which a stack by frame pointers ends, if that is not where its thread began.
    pub fn ends_short(&mut self, process: Process, stack: &[u64]) -> Option<String> {
        let known = self.processes.get(&process).filter(|known| !known.space.is_empty())?;
        let place = |addr: u64| known.space.place(addr.wrapping_sub(1), &self.files);
        let Some((place, last)) = stack.iter().filter_map(|&addr| Some((place(addr)?, addr))).next_back() else {
            return Some("code that is not known".to_owned());
        };
        let file = match place {
            Place::File(id, _) => self.files.get(id).map(|file| file.name.clone()).unwrap_or_default(),
            Place::Region(name, _) => name.to_owned(),
        };
        // The C library starts threads; but without the program's own code in between, it is only where the walk began.
        if runtime::is_libc(&file) && stack.iter().any(|&addr| self.is_own_code(process, addr)) {
            return None;
        }
        let outermost = self.frames(process, last).pop().and_then(|frame| frame.function);
        (!outermost.is_some_and(|function| runtime::is_start(&function))).then_some(file)
    }

    /// The kernel's symbols, read when the first of them is wanted.
    fn kernel(&mut self) -> Option<&Kallsyms> {
        if self.kernel.is_none() {
            let symbols = Kallsyms::kernel().unwrap_or_else(|error| {
                remember(&mut self.problems, &format!("{error}; kernel locks and their callers stay without names"));
                Kallsyms::default()
            });
            self.kernel = Some(symbols);
        }
        self.kernel.as_ref()
    }

    /// Calls a lock by this name, which nothing in its process's files tells.
    pub fn call(&mut self, lock: Lock, name: String) {
        self.given.insert(lock, cleaned(name));
    }

    /// Whether it is known what a lock's kind is called.
    #[must_use]
    pub fn knows_kind(&self, lock: Lock) -> bool {
        self.kinds.contains_key(&lock)
    }

    /// Calls a lock's kind by this name.
    pub fn know_kind(&mut self, lock: Lock, kind: &str) {
        if self.kinds.len() < MAX_KINDS {
            self.kinds.entry(lock).or_insert_with(|| cleaned(kind.to_owned()));
        }
    }

    fn problem(&mut self, problem: &ProcessError) {
        remember(&mut self.problems, problem);
    }
}

/// Whether an address is the kernel's: the upper half of all addresses, on both architectures.
fn is_kernel(addr: u64) -> bool {
    addr >> 63 != 0
}

fn remember(problems: &mut BTreeSet<String>, problem: &impl ToString) {
    if problems.len() < MAX_PROBLEMS {
        problems.insert(cleaned(problem.to_string()));
    }
}

impl Unwind for Symbols {
    fn unwind(&mut self, copy: &StackCopy) -> Unwound {
        let Some(known) = self.processes.get(&copy.process) else {
            let addresses = vec![copy.registers.ip];
            return Unwound {
                addresses,
                slots: None,
                end: End::NoInformation,
                by_frame_pointers: false,
                interpreted: Vec::new(),
            };
        };
        let outside = |address| known.generated.outside(address);
        let mut unwound = self.unwinder.unwind(copy, &known.space, &self.files, outside);
        if let Some(interpreter) = known.interpreter.as_ref().filter(|_| !copy.python.is_empty()) {
            unwound.put_in_place(copy.python.iter().map(PythonFrame::address), interpreter);
        }
        unwound
    }
}

impl Names for Symbols {
    fn call_stack(&mut self, process: Process, raw: &[u64], site: Option<u64>) -> Vec<u64> {
        call_stack(raw, site, |addr| self.role(process, addr))
    }

    /// Without a snapshot of the process every address may be code.
    fn role(&mut self, process: Process, return_addr: u64) -> Role {
        // Stacks of the kernel are taken from the caller of the locking functions on.
        if is_kernel(return_addr) {
            return Role::Program;
        }
        let call = return_addr.wrapping_sub(1);
        self.place(process, call);
        let Some(known) = self.processes.get(&process).filter(|known| !known.space.is_empty()) else {
            return Role::Program;
        };
        if let Some((function, (file, _))) = known.generated.interpreted(call) {
            return if runtime::is_python_locking(function, file) { Role::Locking } else { Role::Program };
        }
        if known.interpreter.as_ref().is_some_and(|code| code.contains(&call)) {
            // Whoever asks where a lock was requested wants the function that it runs.
            return Role::Locking;
        }
        match known.space.place(call, &self.files) {
            Some(Place::File(id, addr)) => {
                let Some(file) = self.files.get(id) else { return Role::Nothing };
                let (is_libc, is_code) = (runtime::is_libc(&file.name), file.layout.is_code(addr));
                let is_nameless = runtime::is_nameless_locking(&file.name);
                let frames = self.frames.at(id, file, addr);
                match frames.last().and_then(|frame| frame.function.as_deref()) {
                    Some(function) if runtime::is_locking(function) => Role::Locking,
                    function if is_code && self.files.is_inside(id, function) => Role::Locking,
                    _ if is_libc => Role::Libc,
                    None if is_code && is_nameless || self.is_locking_code(process, return_addr) => Role::Locking,
                    _ if is_code => Role::Program,
                    _ => Role::Nothing,
                }
            }
            place => match known.generated.function(call) {
                Some(function) if runtime::is_locking(function) => Role::Locking,
                None if place.is_none() => Role::Nothing,
                _ => Role::Program,
            },
        }
    }

    fn frames(&mut self, process: Process, return_addr: u64) -> Vec<Frame> {
        let unknown = Frame { addr: return_addr, ..Frame::default() };
        if is_kernel(return_addr) {
            let function = self.kernel().and_then(|k| k.function(return_addr.wrapping_sub(1))).map(str::to_owned);
            return vec![Frame { function, ..unknown }];
        }
        self.place(process, return_addr.wrapping_sub(1));
        let Some(known) = self.processes.get(&process) else { return vec![unknown] };
        // The call is before the address to which it returns, perhaps on another line or in another function.
        let call = return_addr.wrapping_sub(1);
        if let Some((function, location)) = known.generated.interpreted(call) {
            return vec![Frame { function: Some(function.to_owned()), location: Some(location.clone()), ..unknown }];
        }
        match known.space.place(call, &self.files) {
            Some(Place::File(id, addr)) => {
                let Some(file) = self.files.get(id) else { return vec![unknown] };
                let mut frames = self.frames.at(id, file, addr).to_vec();
                let name = file.name.clone();
                let mut offset = addr.wrapping_add(1);
                if frames.is_empty() {
                    let function = self.by_code(id, addr);
                    // All calls in a function without a name are in one function.
                    if function.is_none() {
                        offset = self.beginning(id, addr).unwrap_or(offset);
                    }
                    frames.push(Frame { function, ..unknown });
                }
                for frame in &mut frames {
                    frame.addr = return_addr;
                    frame.module = Some((name.clone(), offset));
                }
                frames
            }
            place => {
                let function = known.generated.function(call).map(str::to_owned);
                let module = match place {
                    Some(Place::Region(name, offset)) if !name.is_empty() => {
                        Some((name.to_owned(), offset.wrapping_add(1)))
                    }
                    _ => None,
                };
                vec![Frame { function, module, ..unknown }]
            }
        }
    }

    fn global(&mut self, lock: Lock) -> Option<String> {
        if lock.is_kernel() {
            return self.kernel()?.variable(lock.addr);
        }
        if let Some(name) = self.given.get(&lock) {
            return Some(name.clone());
        }
        match self.place(lock.process, lock.addr) {
            Some(Place::File(id, addr)) => self.static_variable(id, addr),
            Some(Place::Region(..)) => None,
            None => self.thread_local(lock).map(|name| format!("{name} (thread-local)")),
        }
    }

    fn kind(&mut self, lock: Lock) -> Option<String> {
        self.kinds.get(&lock).cloned()
    }

    fn member(&mut self, site: Site) -> Option<String> {
        self.member_at(site)
    }

    fn is_on_stack(&mut self, lock: Lock) -> bool {
        let Some(known) = self.processes.get(&lock.process) else { return false };
        match known.threads.place(lock.addr) {
            Some(threads::Place::FirstStack) => true,
            Some(threads::Place::BelowRecord { on_stack, .. }) => on_stack && self.thread_local(lock).is_none(),
            None => false,
        }
    }
}

impl Symbols {
    /// Where an address lies; of a file, with all that is to be had of its names.
    fn place(&mut self, process: Process, addr: u64) -> Option<Place<'_>> {
        if let Some(Place::File(id, _)) = self.processes.get(&process)?.space.place(addr, &self.files)
            && let Err(error) = self.files.fetch(id)
        {
            remember(&mut self.problems, &error);
        }
        self.processes.get(&process)?.space.place(addr, &self.files)
    }

    /// Where in a file of a process an address lies, in words that are the same in each run: `variable+0x28`, or `libc.so.6+0x1d2c60`.
    /// Behind it what debug information calls it: `table[1].hits`. `None` for the heap and stacks.
    pub fn static_place(&mut self, process: Process, addr: u64) -> Option<(String, Option<String>)> {
        let Place::File(id, addr) = self.place(process, addr)? else { return None };
        let file = self.files.get(id)?;
        let Some(StaticName { symbol, offset, told }) = self.reader.variable(id, file, addr) else {
            return Some((format!("{}+{addr:#x}", file.name), None));
        };
        Some((if offset == 0 { symbol } else { format!("{symbol}+{offset:#x}") }, Some(told)))
    }

    /// See [`Names::member`].
    fn member_at(&mut self, site: Site) -> Option<String> {
        let Place::File(id, before) = self.place(site.process, site.addr.wrapping_sub(1))? else { return None };
        self.reader.member(id, self.files.get(id)?, before.wrapping_add(1))
    }

    fn static_variable(&mut self, id: FileId, addr: u64) -> Option<String> {
        Some(self.reader.variable(id, self.files.get(id)?, addr)?.told)
    }

    fn thread_local(&mut self, lock: Lock) -> Option<String> {
        let known = self.processes.get(&lock.process)?;
        let threads::Place::BelowRecord { distance, .. } = known.threads.place(lock.addr)? else { return None };
        let id = known.program?;
        if let Err(error) = self.files.fetch(id) {
            remember(&mut self.problems, &error);
        }
        self.reader.thread_local(id, self.files.get(id)?, distance)
    }
}
