//! What can be read of a process that runs CPython: where its threads and their frames are, and what its code objects are called. The
//! places of these differ from version to version. From 3.13 on the interpreter itself tells them; of earlier ones they are known for
//! some.
//! Everything is read from a running target and may be gone or nonsense at any moment.

mod code;
mod lines;
mod offsets;
mod text;

pub use code::{Code, Function};

use super::owner::{Owners, read};
use crate::id::Tid;
use lockbpf_common::parking::WaitEntry;
use lockbpf_common::python::{Interpreter, MAX_FRAMES, MAX_THREADS, PythonFrame};
use std::ops::Range;

/// The variable with the version, which 3.11 and later have.
pub const VERSION: &str = "Py_Version";

/// The first version whose locks are its own (`PyMutex`): their waiters are parked each on a semaphore of its own.
pub const PARKS: (u8, u8) = (3, 13);

/// Where an interpreter has what is read, in bytes if nothing else is said.
#[derive(Clone, Debug)]
pub struct Layout {
    /// In the runtime's state: the pointer to the main interpreter.
    main: u64,
    /// In an interpreter: the pointer to its first thread.
    threads: u64,
    /// In a thread: the pointer to the next one.
    next: u32,
    /// In a thread: its number in the system.
    native_id: u32,
    /// [`Interpreter::holder`] and [`Interpreter::innermost`].
    frames: (u32, u32),
    /// In a frame, in words: the code object, the calling frame, the instruction.
    frame: (u32, u32, u32),
    code: code::Layout,
}

/// In a thread: the pointer to the next one, before interpreters told that themselves.
const NEXT: u32 = 8;

/// Versions of which it is known from headers: 3.11.2 and 3.12.1 (`pycore_runtime.h`, `pycore_interp.h`, `pycore_frame.h`, `cpython/code.h`).
const LAYOUTS: &[((u8, u8), Layout)] = &[
    (
        (3, 11),
        Layout {
            main: 48,
            threads: 16,
            next: NEXT,
            native_id: 160,
            frames: (56, 8),
            frame: (4, 6, 7),
            code: code::Layout { first_line: 72, instructions: 184, text: text::Layout { ascii: 48, other: 72 } },
        },
    ),
    (
        (3, 12),
        Layout {
            main: 48,
            threads: 72,
            next: NEXT,
            native_id: 144,
            frames: (56, 0),
            frame: (0, 1, 7),
            code: code::Layout { first_line: 68, instructions: 192, text: text::Layout { ascii: 40, other: 56 } },
        },
    ),
];

/// The version of an interpreter, major and minor, by where its variable is; `None` if that cannot be read.
#[must_use]
pub fn version(pid: u32, variable: &Range<u64>) -> Option<(u8, u8)> {
    let [_, _, minor, major] = u32::from_le_bytes(read(pid, variable.start)?).to_le_bytes();
    Some((major, minor))
}

/// Whether it may be known how a version keeps its frames: from headers, or the interpreter tells.
#[must_use]
pub fn is_known(version: (u8, u8)) -> bool {
    LAYOUTS.iter().any(|(of, _)| *of == version) || offsets::tells(version)
}

/// How the interpreter of a process keeps its frames, by its version and where its state is; `None` if that is not known, or it has not begun.
#[must_use]
pub fn layout(pid: u32, version: (u8, u8), state: &Range<u64>) -> Option<Layout> {
    let known = LAYOUTS.iter().find(|(of, _)| *of == version).map(|(_, layout)| layout.clone());
    known.or_else(|| offsets::layout(version, |at| word(pid, state.start.checked_add(at)?)))
}

impl Layout {
    /// What the kernel side has to know of an interpreter, by where its state and its code are. `None` if it has not begun yet, or its
    /// threads are not found where this version has them.
    #[must_use]
    pub fn interpreter(&self, pid: u32, state: &Range<u64>, code: &Range<u64>) -> Option<Interpreter> {
        let main = word(pid, state.start.checked_add(self.main)?)?;
        let threads = main.checked_add(self.threads)?;
        let (holder, innermost) = self.frames;
        let (object, previous, instruction) = self.frame;
        let found = Interpreter {
            threads,
            code_start: code.start,
            code_end: code.end,
            next: self.next,
            native_id: self.native_id,
            holder,
            innermost,
            code: object,
            previous,
            instruction,
            reserved: 0,
        };
        is_right(pid, &found).then_some(found)
    }
}

/// Whether a thread of the process is found that way.
fn is_right(pid: u32, python: &Interpreter) -> bool {
    threads(pid, python).next().is_some()
}

