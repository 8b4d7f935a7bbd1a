//! Stacks of threads that wait right now. The kernel side takes a stack when a wait has ended and turned out to be long
//! enough; of a wait that goes on it keeps the frame pointer only, which costs next to nothing. While the thread sleeps,
//! its frames stay where they are and can be read from here: as the kernel would, frame by frame, or to be unwound.

use super::inflight;
use super::owner::read;
use crate::id::{Lock, Process, StackId, Tid};
use crate::proc;
use crate::unwind::{Registers, StackCopy, Unwind};
use lockbpf_common::config::{MAX_STACKS, STACK_DEPTH, WALKED_STACKS};
use lockbpf_common::stack_copy::{BLOCK, BLOCKS};
use std::collections::{HashMap, HashSet};

/// Distinct stacks kept.
const MAX_KEPT: usize = MAX_STACKS as usize;

/// A wait in progress, as the kernel side saw it begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Waiter {
    /// Who waits.
    pub tid: u32,
    /// Since when, ns.
    pub since_ns: u64,
    /// The futex word that it sleeps on; `None` if it may sleep in any call.
    pub word: Option<u64>,
    /// The thread's frame pointer.
    pub frame: u64,
    /// Its process.
    pub process: Process,
    /// Where the lock was asked for: the return address of the call; 0 if that is not known.
    pub site: u64,
}

/// Stacks read so far, numbered beyond those of the kernel's own maps.
#[derive(Debug, Default)]
pub(super) struct OpenStacks {
    by_wait: HashMap<Waiter, Option<StackId>>,
    ids: HashMap<Vec<u64>, StackId>,
}

impl OpenStacks {
    /// The stack of a wait, by whoever unwinds it, else by frame pointers; `None` if it ends meanwhile. Each wait's stack
    /// is read once.
    pub(super) fn of(&mut self, waiter: Waiter, unwinder: Option<&mut dyn Unwind>) -> Option<StackId> {
        if let Some(&known) = self.by_wait.get(&waiter) {
            return known;
        }
        let stack = match unwinder {
            Some(unwinder) => unwind(waiter, unwinder),
            None => walk(waiter),
        };
        let id = stack.and_then(|stack| self.number(stack));
        self.by_wait.insert(waiter, id);
        id
    }

    fn number(&mut self, stack: Vec<u64>) -> Option<StackId> {
        if let Some(&id) = self.ids.get(&stack) {
            return Some(id);
        }
        let id = StackId(u32::try_from(self.ids.len()).ok()?.checked_add(WALKED_STACKS)?);
        (self.ids.len() < MAX_KEPT).then(|| *self.ids.entry(stack).or_insert(id))
    }

    /// Forgets the waits that are not among these; their stacks stay.
    pub(super) fn keep(&mut self, current: &HashSet<Waiter>) {
        self.by_wait.retain(|waiter, _| current.contains(waiter));
    }

    /// One stack.
    pub(super) fn get(&self, id: StackId) -> Option<&[u64]> {
        self.all().find(|&(other, _)| other == id).map(|(_, stack)| stack)
    }

    /// Every stack.
    pub(super) fn all(&self) -> impl Iterator<Item = (StackId, &[u64])> {
        self.ids.iter().map(|(stack, &id)| (id, stack.as_slice()))
    }
}

/// The thread's program counter and the return addresses along its frames, innermost first. A thread's id serves as its
/// process's here.
fn walk(waiter: Waiter) -> Option<Vec<u64>> {
    let Waiter { tid, word, frame, .. } = waiter;
    let still = || asleep(tid, word);
    let mut stack = vec![still()?.program_counter];
    stack.extend(frames(frame, |addr| {
        let bytes: [u8; 16] = read(tid, addr)?;
        let word = |at: usize| bytes.get(at..).and_then(|b| b.first_chunk()).map(|b| u64::from_ne_bytes(*b));
        Some((word(0)?, word(8)?))
    }));
    // What was read is its stack only if it has slept all the time.
    still().map(|_| stack)
}

