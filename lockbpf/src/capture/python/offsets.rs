//! What an interpreter itself tells of where it keeps things (`_Py_DebugOffsets`, CPython 3.13 and later): the first words of its state.
//!
//! Which word tells what differs from version to version, and is known from the headers of 3.13.5 and 3.14.8 (`pycore_debug_offsets.h`).
//! The words are those of a running target: what they say is looked at before it is believed.

use super::{Layout, code, text};

/// The first word: whether there are such offsets.
const COOKIE: u64 = u64::from_ne_bytes(*b"xdebugpy");
/// The number of the word that tells the version, in its upper half, and of the one that is not 0 where there is no interpreter lock:
/// such an interpreter runs copies of a function's instructions, one for each thread.
const VERSION: u64 = 1;
const FREE_THREADED: u64 = 2;
/// No offset is larger.
const MOST: u64 = 1 << 20;
/// A string that is not all ASCII has two words more.
const OTHER: u64 = 16;

/// In which word it stands where something is.
struct Words {
    version: (u8, u8),
    /// In the runtime's state the first interpreter, in an interpreter its first thread.
    heads: [u64; 2],
    /// In a thread: the next one, the innermost frame, its number in the system.
    thread: [u64; 3],
    /// In a frame: the calling one, the code object, the instruction.
    frame: [u64; 3],
    /// In a code object: the line, the instructions.
    code: [u64; 2],
    /// In a string: its characters.
    text: u64,
}

const WORDS: &[Words] = &[
    Words { version: (3, 13), heads: [5, 9], thread: [21, 23, 25], frame: [29, 30, 31], code: [39, 43], text: 70 },
    Words { version: (3, 14), heads: [5, 9], thread: [24, 26, 28], frame: [32, 33, 34], code: [44, 48], text: 80 },
];

/// Whether interpreters of this version tell.
pub(super) fn tells(version: (u8, u8)) -> bool {
    WORDS.iter().any(|words| words.version == version)
}

/// What an interpreter tells, by the words of its state, of which `word` has the one at an offset.
pub(super) fn layout(version: (u8, u8), word: impl Fn(u64) -> Option<u64>) -> Option<Layout> {
    let words = WORDS.iter().find(|words| words.version == version)?;
    let nth = |number: u64| word(number * 8);
    let told = nth(VERSION)?.to_le_bytes();
    if nth(0)? != COOKIE || (told[3], told[2]) != version || nth(FREE_THREADED)? != 0 {
        return None;
    }
    let offset = |number: u64| nth(number).filter(|&offset| offset < MOST);
    let small = |number: u64| u32::try_from(offset(number)?).ok();
    let in_words = |number: u64| Some(small(number)? / 8);
    let [main, threads] = words.heads;
    let [next, innermost, native_id] = words.thread;
    let [previous, object, instruction] = words.frame;
    let [first_line, instructions] = words.code;
    let ascii = offset(words.text)?;
    Some(Layout {
        main: offset(main)?,
        threads: offset(threads)?,
        next: small(next)?,
        native_id: small(native_id)?,
        frames: (0, small(innermost)?),
        frame: (in_words(object)?, in_words(previous)?, in_words(instruction)?),
        code: code::Layout {
            first_line: offset(first_line)?,
            instructions: offset(instructions)?,
            text: text::Layout { ascii, other: ascii + OTHER },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As 3.14.8 has it.
    fn told() -> Vec<u64> {
        let mut words = vec![0; 95];
        (words[0], words[1]) = (COOKIE, 0x030e_08f0);
        for (number, offset) in
            [(5, 760), (9, 7_440), (24, 8), (26, 72), (28, 168), (32, 8), (34, 56), (44, 68), (48, 208), (80, 40)]
        {
            words[number] = offset;
        }
        words
    }

    fn of(words: &[u64]) -> Option<Layout> {
        layout((3, 14), |at| words.get(at as usize / 8).copied())
    }

    #[test]
    fn an_interpreter_tells_where_things_are() {
        let layout = of(&told()).unwrap();
        assert_eq!((layout.main, layout.threads, layout.next, layout.native_id), (760, 7_440, 8, 168));
        assert_eq!((layout.frames, layout.frame), ((0, 72), (0, 1, 7)));
        assert_eq!((layout.code.first_line, layout.code.instructions), (68, 208));
        assert_eq!((layout.code.text.ascii, layout.code.text.other), (40, 56));
    }

    #[test]
    fn what_is_not_believed() {
        for (number, word) in [(0, 0), (1, 0x030d_08f0), (2, 1), (5, MOST), (28, u64::MAX)] {
            let mut words = told();
            words[number] = word;
            assert!(of(&words).is_none(), "{number}: {word:#x}");
        }
        assert!(of(&told()[..40]).is_none() && of(&[]).is_none());
        assert!(layout((3, 12), |_| Some(COOKIE)).is_none());
    }

    proptest! {
        #[test]
        fn noise_never_panics(words in prop::collection::vec(any::<u64>(), 0..100)) {
            let mut words = words;
            if let [cookie, version, free, ..] = words.as_mut_slice() {
                (*cookie, *version, *free) = (COOKIE, 0x030e_00f0, 0);
            }
            of(&words);
        }
    }
}
