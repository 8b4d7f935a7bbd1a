//! Memory that belongs to one thread: its stack, and its thread-local variables.
//!
//! Where a thread's memory is, nobody tells. The first thread's stack begins where `/proc/PID/stat` says. Every other
//! thread's stack is, with glibc, an anonymous mapping above a guard, at the end of which glibc keeps the thread's own
//! record: its first and third words are the record's own address, by which it is known for certain (x86-64 ABI).
//! Thread-local variables lie right below that record. What cannot be known so has no claim made about it.

use crate::proc;
use crate::rights;
use procfs::process::{LimitValue, Process};
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// The kernel leaves at least this much below the beginning of the first thread's stack for it alone.
const FIRST_STACK: u64 = 8 << 20;
/// Bytes at the end of memory where a thread's record is looked for: itself, and what the linker has above the first one's.
const RECORD_WITHIN: u64 = 16 << 10;
/// Thread-local variables are not looked for further below a record.
const MAX_VARIABLES: u64 = 64 << 10;
/// How a record is aligned.
const RECORD_ALIGN: usize = 64;
/// Bytes of a maps file that are read.
const MAX_MAPS: u64 = 32 << 20;
/// Threads of one process that are known, with those that have ended.
const MAX_THREADS: usize = 16_384;

/// The memory of a process's threads, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct Threads {
    /// Where the first thread's stack begins, at its high end.
    first: Option<u64>,
    /// By the address of the thread's record: where its stack ends, at its low end; `None` where that is not known.
    records: BTreeMap<u64, Option<u64>>,
    /// Mappings in which no record was found; they are not looked through again while they stay as they are.
    without: HashSet<Range<u64>>,
    /// Bytes of a stack that is made without another wish.
    stack_size: Option<u64>,
}

/// What an address in a thread's memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Perhaps a thread-local variable: so many bytes below the thread's record. If not, on the stack if `on_stack`.
    BelowRecord { distance: u64, on_stack: bool },
    /// On the first thread's stack.
    FirstStack,
}

impl Threads {
    /// Begins with where the first stack begins, 0 if unknown.
    pub(super) fn begin(&mut self, first: u64) {
        self.first = Some(first).filter(|&first| first > 0).or(self.first);
    }

    /// Looks for threads of a process; `first` is where its first stack begins, 0 if unknown.
    pub(super) fn refresh(&mut self, tid: u32, first: u64) {
        self.begin(first);
        let mut text = String::new();
        let maps = proc::open(format!("/proc/{tid}/maps"));
        let read = maps.and_then(|file| file.take(MAX_MAPS).read_to_string(&mut text));
        let Ok(memory) = proc::open(format!("/proc/{tid}/mem")) else { return };
        if read.is_err() {
            return;
        }
        let candidates = candidates(&text);
        let present: HashSet<_> = candidates.iter().map(|candidate| candidate.range.clone()).collect();
        self.without.retain(|range| present.contains(range));
        let stack_size = *self.stack_size.get_or_insert_with(|| stack_size(tid));
        for Candidate { range, guard, is_heap } in candidates {
            if self.records.len() >= MAX_THREADS || self.without.len() >= MAX_THREADS {
                return;
            }
            let known = self.records.range(range.clone()).next_back();
            if self.without.contains(&range) || known.is_some_and(|(&record, _)| is_record(&memory, record)) {
                continue;
            }
            // A guard may be part of the stack's size. A static program has its first thread's record on its heap.
            let usual = guard.map(|guard| [guard, range.start].map(|from| from.saturating_add(stack_size)));
            let first = is_heap.then_some(range.start.saturating_add(RECORD_WITHIN));
            let ends = usual.into_iter().flatten().chain(first).filter(|end| range.contains(end)).chain([range.end]);
            match ends.into_iter().find_map(|end| record(&memory, range.start, end)) {
                Some(record) => {
                    self.records.insert(record, guard.map(|_| range.start));
                }
                None => {
                    self.without.insert(range);
                }
            }
        }
    }

    /// What an address is; `None` if it is in no thread's memory that is known.
    pub(super) fn place(&self, addr: u64) -> Option<Place> {
        if self.first.is_some_and(|first| (first.saturating_sub(FIRST_STACK)..first).contains(&addr)) {
            return Some(Place::FirstStack);
        }
        let (&record, low) = self.records.range(addr..).next()?;
        let on_stack = low.is_some_and(|low| low <= addr);
        let distance = record - addr;
        (on_stack || distance <= MAX_VARIABLES).then_some(Place::BelowRecord { distance, on_stack })
    }
}

