//! Damage to files, the same for the same seed.

use std::ops::Range;

use anyhow::{Context as _, Result};
use fastrand::Rng;
use object::{Object as _, ObjectSection as _};

/// Numbers that sizes and offsets are wrong by.
const NUMBERS: [u64; 8] = [0, 1, 0x7fff_ffff, 0xffff_ffff, 1 << 32, 1 << 46, u64::MAX >> 1, u64::MAX];
/// Bytes of a section's header.
const HEADER: usize = 64;

/// Changes some bytes anywhere; one time in four, cuts the end off.
pub(super) fn anywhere(bytes: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..rng.usize(1..16) {
        if let Some(byte) = rng.choice(bytes.iter_mut()) {
            *byte = rng.u8(..);
        }
    }
    if rng.u8(..4) == 0 {
        bytes.truncate(rng.usize(..=bytes.len()));
    }
}

/// Puts a line of other lines' fields, of noise or of huge numbers among lines.
pub(super) fn lines(text: &mut Vec<u8>, rng: &mut Rng) {
    let lines: Vec<Vec<u8>> = text.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
    let mut line = rng.choice(&lines).cloned().unwrap_or_default();
    match rng.u8(..4) {
        0 => anywhere(&mut line, rng),
        1 => line = vec![b'['; rng.usize(..1 << 20)],
        2 => {
            let huge = NUMBERS[rng.usize(..NUMBERS.len())].to_string();
            let at = line.iter().position(u8::is_ascii_digit).unwrap_or(0);
            line.splice(at..at, huge.bytes());
        }
        _ => {
            let at = rng.usize(..=line.len());
            line.splice(at..at, "\\u001b]0;x\\u0007\u{202e}".bytes());
        }
    }
    let at = rng.usize(..=lines.len());
    let mut all = lines;
    all.insert(at, line);
    *text = all.join(&b'\n');
}

/// Changes a section that is not loaded, or its header: the program still runs, and whoever reads the file for names is lied to. Unwind
/// tables are among them: they are loaded, but nobody throws.
pub(super) fn unloaded(file: &mut [u8], rng: &mut Rng) -> Result<()> {
    let sections = sections(file)?;
    let (header, contents) = rng.choice(&sections).context("the library has no sections")?.clone();
    for _ in 0..rng.usize(1..8) {
        if rng.u8(..3) == 0 {
            // Offset, size, link and alignment; not the name.
            let at = header.start + 24 + 8 * rng.usize(..5);
            let number = NUMBERS[rng.usize(..NUMBERS.len())];
            if let Some(field) = file.get_mut(at..at + 8) {
                field.copy_from_slice(&number.to_le_bytes());
            }
        } else if let Some(byte) = rng.choice(file.get_mut(contents.clone()).unwrap_or_default()) {
            *byte = rng.u8(..);
        }
    }
    Ok(())
}

/// Where the headers and contents are of sections that names come from.
fn sections(file: &[u8]) -> Result<Vec<(Range<usize>, Range<usize>)>> {
    let elf = object::File::parse(file).context("failed to read the library")?;
    let table = file.get(40..48).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes) as usize;
    let wanted = |name: &str| name.starts_with(".debug_") || matches!(name, ".symtab" | ".strtab" | ".eh_frame");
    let named = elf.sections().filter(|section| section.name().is_ok_and(wanted));
    Ok(named
        .filter_map(|section| {
            let header = table + HEADER * section.index().0;
            let (start, size) = section.file_range()?;
            Some((header..header + HEADER, start as usize..(start + size) as usize))
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_damage_and_the_same_for_a_seed() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let damaged = |seed| {
            let mut file = own.clone();
            unloaded(&mut file, &mut Rng::with_seed(seed)).unwrap();
            file
        };
        assert!(damaged(1) == damaged(1) && damaged(1) != own && damaged(1).len() == own.len());
        let text = b"{\"t\":1}\n{\"t\":2}\n".to_vec();
        for seed in 0..40 {
            let (mut noisy, mut longer) = (text.clone(), text.clone());
            anywhere(&mut noisy, &mut Rng::with_seed(seed));
            lines(&mut longer, &mut Rng::with_seed(seed));
            assert!(longer != text && longer.windows(7).any(|part| part == b"{\"t\":1}" || part == b"{\"t\":2}"));
        }
    }
}
