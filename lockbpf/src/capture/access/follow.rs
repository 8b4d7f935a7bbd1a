//! Follows one thread from its attempt on a lock to the release of that lock.
//!
//! Lock functions run at full speed, and so does waiting: the thread is stopped when they return. In between [`crate::access::walk`]
//! says where it must be stopped next.

use super::breakpoints::Breakpoint;
use super::functions::{Functions, Role};
use super::memory::ProcessMemory;
use super::pin::Beside;
use super::tracee;
use super::tracer::{Awaited, Tracer};
use super::xstate::Layout;
use crate::access::classify::{Class, Own};
use crate::access::section::{Abandoned, Asked, Cut, End, Section, Sides};
use crate::access::state::{Machine, Registers};
use crate::access::syscalls::SystemCall;
use crate::access::walk::{Branch, Decoded, Obstacle, Path, walk};
use crate::access::{Access, Memory, Touch, Way};
use lockbpf_common::via::Via;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// `EOWNERDEAD`: acquired, though its last holder died.
const OWNER_DEAD: u64 = 130;
/// What is read of a stack to tell the callers: methods of locks are called from near.
const STACK_BYTES: u64 = 4 << 10;
/// Locks taken inside a section that are followed.
const MAX_NESTED: usize = 16;

/// How far a section is followed.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Instructions.
    pub instructions: u64,
    /// Time for which its thread is held up.
    pub held_up: Duration,
    /// Waiting for its lock.
    pub wait: Duration,
    /// Its thread's own waiting in it: system calls, other locks.
    pub blocked: Duration,
}

/// What following needs.
pub(super) struct Follower<'a, 'i> {
    pub(super) tid: i32,
    pub(super) tracer: &'a mut Tracer<'i>,
    pub(super) functions: &'a Functions,
    pub(super) program: BorrowedFd<'a>,
    pub(super) layout: Layout,
    pub(super) own: Own,
    pub(super) limits: Limits,
}

/// What came of it.
pub(super) struct Followed {
    /// The section, and those in it, in the order of acquisition; or why there is none.
    pub(super) sections: Result<Vec<Section>, Abandoned>,
    /// For how long the thread ran or waited by itself meanwhile: it was not held up.
    pub(super) own_time: Duration,
    /// Whether it is stopped, and must be let go.
    pub(super) is_stopped: bool,
    /// The signal that it is about to receive, or 0.
    pub(super) signal: i32,
}

/// Where a thread is after it ran.
enum Ran {
    To(Registers),
    Elsewhere(Elsewhere),
}

/// What kept it from coming to where it was to be stopped.
#[derive(Clone, Copy)]
enum Elsewhere {
    /// It is about to receive this signal, or stops with its process.
    Signal(i32),
    /// It did not go, since the kernel refused a breakpoint.
    Refused,
    /// It is stopped somewhere else.
    Astray,
    /// It still runs, or waits.
    TimedOut,
    /// The same, but it is to be let go at once.
    Suspended,
    /// It is no more.
    Ended,
}

/// How the thread is left.
#[derive(Clone, Copy)]
struct Left {
    is_stopped: bool,
    signal: i32,
}

/// Where it was to be stopped.
const STOPPED: Left = Left { is_stopped: true, signal: 0 };

impl Elsewhere {
    fn left(self) -> Left {
        match self {
            Self::Signal(signal) => Left { is_stopped: true, signal },
            Self::Refused | Self::Astray => STOPPED,
            Self::TimedOut | Self::Suspended | Self::Ended => Left { is_stopped: false, signal: 0 },
        }
    }

    /// What it means for a section.
    fn ending(self) -> Ending {
        match self {
            Self::Signal(_) => Ending::Section(End::Cut(Cut::Signal), self.left()),
            Self::TimedOut => Ending::Section(End::Cut(Cut::Time), self.left()),
            Self::Suspended => Ending::Section(End::Cut(Cut::Interrupted), self.left()),
            Self::Ended => Ending::Nothing(Abandoned::Exited, self.left()),
            Self::Refused => Ending::Nothing(Abandoned::Refused, self.left()),
            Self::Astray => Ending::Nothing(Abandoned::Lost, self.left()),
        }
    }

