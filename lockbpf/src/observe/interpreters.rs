//! Interpreters among the observed processes: where their locks and their functions are is found out while they run, since it differs
//! from process to process, and they may begin after the observation does.

use super::census::Census;
use super::new_stacks::NewStacks;
use crate::capture::session::Session;
use crate::capture::{gil, python, waits};
use crate::id::{Lock, Process, Site, Tid};
use crate::names::Names as _;
use crate::observation::{Harvest, OpenWait};
use crate::stack::Role;
use lockbpf_common::kind::Via;
use lockbpf_common::parking::FOR_PYTHON;
use lockbpf_common::python::{Interpreter, PythonFrame};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

/// Threads that still sleep of which their functions are read.
const MAX_SLEEPERS: usize = 1_024;
/// Looks before an interpreter is given up that does not begin: 10 s.
const LOOKS: u32 = 200;

/// Where the state of each process's interpreter is; `None` for a process without one.
#[derive(Default)]
pub(crate) struct Interpreters {
    states: HashMap<Process, Option<State>>,
    /// Those of these in which something has still to be found.
    unsettled: Vec<(Process, u32)>,
    /// Versions whose functions are not known: major and minor, or `None` before 3.11, where no variable tells.
    unknown: BTreeSet<Option<(u8, u8)>>,
}

struct State {
    range: Range<u64>,
    /// Looks that are left to find its lock; 0 once it is found.
    looks: u32,
    functions: Option<Functions>,
}

/// How an interpreter keeps the functions that it runs.
struct Functions {
    version: (u8, u8),
    code: Range<u64>,
    /// Looks that are left to find its threads; 0 once they are found.
    looks: u32,
    found: Option<Interpreter>,
}

impl Interpreters {
    /// Looks into processes that are new, and into those whose interpreter had not begun.
    pub(crate) fn look(&mut self, new: &[(Process, u32)], session: &mut Session, census: &mut Census) {
        let mut unsettled = std::mem::take(&mut self.unsettled);
        unsettled.extend(new);
        unsettled.retain(|&(process, pid)| self.look_into(process, pid, session, census));
        self.unsettled = unsettled;
    }

    /// Looks into one process. Returns whether something has still to be found.
    fn look_into(&mut self, process: Process, pid: u32, session: &mut Session, census: &mut Census) -> bool {
        let unknown = &mut self.unknown;
        let state = self.states.entry(process).or_insert_with(|| {
            let range = census.symbols().variable_in(process, gil::STATE, gil::is_interpreter)?;
            let functions = functions(process, pid, census, unknown);
            if functions.as_ref().is_some_and(|functions| functions.version >= python::PARKS)
                && let Err(error) = session.parks(process, true)
            {
                log::warn!("which of Python's locks process {pid} waits for is not known: {error}");
            }
            Some(State { range, looks: LOOKS, functions })
        });
        let Some(state) = state else { return false };
        if state.looks > 0 {
            state.looks -= 1;
            if let Some(mutex) = gil::locate(pid, &state.range) {
                census.call_interpreter_lock(process, mutex);
                if let Err(error) = session.interpreter_lock(pid, mutex) {
                    log::warn!("the interpreter lock of process {pid} is not observed: {error}");
                }
                state.looks = 0;
            }
        }
        if let Some(functions) = state.functions.as_mut().filter(|functions| functions.looks > 0) {
            functions.looks -= 1;
            let layout = python::layout(pid, functions.version, &state.range);
            let found = |layout: &python::Layout| layout.interpreter(pid, &state.range, &functions.code);
            if let Some((found, layout)) = layout.and_then(|layout| Some((found(&layout)?, layout))) {
                match session.read_python(process, found) {
                    Ok(true) => census.begin_python(process, pid, &layout, functions.code.clone()),
                    Ok(false) => {}
                    Err(error) => log::warn!("the Python functions of process {pid} are not read: {error}"),
                }
                (functions.looks, functions.found) = (0, Some(found));
            } else if functions.looks == 0 {
                self.unknown.insert(Some(functions.version));
            }
        }
        state.looks > 0 || state.functions.as_ref().is_some_and(|functions| functions.looks > 0)
    }

