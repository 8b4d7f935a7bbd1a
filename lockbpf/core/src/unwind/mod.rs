//! Unwinding, as far as it needs neither kernel nor files: what is unwound, what comes of it, and which way of taking stacks
//! suits a process.
#![forbid(unsafe_code)]

mod registers;

use crate::id::{Process, StackId};
use lockbpf_common::python::PythonFrame;
pub use registers::{MACHINE, Machine, Registers};
use std::collections::BTreeMap;
use std::ops::Range;

/// Stacks by frame pointers that must say all that unwinding says before a process is trusted to keep them.
const AGREEING: u32 = 16;

/// What is farther above the top of a stack is no part of it, bytes: the usual limit of a stack.
const MAX_STACK: u64 = 8 << 20;

/// How stacks are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// Each process by frame pointers if its code keeps them, else by unwind information.
    #[default]
    Auto,
    /// By frame pointers: code that keeps none is missing, and what called it may be.
    Fp,
    /// By unwind information (`.eh_frame`, `.debug_frame`), from copies of the stacks.
    Dwarf,
}

/// A user stack as it was copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackCopy {
    /// Whose.
    pub process: Process,
    /// By which number records name it.
    pub number: StackId,
    /// The same stack by frame pointers, if it was walked, too.
    pub frames: Option<StackId>,
    /// Whether it was taken where a lock is given back, and not where it was asked for.
    pub at_release: bool,
    /// Return addresses that the kernel has replaced by one of its own, to watch the calls to their return, innermost first;
    /// 0 for none.
    pub returns: [u64; 2],
    /// The registers at its top.
    pub registers: Registers,
    /// The Python functions that the thread was in, innermost first.
    pub python: Vec<PythonFrame>,
    /// Address of the first byte.
    pub base: u64,
    /// The stack from there on.
    pub bytes: Vec<u8>,
    /// Whether the stack may go on beyond that.
    pub bounded: bool,
}

impl StackCopy {
    /// What is known of a stack that no record names: its top, with these registers. It may go on beyond that.
    #[must_use]
    pub fn top(process: Process, registers: Registers, base: u64, bytes: Vec<u8>) -> Self {
        Self {
            process,
            number: StackId(0),
            frames: None,
            at_release: false,
            returns: [0; 2],
            registers,
            python: Vec::new(),
            base,
            bytes,
            bounded: true,
        }
    }

    /// Eight bytes of the stack.
    ///
    /// # Errors
    /// The reason why they are not there.
    pub fn word(&self, address: u64) -> Result<u64, End> {
        let at = address.checked_sub(self.base).filter(|&at| at < MAX_STACK).ok_or(End::Astray)? as usize;
        let bytes = self.bytes.get(at..).and_then(|bytes| bytes.first_chunk());
        bytes.map(|bytes| u64::from_ne_bytes(*bytes)).ok_or(if self.bounded { End::Cut } else { End::Astray })
    }
}

/// Where unwinding ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum End {
    /// Where the thread began.
    Root,
    /// Where the copy ends.
    Cut,
    /// In code that has no unwind information and keeps no frame pointers.
    NoInformation,
    /// Where unwind information and stack contradict each other.
    Astray,
    /// There are more frames than anybody reads.
    Deep,
}

/// A stack that was unwound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwound {
    /// The instruction pointer (one more where a function begins, as if a call there returned), then return addresses, innermost first.
    pub addresses: Vec<u64>,
    /// Where in the stack the return addresses were found; `None` if one was in a register.
    pub slots: Option<Vec<u64>>,
    /// Where it ended.
    pub end: End,
    /// Whether it went on by frame pointers through code without unwind information.
    pub by_frame_pointers: bool,
    /// Methods in interpreters' frames: one more than a method's address stands in `addresses` in place of the frame's own.
    pub interpreted: Vec<Interpreted>,
}

/// A method that is interpreted. Its frame returns to the same address as those of all other methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interpreted {
    /// Its address.
    pub address: u64,
    /// Where in the stack that was found.
    pub slot: u64,
}

impl Unwound {
    /// Puts the functions that an interpreter was in, innermost first, in place of its own, which lie there. What was called from it first
    /// and from what it was called stays; calls of other code between two of its own are left out.
    pub fn put_in_place(&mut self, functions: impl Iterator<Item = u64>, interpreter: &Range<u64>) {
        let is_own = |address: &u64| interpreter.contains(&address.wrapping_sub(1));
        let end = self.addresses.len();
        let first = self.addresses.iter().position(is_own).unwrap_or(end);
        let behind = self.addresses.iter().rposition(is_own).map_or(end, |last| last + 1);
        self.addresses.splice(first..behind, functions);
    }
}

