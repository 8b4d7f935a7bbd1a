//! Where a file's code is, and what can be written of it: the little of it that lockbpf looks at itself, numbers at fixed places, so that what it is told can be checked.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Bytes of an ELF file's header, and of one of its program headers.
const HEADER: usize = 64;
const SEGMENT: usize = 56;
/// Program headers that are looked at; the kernel loads no file with more than fit into a page of 64 KiB.
const MAX_SEGMENTS: usize = 1_170;
/// 64 bits, lowest byte first.
const IDENT: [u8; 6] = *b"\x7fELF\x02\x01";
/// `PT_LOAD`, `PF_X`, `PF_W`.
const LOAD: u32 = 1;
const EXECUTABLE: u32 = 1;
const WRITABLE: u32 = 2;

/// Ranges of a file that are mapped to be executed, or to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::capture) struct CodeRanges {
    code: Vec<Range<u64>>,
    data: Vec<Range<u64>>,
}

impl CodeRanges {
    /// Those of a file; none of one that is no ELF file, or cannot be read.
    pub(in crate::capture) fn read(file: &File) -> Self {
        ranges(file).unwrap_or_default()
    }

    /// Whether both ends of something are in one of them.
    pub(in crate::capture) fn contain(&self, first: u64, last: u64) -> bool {
        self.code.iter().any(|range| range.contains(&first) && range.contains(&last))
    }

    /// Whether the kernel may count there who watches a point: in a variable of 16 bits.
    pub(in crate::capture) fn may_count(&self, at: u64) -> bool {
        let is_in = |range: &Range<u64>| range.contains(&at) && range.contains(&at.saturating_add(1));
        at.is_multiple_of(2) && self.data.iter().any(is_in)
    }
}

fn ranges(file: &File) -> Option<CodeRanges> {
    let length = file.metadata().ok()?.len();
    let mut header = [0; HEADER];
    file.read_exact_at(&mut header, 0).ok()?;
    if !header.starts_with(&IDENT) || half(&header, 54)? != SEGMENT as u16 {
        return None;
    }
    let count = usize::from(half(&header, 56)?).min(MAX_SEGMENTS);
    let mut segments = vec![0; count * SEGMENT];
    file.read_exact_at(&mut segments, word(&header, 32)?).ok()?;
    let mut ranges = CodeRanges::default();
    for segment in segments.chunks_exact(SEGMENT) {
        let [kind, flags] = [0, 4].map(|at| segment.get(at..)?.first_chunk().copied().map(u32::from_le_bytes));
        let start = word(segment, 8)?;
        let end = start.saturating_add(word(segment, 32)?).min(length);
        let to = match flags? & (EXECUTABLE | WRITABLE) {
            WRITABLE => &mut ranges.data,
            0 => continue,
            _ => &mut ranges.code,
        };
        if kind == Some(LOAD) && start < end {
            to.push(start..end);
        }
    }
    Some(ranges)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_le_bytes)
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Damage, compiled};
    use object::{Object, ObjectSection};
    use proptest::prelude::*;
    use std::io::Write;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn code_is_where_the_linker_put_it() {
        let data = compiled(&[], "int main(void) { return 0; }");
        let elf = object::File::parse(&*data).unwrap();
        let code = CodeRanges::read(&file(&data));
        for (name, is_code) in [(".text", true), (".data", false), (".rodata", false)] {
            let (start, size) = elf.section_by_name(name).unwrap().file_range().unwrap();
            assert_eq!(code.contain(start, start + size - 1), is_code, "{name}: {code:?}");
            assert_eq!(code.may_count(start), name == ".data", "{name}: {code:?}");
            assert!(!code.may_count(start + 1), "no variable of 16 bits is there");
        }
        let (start, size) = elf.section_by_name(".text").unwrap().file_range().unwrap();
        assert!(!code.contain(start, u64::MAX) && !code.contain(0, start + size - 1));
        assert_eq!(CodeRanges::read(&file(b"#!/bin/sh\n")), CodeRanges::default());
        assert_eq!(CodeRanges::read(&file(b"")), CodeRanges::default());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// Whatever the headers say, nothing beyond the file is code.
        #[test]
        fn damage_never_panics(damage in Damage::any(8)) {
            thread_local!(static SAMPLE: Vec<u8> = compiled(&[], "int main(void) { return 0; }"));
            let data = damage.of(SAMPLE.with(Clone::clone));
            let code = CodeRanges::read(&file(&data));
            prop_assert!(code.code.iter().chain(&code.data).all(|range| range.end <= data.len() as u64));
        }
    }
}
