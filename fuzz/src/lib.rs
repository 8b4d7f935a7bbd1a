//! Damage to ELF files of which all but one part stays valid. Changes anywhere mostly break a checksum of sorts: the file is refused before
//! anything of interest is read.

use libfuzzer_sys::fuzzer_mutate;
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::LazyLock;

/// A file that is there to be asked about.
pub static FILE: LazyLock<File> = LazyLock::new(|| {
    let path = std::env::temp_dir().join(format!("lockbpf-fuzz-{}", std::process::id()));
    let mut file = File::create_new(&path).expect("a file");
    std::fs::remove_file(&path).expect("it is there");
    file.write_all(include_bytes!("../corpus/elf/c.elf")).expect("it is written");
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("it is there")
});

/// Numbers that tables of sizes and offsets are wrong by.
const NUMBERS: [u64; 10] = [0, 1, 2, 0x7fff_ffff, 0xffff_ffff, 1 << 32, 1 << 46, u64::MAX >> 1, u64::MAX - 7, u64::MAX];
/// Bytes of a part that is changed in place.
const MAX_PART: usize = 1 << 16;

/// Mutates a file of `size` bytes in place and returns its size: one field of its headers, what a section or segment contains, or, one time in
/// eight, anything.
pub fn damage(data: &mut [u8], size: usize, max_size: usize, seed: u32) -> usize {
    let parts = parts(data.get(..size).unwrap_or_default());
    let choice = seed as usize / 8;
    let Some(part) = (!parts.is_empty() && seed % 8 > 0).then(|| &parts[choice % parts.len()]) else {
        return fuzzer_mutate(data, size, max_size);
    };
    let Some(bytes) = data.get_mut(part.bytes.clone()) else { return size };
    if let Some(width) = part.fields {
        let number = NUMBERS[choice / parts.len() % NUMBERS.len()].to_le_bytes();
        let at = choice / parts.len() / NUMBERS.len() % (bytes.len() / width) * width;
        if let Some(field) = bytes.get_mut(at..at + width) {
            field.copy_from_slice(&number[..width]);
        }
        return size;
    }
    let mut piece = bytes.to_vec();
    let length = fuzzer_mutate(&mut piece, bytes.len(), bytes.len()).min(bytes.len());
    bytes[..length].copy_from_slice(&piece[..length]);
    size
}

struct Part {
    bytes: Range<usize>,
    /// Bytes of each of its fields, for headers.
    fields: Option<usize>,
}

/// The headers of a 64-bit file, and what they say is in it.
fn parts(data: &[u8]) -> Vec<Part> {
    let word = |at: usize| Some(u64::from_le_bytes(data.get(at..at + 8)?.try_into().ok()?) as usize);
    let half = |at: usize| Some(usize::from(u16::from_le_bytes(data.get(at..at + 2)?.try_into().ok()?)));
    let mut parts = Vec::new();
    let mut table = |list: Option<usize>, count: Option<usize>, (size, offset, length): (usize, usize, usize)| {
        let (Some(list), Some(count)) = (list, count) else { return };
        for header in (0..count.min(64)).filter_map(|n| list.checked_add(n * size)) {
            let Some(end) = header.checked_add(size).filter(|&end| end <= data.len()) else { return };
            // Headers have fields of both widths: which one is tried depends on where the header is.
            parts.push(Part { bytes: header..end, fields: Some(if header % 3 == 0 { 4 } else { 8 }) });
            let (Some(start), Some(length)) = (word(header + offset), word(header + length)) else { return };
            let inside = start.checked_add(length).filter(|&end| end <= data.len() && (1..=MAX_PART).contains(&length));
            parts.extend(inside.map(|end| Part { bytes: start..end, fields: None }));
        }
    };
    // Offset and size are the third and fifth word of a segment's header, the fourth and fifth of a section's.
    table(word(32), half(56), (56, 8, 32));
    table(word(40), half(60), (64, 24, 32));
    if data.len() >= 64 {
        parts.push(Part { bytes: 16..64, fields: Some(2) });
    }
    parts
}
