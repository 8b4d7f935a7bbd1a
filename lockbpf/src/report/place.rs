//! Addresses to names of places, stacks and processes; each address is asked for once.

use super::schema::{Place, StackFrame};
use crate::id::{Lock, Process, Site, StackId};
use crate::names::{self, Frame, Names};
use crate::observation::Observation;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

/// Source of names for one report.
pub(super) struct Places<'a> {
    observation: &'a Observation,
    names: &'a mut dyn Names,
    frames: HashMap<(Process, u64), Rc<[Frame]>>,
    ids: HashMap<Process, String>,
}

impl<'a> Places<'a> {
    /// Names for a report on `processes`.
    pub(super) fn new(observation: &'a Observation, names: &'a mut dyn Names, processes: &BTreeSet<Process>) -> Self {
        let mut images: HashMap<u32, u32> = HashMap::new();
        let mut ids = HashMap::new();
        for &process in processes {
            let id = match observation.processes.get(&process) {
                None => format!("process-{}", process.0),
                Some(seen) => {
                    let image = images.entry(seen.pid).or_default();
                    *image += 1;
                    // A later image of the same pid (exec, or a pid used again) is another process.
                    if *image == 1 { seen.pid.to_string() } else { format!("{}#{image}", seen.pid) }
                }
            };
            ids.insert(process, id);
        }
        Self { observation, names, frames: HashMap::new(), ids }
    }

    /// `PID:0xaddress`.
    pub(super) fn id(&self, process: Process, addr: u64) -> String {
        let pid = self.ids.get(&process).map_or_else(|| format!("process-{}", process.0), Clone::clone);
        format!("{pid}:{addr:#x}")
    }

    /// Pid and name of a process.
    pub(super) fn process(&self, process: Process) -> (Option<u32>, Option<String>) {
        self.observation.processes.get(&process).map(|seen| (seen.pid, seen.comm.clone())).unzip()
    }

    /// A lock's name as the table shows it: `memcached/1234:name` if the report has several processes.
    pub(super) fn label(&self, process: Process, name: &str) -> String {
        if self.ids.len() <= 1 {
            return name.to_owned();
        }
        let pid = self.ids.get(&process).map_or("?", String::as_str);
        let comm = self.observation.processes.get(&process).map_or("", |seen| seen.comm.as_str());
        format!("{comm}/{pid}:{name}")
    }

    /// The symbol of a global lock.
    pub(super) fn global(&mut self, lock: Lock) -> Option<String> {
        self.names.global(lock)
    }

    /// The place of a site.
    pub(super) fn place(&mut self, site: Site) -> Place {
        if site.addr == 0 {
            return Place { symbol: "unknown site".to_owned(), ..Place::default() };
        }
        let frames = self.frames(site.process, site.addr);
        let frame = names::place(&frames);
        let (file, line) = frame.and_then(|f| f.location.clone()).unzip();
        Place {
            site: Some(self.id(site.process, site.addr)),
            symbol: frame.map_or_else(|| format!("{:#x}", site.addr), Frame::symbol),
            function: frame.and_then(|f| f.function.clone()),
            file,
            line,
        }
    }

    /// The functions of a stack, innermost first; empty if it was not kept.
    pub(super) fn stack(&mut self, process: Process, site: Option<u64>, stack: Option<StackId>) -> Vec<StackFrame> {
        let Some(raw) = stack.and_then(|id| self.observation.stacks.get(&id)) else { return Vec::new() };
        let mut stack = Vec::with_capacity(raw.len());
        for addr in self.names.call_stack(process, raw, site) {
            stack.extend(self.frames(process, addr).iter().map(|f| stack_frame(f, addr)));
        }
        stack
    }

    fn frames(&mut self, process: Process, addr: u64) -> Rc<[Frame]> {
        let names = &mut self.names;
        self.frames.entry((process, addr)).or_insert_with(|| names.frames(process, addr).into()).clone()
    }
}

fn stack_frame(frame: &Frame, addr: u64) -> StackFrame {
    let (file, line) = frame.location.clone().unzip();
    let (module, offset) = frame.module.clone().map(|(module, offset)| (module, format!("{offset:#x}"))).unzip();
    StackFrame {
        function: frame.function.clone(),
        file,
        line,
        module,
        offset,
        address: format!("{addr:#x}"),
        inlined: frame.inlined,
    }
}
