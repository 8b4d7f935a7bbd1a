//! Which variable a function's code names itself: the lock of a function that no argument leads to one.

use super::Arch;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic};

/// Offset of the end of the first instruction that changes a variable at a fixed address in one step, as whoever takes or frees a lock
/// does; its last four bytes tell how far behind it the variable is. `None` if there is none on the straight line from the entry, and on
/// aarch64, where no single instruction tells.
#[must_use]
pub fn static_word(arch: Arch, code: &[u8], vaddr: u64) -> Option<u64> {
    if arch != Arch::X86_64 {
        return None;
    }
    let mut decoder = Decoder::with_ip(64, code, vaddr, DecoderOptions::NONE);
    while decoder.can_decode() {
        let instruction = decoder.decode();
        let goes_on = matches!(instruction.flow_control(), FlowControl::Next | FlowControl::ConditionalBranch);
        if instruction.is_invalid() || !goes_on {
            return None;
        }
        // An exchange with memory is locked without a prefix.
        let changes = instruction.has_lock_prefix() || instruction.mnemonic() == Mnemonic::Xchg;
        if changes && instruction.is_ip_rel_memory_operand() {
            let is_last = !decoder.get_constant_offsets(&instruction).has_immediate();
            return is_last.then(|| decoder.position() as u64);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found(code: &[u8]) -> Option<u64> {
        static_word(Arch::X86_64, code, 0xd210)
    }

    /// `endbr64; xor %eax,%eax; mov $1,%edx; lock cmpxchg %edx,0x3a425(%rip); jne …; ret`: `GOMP_critical_start` of GCC 12.
    const START: &[u8] = &[
        0xf3, 0x0f, 0x1e, 0xfa, 0x31, 0xc0, 0xba, 1, 0, 0, 0, 0xf0, 0x0f, 0xb1, 0x15, 0x25, 0xa4, 0x03, 0, 0x75, 1,
        0xc3,
    ];

    #[test]
    fn the_variable_of_a_function_without_arguments() {
        assert_eq!(found(START), Some(19));
        // GOMP_critical_end: endbr64; xor %eax,%eax; xchg %eax,0x3a3fc(%rip)
        assert_eq!(found(&[0xf3, 0x0f, 0x1e, 0xfa, 0x31, 0xc0, 0x87, 0x05, 0xfc, 0xa3, 0x03, 0, 0xc3]), Some(12));
        // A fence before: lock orq $0,(%rsp)
        let fence = [0xf0, 0x48, 0x83, 0x0c, 0x24, 0];
        assert_eq!(found(&[&fence, START].concat()), Some(25));
        assert_eq!(static_word(Arch::Aarch64, START, 0), None);
    }

    #[test]
    fn no_other_instruction_tells() {
        for code in [
            &[0xf0, 0x0f, 0xb1, 0x17, 0xc3][..],      // lock cmpxchg %edx,(%rdi): an argument
            &[0x8b, 0x05, 0, 1, 0, 0, 0xc3],          // mov 0x100(%rip),%eax: read only
            &[0xf0, 0x83, 0x05, 0, 1, 0, 0, 1, 0xc3], // lock addl $1,0x100(%rip): ends with the 1
            &[0xc3, 0xf0, 0x0f, 0xb1, 0x15, 0x25, 0xa4, 0x03, 0], // behind the end
            &[0xe8, 0, 0, 0, 0, 0xf0, 0x0f, 0xb1, 0x15, 0x25, 0xa4, 0x03, 0], // after a call
            &[],
        ] {
            assert_eq!(found(code), None, "{code:x?}");
        }
    }

    proptest! {
        #[test]
        fn no_code_panics(code: Vec<u8>) {
            let _ = found(&code);
        }
    }
}
