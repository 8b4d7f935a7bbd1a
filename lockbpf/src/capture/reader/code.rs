//! Where a file's code is: the little of it that lockbpf looks at itself, numbers at fixed places, so that what it is told can be checked.

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
/// `PT_LOAD`, `PF_X`.
const LOAD: u32 = 1;
const EXECUTABLE: u32 = 1;

/// Ranges of a file that are mapped to be executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::capture) struct CodeRanges(Vec<Range<u64>>);

impl CodeRanges {
    /// Those of a file; none of one that is no ELF file, or cannot be read.
    pub(in crate::capture) fn read(file: &File) -> Self {
        Self(ranges(file).unwrap_or_default())
    }

    /// Whether both ends of something are in one of them.
    pub(in crate::capture) fn contain(&self, first: u64, last: u64) -> bool {
        self.0.iter().any(|range| range.contains(&first) && range.contains(&last))
    }
}

fn ranges(file: &File) -> Option<Vec<Range<u64>>> {
    let length = file.metadata().ok()?.len();
    let mut header = [0; HEADER];
    file.read_exact_at(&mut header, 0).ok()?;
    if !header.starts_with(&IDENT) || half(&header, 54)? != SEGMENT as u16 {
        return None;
    }
    let count = usize::from(half(&header, 56)?).min(MAX_SEGMENTS);
    let mut segments = vec![0; count * SEGMENT];
    file.read_exact_at(&mut segments, word(&header, 32)?).ok()?;
    let code = segments.chunks_exact(SEGMENT).filter_map(|segment| {
        let [kind, flags] = [0, 4].map(|at| segment.get(at..)?.first_chunk().copied().map(u32::from_le_bytes));
        let start = word(segment, 8)?;
        let end = start.saturating_add(word(segment, 32)?).min(length);
        (kind == Some(LOAD) && flags? & EXECUTABLE != 0 && start < end).then_some(start..end)
    });
    Some(code.collect())
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
            prop_assert!(code.0.iter().all(|range| range.end <= data.len() as u64));
        }
    }
}
