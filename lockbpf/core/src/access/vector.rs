//! Elements and masks of vector registers.

use super::state::Vectors;
use iced_x86::Register;

/// A stretch of bytes from the beginning of an operand: offset and size.
pub type Stretch = (u64, u64);

/// An element of a vector register.
#[must_use]
pub fn element(vectors: &Vectors, register: Register, index: usize, size: usize) -> Option<u64> {
    let bytes = vectors.vector.get(register.number())?.get(index * size..(index + 1) * size)?;
    let mut word = [0; 8];
    word.get_mut(..size)?.copy_from_slice(bytes);
    Some(u64::from_le_bytes(word))
}

/// One bit for each of the first `count` elements: the highest bit of each, by which older instructions mask.
#[must_use]
pub fn sign_bits(vectors: &Vectors, register: Register, count: usize, size: usize) -> Option<u64> {
    if register.is_mm() {
        let bytes = vectors.mmx.get(register.number())?.to_le_bytes();
        return Some(bytes.iter().enumerate().take(count).fold(0, |mask, (i, byte)| mask | u64::from(byte >> 7) << i));
    }
    (0..count).try_fold(0, |mask, i| {
        let value = element(vectors, register, i, size)?;
        Some(mask | (value >> (8 * size - 1) & 1) << i)
    })
}

/// A mask register; without one every element counts.
#[must_use]
pub fn mask_bits(vectors: &Vectors, register: Register) -> Option<u64> {
    if register == Register::None { Some(u64::MAX) } else { vectors.mask.get(register.number()).copied() }
}

/// The bytes of the elements whose bits are set, as few stretches as they make.
#[must_use]
pub fn stretches(mask: u64, count: usize, size: usize) -> Vec<Stretch> {
    let mut found: Vec<Stretch> = Vec::new();
    for i in (0..count.min(64)).filter(|i| mask >> i & 1 == 1) {
        let (offset, size) = ((i * size) as u64, size as u64);
        match found.last_mut() {
            Some((start, length)) if *start + *length == offset => *length += size,
            _ => found.push((offset, size)),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_of_both_sorts() {
        let mut vectors = Vectors::default();
        vectors.vector[3][7] = 0x80;
        vectors.vector[3][12..16].copy_from_slice(&0xffff_fff0u32.to_le_bytes());
        assert_eq!(sign_bits(&vectors, Register::XMM3, 4, 4), Some(0b1010));
        assert_eq!(element(&vectors, Register::YMM3, 3, 4), Some(0xffff_fff0));
        assert_eq!(element(&vectors, Register::XMM3, 16, 4), None);
        vectors.mmx[1] = 0x80ff_0000_0000_0080;
        assert_eq!(sign_bits(&vectors, Register::MM1, 8, 1), Some(0b1100_0001));
        vectors.mask[2] = 5;
        assert_eq!(mask_bits(&vectors, Register::K2), Some(5));
        assert_eq!(stretches(0b1101_1010, 8, 4), [(4, 4), (12, 8), (24, 8)]);
        assert_eq!(stretches(u64::MAX, 64, 1), [(0, 64)]);
        assert_eq!(stretches(0, 8, 8), []);
    }
}
