//! What can be read of a process that runs CPython: where its threads and their frames are, and what its code objects are called. The
//! places of these are no part of Python's interface and differ from version to version, so they are known for some versions only.
//! Everything is read from a running target and may be gone or nonsense at any moment.

mod code;
mod lines;
mod text;

pub use code::{Code, Function};

use super::owner::{Owners, read};
use lockbpf_common::python::{Interpreter, MAX_THREADS};
use std::ops::Range;

/// The variable with the version, which 3.11 and later have.
pub const VERSION: &str = "Py_Version";

/// Where a version of CPython has what is read, in bytes if nothing else is said.
#[derive(Debug)]
pub struct Layout {
    /// Major and minor version.
    version: (u8, u8),
    /// In the runtime's state: the pointer to the main interpreter.
    main: u64,
    /// In an interpreter: the pointer to its first thread.
    threads: u64,
    /// In a thread: its number in the system.
    native_id: u32,
    /// [`Interpreter::holder`] and [`Interpreter::innermost`].
    frames: (u32, u32),
    /// In a frame, in words: the code object, the calling frame, the instruction.
    frame: (u32, u32, u32),
    code: code::Layout,
}

/// In a thread: the pointer to the next one, in all of these versions.
const NEXT: u32 = 8;

/// As the headers of 3.11.2, 3.12.1 and 3.13.0 have it (`pycore_runtime.h`, `pycore_interp.h`, `pycore_frame.h`, `cpython/code.h`).
const LAYOUTS: &[Layout] = &[
    Layout {
        version: (3, 11),
        main: 48,
        threads: 16,
        native_id: 160,
        frames: (56, 8),
        frame: (4, 6, 7),
        code: code::Layout { first_line: 72, instructions: 184, ascii: 48, other: 72 },
    },
    Layout {
        version: (3, 12),
        main: 48,
        threads: 72,
        native_id: 144,
        frames: (56, 0),
        frame: (0, 1, 7),
        code: code::Layout { first_line: 68, instructions: 192, ascii: 40, other: 56 },
    },
    Layout {
        version: (3, 13),
        main: 640,
        threads: 7_344,
        native_id: 160,
        frames: (0, 72),
        frame: (0, 1, 7),
        code: code::Layout { first_line: 68, instructions: 200, ascii: 40, other: 56 },
    },
];

/// The version of an interpreter, major and minor, by where its variable is; `None` if that cannot be read.
#[must_use]
pub fn version(pid: u32, variable: &Range<u64>) -> Option<(u8, u8)> {
    let [_, _, minor, major] = u32::from_le_bytes(read(pid, variable.start)?).to_le_bytes();
    Some((major, minor))
}

/// How a version keeps its frames, if that is known.
#[must_use]
pub fn layout(version: (u8, u8)) -> Option<&'static Layout> {
    LAYOUTS.iter().find(|layout| layout.version == version)
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
            next: NEXT,
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
    let mut owners = Owners::default();
    let mut thread = word(pid, python.threads);
    for _ in 0..MAX_THREADS {
        let Some(at) = thread.filter(|&at| at != 0) else { return false };
        let number = at.checked_add(u64::from(python.native_id)).and_then(|at| word(pid, at));
        if number.and_then(|number| owners.thread(pid, u32::try_from(number).ok()?)).is_some() {
            return true;
        }
        thread = at.checked_add(u64::from(python.next)).and_then(|at| word(pid, at));
    }
    false
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
        assert!(layout((3, 11)).is_some() && layout((3, 10)).is_none() && layout((4, 11)).is_none());
    }

    #[test]
    fn an_interpreter_is_known_by_its_threads() {
        let pid = std::process::id();
        let layout = layout((3, 11)).unwrap();
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
