//! Who is observed: processes are taken note of while they live, so that there are names for them later.

use super::java::Machines;
use super::python::Functions;
use crate::capture::described::Met;
use crate::capture::hotspot::LIBRARY;
use crate::capture::named::Named;
use crate::capture::put_off::{Grown, PutOff};
use crate::capture::python::Layout;
use crate::capture::shared::SharedLocks;
use crate::cgroup;
use crate::custom::catalogue;
use crate::decode::{Beside, Decoded};
use crate::event::{Event, ProcessSeen};
use crate::id::{Lock, Process, Site, Tid};
use crate::names::Names;
use crate::observation::Harvest;
use crate::proc;
use crate::report::text::count;
use crate::stack::Role;
use crate::symbol::Symbols;
use crate::unwind::{StackCopy, Unwind, Unwound};
use lockbpf_common::custom;
use lockbpf_common::gil;
use lockbpf_common::kind::Via;
use lockbpf_common::parking;
use lockbpf_common::python::PythonFrame;
use lockbpf_common::record::TOP_WORDS;
use lockbpf_common::virtual_thread::Carrier;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Processes that come within a second, if they are many.
const MANY: u32 = 20;

/// The processes observed, and names for what they do.
pub(crate) struct Census {
    symbols: Symbols,
    shared: SharedLocks,
    java: Machines,
    python: Functions,
    named: Named,
    /// What the kernel side tells of locks that users have described.
    met: Option<Met>,
    /// Processes in which a thread slept on a word of parking_lot's, perhaps, since somebody asked.
    parked: HashSet<Process>,
    processes: HashMap<Process, ProcessSeen>,
    /// Paths of the cgroups that processes were in when they were looked at, without those of the root.
    cgroups: HashMap<Process, Arc<str>>,
    /// The last of each pid.
    numbers: HashMap<u32, Process>,
    /// Those met since somebody asked.
    newly_met: Vec<(Process, u32)>,
    /// Whether lockbpf has used up its CPU time while processes come fast: then they are put off.
    busy: bool,
    /// Processes that have come since this second began, and in the one before.
    came: (Instant, u32, u32),
    /// Processes that have still to be looked at, and how many had ended before they were.
    put_off: PutOff<Process>,
    missed: u64,
    events: u64,
}

impl Census {
    /// Knows these processes from the start.
    pub(crate) fn new(known: Vec<ProcessSeen>) -> Self {
        let mut census = Self {
            symbols: Symbols::new(),
            shared: SharedLocks::default(),
            java: Machines::default(),
            python: Functions::default(),
            named: Named::default(),
            met: None,
            parked: HashSet::new(),
            processes: HashMap::new(),
            cgroups: HashMap::new(),
            numbers: HashMap::new(),
            newly_met: Vec::new(),
            busy: false,
            came: (Instant::now(), 0, 0),
            put_off: PutOff::default(),
            missed: 0,
            events: 0,
        };
        known.into_iter().for_each(|seen| census.meet(seen));
        census
    }

    /// Takes what names need from a process, at once, while it lives, unless there is no time for that.
    fn meet(&mut self, seen: ProcessSeen) {
        let (process, pid) = (seen.process, seen.pid);
        if self.busy {
            self.put_off.push(pid, process);
        } else {
            self.look_at(process, pid);
        }
        self.enter(seen);
    }

    /// Takes what names need from the parent of a process.
    fn meet_forked(&mut self, seen: ProcessSeen, parent: Process) {
        self.symbols.observe_forked(seen.process, seen.pid, parent);
        // It is born where its parent is.
        if let Some(cgroup) = self.cgroups.get(&parent).cloned() {
            self.cgroups.insert(seen.process, cgroup);
        }
        self.newly_met.push((seen.process, seen.pid));
        self.enter(seen);
    }

