//! Whether an address is behind a call: among the words of a stack, pointers to functions look like return addresses.

use iced_x86::{Decoder, DecoderOptions, FlowControl};

/// Bytes of the longest call on x86-64, with a prefix.
pub(super) const LONGEST: usize = 8;
/// Bytes of the shortest one.
const SHORTEST: usize = 2;

/// Whether this code, which may begin within an instruction, ends with a call.
pub(super) fn ends_with_call(code: &[u8], is_x86_64: bool) -> bool {
    if !is_x86_64 {
        return code.last_chunk().is_some_and(|&word| is_aarch64_call(u32::from_le_bytes(word)));
    }
    (SHORTEST..=LONGEST.min(code.len())).any(|length| {
        let instruction = code.get(code.len() - length..).unwrap_or_default();
        let decoded = Decoder::new(64, instruction, DecoderOptions::NONE).decode();
        decoded.len() == length && matches!(decoded.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
    })
}

/// `bl`, or `blr` with or without authentication.
fn is_aarch64_call(word: u32) -> bool {
    word >> 26 == 0b10_0101 || word & 0xfeff_f000 == 0xd63f_0000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_every_form_are_known() {
        for code in [
            &[0xe8, 1, 2, 3, 4][..],
            &[0xff, 0xd0],
            &[0x41, 0xff, 0xd4],
            &[0xff, 0x53, 0x18],
            &[0xff, 0x54, 0x24, 0x08],
            &[0xff, 0x15, 1, 2, 3, 4],
            &[0x41, 0xff, 0x94, 0x24, 1, 2, 3, 4],
        ] {
            let behind: Vec<u8> = [0x48, 0x89, 0xc7].iter().chain(code).copied().collect();
            assert!(ends_with_call(&behind, true), "{code:x?}");
        }
        // A function begins behind what fills the space before it, or a return.
        for code in [&[0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0][..], &[0x5b, 0x5d, 0xc3], &[0x90; 8], &[]] {
            assert!(!ends_with_call(code, true), "{code:x?}");
        }
        let words = [
            (0x9400_0010_u32, true),
            (0xd63f_0000, true),
            (0xd73f_0823, true),
            (0xd65f_03c0, false),
            (0x1400_0010, false),
        ];
        for (word, is_call) in words {
            assert_eq!(ends_with_call(&word.to_le_bytes(), false), is_call, "{word:x}");
        }
    }
}
