//! Names that are read from the memory of processes that run Java, while they live: monitors are called by the classes of their objects, which
//! the garbage collector moves; generated code by its methods.

use crate::capture::hotspot::{Code, FIELDS, Generated, LIBRARY, METHOD_BELOW, Monitors, TYPES, Table};
use crate::id::{Lock, Process};
use crate::symbol::{Frames, Piece, Symbols};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// Monitors that are named; others go by where they are waited for.
const MAX_MONITORS: usize = 65_536;
/// After a look at a process's code, lockbpf does not look again for so many times as long as the look took.
const SHARE: u32 = 100;

/// The processes that run Java, as far as monitors were seen in them.
#[derive(Default)]
pub(crate) struct Machines {
    machines: HashMap<Process, Option<Machine>>,
    known: HashSet<Lock>,
}

struct Machine {
    pid: u32,
    monitors: Option<Monitors>,
    code: Option<Code>,
    /// When its code is to be looked at next.
    due: Instant,
}

impl Machine {
    fn find(process: Process, pid: u32, symbols: &Symbols) -> Option<Self> {
        let variable = |name| Some(symbols.variable_in(process, name, |file| file == LIBRARY)?.start);
        let table = Table::read(pid, variable(FIELDS)?, variable(TYPES))?;
        Some(Self { pid, monitors: Monitors::of(pid, &table), code: Code::of(&table), due: Instant::now() })
    }
}

impl Machines {
    /// A monitor has been waited for in a process: names it, if that is new.
    pub(crate) fn meet(&mut self, lock: Lock, pid: u32, symbols: &mut Symbols) {
        if self.known.len() >= MAX_MONITORS || !self.known.insert(lock) {
            return;
        }
        self.find(lock.process, pid, symbols);
        let machine = self.machines.get(&lock.process).and_then(Option::as_ref);
        let monitors = machine.and_then(|machine| machine.monitors.as_ref());
        if let Some(class) = monitors.and_then(|monitors| monitors.class_of(pid, lock.addr)) {
            symbols.call(lock, format!("java monitor of {class}"));
        }
    }

    /// A process is in code that nothing tells about. Returns whether it runs Java and that was not known: then it may be told about now.
    pub(crate) fn find(&mut self, process: Process, pid: u32, symbols: &mut Symbols) -> bool {
        let Entry::Vacant(entry) = self.machines.entry(process) else { return false };
        let is_one = entry.insert(Machine::find(process, pid, symbols)).is_some();
        if is_one {
            self.refresh(symbols);
        }
        is_one
    }

    /// Takes note of the code that they have generated since.
    pub(crate) fn refresh(&mut self, symbols: &mut Symbols) {
        for (&process, machine) in &mut self.machines {
            let Some(Machine { pid, code: Some(code), due, .. }) = machine else { continue };
            let begin = Instant::now();
            if begin < *due {
                continue;
            }
            let found = code.look(*pid);
            let took = begin.elapsed();
            log::debug!("pid {pid}: {} pieces of generated code, in {took:?}", found.len());
            symbols.know_generated(process, found.into_iter().map(piece));
            *due = Instant::now() + (took * SHARE).max(Duration::from_secs(1));
        }
    }

    /// The next [`Self::refresh`] looks at all of them, however long ago the last one was.
    pub(crate) fn hurry(&mut self) {
        self.machines.values_mut().flatten().for_each(|machine| machine.due = Instant::now());
    }

    /// Names methods that were found in frames of the interpreter.
    pub(crate) fn name(&mut self, process: Process, methods: &[u64], symbols: &mut Symbols) {
        let Some(Some(Machine { pid, code: Some(code), .. })) = self.machines.get_mut(&process) else { return };
        let named = methods.iter().filter_map(|&method| {
            let name = code.method_name(*pid, method)?;
            Some(Piece { range: method..method.checked_add(1)?, name, frames: Frames::Pointer, location: None })
        });
        symbols.know_generated(process, named);
    }
}

fn piece(generated: Generated) -> Piece {
    let frames = match generated.frame {
        Some(bytes) => Frames::Size(bytes),
        None if generated.is_interpreter() => Frames::Interpreter { below: METHOD_BELOW },
        None => Frames::Pointer,
    };
    Piece { range: generated.range, name: generated.name, frames, location: None }
}