    fn look_at(&mut self, process: Process, pid: u32) {
        self.symbols.observe(process, pid);
        // One that is gone has none.
        let told = proc::text(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let path = cgroup::path(&told);
        if !matches!(path, "" | "/") {
            self.cgroups.insert(process, path.into());
        }
        self.newly_met.push((process, pid));
    }

    fn enter(&mut self, seen: ProcessSeen) {
        self.came.1 = self.came.1.saturating_add(1);
        self.shared.meet(seen.process, seen.pid);
        let number = self.numbers.entry(seen.pid).or_insert(seen.process);
        *number = seen.process.max(*number);
        self.processes.insert(seen.process, seen);
    }

    /// Takes note of whether lockbpf has used up its CPU time. If so, and many processes come, looks only at those that have lived for a
    /// while; else at all that were put off, as far as they still run.
    pub(crate) fn pace(&mut self, busy: bool) {
        let (since, now, before) = self.came;
        if since.elapsed() >= Duration::from_secs(1) {
            self.came = (Instant::now(), 0, now);
        }
        let busy = busy && now.max(before) >= MANY;
        self.busy = busy;
        while let Some(Grown { pid, what: process, is_gone }) = self.put_off.next(!busy) {
            if is_gone {
                self.missed += 1;
            } else {
                self.look_at(process, pid);
            }
        }
    }

    /// Whether lockbpf has used up its CPU time while processes come fast.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy
    }

    /// What is not known of processes, a sentence.
    pub(crate) fn notes(&self) -> Option<String> {
        let (missed, all) = (count(self.missed), count(self.processes.len() as u64));
        (self.missed > 0).then(|| {
            format!(
                "Of {all} processes, {missed} had ended before lockbpf looked at them, since it had used the CPU time that it allows itself: \
                 their functions are told by address."
            )
        })
    }

    /// Takes note of a record; returns its event, with what can only be found out now, and of a wake that comes without its stack the
    /// calls that are known nevertheless.
    pub(crate) fn complete(&mut self, (mut event, beside): Decoded) -> (Event, Option<Vec<u64>>) {
        self.events += 1;
        let mut calls = None;
        match &mut event {
            Event::Process(seen) => match beside {
                Beside::Parent(parent) => self.meet_forked(seen.clone(), parent),
                Beside::Nothing | Beside::Top(_) | Beside::Callers(_) => self.meet(seen.clone()),
            },
            Event::FutexWait(wait) => {
                let process = wait.word.process;
                let caller = top(beside).and_then(|words| self.symbols.caller_among(process, &words));
                wait.site = caller.map(|addr| Site { process, addr });
                self.name(wait.word, process, &mut wait.owner);
                if wait.expected == parking::PARKED {
                    self.parked.insert(process);
                }
            }
            Event::Wake(wake) => {
                let process = wake.process;
                let (words, are_calls) = match beside {
                    Beside::Callers(calls) => (calls, true),
                    beside => (top(beside).unwrap_or_default(), false),
                };
                let caller = self.symbols.caller_among(process, &words);
                let released = caller.map(|caller| self.symbols.releaser(process, caller));
                // The machine wakes threads for methods. Which one it was only the stack tells, if there is one: among the words at its top are those of
                // the machine's earlier calls.
                let is_java = self.java.runs(process);
                let tells = |symbols: &mut Symbols, addr| {
                    symbols.role(process, addr) == Role::Program && symbols.file_of(process, addr) != Some(LIBRARY)
                };
                let released = released.filter(|&addr| !is_java || tells(&mut self.symbols, addr));
                wake.site = released.map(|addr| Site { process, addr });
                if let (None, false, Some(released), Some(caller)) = (wake.stack, is_java, released, caller) {
                    let left = (released != caller).then_some(caller);
                    let around = if are_calls {
                        // Some kernels tell of the first one twice.
                        let from = words.iter().copied().skip_while(|&call| call != caller);
                        from.skip_while(|&call| call == caller).take_while(|&call| call != 0).collect()
                    } else {
                        self.symbols.calls_around(process, &words, caller)
                    };
                    let beyond: Vec<_> = left.into_iter().chain(around).collect();
                    calls = (!beyond.is_empty()).then(|| [&[released], beyond.as_slice()].concat());
                }
            }
            Event::Section(section) => {
                if matches!(section.via, Via::JavaMonitor | Via::VirtualMonitor)
                    && let Some(seen) = self.processes.get(&section.process)
                {
                    self.java.meet(section.lock, seen.pid, &mut self.symbols);
                }
                if section.via.is_custom() {
                    self.introduce(section.lock);
                }
                // The kernel names its own owners itself.
                if !section.lock.is_kernel() {
                    self.name(section.lock, section.process, &mut section.owner);
                }
            }
            Event::ThreadExit(_) | Event::OffCpu(_) | Event::Op(_) | Event::Step(_) => {}
        }
        event.rename_lock(|lock| self.shared.of(lock));
        (event, calls)
    }

    /// Locks that users have described are called what these say from now on.
    pub(crate) fn know(&mut self, met: Met) {
        self.met = Some(met);
    }