    /// What it means for a request of a lock.
    fn abandoned(self) -> Abandoned {
        match self {
            Self::Signal(_) => Abandoned::Signal,
            Self::TimedOut => Abandoned::WaitsTooLong,
            Self::Suspended => Abandoned::Interrupted,
            Self::Ended => Abandoned::Exited,
            Self::Refused => Abandoned::Refused,
            Self::Astray => Abandoned::Lost,
        }
    }
}

/// Why following ends.
enum Ending {
    Section(End, Left),
    Nothing(Abandoned, Left),
}

/// The thread has the lock.
struct Acquired {
    began: Instant,
    order: usize,
    open: Open,
    registers: Registers,
}

/// A section that is under way, as a part of what was seen.
struct Open {
    lock: u64,
    via: Via,
    site: u64,
    asked: Asked,
    from: usize,
    /// Branches before it.
    branches: usize,
    instructions: u64,
    stops: u64,
}

/// A finished one.
struct Closed {
    open: Open,
    /// When it was acquired, among all.
    order: usize,
    to: usize,
    branches: BTreeMap<u64, Sides>,
    end: End,
    instructions: u64,
    stops: u64,
    opaque: Vec<String>,
}

struct Course {
    breakpoints: [Option<Breakpoint>; 2],
    beside: Option<Beside>,
    accesses: Vec<(Access, Class)>,
    branches: Vec<Branch>,
    locks: Vec<(u64, u64)>,
    opaque: Vec<(usize, String)>,
    instructions: u64,
    stops: u64,
    /// Time that the thread would have taken anyway.
    own_time: Duration,
    nested: Vec<(usize, Open)>,
    closed: Vec<Closed>,
    acquired: usize,
}

impl Follower<'_, '_> {
    /// From the entry of the lock function, where the thread is stopped.
    pub(super) fn follow(&mut self, entry: &Registers) -> Followed {
        let mut course = Course {
            breakpoints: [None, None],
            beside: None,
            accesses: Vec::new(),
            branches: Vec::new(),
            locks: Vec::new(),
            opaque: Vec::new(),
            instructions: 0,
            stops: 0,
            own_time: Duration::ZERO,
            nested: Vec::new(),
            closed: Vec::new(),
            acquired: 0,
        };
        let Acquired { began, order, open, registers } = match self.acquire(entry, &mut course) {
            Ok(acquired) => acquired,
            Err((why, left)) => return followed(Err(why), course.own_time, left),
        };
        // Not before: where it waits says nothing.
        course.beside = Some(Beside::of(self.tid));
        let ending = self.section(registers, open.lock, began, &mut course);
        course.breakpoints = [None, None];
        let own_time = course.own_time;
        match ending {
            Ending::Nothing(why, left) => followed(Err(why), own_time, left),
            Ending::Section(end, left) => {
                for (order, open) in std::mem::take(&mut course.nested) {
                    // What lies in a cut section is cut as well; a lock that is held on was not seen released.
                    let end = if matches!(end, End::Cut(_)) { end.clone() } else { End::Cut(Cut::HeldOn) };
                    course.close(order, open, end);
                }
                course.close(order, open, end);
                followed(Ok(course.sections(self.tid)), own_time, left)
            }
        }
    }

    /// Lets the thread ask for the lock and wait for it.
    fn acquire(&mut self, entry: &Registers, course: &mut Course) -> Result<Acquired, (Abandoned, Left)> {
        let Some(Role::Request(via)) = self.functions.role(entry.ip) else { return Err((Abandoned::Lost, STOPPED)) };
        let Some(site) = ProcessMemory(self.tid).word(entry.sp()) else { return Err((Abandoned::Lost, STOPPED)) };
        let caller = self.asked(entry);
        let asked = Instant::now();
        let ran = self.run(entry, &[site], self.limits.wait, course);
        course.own_time += asked.elapsed();
        let registers = match ran {
            Ran::To(registers) if registers.sp() == entry.sp().wrapping_add(8) => registers,
            Ran::To(_) => return Err((Abandoned::Lost, STOPPED)),
            Ran::Elsewhere(elsewhere) => return Err((elsewhere.abandoned(), elsewhere.left())),
        };
        if !is_obtained(&registers) {
            return Err((Abandoned::NotAcquired, STOPPED));
        }
        let lock = entry.argument(0);
        let (order, open) = course.open(lock, via, (site, caller));
        Ok(Acquired { began: Instant::now(), order, open, registers })
    }