/// The call in which a thread sleeps, on this word or in any way. A thread's id serves as its process's here.
fn asleep(tid: u32, word: Option<u64>) -> Option<Call> {
    let Some(word) = word else { return Call::of(tid) };
    let inflight::Blocked { stack_pointer, program_counter, .. } =
        inflight::sleep(tid, Tid(tid)).filter(|sleep| sleep.word == word)?;
    Some(Call { number: 0, stack_pointer, program_counter })
}

/// The same by unwind information.
fn unwind(waiter: Waiter, unwinder: &mut dyn Unwind) -> Option<Vec<u64>> {
    copy(waiter).map(|copy| unwinder.unwind(&copy).addresses)
}

/// A copy of its stack, to be unwound.
fn copy(waiter: Waiter) -> Option<StackCopy> {
    let Waiter { tid, word, frame, process, site, .. } = waiter;
    let still = || asleep(tid, word);
    let sleep = still()?;
    let registers = Registers::of(sleep.program_counter, sleep.stack_pointer, frame);
    let copy = copied(process, tid, sleep.stack_pointer, registers, site);
    still().map(|_| copy)
}

/// The stack of a thread as it was at one moment; what it tells may be read off later.
#[derive(Clone, Debug)]
pub enum TakenStack {
    /// Return addresses, innermost first.
    Walked(Vec<u64>),
    /// A copy.
    Copied(Box<StackCopy>),
}

impl TakenStack {
    /// That of a wait, to be unwound or along frame pointers; `None` if it has ended.
    pub(super) fn of(waiter: Waiter, unwinds: bool) -> Option<Self> {
        if unwinds { copy(waiter).map(|copy| Self::Copied(Box::new(copy))) } else { walk(waiter).map(Self::Walked) }
    }

    /// That of a thread that sleeps on a futex word, although no probe saw it begin; `None` if it does not.
    #[must_use]
    pub fn of_sleeper(tid: Tid, lock: Lock) -> Option<Self> {
        copy(sleeper(tid, lock)).map(|copy| Self::Copied(Box::new(copy)))
    }

    /// Return addresses, innermost first.
    pub fn addresses(&self, unwinder: &mut dyn Unwind) -> Vec<u64> {
        match self {
            Self::Walked(addresses) => addresses.clone(),
            Self::Copied(copy) => unwinder.unwind(copy).addresses,
        }
    }
}

/// Whether a thread is blocked further out than where its stack pointer had this lower half at a call: it has left that, if only by a jump.
pub(super) fn has_left(tid: Tid, began: u32) -> bool {
    Call::of(tid.0).is_some_and(|call| (call.stack_pointer as u32).wrapping_sub(began).cast_signed() > 0)
}

/// The stack of a thread that is blocked in a system call, by unwind information; `None` if it does not stay there.
pub(super) fn of_blocked(process: Process, tid: Tid, unwinder: &mut dyn Unwind) -> Option<Vec<u64>> {
    let call = || Call::of(tid.0);
    let before = call()?;
    // Where its frames are is not known: those that do not tell where the next one is end the stack.
    let registers = Registers::of(before.program_counter, before.stack_pointer, 0);
    let copy = copied(process, tid.0, before.stack_pointer, registers, 0);
    (call()? == before).then(|| unwinder.unwind(&copy).addresses)
}

/// A copy of the top of a thread's stack; `site` is a return address that the kernel may have replaced, 0 for none.
fn copied(process: Process, tid: u32, stack_pointer: u64, registers: Registers, site: u64) -> StackCopy {
    let base = stack_pointer & !(BLOCK as u64 - 1);
    let block = |n: usize| read::<BLOCK>(tid, base.checked_add((n * BLOCK) as u64)?);
    let bytes: Vec<u8> = (0..BLOCKS).map_while(block).flatten().collect();
    let bounded = bytes.len() == BLOCK * BLOCKS;
    StackCopy { number: StackId(tid), returns: [site, 0], bounded, ..StackCopy::top(process, registers, base, bytes) }
}

/// A system call in which a thread is blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// Which.
    pub(super) number: u32,
    stack_pointer: u64,
    program_counter: u64,
}