    /// Calls a lock of a described kind what its description says.
    fn introduce(&mut self, lock: Lock) {
        let shared = self.shared.of(lock);
        if self.symbols.knows_kind(shared) {
            return;
        }
        let Some(introduced) = self.met.as_ref().and_then(|met| met.get(lock)) else { return };
        let Some((kind, name)) = catalogue().told(&introduced) else { return };
        self.call(lock, kind, name);
    }

    /// Gives a lock a kind, and a name.
    pub(crate) fn call(&mut self, lock: Lock, kind: &str, name: Option<String>) {
        let shared = self.shared.of(lock);
        self.symbols.know_kind(shared, kind);
        if let Some(name) = name {
            self.symbols.call(shared, name);
        }
    }

    /// Puts the thread in place of the number by which a lock of a process names it. A number of no thread stays: whoever analyses
    /// does not believe it. A lock that is known by numbers is of several processes: its holder is whichever of those around.
    pub(crate) fn name(&mut self, lock: Lock, process: Process, owner: &mut Option<Tid>) {
        let (Some(number), seen) = (*owner, self.processes.get(&process)) else { return };
        if custom::numbers(lock.addr).is_some() {
            *owner = seen.and_then(|seen| self.named.find_process(process, seen.pid, number));
        } else if let Some(tid) = seen.and_then(|seen| self.named.find(process, seen.pid, number)) {
            *owner = Some(tid);
        }
    }

    /// Completes what the kernel side has summed: names threads, and makes one lock of those that processes share.
    pub(crate) fn unite(&mut self, harvest: &mut Harvest) {
        for wait in harvest.open_waits.iter_mut().filter(|wait| !wait.before_start && !wait.lock.is_kernel()) {
            self.name(wait.lock, wait.lock.process, &mut wait.owner);
            // The first in a list of those who have the lock in one way may wait for it in another.
            wait.owner = wait.owner.filter(|&owner| owner != wait.tid);
            if wait.via.is_custom() {
                self.introduce(wait.lock);
            }
        }
        for sums in harvest.sums.iter().filter(|sums| sums.via.is_custom()) {
            self.introduce(sums.lock);
        }
        harvest.bystanders = self.bystanders();
        harvest.rename_locks(|lock| self.shared.of(lock));
    }

    /// Takes note of what the observed processes have loaded and share since.
    pub(crate) fn refresh(&mut self) {
        self.shared.refresh();
        for &process in self.processes.keys() {
            self.symbols.refresh(process);
        }
        self.java.refresh(&mut self.symbols);
    }

    /// The same, of everything: before names are wanted.
    pub(crate) fn refresh_all(&mut self) {
        self.refresh();
        self.java.refresh_all(&mut self.symbols);
    }

    /// Takes note of where a process's interpreter lock is.
    pub(crate) fn call_interpreter_lock(&mut self, process: Process, mutex: u64) {
        for (below, name) in [(gil::MUTEX, gil::NAME), (0, gil::MUTEX_NAME)] {
            self.symbols.call(Lock { process, addr: mutex.wrapping_sub(below) }, name.to_owned());
        }
    }

    /// The functions that a process's threads are in are told with its stacks from now on; `code` is that of the interpreter.
    pub(crate) fn begin_python(&mut self, process: Process, pid: u32, layout: &Layout, code: Range<u64>) {
        self.python.begin(process, pid, layout);
        self.symbols.know_interpreter(process, code);
    }

    /// Processes in which threads have slept since the last call as waiters of parking_lot's locks do.
    pub(crate) fn parked(&mut self) -> HashSet<Process> {
        std::mem::take(&mut self.parked)
    }

    /// Names a place in a Python function.
    pub(crate) fn name_python(&mut self, process: Process, frame: PythonFrame) {
        self.python.name(process, &[frame], &mut self.symbols);
    }

    /// Unwinds a stack that was copied, and names what was interpreted on it.
    pub(crate) fn unwind(&mut self, copy: &StackCopy) -> Unwound {
        self.python.name(copy.process, &copy.python, &mut self.symbols);
        let mut unwound = self.unwind_as_known(copy);
        if unwound.addresses.iter().any(|&address| self.symbols.is_unknown(copy.process, address))
            && let Some(seen) = self.processes.get(&copy.process)
            && self.java.look(copy.process, seen.pid, &mut self.symbols)
        {
            unwound = self.unwind_as_known(copy);
        }
        unwound
    }