/// The threads of a process that are found in its interpreter, with where their states are there: the youngest first, as far as the kernel side looks.
pub fn threads(pid: u32, python: &Interpreter) -> impl Iterator<Item = (Tid, u64)> {
    let mut owners = Owners::default();
    let (first, next, native_id) = (word(pid, python.threads), u64::from(python.next), u64::from(python.native_id));
    let at = move |addr: u64| word(pid, addr).filter(|&there| there != 0);
    let states = std::iter::successors(first.filter(|&at| at != 0), move |state| at(state.checked_add(next)?));
    states.take(MAX_THREADS).filter_map(move |state| {
        let number = word(pid, state.checked_add(native_id)?)?;
        Some((owners.thread(pid, u32::try_from(number).ok()?)?, state))
    })
}

/// The functions that a thread which sleeps is in, innermost first, by where its state is in the interpreter.
#[must_use]
pub fn frames(pid: u32, state: u64, python: &Interpreter) -> Vec<PythonFrame> {
    let at = |base: u64, offset: u32| word(pid, base.checked_add(offset.into())?);
    let nth = |frame: u64, number: u32| at(frame, number.saturating_mul(8));
    let holder = if python.holder == 0 { Some(state) } else { at(state, python.holder) };
    let innermost = holder.and_then(|holder| at(holder, python.innermost)).filter(|&frame| frame != 0);
    let all = std::iter::successors(innermost, |&frame| nth(frame, python.previous).filter(|&outer| outer != 0));
    let told = all.take(MAX_FRAMES).map_while(|frame| {
        Some(PythonFrame { code: nth(frame, python.code)?, instruction: nth(frame, python.instruction)? })
    });
    told.collect()
}

/// The lock of Python's for which a thread sleeps in the semaphore that lies there, as the kernel side finds it.
#[must_use]
pub fn lock_of(pid: u32, semaphore: u64) -> Option<u64> {
    let at = semaphore.checked_sub(WaitEntry::WORD)?;
    let entry = WaitEntry {
        argument: word(pid, at)?,
        address: word(pid, at.checked_add(8)?)?,
        semaphore: word(pid, semaphore)?,
    };
    let lock = entry.parked_for(semaphore)?;
    let follow = |addr: Option<u64>| word(pid, addr?);
    let name =
        follow(lock.checked_sub(WaitEntry::TYPE)).and_then(|kind| follow(kind.checked_add(WaitEntry::TYPE_NAME)));
    (follow(name) != Some(WaitEntry::QUEUE)).then_some(lock)
}

fn word(pid: u32, addr: u64) -> Option<u64> {
    read(pid, addr).map(u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        let variable = 0x030b_02f0_u64;
        let at = std::ptr::from_ref(&variable) as u64;
        assert_eq!(version(std::process::id(), &(at..at + 8)), Some((3, 11)));
        assert_eq!(version(std::process::id(), &(0..8)), None);
        assert!(is_known((3, 11)) && is_known((3, 14)) && !is_known((3, 10)) && !is_known((4, 11)));
    }

    #[test]
    fn a_sleeper_tells_its_lock() {
        let pid = std::process::id();
        let name = *b"_queue.SimpleQueue\0\0\0\0\0\0";
        let kind = [0u64, 0, 0, name.as_ptr() as u64];
        let object = [1u64, kind.as_ptr() as u64, 3];
        let lock = [1u64, 0, 3];
        let mut stack = [0u64; 8];
        let semaphore = &raw const stack[2] as u64;
        (stack[0], stack[2]) = (&raw const stack[6] as u64, 1 << 32);
        for (of, expected) in [(&lock, true), (&object, false)] {
            stack[1] = &raw const of[2] as u64;
            let told = lock_of(pid, std::hint::black_box(semaphore));
            assert_eq!(told, expected.then_some(std::hint::black_box(&stack)[1]));
        }
        assert_eq!(lock_of(pid, 0), None);
        assert_eq!(lock_of(pid, u64::MAX), None);
    }

    #[test]
    fn an_interpreter_is_known_by_its_threads() {
        let pid = std::process::id();
        let layout = layout(pid, (3, 11), &(0..0)).unwrap();
        let mut second = [0u64; 32];
        second[20] = u64::from(pid);
        let mut first = [0u64; 32];
        (first[1], first[20]) = (second.as_ptr() as u64, u64::from(u32::MAX));
        let interpreter = [0, 0, first.as_ptr() as u64];
        let mut state = [0u64; 8];
        state[6] = interpreter.as_ptr() as u64;
        let range = state.as_ptr() as u64..state.as_ptr() as u64 + 64;
        let found = layout.interpreter(pid, &range, &(0x1000..0x2000)).unwrap();
        assert_eq!((found.threads, found.code_start), (&raw const interpreter[2] as u64, 0x1000));
        second[20] = u64::from(u32::MAX);
        assert_ne!(std::hint::black_box(&second)[20], 0);
        assert_eq!(layout.interpreter(pid, &range, &(0x1000..0x2000)), None, "no thread of the process");
        assert_eq!(layout.interpreter(pid, &(0..8), &(0x1000..0x2000)), None);
    }
}
