//! Addresses to names of places, stacks and processes; each address is asked for once.

use super::schema::{Ns, Place, StackFrame, ThreadId, Unit};
use crate::id::{Lock, Process, Site, StackId, Tid};
use crate::names::{self, Frame, Names};
use crate::observation::Observation;
use crate::stack::Role;
use crate::units::{Nanos, Time};
use lockbpf_common::record::LOW48;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

/// The place that a site is told by, where that is not the first function there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    /// The address whose functions are told.
    pub(super) addr: u64,
    /// How many of these are passed over, from the innermost on.
    pub(super) from: usize,
}

/// Source of names for one report.
pub(super) struct Places<'a> {
    observation: &'a Observation,
    names: &'a mut dyn Names,
    frames: HashMap<(Process, u64), Rc<[Frame]>>,
    ids: HashMap<Process, String>,
    /// Processes of the threads.
    threads: HashMap<Tid, Process>,
    locks: HashMap<Lock, String>,
    told: HashMap<Site, Told>,
    stacks: HashMap<Site, BTreeSet<StackId>>,
    unit: Unit,
    /// Whether labels of locks name their processes.
    names_processes: bool,
}

impl<'a> Places<'a> {
    /// Names for a report on `processes`.
    pub(super) fn new(observation: &'a Observation, names: &'a mut dyn Names, processes: &BTreeSet<Process>) -> Self {
        let mut images: HashMap<u32, u32> = HashMap::new();
        let mut ids = HashMap::new();
        for &process in processes.iter().filter(|&&process| process != Process::KERNEL) {
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
        let unit = Unit::per_ns(observation.ticks_per_ns);
        Self {
            observation,
            names,
            frames: HashMap::new(),
            ids,
            threads: observation.threads.iter().map(|thread| (thread.tid, thread.process)).collect(),
            locks: HashMap::new(),
            told: HashMap::new(),
            stacks: HashMap::new(),
            unit,
            names_processes: true,
        }
    }

    /// Labels of locks do not name their processes from now on.
    pub(super) fn leave_out_processes(&mut self) {
        self.names_processes = false;
    }

    /// Takes the names that locks were given.
    pub(super) fn set_names(&mut self, locks: HashMap<Lock, String>) {
        self.locks = locks;
    }

    /// Takes what is told of sites instead of the first function there.
    pub(super) fn tell(&mut self, told: impl IntoIterator<Item = (Site, Told)>) {
        self.told.extend(told);
    }

    /// Takes the stacks with which locks were asked for at each site.
    pub(super) fn set_stacks(&mut self, stacks: HashMap<Site, BTreeSet<StackId>>) {
        self.stacks = stacks;
    }

    /// The stacks with which locks were asked for at a site.
    pub(super) fn stacks_at(&self, site: Site) -> Vec<StackId> {
        self.stacks.get(&site).into_iter().flatten().copied().collect()
    }

    /// Whether it is known when holders were off the CPU.
    pub(super) fn scheduling_known(&self) -> bool {
        self.observation.findings.scheduling_known
    }

    /// The unit of the observation's times.
    pub(super) fn unit(&self) -> Unit {
        self.unit
    }

    /// A duration of the observation.
    pub(super) fn ns(&self, time: Nanos) -> Ns {
        self.unit.ns(time)
    }

    /// A point in time on the observation's clock.
    pub(super) fn at(&self, time: Time) -> Ns {
        self.unit.ns(Nanos(time.0))
    }

    /// A thread as the input calls it.
    pub(super) fn thread(&mut self, tid: Tid) -> ThreadId {
        ThreadId::new(tid, self.names)
    }

    /// The name of a thread: what the input calls it, else what was seen.
    pub(super) fn comm(&mut self, tid: Tid, seen: &str) -> String {
        self.names.comm(tid).unwrap_or_else(|| seen.to_owned())
    }

    /// What the input calls a lock, else `PID:0xaddress`.
    pub(super) fn lock_id(&mut self, lock: Lock) -> String {
        if lock.is_others() {
            return self.others_id(lock);
        }
        self.names.lock_id(lock).unwrap_or_else(|| self.address(lock.process, lock.addr))
    }

    fn others_id(&self, lock: Lock) -> String {
        let pid = if lock.is_kernel() { "kernel".to_owned() } else { self.id(lock.process) };
        match lock.addr & LOW48 {
            0 => format!("{pid}:others"),
            site => format!("{pid}:others:{site:#x}"),
        }
    }

    /// What the input calls a lock, if its locks have identities of their own.
    pub(super) fn own_id(&mut self, lock: Lock) -> Option<String> {
        self.names.lock_id(lock)
    }

    /// What the input or the user calls the kind of a lock, if they do.
    pub(super) fn kind(&mut self, lock: Lock) -> Option<String> {
        self.names.kind(lock)
    }

    /// What the input calls a site, else `PID:0xaddress`; `None` for the site 0 of the kernel's own sums.
    pub(super) fn site_id(&mut self, site: Site) -> Option<String> {
        let own = self.names.site_id(site);
        own.or_else(|| (site.addr != 0).then(|| self.address(site.process, site.addr)))
    }

    /// The name of a lock.
    pub(super) fn lock_name(&mut self, lock: Lock) -> String {
        let known = self.locks.get(&lock).cloned();
        known
            .or_else(|| self.global(lock))
            .or_else(|| self.own_id(lock))
            .unwrap_or_else(|| format!("lock {:#x}", lock.addr))
    }

    /// The name of a lock as the table shows it.
    pub(super) fn lock_label(&mut self, lock: Lock) -> String {
        let name = self.lock_name(lock);
        self.label(lock.process, &name)
    }

    fn address(&self, process: Process, addr: u64) -> String {
        if process == Process::KERNEL {
            return format!("kernel:{addr:#x}");
        }
        format!("{}:{addr:#x}", self.id(process))
    }

    fn id(&self, process: Process) -> String {
        self.ids.get(&process).map_or_else(|| format!("process-{}", process.0), Clone::clone)
    }

    /// Pid and name of a process.
    pub(super) fn process(&self, process: Process) -> (Option<u32>, Option<String>) {
        self.observation.processes.get(&process).map(|seen| (seen.pid, seen.comm.clone())).unzip()
    }

    /// The process of a thread.
    pub(super) fn process_of(&self, tid: Tid) -> Option<Process> {
        self.threads.get(&tid).copied()
    }

    /// The name of a process that is not the lock's own: of those that share it.
    pub(super) fn other_process(&self, process: Process, lock: Lock) -> Option<String> {
        if process == lock.process || lock.is_kernel() { None } else { self.process(process).1 }
    }

    /// A lock's name as the table shows it: `memcached/1234:name` if the report has several processes.
    pub(super) fn label(&self, process: Process, name: &str) -> String {
        // The kernel's locks say so in their names.
        if !self.names_processes || self.ids.len() <= 1 || process == Process::KERNEL {
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

    /// Whether a lock without a name is on a stack.
    pub(super) fn is_on_stack(&mut self, lock: Lock) -> bool {
        self.names.is_on_stack(lock)
    }

    /// The member that holds the lock asked for at a site, if that is certain.
    pub(super) fn member(&mut self, site: Site) -> Option<String> {
        self.names.member(site)
    }

    /// The place of a site.
    pub(super) fn place(&mut self, site: Site) -> Place {
        let Some(id) = self.site_id(site) else {
            return Place { symbol: "unknown site".to_owned(), ..Place::default() };
        };
        let own = self.names.site_id(site).is_some();
        let Told { addr, from } = self.told.get(&site).copied().unwrap_or(Told { addr: site.addr, from: 0 });
        let frames = self.frames(site.process, addr);
        let frame = names::place(frames.get(from..).unwrap_or_default()).filter(|f| !own || f.function.is_some());
        let (file, line) = frame.and_then(|f| f.location.clone()).unzip();
        let unnamed = || if own { id.clone() } else { format!("{:#x}", site.addr) };
        Place {
            symbol: frame.map_or_else(unnamed, Frame::symbol),
            function: frame.and_then(|f| f.function.clone()),
            file,
            line,
            site: Some(id),
        }
    }

    /// The place of a site at which threads waited with this stack: if the site is part of locking (a runtime's function, or a
    /// lock's own method around the call), the place is that of the caller outside. The C library, where threads begin, is no such caller: then the
    /// place is the site's.
    pub(super) fn place_of_wait(&mut self, site: Site, stack: Option<StackId>) -> Place {
        let (place, outside) = (self.place(site), self.outside(site, stack));
        let tells = outside != site && self.is_program(outside);
        if tells { Place { site: place.site, ..self.place(outside) } } else { place }
    }

    /// The site, or if that is part of locking, the caller outside.
    pub(super) fn outside(&mut self, site: Site, stack: Option<StackId>) -> Site {
        self.outwards(site, stack).first().map_or(site, |&addr| Site { addr, ..site })
    }

    /// The first place in the program's own code on a stack, where nothing else tells who asks for a lock.
    pub(super) fn asker(&mut self, process: Process, stack: StackId) -> Option<Site> {
        self.call_stack(process, stack, None).first().map(|&addr| Site { process, addr })
    }

    /// The return addresses of what called the function at a site, as far as the stack there is known.
    pub(super) fn callers(&mut self, site: Site, stack: Option<StackId>) -> Vec<u64> {
        self.outwards(site, stack).into_iter().filter(|&addr| addr != site.addr).collect()
    }

    /// The return addresses of what called the function that a site is told by, as far as the stack there is known.
    pub(super) fn beyond(&mut self, site: Site, stack: StackId) -> Vec<u64> {
        let mut outwards = self.outwards(site, Some(stack));
        let place = self.told.get(&site).map_or(site.addr, |told| told.addr);
        let own = outwards.iter().position(|&addr| addr == place).unwrap_or(0);
        outwards.split_off(outwards.len().min(own + 1))
    }

    fn outwards(&mut self, site: Site, stack: Option<StackId>) -> Vec<u64> {
        stack.map(|stack| self.call_stack(site.process, stack, Some(site.addr))).unwrap_or_default()
    }

    /// The return addresses on a stack, innermost first, from `site` outwards; none if it was not kept.
    fn call_stack(&mut self, process: Process, stack: StackId, site: Option<u64>) -> Vec<u64> {
        let raw = self.observation.stacks.get(&stack);
        raw.map(|raw| self.names.section_stack(process, raw, site)).unwrap_or_default()
    }

    /// The return address directly beneath this one in a whole stack: in the function that was called there.
    pub(super) fn beneath(&self, stack: StackId, return_addr: u64) -> Option<u64> {
        let raw = self.observation.stacks.get(&stack)?;
        raw.get(raw.iter().position(|&addr| addr == return_addr)?.checked_sub(1)?).copied()
    }

    /// Whether a return address leads into the program's own code.
    pub(super) fn is_program(&mut self, site: Site) -> bool {
        self.names.role(site.process, site.addr) == Role::Program
    }

    /// Whether a site is in a function that is interpreted or was generated, and so in no file of code: none of those is left by a jump.
    pub(super) fn is_of_no_file(&mut self, site: Site) -> bool {
        self.frames_at(site).iter().any(|frame| frame.module.is_none() && frame.function.is_some())
    }

    /// The function that a reader knows a site by, of those from this one on.
    pub(super) fn symbol(&mut self, site: Site, from: usize) -> Option<String> {
        let frames = self.frames_at(site);
        names::place(frames.get(from..).unwrap_or_default()).map(Frame::symbol)
    }

    /// The functions at a site, innermost first.
    pub(super) fn frames_at(&mut self, site: Site) -> Rc<[Frame]> {
        self.frames(site.process, site.addr)
    }

    /// From a time to the end of the observation.
    pub(super) fn until_end(&self, since: Time) -> Nanos {
        self.observation.end.since(since)
    }

    /// The functions of a stack, innermost first; empty if it was not kept.
    pub(super) fn stack(&mut self, process: Process, site: Option<u64>, stack: Option<StackId>) -> Vec<StackFrame> {
        let addrs = stack.map(|stack| self.call_stack(process, stack, site)).unwrap_or_default();
        self.named(process, addrs)
    }

    /// The stack with which a thread left the CPU, from the function that it slept in.
    pub(super) fn off_stack(&mut self, process: Process, stack: StackId) -> Vec<StackFrame> {
        let Some(raw) = self.observation.stacks.get(&stack) else { return Vec::new() };
        let addrs = self.names.whole_stack(process, raw);
        self.named(process, addrs)
    }

    fn named(&mut self, process: Process, addrs: Vec<u64>) -> Vec<StackFrame> {
        let mut stack = Vec::with_capacity(addrs.len());
        for addr in addrs {
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