/// Whoever can unwind.
pub trait Unwind {
    /// The calls that a copied stack stands for; the instruction pointer at least.
    fn unwind(&mut self, copy: &StackCopy) -> Unwound;
}

/// How many stacks came out how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Outcomes {
    /// Unwound, by their ends.
    ends: BTreeMap<End, u64>,
    /// How many of these were unwound by frame pointers for a part.
    by_frame_pointers: u64,
}

/// What is known of a process's stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Record {
    agreeing: u32,
    decided: Option<Decision>,
}

/// How the stacks of a process are taken from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// By frame pointers.
    Frames,
    /// By unwind information.
    Unwind,
}

/// Decides, process by process, and counts how well it goes.
#[derive(Debug, Default)]
pub struct Judge {
    processes: BTreeMap<Process, Record>,
    outcomes: Outcomes,
}

impl Judge {
    /// Takes note of a stack that was unwound, and of the same one by frame pointers, if there is one. Returns what that
    /// decides, once. `is_program` tells the program's own code, without which a stack says little.
    pub fn compare(
        &mut self,
        process: Process,
        unwound: &Unwound,
        frames: Option<&[u64]>,
        is_program: impl Fn(u64) -> bool,
    ) -> Option<Decision> {
        *self.outcomes.ends.entry(unwound.end).or_default() += 1;
        self.outcomes.by_frame_pointers += u64::from(unwound.by_frame_pointers);
        let frames = frames?;
        let record = self.processes.entry(process).or_default();
        if record.decided.is_some() {
            return None;
        }
        // The first of the program's functions does not count: it is known as the place of the call, and the walk misses it wherever the C
        // library keeps no frame.
        let mut program = unwound.addresses.iter().skip(1).filter(|&&address| is_program(address)).skip(1).peekable();
        let says_something = program.peek().is_some();
        // Frame pointers do not tell what an interpreter was in.
        if !unwound.interpreted.is_empty() || program.any(|address| !frames.contains(address)) {
            record.decided = Some(Decision::Unwind);
        } else if says_something {
            record.agreeing += 1;
            if record.agreeing >= AGREEING {
                record.decided = Some(Decision::Frames);
            }
        }
        record.decided
    }

    /// The processes that were decided so.
    pub fn decided(&self, decision: Decision) -> impl Iterator<Item = Process> + '_ {
        self.processes.iter().filter(move |(_, r)| r.decided == Some(decision)).map(|(&process, _)| process)
    }

    /// The processes whose stacks were compared and agreed so far, but are too few to tell.
    pub fn undecided(&self) -> usize {
        self.processes.values().filter(|r| r.decided.is_none()).count()
    }

    /// How unwinding went, in a sentence; `None` if there was nothing to unwind. `copy_bytes` is what is copied of a stack.
    #[must_use]
    pub fn summary(&self, copy_bytes: usize) -> Option<String> {
        let of = |end| self.outcomes.ends.get(&end).copied().unwrap_or(0);
        let all: u64 = self.outcomes.ends.values().sum();
        if all == 0 {
            return None;
        }
        let mut text = format!("{} unwound, {} of them to the start of the thread", counted(all), of(End::Root));
        let kib = copy_bytes >> 10;
        for (n, cause) in [
            (of(End::Cut), format!("cut after {kib} KiB")),
            (of(End::NoInformation), "ended in code without unwind information".to_owned()),
            (of(End::Astray), "ended where unwind information and stack disagree".to_owned()),
            (of(End::Deep), "deeper than is read".to_owned()),
            (
                self.outcomes.by_frame_pointers,
                "went by frame pointers through code without unwind information".to_owned(),
            ),
        ] {
            if n > 0 {
                text.push_str(&format!(", {n} {cause}"));
            }
        }
        Some(text)
    }
}

fn counted(n: u64) -> String {
    format!("{n} {}", if n == 1 { "stack" } else { "stacks" })
}

/// Stacks by frame pointers, and whether they are whole, to tell what they lack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walked {
    /// Those that reach the start of their thread.
    pub whole: u64,
    /// Those that end before, by the file in which they do.
    pub short: BTreeMap<String, u64>,
}

