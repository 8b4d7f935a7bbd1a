//! Names that are read from the memory of processes that run Java, while they live: monitors are called by the classes of their objects, which
//! the garbage collector moves; generated code by its methods. Locks of `java.util.concurrent` are known by where they are asked for.

use crate::capture::hotspot::{self, COMPACT, Code, FIELDS, Generated, LIBRARY, METHOD_BELOW, Monitors, TYPES, Table};
use crate::id::{Lock, Process, Site};
use crate::java::{self, is_method};
use crate::names::Names;
use crate::stack::Role;
use crate::symbol::{Frames, Piece, Symbols};
use crate::unwind::Interpreted;
use lockbpf_common::virtual_thread::Carrier;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Monitors that are named; others go by where they are waited for.
const MAX_MONITORS: usize = 65_536;
/// lockbpf knows at most this many methods that ask for locks. Waits of further ones go by where their threads are parked.
const MAX_ASKERS: usize = 65_536;
/// lockbpf rests after a look at a process's code: this number of times what the look took, and at least this long.
const SHARE: u32 = 100;
const SELDOM: Duration = Duration::from_secs(1);
/// The same where a stack leads through code that is not known.
const SHARE_IN_HASTE: u32 = 25;
const AT_ONCE: Duration = Duration::from_millis(50);

/// The processes that run Java, as far as monitors were seen in them.
#[derive(Default)]
pub(crate) struct Machines {
    machines: HashMap<Process, Option<Machine>>,
    known: HashSet<Lock>,
    /// By the methods that ask for locks: where one was seen to do so first.
    askers: HashMap<(Process, String), u64>,
}

struct Machine {
    pid: u32,
    monitors: Option<Monitors>,
    code: Option<Code>,
    /// Where its threads tell which virtual ones they carry; `None` for a machine whose virtual threads block them when they wait.
    carrier: Option<Carrier>,
    /// Whether virtual threads run in it.
    has_virtual: bool,
    /// When its code was looked at last, if it was, and how long that took.
    ended: Option<Instant>,
    took: Duration,
}

impl Machine {
    fn find(process: Process, pid: u32, symbols: &Symbols) -> Option<Self> {
        let variable = |name: &str| Some(symbols.variable_in(process, name, |file| file == LIBRARY)?.start);
        let table = Table::read(pid, variable(FIELDS)?, variable(TYPES))?;
        Some(Self {
            pid,
            monitors: Monitors::of(&table, variable(COMPACT)),
            code: Code::of(&table),
            carrier: hotspot::carrier(pid, &table, variable),
            has_virtual: false,
            ended: None,
            took: Duration::ZERO,
        })
    }

    /// Whether `share` times what the last look took has passed since, and at least `least`.
    fn rested(&self, share: u32, least: Duration) -> bool {
        self.ended.is_none_or(|ended| ended.elapsed() >= (self.took * share).max(least))
    }

    /// Takes note of the code that it has generated.
    fn look(&mut self, process: Process, symbols: &mut Symbols) {
        let Self { pid, code: Some(code), has_virtual, .. } = self else { return };
        let begin = Instant::now();
        let found = code.look(*pid);
        log::debug!("pid {pid}: {} pieces of generated code, in {:?}", found.len(), begin.elapsed());
        *has_virtual |= found.iter().any(|generated| is_of_virtual_thread(&generated.name));
        symbols.know_generated(process, found.into_iter().map(piece));
        (self.ended, self.took) = (Some(Instant::now()), begin.elapsed());
    }
}

impl Machines {
    /// A monitor has been waited for in a process: names it, if that is new.
    pub(crate) fn meet(&mut self, lock: Lock, pid: u32, symbols: &mut Symbols) {
        if self.known.len() >= MAX_MONITORS || !self.known.insert(lock) {
            return;
        }
        if !self.machines.contains_key(&lock.process) {
            self.look(lock.process, pid, symbols);
        }
        let machine = self.machines.get(&lock.process).and_then(Option::as_ref);
        let monitors = machine.and_then(|machine| machine.monitors.as_ref());
        if let Some(class) = monitors.and_then(|monitors| monitors.class_of(pid, lock.addr)) {
            symbols.call(lock, format!("java monitor of {class}"));
        }
    }

    /// Where the threads of a process's machine tell which virtual ones they carry, if they do; `None` if the machine has not begun.
    pub(crate) fn carrier(&mut self, process: Process, pid: u32, symbols: &Symbols) -> Option<Option<Carrier>> {
        let known = |machine: &Machine| machine.carrier.is_none_or(|carrier| carrier.blocker != 0);
        if let Some(machine) = self.machines.get(&process).and_then(Option::as_ref).filter(|machine| known(machine)) {
            return Some(machine.carrier);
        }
        // While the machine begins not all is known.
        let machine = Machine::find(process, pid, symbols)?;
        let carrier = machine.carrier;
        match self.machines.get_mut(&process) {
            Some(Some(known)) => known.carrier = carrier,
            _ => drop(self.machines.insert(process, Some(machine))),
        }
        Some(carrier)
    }

    /// A stack leads through code of a process that nothing tells about: looks whether it runs Java, and at what it has generated since the last look.
    /// Returns whether more may be known now.
    pub(crate) fn look(&mut self, process: Process, pid: u32, symbols: &mut Symbols) -> bool {
        match self.machines.entry(process) {
            Entry::Vacant(entry) => {
                let Some(machine) = entry.insert(Machine::find(process, pid, symbols)) else { return false };
                machine.look(process, symbols);
                true
            }
            Entry::Occupied(mut entry) => match entry.get_mut() {
                Some(machine) if machine.rested(SHARE_IN_HASTE, AT_ONCE) => {
                    machine.look(process, symbols);
                    true
                }
                _ => false,
            },
        }
    }

