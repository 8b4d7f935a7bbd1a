//! CPython's strings in memory.

use crate::capture::owner::{read, read_into};

/// In a string: how many characters, and what they are like.
const LENGTH: u64 = 16;
const STATE: u64 = 32;
/// The bits of that: bytes a character, whether these follow the head, whether all are ASCII.
const KIND_SHIFT: u32 = 2;
const KIND_MASK: u32 = 7;
const COMPACT: u32 = 1 << 5;
const ASCII: u32 = 1 << 6;

/// Where a version has the characters of a string, if all of them are ASCII, and if not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) ascii: u64,
    pub(super) other: u64,
}

impl Layout {
    /// A string of so many characters at most. `None` if what is there is none that can be printed.
    pub(super) fn read(self, pid: u32, addr: u64, most: usize) -> Option<String> {
        let length = u64::from_ne_bytes(read(pid, addr.checked_add(LENGTH)?)?);
        let state = u32::from_ne_bytes(read(pid, addr.checked_add(STATE)?)?);
        let length = usize::try_from(length).ok().filter(|length| (1..=most).contains(length))?;
        let width = usize::try_from(state >> KIND_SHIFT & KIND_MASK).ok()?;
        let head = if state & ASCII != 0 { self.ascii } else { self.other };
        if state & COMPACT == 0 || !matches!(width, 1 | 2 | 4) {
            return None;
        }
        let mut bytes = vec![0; length * width];
        read_into(pid, addr.checked_add(head)?, &mut bytes)?;
        let characters = bytes.chunks_exact(width).map(|bytes| {
            let mut code = [0; 4];
            code.iter_mut().zip(bytes).for_each(|(to, &from)| *to = from);
            char::from_u32(u32::from_le_bytes(code)).filter(|c| !c.is_control())
        });
        characters.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 3.11's.
    const LAYOUT: Layout = Layout { ascii: 48, other: 72 };

    /// As 3.11 has it: the head, then the characters.
    fn string(state: u32, length: u64, characters: &[u8]) -> Vec<u8> {
        let head = if state & ASCII != 0 { 48 } else { 72 };
        let mut bytes = vec![0; head];
        bytes[16..24].copy_from_slice(&length.to_ne_bytes());
        bytes[32..36].copy_from_slice(&state.to_ne_bytes());
        bytes.extend(characters);
        bytes
    }

    fn told(string: &[u8]) -> Option<String> {
        LAYOUT.read(std::process::id(), string.as_ptr() as u64, 16)
    }

    #[test]
    fn strings_of_all_widths() {
        let state = |width: u32, ascii: u32| width << KIND_SHIFT | COMPACT | ascii;
        assert_eq!(told(&string(state(1, ASCII), 3, b"fox")).as_deref(), Some("fox"));
        assert_eq!(told(&string(state(1, 0), 3, b"f\xf6x")).as_deref(), Some("föx"));
        assert_eq!(told(&string(state(2, 0), 2, &[0xb1, 3, 0xb2, 3])).as_deref(), Some("αβ"));
        assert_eq!(told(&string(state(4, 0), 1, &[0x8a, 0xf9, 1, 0])).as_deref(), Some("🦊"));
    }

    #[test]
    fn what_is_none() {
        let compact = 1 << KIND_SHIFT | COMPACT | ASCII;
        for (state, length, characters) in [
            (compact, 0, &b"fox"[..]),
            (compact, 17, &[b'x'; 17]),
            (compact, u64::MAX, b"fox"),
            (compact, 3, b"f\nx"),
            (compact & !COMPACT, 3, b"fox"),
            (3 << KIND_SHIFT | COMPACT | ASCII, 3, b"fox fox fox"),
            (4 << KIND_SHIFT | COMPACT, 1, &[0, 0, 0x11, 0]),
        ] {
            assert_eq!(told(&string(state, length, characters)), None, "{state:#x} {length} {characters:?}");
        }
        assert_eq!(LAYOUT.read(std::process::id(), 0, 16), None);
        assert_eq!(LAYOUT.read(std::process::id(), u64::MAX, 16), None);
    }
}