impl Call {
    /// That of a thread.
    fn of(tid: u32) -> Option<Self> {
        Self::parse(&proc::text(format!("/proc/{tid}/syscall")).ok()?)
    }

    /// A line of `/proc/PID/task/TID/syscall`: number, six arguments, stack pointer and program counter; `None` for a thread that runs, or
    /// is blocked elsewhere.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace();
        let number = fields.next()?.parse().ok()?;
        let mut last = fields.skip(6).map(|field| u64::from_str_radix(field.strip_prefix("0x")?, 16).ok());
        Some(Self { number, stack_pointer: last.next()??, program_counter: last.next()?? })
    }
}

/// The stack of a thread that sleeps on a futex word, by unwind information, although no probe saw it begin; `None` if it does not.
pub(super) fn of_sleeper(tid: Tid, lock: Lock, unwinder: &mut dyn Unwind) -> Option<Vec<u64>> {
    unwind(sleeper(tid, lock), unwinder)
}

fn sleeper(tid: Tid, lock: Lock) -> Waiter {
    // Where its frames are is not known: those that do not tell where the next one is end the stack.
    Waiter { tid: tid.0, since_ns: 0, word: Some(lock.addr), frame: 0, process: lock.process, site: 0 }
}

/// Return addresses along a chain of frames, each (caller's frame, return address); frames lie ever higher.
fn frames(mut frame: u64, read: impl Fn(u64) -> Option<(u64, u64)>) -> Vec<u64> {
    let mut addresses = Vec::new();
    while addresses.len() + 1 < STACK_DEPTH
        && let Some((caller, address)) = read(frame)
    {
        addresses.push(address);
        if caller <= frame {
            break;
        }
        frame = caller;
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_followed_upwards_only() {
        let chain = |frame: u64| match frame {
            0x100 => Some((0x140, 1)),
            0x140 => Some((0x200, 2)),
            0x200 => Some((0x100, 3)),
            0x300 => Some((0x310, 4)),
            _ => None,
        };
        assert_eq!(frames(0x100, chain), [1, 2, 3]);
        assert_eq!(frames(0x300, chain), [4]);
        assert_eq!(frames(7, chain), [0; 0]);
        assert_eq!(frames(0, |at| Some((at + 16, at))).len(), STACK_DEPTH - 1);
    }

    #[test]
    fn a_blocked_thread_shows_its_call() {
        let call = Call { number: 230, stack_pointer: 0x7ffe, program_counter: 0x7f00 };
        assert_eq!(Call::parse("230 0x0 0x0 0x7ff 0x0 0x0 0x0 0x7ffe 0x7f00\n"), Some(call));
        for line in ["running", "-1 0x7ffe 0x7f00", "", "230", "230 0x1 0x2 0x3 0x4 0x5 0x6 0x7", "230 1 2 3 4 5 6 7 8"]
        {
            assert_eq!(Call::parse(line), None, "{line}");
        }
    }

    #[test]
    fn equal_stacks_have_one_number() {
        let mut stacks = OpenStacks::default();
        let first = stacks.number(vec![1, 2]);
        assert_eq!(first, Some(StackId(WALKED_STACKS)));
        assert_eq!(stacks.number(vec![3]), Some(StackId(WALKED_STACKS + 1)));
        assert_eq!(stacks.number(vec![1, 2]), first);
        assert_eq!(stacks.get(StackId(WALKED_STACKS + 1)), Some(&[3][..]));
        assert_eq!(stacks.get(StackId(7)), None);
    }

    #[test]
    fn a_thread_that_does_not_wait_has_no_stack() {
        let waiter =
            Waiter { tid: std::process::id(), since_ns: 1, word: Some(2), frame: 3, process: Process(1), site: 0 };
        let mut stacks = OpenStacks::default();
        assert_eq!(stacks.of(waiter, None), None);
        assert_eq!(stacks.by_wait.len(), 1);
        stacks.keep(&HashSet::new());
        assert_eq!(stacks.by_wait.len(), 0);
    }
}