    /// What tells the callers of a lock function, at its entry.
    fn asked(&self, entry: &Registers) -> Asked {
        let base = entry.sp();
        let bytes = self.own.stack.end.saturating_sub(base).min(STACK_BYTES);
        let mut stack = vec![0; bytes as usize];
        if !ProcessMemory(self.tid).read(base, &mut stack) {
            stack.clear();
        }
        Asked { registers: entry.unwindable(), base, stack }
    }

    /// From the acquisition to the release of the lock.
    fn section(&mut self, mut registers: Registers, lock: u64, began: Instant, course: &mut Course) -> Ending {
        let mut code = Decoded::default();
        let (mut recursion, before) = (0_u32, course.own_time);
        loop {
            if began.elapsed().saturating_sub(course.own_time - before) > self.limits.held_up {
                return Ending::Section(End::Cut(Cut::Time), STOPPED);
            }
            if self.tracer.is_interrupted() {
                return Ending::Section(End::Cut(Cut::Interrupted), STOPPED);
            }
            let left = self.limits.instructions.saturating_sub(course.instructions);
            if left == 0 {
                return Ending::Section(End::Cut(Cut::Instructions), STOPPED);
            }
            let next = match self.functions.role(registers.ip) {
                Some(role) => match self.call(role, &registers, lock, &mut recursion, course) {
                    Ok(next) => next,
                    Err(ending) => return ending,
                },
                None => match self.ahead(&registers, left, &mut code, course) {
                    Ok(next) => next,
                    Err(ending) => return ending,
                },
            };
            registers = next;
        }
    }

    /// As far as the code can be followed.
    fn ahead(
        &mut self,
        from: &Registers,
        left: u64,
        code: &mut Decoded,
        course: &mut Course,
    ) -> Result<Registers, Ending> {
        let (tid, layout) = (self.tid, self.layout);
        let mut path = Path {
            memory: &mut ProcessMemory(tid),
            vectors: &mut || tracee::vectors(tid, &layout),
            stack: self.own.stack.clone(),
            marks: &|address| self.functions.role(address).is_some(),
            machine: Machine { xsave_bytes: layout.bytes as u64 },
        };
        let cut = |cut| Err(Ending::Section(End::Cut(cut), STOPPED));
        match walk(code, from, usize::try_from(left).unwrap_or(usize::MAX), &mut path) {
            Ok(ahead) => {
                let run = if ahead.stops.is_empty() {
                    None
                } else {
                    Some(self.run(from, &ahead.stops, self.limits.blocked, course))
                };
                // What it was to do counts if it came to where that ends.
                let reached = match &run {
                    Some(Ran::To(registers)) => {
                        if ahead.expected.wrong(registers).next().is_some() {
                            return Err(Ending::Nothing(Abandoned::Mispredicted, STOPPED));
                        }
                        true
                    }
                    Some(_) => false,
                    None => true,
                };
                if reached {
                    course.instructions += ahead.instructions as u64;
                    course.branches.extend_from_slice(&ahead.branches);
                    if let Some(Ran::To(registers)) = &run {
                        course.branches.extend(ahead.decided(registers.ip));
                    }
                    course.take(ahead.accesses, &self.own);
                }
                match run {
                    Some(Ran::To(registers)) => Ok(registers),
                    Some(Ran::Elsewhere(elsewhere)) => Err(elsewhere.ending()),
                    None => cut(Cut::Instructions),
                }
            }
            Err(Obstacle::SystemCall { next }) => self.system_call(from, next, course),
            Err(Obstacle::Breakpoint) => cut(Cut::Breakpoint),
            Err(Obstacle::Unreadable) => cut(Cut::Unreadable),
            Err(Obstacle::Unsupported(name)) => cut(Cut::Instruction(name)),
        }
    }

