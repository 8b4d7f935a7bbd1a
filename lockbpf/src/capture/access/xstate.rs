//! Where the processor keeps vector registers in the extended state that the kernel hands out.

use crate::access::state::Vectors;
use std::arch::x86_64::__cpuid_count;

/// Offsets in the state, which differ between processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Size of all of it.
    pub(super) bytes: usize,
    /// Upper halves of ymm0 to ymm15.
    ymm: usize,
    /// Mask registers.
    masks: usize,
    /// Upper halves of zmm0 to zmm15.
    zmm: usize,
    /// zmm16 to zmm31.
    more: usize,
}

/// `mm0`, in 16 bytes each; below the x87 registers.
const MMX: usize = 32;
/// `xmm0`, in 16 bytes each.
const XMM: usize = 160;
/// Which parts are there; others are all zeros.
const PRESENT: usize = 512;
/// Size of the oldest part with the header.
const LEGACY: usize = 576;

impl Layout {
    /// The layout of this processor.
    pub(super) fn of_this_processor() -> Self {
        /// The leaf that describes the extended state.
        const STATE: u32 = 0xd;
        let leaf = |part| __cpuid_count(STATE, part);
        let offset = |part| leaf(part).ebx as usize;
        Self {
            bytes: (leaf(0).ecx as usize).max(LEGACY),
            ymm: offset(2),
            masks: offset(5),
            zmm: offset(6),
            more: offset(7),
        }
    }

    /// Registers from the state. What it does not contain is zero.
    pub(super) fn parse(&self, area: &[u8]) -> Box<Vectors> {
        let mut vectors = Box::<Vectors>::default();
        let mut word = [0; 8];
        word.copy_from_slice(area.get(PRESENT..PRESENT + 8).unwrap_or(&[0; 8]));
        let present = u64::from_le_bytes(word);
        let part = |bit: u32, at: usize, index: usize, size: usize| -> Option<&[u8]> {
            if at == 0 || bit > 0 && present >> bit & 1 == 0 {
                return None;
            }
            area.get(at + index * size..at + (index + 1) * size)
        };
        for i in 0..16 {
            let whole = &mut vectors.vector[i];
            for (from, bytes) in
                [(0, part(0, XMM, i, 16)), (16, part(2, self.ymm, i, 16)), (32, part(6, self.zmm, i, 32))]
            {
                if let Some(bytes) = bytes {
                    whole[from..from + bytes.len()].copy_from_slice(bytes);
                }
            }
            if let Some(bytes) = part(7, self.more, i, 64) {
                vectors.vector[16 + i].copy_from_slice(bytes);
            }
        }
        let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        for i in 0..8 {
            vectors.mask[i] = part(5, self.masks, i, 8).map_or(0, word);
            vectors.mmx[i] = part(0, MMX, i, 16).map_or(0, word);
        }
        vectors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_put_together() {
        let layout = Layout { bytes: 2_696, ymm: 576, masks: 1_088, zmm: 1_152, more: 1_664 };
        let mut area = vec![0; layout.bytes];
        area[PRESENT] = 0b1110_0111;
        area[XMM + 3 * 16] = 1;
        area[576 + 3 * 16] = 2;
        area[1_152 + 3 * 32] = 3;
        area[1_664 + 64] = 4;
        area[1_088 + 8] = 5;
        area[MMX + 2 * 16] = 6;
        let vectors = layout.parse(&area);
        assert_eq!((vectors.vector[3][0], vectors.vector[3][16], vectors.vector[3][32]), (1, 2, 3));
        assert_eq!((vectors.vector[17][0], vectors.mask[1], vectors.mmx[2]), (4, 5, 6));
        area[PRESENT] = 0;
        assert_eq!(layout.parse(&area).vector[3][16], 0, "what is not present is zero, whatever lies there");
        layout.parse(&area[..100]);
    }

    #[test]
    fn this_processor_has_a_layout() {
        assert!(Layout::of_this_processor().bytes >= LEGACY);
    }
}