impl Walked {
    /// What they lack, in words; `None` if nothing.
    #[must_use]
    pub fn lack(&self) -> Option<String> {
        let short: u64 = self.short.values().sum();
        if short == 0 {
            return None;
        }
        let mut files: Vec<_> = self.short.iter().collect();
        files.sort_unstable_by_key(|&(name, &n)| (std::cmp::Reverse(n), name));
        let names: Vec<&str> = files.iter().take(3).map(|(name, _)| name.as_str()).collect();
        Some(format!(
            "{short} of {} by frame pointers end before the start of their thread: code without frame pointers, in or called \
             from {}",
            counted(short + self.whole),
            names.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unwound(addresses: &[u64]) -> Unwound {
        Unwound {
            addresses: addresses.to_vec(),
            slots: None,
            end: End::Root,
            by_frame_pointers: false,
            interpreted: Vec::new(),
        }
    }

    #[test]
    fn functions_stand_in_place_of_their_interpreter() {
        let stack = |addresses: &[u64], functions: &[u64]| {
            let mut unwound = Unwound {
                addresses: addresses.to_vec(),
                slots: None,
                end: End::Root,
                by_frame_pointers: false,
                interpreted: Vec::new(),
            };
            unwound.put_in_place(functions.iter().copied(), &(100..200));
            unwound.addresses
        };
        // A return address may be the first one behind a function.
        assert_eq!(stack(&[1, 101, 150, 200, 300], &[7, 8]), [1, 7, 8, 300]);
        assert_eq!(
            stack(&[1, 2, 101, 50, 102, 300, 301], &[7]),
            [1, 2, 7, 300, 301],
            "of an extension in between nothing is left"
        );
        assert_eq!(stack(&[1, 100, 201], &[7]), [1, 100, 201, 7], "none of the interpreter's");
        assert_eq!(stack(&[], &[7]), [7]);
    }

    #[test]
    fn frame_pointers_are_trusted_when_they_say_all_that_is_the_programs() {
        let mut judge = Judge::default();
        let program = |address| address < 200;
        let process = Process(1);
        for _ in 1..AGREEING {
            // The walk has the wrong frames of the C library, and not the place of the call.
            let stack = unwound(&[300, 301, 100, 101, 102, 303]);
            assert_eq!(judge.compare(process, &stack, Some(&[300, 101, 102, 400]), program), None);
        }
        assert_eq!(judge.undecided(), 1);
        // Where no function is left to compare, nothing is said.
        assert_eq!(judge.compare(process, &unwound(&[300, 100]), Some(&[300]), program), None);
        let decision = judge.compare(process, &unwound(&[300, 100, 101]), Some(&[300, 101]), program);
        assert_eq!(decision, Some(Decision::Frames));
        assert_eq!(judge.compare(process, &unwound(&[300, 100, 101]), Some(&[300]), program), None, "told once");
        assert_eq!(judge.decided(Decision::Frames).collect::<Vec<_>>(), [process]);
    }

    #[test]
    fn one_missing_function_is_enough() {
        let mut judge = Judge::default();
        let decision = judge.compare(Process(2), &unwound(&[300, 100, 101, 102]), Some(&[300, 101]), |a| a < 200);
        assert_eq!(decision, Some(Decision::Unwind));
        assert_eq!(judge.compare(Process(3), &unwound(&[300, 100, 101]), None, |a| a < 200), None);
        assert_eq!(judge.summary(16 << 10).unwrap(), "2 stacks unwound, 2 of them to the start of the thread");
    }

    #[test]
    fn words_beyond_the_copy_are_cut_only_where_the_stack_goes_on() {
        let copy = StackCopy::top(Process(1), Registers::default(), 0x1000, vec![7; 16]);
        assert_eq!(copy.word(0x1008), Ok(0x0707_0707_0707_0707));
        assert_eq!(copy.word(0x1009), Err(End::Cut));
        assert_eq!(copy.word(0xfff), Err(End::Astray));
        assert_eq!(copy.word(u64::MAX), Err(End::Astray));
        assert_eq!(StackCopy { bounded: false, ..copy }.word(0x1010), Err(End::Astray));
    }

    #[test]
    fn what_is_lacking_is_told_by_file() {
        let mut walked = Walked { whole: 3, ..Walked::default() };
        assert_eq!(walked.lack(), None);
        walked.short.insert("deep".to_owned(), 2);
        assert!(walked.lack().unwrap().starts_with("2 of 5 stacks by frame pointers end before"));
    }
}