    /// A system call, of which only the buffers are known that go in and out.
    fn system_call(&mut self, from: &Registers, next: u64, course: &mut Course) -> Result<Registers, Ending> {
        let call = SystemCall::of(from);
        if SystemCall::leaves(from) {
            return Err(Ending::Section(End::Cut(Cut::Left(call.label())), STOPPED));
        }
        course.instructions += 1;
        course.opaque.push((course.accesses.len(), call.label()));
        let ran = self.run_freely(from, &[next], course);
        if let (Ran::To(after), Some((address, size, kind))) = (&ran, call.buffer) {
            // As much as was transferred; a negative result is an error.
            let size = size.min(u64::try_from(after.result() as i64).unwrap_or(0));
            if size > 0 {
                let touch = Touch { address, size, kind, way: Way::Plain };
                course.take(vec![Access { at: from.ip, touch }], &self.own);
            }
        }
        match ran {
            Ran::To(registers) => Ok(registers),
            Ran::Elsewhere(elsewhere) => Err(elsewhere.ending()),
        }
    }

    /// The thread is at the entry of a lock function.
    fn call(
        &mut self,
        role: Role,
        entry: &Registers,
        lock: u64,
        recursion: &mut u32,
        course: &mut Course,
    ) -> Result<Registers, Ending> {
        let subject = entry.argument(if role == Role::Waits { 1 } else { 0 });
        if subject == lock {
            match role {
                Role::Release if *recursion == 0 => return Err(Ending::Section(End::Released, STOPPED)),
                Role::Waits => return Err(Ending::Section(End::Waits, STOPPED)),
                _ => {}
            }
        }
        let inner = course.nested.iter().rposition(|(_, open)| open.lock == subject);
        match (role, inner) {
            (Role::Release, Some(inner)) => course.end(inner, End::Released),
            (Role::Waits, Some(inner)) => course.end(inner, End::Waits),
            _ => {}
        }
        let Some(site) = ProcessMemory(self.tid).word(entry.sp()) else {
            return Err(Ending::Section(End::Cut(Cut::Unreadable), STOPPED));
        };
        let asked = (site, self.asked(entry));
        let registers = match self.run_freely(entry, &[site], course) {
            Ran::To(registers) if registers.sp() == entry.sp().wrapping_add(8) => registers,
            Ran::To(_) => return Err(Ending::Nothing(Abandoned::Lost, STOPPED)),
            Ran::Elsewhere(elsewhere) => return Err(elsewhere.ending()),
        };
        match role {
            Role::Release if subject == lock => *recursion -= 1,
            Role::Request(_) if subject == lock && is_obtained(&registers) => *recursion += 1,
            Role::Request(via) if is_obtained(&registers) && inner.is_none() => {
                if course.nested.len() >= MAX_NESTED {
                    return Err(Ending::Section(End::Cut(Cut::Nesting), STOPPED));
                }
                let open = course.open(subject, via, asked);
                course.nested.push(open);
            }
            // It has the mutex again.
            Role::Waits if inner.is_some() => {
                let open = course.open(subject, Via::Lock, asked);
                course.nested.push(open);
            }
            _ => {}
        }
        Ok(registers)
    }

    /// Lets the thread run, for as long as it would take anyway.
    fn run_freely(&mut self, from: &Registers, stops: &[u64], course: &mut Course) -> Ran {
        let began = Instant::now();
        let ran = self.run(from, stops, self.limits.blocked, course);
        course.own_time += began.elapsed();
        ran
    }