/// The record at the end of memory. A stack has one, the last.
fn record(memory: &File, start: u64, end: u64) -> Option<u64> {
    let from = end.saturating_sub(RECORD_WITHIN).max(start).min(end);
    let mut bytes = vec![0; (end - from) as usize];
    memory.read_exact_at(&mut bytes, from).ok()?;
    let places = (0..bytes.len()).step_by(RECORD_ALIGN);
    places.rev().find(|&at| names_itself(&bytes, at, from)).map(|at| from + at as u64)
}

/// Bytes of a stack, its guard included, of which glibc's threads are made: the limit for the first one's.
fn stack_size(tid: u32) -> u64 {
    let limits = |tid| rights::reach(|| Process::new(tid).and_then(|process| process.limits())).ok();
    match i32::try_from(tid).ok().and_then(limits).map(|limits| limits.max_stack_size.soft_limit) {
        Some(LimitValue::Value(bytes)) => bytes,
        // glibc's choice where there is no limit (x86-64).
        Some(LimitValue::Unlimited) | None => 2 << 20,
    }
}

fn is_record(memory: &File, record: u64) -> bool {
    let mut bytes = [0; 24];
    memory.read_exact_at(&mut bytes, record).is_ok() && names_itself(&bytes, 0, record)
}

fn names_itself(bytes: &[u8], at: usize, from: u64) -> bool {
    let word = |at: usize| bytes.get(at..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
    let own = from + at as u64;
    word(at) == Some(own) && word(at + 16) == Some(own)
}

/// A mapping in which a thread's record may be.
#[derive(Debug, PartialEq, Eq)]
struct Candidate {
    range: Range<u64>,
    /// Where memory begins that may not be touched and is right below it: then its beginning is the end of a stack.
    guard: Option<u64>,
    /// Whether it is the heap next to the program.
    is_heap: bool,
}

fn candidates(maps: &str) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    let mut guard = None;
    for line in maps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let range = fields.next().and_then(|range| range.split_once('-'));
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let Some((start, end)) = range.and_then(|(start, end)| hex(start).zip(hex(end))) else { continue };
        let permissions = fields.next().unwrap_or_default();
        let inode = fields.nth(2).unwrap_or_default();
        let name = fields.next().unwrap_or_default();
        let anonymous = inode == "0" && (name.is_empty() || name.starts_with("[anon") || name == "[heap]");
        let is_heap = name == "[heap]";
        let below = guard.take().filter(|guard: &Range<u64>| guard.end == start && !is_heap);
        if anonymous && permissions.starts_with("rw-p") && start < end {
            candidates.push(Candidate { range: start..end, guard: below.map(|guard| guard.start), is_heap });
        }
        guard = (permissions.starts_with("---") && inode == "0").then_some(start..end);
    }
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAPS: &str = "\
00400000-00452000 r-xp 00000000 08:02 1 /bin/x\n\
01000000-01008000 rw-p 00000000 00:00 0 [heap]\n\
70000000-70001000 ---p 00000000 00:00 0 \n\
70001000-70801000 rw-p 00000000 00:00 0 \n\
70900000-70a00000 rw-p 00000000 00:00 0 \n\
70b00000-70b03000 rw-p 00000000 00:00 0 \n\
70c00000-70c01000 ---p 00000000 08:02 1 /lib/libc.so\n\
70c01000-70c03000 rw-p 00000000 00:00 0 \n\
garbage\n";

    #[test]
    fn mappings_in_which_records_may_be() {
        let found: Vec<_> = candidates(MAPS).into_iter().map(|c| (c.range.start, c.guard)).collect();
        assert_eq!(
            found,
            [
                (0x0100_0000, None),
                (0x7000_1000, Some(0x7000_0000)),
                (0x7090_0000, None),
                (0x70b0_0000, None),
                (0x70c0_1000, None)
            ]
        );
    }

    #[test]
    fn stacks_and_what_lies_between_them() {
        let records = BTreeMap::from([(0x8000, Some(0x1000)), (0x9_0000, None)]);
        let threads = Threads { first: Some(0x7fff_0000_0000), records, ..Threads::default() };
        assert_eq!(threads.place(0x1000), Some(Place::BelowRecord { distance: 0x7000, on_stack: true }));
        assert_eq!(threads.place(0xfff), Some(Place::BelowRecord { distance: 0x7001, on_stack: false }));
        assert_eq!(threads.place(0x9_0000 - MAX_VARIABLES - 1), None);
        assert_eq!(threads.place(0x8fff8), Some(Place::BelowRecord { distance: 8, on_stack: false }));
        assert_eq!(threads.place(0x9_0001), None);
        assert_eq!(threads.place(0x7ffe_ffff_0000), Some(Place::FirstStack));
    }

    proptest! {
        #[test]
        fn no_maps_are_a_panic(text in "[0-9a-f]{1,17}-[0-9a-f]{1,17} [r-][w-][x-]p [0-9a-f]{1,3} 0:0 0.{0,9}\n.{0,20}") {
            candidates(&text);
        }
    }
}