    /// Whether a process is known to run Java.
    pub(crate) fn runs(&self, process: Process) -> bool {
        self.machines.get(&process).is_some_and(Option::is_some)
    }

    /// The pids of those in which virtual threads run whose waits for locks of `java.util.concurrent` are not seen; `is_seen`: whether they are in a
    /// process.
    pub(crate) fn with_unseen_waits(&self, is_seen: impl Fn(Process, u32) -> bool) -> BTreeSet<u32> {
        let machines = self.machines.iter().filter_map(|(&process, machine)| Some((process, machine.as_ref()?)));
        let unseen = machines.filter(|&(process, machine)| machine.has_virtual && !is_seen(process, machine.pid));
        unseen.map(|(_, machine)| machine.pid).collect()
    }

    /// The lock of `java.util.concurrent` that a thread with this stack sleeps for, and the return address in whoever asks for it. All those that
    /// one method asks for are one. `Err`: whether it is not known what the stack leads through.
    pub(crate) fn asked_for(
        &mut self,
        process: Process,
        stack: &[u64],
        symbols: &Symbols,
    ) -> Result<(Lock, Site), bool> {
        if !self.runs(process) {
            return Err(false);
        }
        let methods = methods(process, stack, symbols);
        let is_unknown = methods.last().is_none_or(|(_, name)| name.is_empty());
        let asker = java::asker(methods.iter().map(|&(_, name)| name)).map(|at| methods[at]);
        let asked = asker.and_then(|(addr, name)| self.lock_asked_for(process, addr, name));
        asked.ok_or(is_unknown)
    }

    fn lock_asked_for(&mut self, process: Process, addr: u64, name: &str) -> Option<(Lock, Site)> {
        if !is_method(name) {
            return None;
        }
        let key = (process, java::method(name).to_owned());
        if self.askers.len() >= MAX_ASKERS && !self.askers.contains_key(&key) {
            return None;
        }
        let first = *self.askers.entry(key).or_insert(addr);
        Some((Lock { process, addr: first }, Site { process, addr }))
    }

    /// Which of the addresses on a stack are those of the virtual thread that runs there, if one does ([`java::own`]).
    pub(crate) fn own(&self, process: Process, stack: &[u64], symbols: &Symbols) -> Range<usize> {
        if !self.runs(process) {
            return 0..stack.len();
        }
        let names: Vec<_> = stack.iter().map(|&addr| symbols.generated(process, addr)).collect();
        java::own(&names)
    }

    /// Takes note of the code that they have generated since, of each as often as that may be.
    pub(crate) fn refresh(&mut self, symbols: &mut Symbols) {
        for (&process, machine) in &mut self.machines {
            if let Some(machine) = machine.as_mut().filter(|machine| machine.rested(SHARE, SELDOM)) {
                machine.look(process, symbols);
            }
        }
    }

    /// The same of all, however long ago the last look was.
    pub(crate) fn refresh_all(&mut self, symbols: &mut Symbols) {
        for (&process, machine) in &mut self.machines {
            machine.iter_mut().for_each(|machine| machine.look(process, symbols));
        }
    }

    /// The return address in whoever gave back a lock of `java.util.concurrent` with this stack: the first method outside of these locks.
    pub(crate) fn gave_back(&mut self, process: Process, stack: &[u64], symbols: &mut Symbols) -> Option<u64> {
        self.machines.get(&process)?.as_ref()?;
        let method = stack.iter().position(|&addr| symbols.generated(process, addr).is_some())?;
        // Not where the machine itself wakes a thread.
        if stack[..method].iter().any(|&addr| symbols.role(process, addr) == Role::Program) {
            return None;
        }
        let methods: Vec<(u64, bool)> =
            methods(process, stack, symbols).into_iter().map(|(addr, name)| (addr, is_method(name))).collect();
        let outside = methods.into_iter().find(|&(addr, _)| symbols.role(process, addr) == Role::Program)?;
        outside.1.then_some(outside.0)
    }

    /// Names methods that were found in frames of the interpreter.
    pub(crate) fn name(&mut self, process: Process, methods: &[Interpreted], symbols: &mut Symbols) {
        let Some(Some(machine)) = self.machines.get_mut(&process) else { return };
        let Machine { pid, code: Some(code), has_virtual, .. } = machine else { return };
        let named = methods.iter().filter_map(|&Interpreted { address: method, .. }| {
            let name = code.method_name(*pid, method)?;
            *has_virtual |= is_of_virtual_thread(&name);
            Some(Piece { range: method..method.checked_add(1)?, name, frames: Frames::Pointer, location: None })
        });
        symbols.know_generated(process, named);
    }
}

/// The generated functions on a stack, innermost first, with their return addresses. Where the stack leads through code that is not known yet, they
/// end, by one without a name.
fn methods<'a>(process: Process, stack: &[u64], symbols: &'a Symbols) -> Vec<(u64, &'a str)> {
    let known = stack.iter().position(|&addr| symbols.is_unknown(process, addr)).unwrap_or(stack.len());
    let name = |&addr: &u64| Some((addr, symbols.generated(process, addr)?));
    stack[..known].iter().filter_map(name).chain(stack.get(known).map(|&addr| (addr, ""))).collect()
}

/// Whether only virtual threads run a method: nothing else has use for those of their class.
fn is_of_virtual_thread(name: &str) -> bool {
    java::method(name).starts_with("java.lang.VirtualThread.")
}

fn piece(generated: Generated) -> Piece {
    let frames = match generated.frame {
        Some(bytes) => Frames::Size(bytes),
        None if generated.is_interpreter() => Frames::Interpreter { below: METHOD_BELOW },
        None => Frames::Pointer,
    };
    Piece { range: generated.range, name: generated.name, frames, location: None }
}