    /// Lets the thread run until it comes to one of these.
    fn run(&mut self, from: &Registers, stops: &[u64], at_most: Duration, course: &mut Course) -> Ran {
        for (i, breakpoint) in course.breakpoints.iter_mut().enumerate() {
            let set = match (stops.get(i), breakpoint.as_mut()) {
                (Some(&stop), Some(breakpoint)) => breakpoint.put(stop),
                (Some(&stop), None) => Breakpoint::set(self.tid, stop, self.program).map(|new| *breakpoint = Some(new)),
                (None, Some(breakpoint)) => breakpoint.lift(),
                (None, None) => Ok(()),
            };
            if set.is_err() {
                return Ran::Elsewhere(Elsewhere::Refused);
            }
        }
        let passed = if stops.contains(&from.ip) { tracee::pass(self.tid, from) } else { Ok(()) };
        if passed.and_then(|()| tracee::resume(self.tid, 0)).is_err() {
            return Ran::Elsewhere(Elsewhere::Ended);
        }
        course.stops += 1;
        match self.tracer.one(self.tid, Instant::now() + at_most) {
            Awaited::Stopped { .. } => match tracee::registers(self.tid).inspect(|_| course.stopped()) {
                Ok(registers) if stops.contains(&registers.ip) => Ran::To(registers),
                Ok(_) => Ran::Elsewhere(Elsewhere::Astray),
                Err(_) => Ran::Elsewhere(Elsewhere::Ended),
            },
            Awaited::Signal(signal) => Ran::Elsewhere(Elsewhere::Signal(signal)),
            // It stops with its process once it is let go.
            Awaited::Group => Ran::Elsewhere(Elsewhere::Signal(0)),
            Awaited::Ended => Ran::Elsewhere(Elsewhere::Ended),
            Awaited::TimedOut => Ran::Elsewhere(Elsewhere::TimedOut),
            Awaited::Suspended => Ran::Elsewhere(Elsewhere::Suspended),
        }
    }
}

fn followed(sections: Result<Vec<Section>, Abandoned>, own_time: Duration, left: Left) -> Followed {
    Followed { sections, own_time, is_stopped: left.is_stopped, signal: left.signal }
}

/// Whether a lock function that has returned has obtained the lock. Those of reading and of trying return an error number.
fn is_obtained(after: &Registers) -> bool {
    matches!(after.result() & 0xffff_ffff, 0 | OWNER_DEAD)
}

/// Bytes of a lock.
fn size(via: Via) -> u64 {
    match via {
        via if via.is_spin() => 4,
        via if via.is_rwlock() => 56,
        _ => 40,
    }
}

impl Course {
    /// A lock was acquired.
    fn open(&mut self, lock: u64, via: Via, (site, asked): (u64, Asked)) -> (usize, Open) {
        if !self.locks.iter().any(|&(known, _)| known == lock) {
            self.locks.push((lock, size(via)));
        }
        let order = self.acquired;
        self.acquired += 1;
        let (instructions, stops) = (self.instructions, self.stops);
        let (from, branches) = (self.accesses.len(), self.branches.len());
        (order, Open { lock, via, site, asked, from, branches, instructions, stops })
    }

    /// The thread has stopped where it was to.
    fn stopped(&mut self) {
        self.beside.iter_mut().for_each(Beside::stopped);
    }

    /// A nested section has ended.
    fn end(&mut self, index: usize, end: End) {
        let (order, open) = self.nested.remove(index);
        self.close(order, open, end);
    }

    fn close(&mut self, order: usize, open: Open, end: End) {
        let mut branches: BTreeMap<u64, Sides> = BTreeMap::new();
        for branch in &self.branches[open.branches..] {
            let sides = branches.entry(branch.at).or_default();
            *if branch.taken { &mut sides.taken } else { &mut sides.not_taken } += 1;
        }
        let inside = self.opaque.iter().filter(|(at, _)| *at >= open.from);
        self.closed.push(Closed {
            order,
            to: self.accesses.len(),
            branches,
            end,
            instructions: self.instructions - open.instructions,
            stops: self.stops - open.stops,
            opaque: inside.map(|(_, label)| label.clone()).collect(),
            open,
        });
    }

    fn take(&mut self, accesses: Vec<Access>, own: &Own) {
        let locks = &self.locks;
        self.accesses.extend(accesses.into_iter().map(|access| (access, own.class(&access.touch, locks))));
    }

    /// All sections, in the order of acquisition.
    fn sections(mut self, tid: i32) -> Vec<Section> {
        self.closed.sort_by_key(|closed| closed.order);
        let accesses = &self.accesses;
        let section = |closed: Closed| Section {
            lock: closed.open.lock,
            shared: closed.open.via.is_shared(),
            site: closed.open.site,
            asked: closed.open.asked,
            tid: tid.cast_unsigned(),
            nested: closed.order > 0,
            accesses: accesses[closed.open.from..closed.to].to_vec(),
            branches: closed.branches,
            opaque: closed.opaque,
            instructions: closed.instructions,
            stops: closed.stops,
            end: closed.end,
        };
        self.closed.into_iter().map(section).collect()
    }
}