    /// Tells of the threads that still sleep in which Python functions they do; and for which of Python's locks, where the kernel side has not seen
    /// them begin.
    pub(crate) fn tell_sleepers(&self, harvest: &mut Harvest, census: &mut Census) {
        let pids = census.pids();
        let mut states: HashMap<Process, HashMap<Tid, u64>> = HashMap::new();
        let mut new = NewStacks::beyond(harvest);
        for wait in harvest.open_waits.iter_mut().filter(|wait| wait.via == Via::Futex).take(MAX_SLEEPERS) {
            let process = wait.lock.process;
            let functions = self.states.get(&process).and_then(|state| state.as_ref()?.functions.as_ref());
            let Some((pid, functions)) = pids.get(&process).copied().zip(functions) else { continue };
            let Some(word) = waits::word(pid, wait.tid) else { continue };
            // It may wait for something else by now.
            let for_lock = || python::lock_of(pid, word).is_some_and(|lock| lock == wait.lock.addr);
            if word != wait.lock.addr && !(wait.expected == Some(FOR_PYTHON) && for_lock()) {
                continue;
            }
            if wait.expected == Some(0)
                && functions.version >= python::PARKS
                && let Some(addr) = python::lock_of(pid, word)
            {
                (wait.lock.addr, wait.expected) = (addr, Some(FOR_PYTHON));
            }
            let Some(python) = &functions.found else { continue };
            let states = states.entry(process).or_insert_with(|| python::threads(pid, python).collect());
            let frames = states.get(&wait.tid).map(|&state| python::frames(pid, state, python)).unwrap_or_default();
            if frames.is_empty() {
                continue;
            }
            let asleep = OpenWait { lock: Lock { process, addr: word }, ..*wait };
            let Some(stack) = waits::stack(&asleep, census.symbols()) else { continue };
            frames.iter().for_each(|&frame| census.name_python(process, frame));
            let frames: Vec<u64> = frames.iter().map(PythonFrame::address).collect();
            let asks = |&&frame: &&u64| census.symbols().role(process, frame) == Role::Program;
            wait.site = frames.iter().find(asks).map(|&addr| Site { process, addr });
            let below = stack.into_iter().take_while(|address| !functions.code.contains(address));
            wait.stack = new.number(below.chain(frames).collect());
        }
        new.put_into(harvest);
    }

    /// What is loaded may have changed: a program can embed an interpreter later.
    pub(crate) fn reconsider(&mut self, census: &Census) {
        self.states.retain(|_, state| state.is_some());
        self.unsettled.extend(census.pids().into_iter().filter(|(process, _)| !self.states.contains_key(process)));
    }

    /// What is not known of them, each a sentence.
    pub(crate) fn notes(&self) -> Vec<String> {
        let version = |version: &Option<(u8, u8)>| match version {
            Some((major, minor)) => format!("Python {major}.{minor}"),
            None => "Python before 3.11".to_owned(),
        };
        let sentence =
            |v| format!("The functions of {} are not known: its locks are told by the interpreter's.", version(v));
        self.unknown.iter().map(sentence).collect()
    }
}

/// How the interpreter of a process keeps its functions, if that is known of its version.
fn functions(
    process: Process,
    pid: u32,
    census: &mut Census,
    unknown: &mut BTreeSet<Option<(u8, u8)>>,
) -> Option<Functions> {
    let symbols = census.symbols();
    let variable = symbols.constant_in(process, python::VERSION, gil::is_interpreter);
    let version = variable.and_then(|variable| python::version(pid, &variable));
    let Some(version) = version.filter(|&version| python::is_known(version)) else {
        unknown.insert(version);
        return None;
    };
    // A program may only call the library.
    let code = |start: &str| {
        let files = symbols.loaded(process).filter(|file| file.name.starts_with(start));
        files.map(|file| file.range).reduce(|a, b| a.start.min(b.start)..a.end.max(b.end))
    };
    let code = code("libpython").or_else(|| code("python"))?;
    Some(Functions { version, code, looks: LOOKS, found: None })
}
