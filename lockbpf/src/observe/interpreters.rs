//! Interpreters among the observed processes: where their locks and their functions are is found out while they run, since it differs
//! from process to process, and they may begin after the observation does.

use super::census::Census;
use crate::capture::session::Session;
use crate::capture::{gil, python};
use crate::id::Process;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

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
    layout: &'static python::Layout,
    code: Range<u64>,
    /// Looks that are left to find its threads; 0 once they are found.
    looks: u32,
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
            Some(State { range, looks: LOOKS, functions: functions(process, pid, census, unknown) })
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
            if let Some(found) = functions.layout.interpreter(pid, &state.range, &functions.code) {
                match session.read_python(process, found) {
                    Ok(true) => census.begin_python(process, pid, functions.layout, functions.code.clone()),
                    Ok(false) => {}
                    Err(error) => log::warn!("the Python functions of process {pid} are not read: {error}"),
                }
                functions.looks = 0;
            } else if functions.looks == 0 {
                self.unknown.insert(Some(functions.version));
            }
        }
        state.looks > 0 || state.functions.as_ref().is_some_and(|functions| functions.looks > 0)
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
    let Some((version, layout)) = version.and_then(|version| Some((version, python::layout(version)?))) else {
        unknown.insert(version);
        return None;
    };
    // A program may only call the library.
    let code = |start: &str| {
        let files = symbols.loaded(process).filter(|file| file.name.starts_with(start));
        files.map(|file| file.range).reduce(|a, b| a.start.min(b.start)..a.end.max(b.end))
    };
    let code = code("libpython").or_else(|| code("python"))?;
    Some(Functions { version, layout, code, looks: LOOKS })
}