    fn unwind_as_known(&mut self, copy: &StackCopy) -> Unwound {
        let unwound = self.symbols.unwind(copy);
        if !unwound.interpreted.is_empty() {
            self.java.name(copy.process, &unwound.interpreted, &mut self.symbols);
        }
        unwound
    }

    /// The processes that run Java.
    pub(crate) fn java(&mut self) -> &mut Machines {
        &mut self.java
    }

    /// Where the threads of a process tell which of Java's virtual ones they carry, if they do; `None` if its machine has not begun.
    pub(crate) fn carrier(&mut self, process: Process, pid: u32) -> Option<Option<Carrier>> {
        self.java.carrier(process, pid, &self.symbols)
    }

    /// Where a thread with this stack gave back a lock of its runtime's, where only its functions tell.
    pub(crate) fn gave_back(&mut self, process: Process, stack: &[u64]) -> Option<u64> {
        self.java.gave_back(process, stack, &mut self.symbols)
    }

    /// Which of the addresses on a stack belong to what the thread runs, where that is no thread of the system's.
    pub(crate) fn own(&self, process: Process, stack: &[u64]) -> Range<usize> {
        self.java.own(process, stack, &self.symbols)
    }

    /// The lock of a runtime's that a thread with this stack sleeps for, and where it asks for it, where only its functions tell. `Err(true)`: some functions
    /// on the stack are not known yet.
    pub(crate) fn asked_for(&mut self, process: Process, stack: &[u64]) -> Result<(Lock, Site), bool> {
        self.java.asked_for(process, stack, &self.symbols)
    }

    /// Takes note of what these processes have loaded since.
    pub(crate) fn refresh_some(&mut self, pids: &[u32]) {
        for process in pids.iter().filter_map(|pid| self.numbers.get(pid)) {
            self.symbols.refresh(*process);
        }
    }

    /// Takes note of the threads that the observed processes have started and the code that they have generated since.
    pub(crate) fn refresh_made(&mut self) {
        for &process in self.processes.keys() {
            self.symbols.refresh_made(process);
        }
        self.java.refresh(&mut self.symbols);
    }

    /// Processes that are observed since the last call, with their pids.
    pub(crate) fn newly_met(&mut self) -> Vec<(Process, u32)> {
        std::mem::take(&mut self.newly_met)
    }

    /// Threads that locks' words named, whether anything else was seen of them or not.
    pub(crate) fn bystanders(&self) -> Vec<(Process, Tid)> {
        let mut found: Vec<_> = self.named.found().collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The observed processes, with their pids.
    pub(crate) fn pids(&self) -> HashMap<Process, u32> {
        self.processes.values().map(|seen| (seen.process, seen.pid)).collect()
    }

    /// Names for what was observed.
    pub(crate) fn symbols(&mut self) -> &mut Symbols {
        &mut self.symbols
    }

    /// Events so far.
    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// The observed processes among these, with the numbers they were given.
    pub(crate) fn numbers(&self, pids: &[u32]) -> Vec<(u32, Process)> {
        pids.iter().filter_map(|&pid| Some((pid, self.number(pid)?))).collect()
    }

    /// The number of an observed process; after exec a pid has a second one: the later.
    pub(crate) fn number(&self, pid: u32) -> Option<Process> {
        self.numbers.get(&pid).copied()
    }

    /// Path of the cgroup that a process was in when it was looked at, if it is known and not the root.
    pub(crate) fn cgroup(&self, process: Process) -> Option<&str> {
        self.cgroups.get(&process).map(|path| &**path)
    }

    /// Processes of which that is known.
    pub(crate) fn placed(&self) -> impl Iterator<Item = &Process> {
        self.cgroups.keys()
    }

    /// Names for what was observed, as far as they were looked up.
    pub(crate) fn names(&self) -> &Symbols {
        &self.symbols
    }

    /// The processes observed.
    pub(crate) fn processes(&self) -> &HashMap<Process, ProcessSeen> {
        &self.processes
    }

    /// The processes observed, and names for what they did.
    pub(crate) fn into_parts(self) -> (HashMap<Process, ProcessSeen>, Symbols) {
        (self.processes, self.symbols)
    }
}

/// The words at the top of a stack, if a record tells them.
fn top(beside: Beside) -> Option<[u64; TOP_WORDS]> {
    if let Beside::Top(words) = beside { Some(words) } else { None }
}
