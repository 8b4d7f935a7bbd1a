//! Functions of x86_64 that ask for a byte of what their first argument points to.

use super::x86::{branches, decoder};
use iced_x86::{ConditionCode, Instruction, MemorySize, Mnemonic, OpKind, Register};

/// Whether any instruction asks for a byte at this offset from a register that is not the stack pointer.
pub(super) fn asks_for_byte(code: &[u8], vaddr: u64, offset: u64) -> bool {
    let asks = |i: Instruction| {
        let at = (i.memory_displacement64(), i.memory_size());
        at == (offset, MemorySize::UInt8) && !matches!(i.memory_base(), Register::RSP | Register::None)
    };
    decoder(code, vaddr).iter().any(asks)
}

/// Offset of the instruction past a branch that is not taken where the byte at this offset from the first argument is 1, if nothing comes
/// before but what saves registers, and no other way leads there.
pub(super) fn where_flag_is_set(code: &[u8], vaddr: u64, flag: u64) -> Option<usize> {
    let all: Vec<Instruction> = decoder(code, vaddr).iter().collect();
    let asks = |i: &Instruction| {
        i.mnemonic() == Mnemonic::Cmp
            && (i.memory_base(), i.memory_index()) == (Register::RDI, Register::None)
            && (i.memory_displacement64(), i.memory_size()) == (flag, MemorySize::UInt8)
    };
    let at = all.iter().position(asks)?;
    let (compared, [asked, branch, next, ..]) = (all[at].immediate(1), all.get(at..)?) else { return None };
    let saves = |i: &Instruction| {
        i.mnemonic() == Mnemonic::Push || i.mnemonic() == Mnemonic::Sub && i.op0_register() == Register::RSP
    };
    let passes = match branch.condition_code() {
        ConditionCode::ne => compared == 1,
        ConditionCode::e => compared == 0,
        _ => false,
    };
    let entered = all.iter().filter_map(branches).any(|to| to == next.ip());
    let sound = asked.op1_kind() == OpKind::Immediate8 && passes && all[..at].iter().all(saves) && !entered;
    usize::try_from(next.ip().wrapping_sub(vaddr)).ok().filter(|_| sound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_that_is_set() {
        // push %r14; push %rbx; push %rax; cmpb $1,0x38(%rdi); jne to the end; mov (%rdi),%rdx; ret (tokio 1.54).
        let code = [0x41, 0x56, 0x53, 0x50, 0x80, 0x7f, 0x38, 1, 0x75, 3, 0x48, 0x8b, 0x17, 0xc3];
        let with = |at: usize, byte: u8| {
            let mut other = code;
            other[at] = byte;
            where_flag_is_set(&other, 0x5c160, 0x38)
        };
        assert_eq!(with(0, 0x41), Some(10));
        // cmpb $0; je: the same. Then jne on 0, another byte of the argument, an argument that is overwritten (pop %rdi), a branch to there.
        assert_eq!((with(7, 0), with(8, 0x74)), (None, None));
        assert_eq!((with(6, 0x34), with(2, 0x5f), with(9, 0)), (None, None, None));
        let mut zero = code;
        (zero[7], zero[8]) = (0, 0x74);
        assert_eq!(where_flag_is_set(&zero, 0x5c160, 0x38), Some(10));
        assert_eq!((where_flag_is_set(&code[..8], 0x5c160, 0x38), where_flag_is_set(&[], 0, 0x38)), (None, None));
        assert!(asks_for_byte(&code, 0, 0x38) && !asks_for_byte(&code, 0, 0x34));
        // movzbl 0x34(%rbx),%ecx (tokio 1.20).
        assert!(asks_for_byte(&[0x0f, 0xb6, 0x4b, 0x34], 0, 0x34));
    }
}
