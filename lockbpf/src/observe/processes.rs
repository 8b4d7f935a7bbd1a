//! What a recording tells of processes beside what they did: the files that they have mapped, and their cgroups.

use super::census::Census;
use crate::event::Event;
use crate::id::Process;
use crate::op::{Action, Op};
use crate::symbol::Loaded;
use crate::trace::{Module, Modules, Writer};
use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};

/// What was written of processes.
#[derive(Default)]
pub(crate) struct Processes {
    /// How many files, by process that events name.
    modules: BTreeMap<Process, usize>,
    /// Those whose cgroups were written.
    placed: HashSet<Process>,
}

impl Processes {
    /// Takes note of the process whose files an event's addresses are in.
    pub(crate) fn take(&mut self, event: &Event) {
        if let Some(process) = process_of(event) {
            self.modules.entry(process).or_insert(0);
        }
    }

    /// Writes what is known and was not written yet.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn write<W: Write>(&mut self, writer: &mut Writer<W>, census: &Census) -> io::Result<()> {
        let mut write = |process: Process, modules: Vec<Module>| {
            let cgroup = census.cgroup(process).map(str::to_owned);
            writer.modules(&Modules { process: process.0, modules, cgroup })
        };
        for (&process, known) in &mut self.modules {
            let modules: Vec<Module> = census.names().loaded(process).map(module).collect();
            if modules.len() > *known {
                *known = modules.len();
                self.placed.insert(process);
                write(process, modules)?;
            }
        }
        for &process in census.placed() {
            if self.placed.insert(process) {
                write(process, Vec::new())?;
            }
        }
        Ok(())
    }

    /// Another recording begins, which tells everything again.
    pub(crate) fn begin_anew(&mut self) {
        self.modules.values_mut().for_each(|written| *written = 0);
        self.placed.clear();
    }
}

fn process_of(event: &Event) -> Option<Process> {
    match event {
        Event::Section(s) => Some(s.process),
        Event::FutexWait(w) => Some(w.word.process),
        Event::Wake(w) => Some(w.process),
        Event::Step(Op { process, action: Action::Holds(_), .. }) => Some(*process),
        Event::OffCpu(_) | Event::Process(_) | Event::ThreadExit(_) | Event::Op(_) | Event::Step(_) => None,
    }
}

fn module(loaded: Loaded) -> Module {
    let build_id = loaded.build_id.map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect());
    Module { file: loaded.name, build_id, start: loaded.range.start, end: loaded.range.end, bias: loaded.bias }
}
