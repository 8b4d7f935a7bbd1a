//! CPython's code objects in memory: the function, file and line of an instruction.

use super::{lines, text, word};
use crate::capture::owner::{read, read_into};
use lockbpf_common::python::PythonFrame;
use std::collections::HashMap;

/// In a code object: how many instructions it has, of two bytes each; the names of its file and function; its table of lines.
const SIZE: u64 = 16;
const FILE: u64 = 112;
const NAME: u64 = 128;
const LINES: u64 = 136;
/// In a string of bytes: how many there are, and where they begin.
const BYTES_LENGTH: u64 = 16;
const BYTES: u64 = 32;

/// Code objects with more instructions are not believed, nor longer tables of lines, nor longer names.
const MAX_SIZE: u64 = 1 << 24;
const MAX_TABLE: usize = 1 << 20;
const MAX_FILE: usize = 4_096;
const MAX_NAME: usize = 512;
/// Instructions that are remembered.
const MAX_KNOWN: usize = 65_536;

/// Where the version has the rest.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// In a code object: the function's line.
    pub(super) first_line: u64,
    /// In a code object: the instructions.
    pub(super) instructions: u64,
    pub(super) text: text::Layout,
}

/// Bits of a pointer to a code object that are none of its address (`_PyStackRef`, 3.14).
const TAGS: u64 = 7;

/// What an instruction is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The function with the classes and functions around it (`__qualname__`).
    pub name: String,
    /// Its source file, as Python has it.
    pub file: String,
    /// The line of the instruction; of the function, if the instruction has none.
    pub line: u32,
}

/// What tells a code object from another one that has taken its place: its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parts {
    size: u64,
    file: u64,
    name: u64,
    lines: u64,
    first_line: i32,
}

/// The functions of a process.
#[derive(Debug)]
pub struct Code {
    layout: Layout,
    known: HashMap<(u64, u64), Parts>,
}

impl Code {
    /// Knows none yet.
    #[must_use]
    pub fn of(layout: &super::Layout) -> Self {
        Self { layout: layout.code.clone(), known: HashMap::new() }
    }

    /// The function that a frame is in, if it is new; `None` if it was told before, or what is there is no code object.
    pub fn meet(&mut self, pid: u32, frame: PythonFrame) -> Option<Function> {
        let frame = PythonFrame { code: frame.code & !TAGS, ..frame };
        let parts = self.parts(pid, frame)?;
        let key = (frame.code, frame.instruction);
        if self.known.get(&key).is_some_and(|known| *known == parts) {
            return None;
        }
        let function = self.function(pid, frame, parts)?;
        if self.known.len() >= MAX_KNOWN {
            self.known.clear();
        }
        self.known.insert(key, parts);
        Some(function)
    }

    fn parts(&self, pid: u32, frame: PythonFrame) -> Option<Parts> {
        let at = |offset| word(pid, frame.code.checked_add(offset)?);
        let first_line = i32::from_ne_bytes(read(pid, frame.code.checked_add(self.layout.first_line)?)?);
        Some(Parts { size: at(SIZE)?, file: at(FILE)?, name: at(NAME)?, lines: at(LINES)?, first_line })
    }

    fn function(&self, pid: u32, frame: PythonFrame, parts: Parts) -> Option<Function> {
        let Layout { instructions, text, .. } = &self.layout;
        let name = text.read(pid, parts.name, MAX_NAME)?;
        let file = text.read(pid, parts.file, MAX_FILE)?;
        let begin = frame.code.checked_add(*instructions)?;
        // Before its first instruction, a frame stands at what is before that.
        let unit = frame.instruction.saturating_sub(begin) / 2;
        if parts.size > MAX_SIZE || unit >= parts.size || frame.instruction < frame.code {
            return None;
        }
        let function_line = u32::try_from(parts.first_line).ok()?;
        let line = table(pid, parts.lines).and_then(|table| lines::line(&table, parts.first_line, unit));
        Some(Function { name, file, line: line.unwrap_or(function_line) })
    }
}

/// The bytes of a table of lines.
fn table(pid: u32, addr: u64) -> Option<Vec<u8>> {
    let length = usize::try_from(word(pid, addr.checked_add(BYTES_LENGTH)?)?).ok()?;
    let mut bytes = vec![0; Some(length).filter(|&length| length <= MAX_TABLE)?];
    read_into(pid, addr.checked_add(BYTES)?, &mut bytes)?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn code(version: (u8, u8)) -> Code {
        Code::of(&super::super::layout(0, version, &(0..0)).unwrap())
    }

    fn put(memory: &mut [u64], byte: u64, value: u64) {
        memory[byte as usize / 8] = value;
    }

    fn string(text: &str) -> Vec<u64> {
        let mut memory = vec![0; 6 + text.len().div_ceil(8)];
        (memory[2], memory[4]) = (text.len() as u64, 1 << 2 | 1 << 5 | 1 << 6);
        for (word, bytes) in memory[6..].iter_mut().zip(text.as_bytes().chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(whole);
        }
        memory
    }

    #[test]
    fn an_instruction_is_named() {
        let pid = std::process::id();
        let mut code = code((3, 11));
        let (file, name) = (string("/srv/shop/cart.py"), string("Cart.add"));
        // One entry: all eight units are one line on.
        let lines = [0, 0, 3, 0, u64::from_le_bytes([0x80 | 11 << 3 | 7, 0, 9, 0, 0, 0, 0, 0])];
        let mut object = vec![0u64; 25];
        put(&mut object, SIZE, 8);
        put(&mut object, FILE, file.as_ptr() as u64);
        put(&mut object, NAME, name.as_ptr() as u64);
        put(&mut object, LINES, lines.as_ptr() as u64);
        put(&mut object, 72, 41);
        let at = object.as_ptr() as u64;
        let frame = |instruction| PythonFrame { code: at, instruction };
        let told = code.meet(pid, frame(at + 184 + 6));
        let expected = Function { name: "Cart.add".to_owned(), file: "/srv/shop/cart.py".to_owned(), line: 42 };
        assert_eq!(told, Some(expected.clone()));
        assert_eq!(code.meet(pid, frame(at + 184 + 6)), None, "it was told");
        assert_eq!(code.meet(pid, frame(at + 182)), Some(expected.clone()), "it has not begun");
        let tagged = PythonFrame { code: at | 1, instruction: at + 184 + 8 };
        assert_eq!(code.meet(pid, tagged), Some(expected.clone()), "a reference that is not counted");
        assert_eq!(code.meet(pid, frame(at + 184 + 16)), None, "beyond its end");
        put(&mut object, LINES, 0);
        assert_eq!(code.meet(pid, frame(at + 184)), Some(Function { line: 41, ..expected.clone() }));
        put(&mut object, 72, 51);
        assert_eq!(
            code.meet(pid, frame(at + 184)),
            Some(Function { line: 51, ..expected }),
            "other code took its place"
        );
        put(&mut object, NAME, 8);
        assert_eq!(code.meet(pid, frame(at + 184)), None);
    }

    proptest! {
        #[test]
        fn noise_never_panics(words in prop::collection::vec(any::<u64>(), 32), instruction: u64, ahead in 0u64..256) {
            let mut code = code((3, 12));
            let at = words.as_ptr() as u64;
            for instruction in [instruction, at + ahead] {
                prop_assert_eq!(code.meet(std::process::id(), PythonFrame { code: at, instruction }), None);
            }
            prop_assert_eq!(code.meet(std::process::id(), PythonFrame { code: instruction, instruction }), None);
        }
    }
}
