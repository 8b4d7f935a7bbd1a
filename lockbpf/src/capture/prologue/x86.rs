//! x86_64: decoded by iced-x86; what is emulated follows the kernel's `arch/x86/kernel/uprobes.c` from 5.15 on.

use super::{Reason, lands_on_line};
use iced_x86::{
    Decoder, DecoderOptions, FastFormatter, FlowControl, Instruction, InstructionInfoFactory, OpAccess, OpKind,
    Register,
};

/// Argument registers in the System V order.
const ARGS: [Register; 6] = [Register::RDI, Register::RSI, Register::RDX, Register::RCX, Register::R8, Register::R9];

fn decoder(code: &[u8], vaddr: u64) -> Decoder<'_> {
    Decoder::with_ip(64, code, vaddr, DecoderOptions::NONE)
}

/// Offset of the first emulated instruction that every call reaches in the state of the entry.
pub(super) fn candidate(code: &[u8], vaddr: u64, args: usize) -> Result<usize, Reason> {
    let mut decoder = decoder(code, vaddr);
    let mut facts = InstructionInfoFactory::new();
    while decoder.can_decode() {
        let start = decoder.position();
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return Err(Reason::Unknown);
        }
        if emulated(code.get(start..decoder.position()).unwrap_or_default()) {
            return Ok(start);
        }
        if let Some(reason) = disturbs(&instruction, &mut facts, args) {
            return Err(reason);
        }
    }
    Err(Reason::NoneEmulated)
}

/// Why a probe after this instruction would not see what one at the entry sees, if so.
fn disturbs(instruction: &Instruction, facts: &mut InstructionInfoFactory, args: usize) -> Option<Reason> {
    if instruction.flow_control() != FlowControl::Next {
        return Some(Reason::Branch);
    }
    // They move the registers of the first two arguments, used or not; no prologue has them.
    if instruction.is_string_instruction() {
        return Some(Reason::ArgumentWrite);
    }
    if instruction.is_stack_instruction() {
        return Some(Reason::Stack);
    }
    let info = facts.info(instruction);
    for memory in info.used_memory() {
        if writes(memory.access()) {
            return Some(Reason::MemoryWrite);
        }
        // Even a read: it may fetch the return address, which a return probe at a later site would replace too late.
        if memory.access() != OpAccess::NoMemAccess
            && [memory.base(), memory.index()].iter().any(|r| r.full_register() == Register::RSP)
        {
            return Some(Reason::Stack);
        }
    }
    let written = info.used_registers().iter().filter(|r| writes(r.access())).map(|r| r.register().full_register());
    for register in written {
        if register == Register::RSP {
            return Some(Reason::Stack);
        }
        if ARGS.iter().take(args).any(|&arg| arg == register) {
            return Some(Reason::ArgumentWrite);
        }
    }
    None
}

fn writes(access: OpAccess) -> bool {
    matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

/// Whether the kernel emulates the instruction of exactly these bytes.
///
/// Only plain encodings: a segment or lock prefix makes the kernel refuse the probe, an operand-size prefix does so on
/// branches, and multi-byte nops are single-stepped before 6.16 (and the five-byte one is later turned into a call,
/// whose push some kernels let overwrite the red zone).
fn emulated(bytes: &[u8]) -> bool {
    matches!(
        bytes,
        [0x50..=0x57]
            | [0x41, 0x50..=0x57]
            | [0x90]
            | [0xeb | 0x70..=0x7f, _]
            | [0xe8 | 0xe9, _, _, _, _]
            | [0x0f, 0x80..=0x8f, _, _, _, _]
    )
}

/// Whether the first instruction has a lock prefix.
pub(super) fn is_locked(code: &[u8], vaddr: u64) -> bool {
    decoder(code, vaddr).decode().has_lock_prefix()
}

/// Offset of the second instruction, if it is a branch that depends on the first, a locked one.
pub(super) fn after_locked(code: &[u8], vaddr: u64) -> Option<usize> {
    let mut decoder = decoder(code, vaddr);
    let first = decoder.decode();
    let start = decoder.position();
    let second = decoder.decode();
    let tells = first.has_lock_prefix() && second.flow_control() == FlowControl::ConditionalBranch;
    (tells && emulated(code.get(start..decoder.position())?)).then_some(start)
}

/// What in the rest of the function might bring the same call to `site` a second time, if anything.
pub(super) fn obstacle(code: &[u8], vaddr: u64, site: usize) -> Option<Reason> {
    decoder(code, vaddr).iter().find_map(|instruction| {
        if instruction.is_invalid() {
            return Some(Reason::Unknown);
        }
        if instruction.flow_control() == FlowControl::IndirectBranch {
            return Some(Reason::IndirectJump);
        }
        let direct =
            matches!(instruction.op0_kind(), OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64);
        (direct && lands_on_line(instruction.near_branch_target(), vaddr, site)).then_some(Reason::JumpedInto)
    })
}

/// The first instruction as text, and whether the kernel emulates it.
pub(super) fn describe(code: &[u8], vaddr: u64) -> (String, bool) {
    let mut decoder = decoder(code, vaddr);
    let instruction = decoder.decode();
    if instruction.is_invalid() {
        return ("(unknown)".to_owned(), false);
    }
    let mut formatter = FastFormatter::new();
    formatter.options_mut().set_use_hex_prefix(true);
    formatter.options_mut().set_uppercase_hex(false);
    formatter.options_mut().set_space_after_operand_separator(true);
    let mut text = String::new();
    formatter.format(&instruction, &mut text);
    (text, emulated(code.get(..decoder.position()).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::super::{Arch, Cost, Placement, place};
    use super::*;
    use proptest::prelude::*;

    fn placed(code: &[u8], args: usize) -> (u64, Reason) {
        let Placement { offset, reason, cost, .. } = place(Arch::X86_64, code, 0x8c370, args);
        assert!(offset == 0 || cost == Cost::Emulated);
        (offset, reason)
    }

    /// `mov 0x10(%rdi),%eax; mov %eax,%edx; and $0x17f,%edx; and $0x7c,%eax; jne …; push %rbx; ret`, glibc 2.36.
    const LOCK: &[u8] = &[
        0x8b, 0x47, 0x10, 0x89, 0xc2, 0x81, 0xe2, 0x7f, 0x01, 0, 0, 0x83, 0xe0, 0x7c, 0x0f, 0x85, 0xac, 0, 0, 0, 0x53,
        0xc3,
    ];

    #[test]
    fn glibc_prologues() {
        assert_eq!(placed(LOCK, 1), (14, Reason::FirstEmulated));
        // pthread_mutex_unlock: mov $1,%esi; jmp
        assert_eq!(placed(&[0xbe, 1, 0, 0, 0, 0xe9, 0xf6, 0xfe, 0xff, 0xff], 1), (5, Reason::FirstEmulated));
        // pthread_mutex_timedlock: mov %rsi,%rdx; xor %esi,%esi; jmp
        let timedlock = [0x48, 0x89, 0xf2, 0x31, 0xf6, 0xe9, 0x26, 0xf6, 0xff, 0xff];
        assert_eq!(placed(&timedlock, 1), (5, Reason::FirstEmulated));
        assert_eq!(placed(&timedlock, 2), (0, Reason::ArgumentWrite));
        // pthread_mutex_clocklock: cmp $1,%esi; ja; jmp; mov $0x16,%eax; ret
        let clocklock = [0x83, 0xfe, 1, 0x77, 0x0b, 0xe9, 0x46, 0xf6, 0xff, 0xff, 0xb8, 0x16, 0, 0, 0, 0xc3];
        assert_eq!(placed(&clocklock, 1), (3, Reason::FirstEmulated));
        // pthread_mutex_trylock: push %r14; push %r13
        assert_eq!(placed(&[0x41, 0x56, 0x41, 0x55, 0xc3], 1), (0, Reason::EntryEmulated));
        // Built for control-flow enforcement: endbr64 before the push.
        assert_eq!(placed(&[0xf3, 0x0f, 0x1e, 0xfa, 0x53, 0xc3], 1), (4, Reason::FirstEmulated));
    }

    #[test]
    fn what_must_not_have_happened_before_the_probe() {
        for (code, reason) in [
            (&[0xf0, 0x0f, 0xb1, 0x57, 0x04, 0x75, 0x01, 0xc3, 0xc3][..], Reason::MemoryWrite), // lock cmpxchg; jne
            (&[0xff, 0x0f, 0x75, 0x00, 0xc3], Reason::MemoryWrite),                             // decl (%rdi); jne
            (&[0x87, 0x07, 0x75, 0x00, 0xc3], Reason::MemoryWrite),                             // xchg %eax,(%rdi); jne
            (&[0x48, 0x83, 0xec, 0x10, 0x53, 0xc3], Reason::Stack),                             // sub $0x10,%rsp; push
            (&[0x48, 0x8b, 0x04, 0x24, 0x53, 0xc3], Reason::Stack),                             // mov (%rsp),%rax; push
            (&[0xc9, 0x53, 0xc3], Reason::Stack),                                               // leave; push
            (&[0x31, 0xff, 0x53, 0xc3], Reason::ArgumentWrite),                                 // xor %edi,%edi; push
            (&[0x40, 0xb7, 0x01, 0x53, 0xc3], Reason::ArgumentWrite),                           // mov $1,%dil; push
            (&[0xf3, 0xa6, 0x53, 0xc3], Reason::ArgumentWrite),                                 // repe cmpsb; push
            (&[0xac, 0x53, 0xc3], Reason::ArgumentWrite),                                       // lodsb; push
            (&[0xff, 0xd0, 0x53, 0xc3], Reason::Branch),                                        // call *%rax; push
            (&[0x0f, 0x05, 0x53, 0xc3], Reason::Branch),                                        // syscall; push
            (&[0xc3, 0x53], Reason::Branch),                                                    // ret; push
            (&[0x66, 0xe9, 0, 0, 0, 0, 0x53, 0xc3], Reason::Branch),                            // 16-bit jmp; push
            (&[0x2e, 0x75, 0x00, 0x53, 0xc3], Reason::Branch),                                  // hinted jne; push
            (&[0x06, 0x53, 0xc3], Reason::Unknown),                                             // not in 64-bit mode
            (&[0x89, 0xc2, 0x89, 0xc2], Reason::NoneEmulated),                                  // mov %eax,%edx, twice
            (&[], Reason::NoneEmulated),
        ] {
            assert_eq!(placed(code, 2), (0, reason), "{code:02x?}");
        }
    }

    #[test]
    fn nops_of_several_bytes_are_passed_but_not_chosen() {
        assert_eq!(placed(&[0x0f, 0x1f, 0x44, 0, 0, 0x53, 0xc3], 1), (5, Reason::FirstEmulated));
        assert_eq!(placed(&[0x66, 0x90, 0x53, 0xc3], 1), (2, Reason::FirstEmulated));
        assert_eq!(placed(&[0x90, 0x53, 0xc3], 1), (0, Reason::EntryEmulated));
    }

    #[test]
    fn a_way_back_to_the_site_keeps_the_probe_at_the_entry() {
        let back_to = |offset: i8| {
            let mut code = vec![0x8b, 0x07, 0x85, 0xc0, 0x75, 0x02]; // mov (%rdi),%eax; test; jne
            code.extend([0xeb, (offset - 8) as u8, 0xc3]);
            placed(&code, 1)
        };
        assert_eq!(back_to(0), (4, Reason::FirstEmulated));
        for loop_head in [1, 2, 4] {
            assert_eq!(back_to(loop_head), (0, Reason::JumpedInto));
        }
        assert_eq!(back_to(6), (4, Reason::FirstEmulated));
        assert_eq!(placed(&[0x8b, 0x07, 0x75, 0x00, 0xff, 0xe0], 1), (0, Reason::IndirectJump));
    }

    #[test]
    fn instructions_read_at_a_glance() {
        assert_eq!(place(Arch::X86_64, LOCK, 0x8c370, 1).instruction, "jne 0x8c430");
        assert_eq!(describe(&[0x41, 0x56], 0), ("push r14".to_owned(), true));
        assert_eq!(describe(&[0x8b, 0x47, 0x10], 0), ("mov eax, [rdi+0x10]".to_owned(), false));
        assert_eq!(describe(&[], 0), ("(unknown)".to_owned(), false));
    }

    /// The rule once more, by operands instead of by access lists, and stricter where that is simpler.
    fn breaks_rule(code: &[u8], vaddr: u64, args: usize, site: usize) -> Option<String> {
        use iced_x86::Mnemonic::{Bt, Cmp, Nop, Test};
        let mut at_site = false;
        for instruction in &mut decoder(code, vaddr) {
            let at = instruction.ip().wrapping_sub(vaddr) as usize;
            if instruction.is_jmp_short_or_near() || instruction.is_jcc_short_or_near() || instruction.is_call_near() {
                let to = instruction.near_branch_target().wrapping_sub(vaddr);
                if to > 0 && to <= site as u64 {
                    return Some(format!("{instruction:?} returns to {to}"));
                }
            }
            if instruction.is_jmp_near_indirect() || instruction.is_invalid() {
                return Some(format!("{instruction:?} is anywhere in the function"));
            }
            if at == site {
                at_site = true;
                let plain = code[at..].len() >= instruction.len();
                let simple = instruction.is_jmp_short_or_near()
                    || instruction.is_jcc_short_or_near()
                    || instruction.is_call_near()
                    || (instruction.mnemonic() == iced_x86::Mnemonic::Push
                        && instruction.op0_kind() == OpKind::Register
                        && instruction.op0_register().is_gpr64())
                    || instruction.code() == iced_x86::Code::Nopd;
                let prefixed = [0x66, 0x2e, 0x3e, 0x26, 0x36, 0xf0, 0xf2, 0xf3].contains(&code[at]);
                if !plain || !simple || prefixed {
                    return Some(format!("{instruction:?} is not emulated"));
                }
            }
            if at < site {
                let only_reads = matches!(instruction.mnemonic(), Cmp | Test | Bt | Nop);
                let to = instruction.op0_register().full_register();
                let hits = to == Register::RSP || ARGS[..args].contains(&to);
                if !only_reads && instruction.op0_kind() == OpKind::Register && hits && instruction.op_count() > 0 {
                    // A few more only read their first operand (ptest, comiss, …), but never a general register.
                    return Some(format!("{instruction:?} writes {to:?}"));
                }
                if instruction.is_string_instruction()
                    || instruction.has_lock_prefix()
                    || instruction.stack_pointer_increment() != 0
                    || instruction.flow_control() != FlowControl::Next
                {
                    return Some(format!("{instruction:?} comes first"));
                }
            }
        }
        (!at_site).then(|| "not at an instruction".to_owned())
    }

    /// Instructions as they occur in prologues, so that random functions get past their first instruction.
    fn likely() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            Just(vec![0xf3, 0x0f, 0x1e, 0xfa]),
            Just(vec![0x8b, 0x47, 0x10]),
            Just(vec![0x89, 0xc2]),
            Just(vec![0x89, 0xd7]),
            Just(vec![0x31, 0xf6]),
            Just(vec![0x85, 0xd2]),
            Just(vec![0x48, 0x83, 0xec, 0x10]),
            Just(vec![0xf0, 0x0f, 0xb1, 0x17]),
            Just(vec![0x64, 0x8b, 0x2c, 0x25, 0xd0, 0x02, 0, 0]),
            Just(vec![0x0f, 0xb6, 0x47, 0x10]),
            Just(vec![0x53]),
            Just(vec![0xc3]),
            any::<i8>().prop_map(|d| vec![0x75, d as u8]),
            (-20..20i32).prop_map(|d| [&[0x0f, 0x84][..], &d.to_le_bytes()].concat()),
            (-20..20i32).prop_map(|d| [&[0xe9][..], &d.to_le_bytes()].concat()),
            any::<[u8; 2]>().prop_map(Vec::from),
        ]
    }

    proptest! {
        #[test]
        fn noise_never_breaks_the_rule(code in prop::collection::vec(any::<u8>(), 0..64), vaddr: u64, args in 0usize..9) {
            let placement = place(Arch::X86_64, &code, vaddr, args);
            if placement.offset > 0 {
                prop_assert_eq!(breaks_rule(&code, vaddr, args.min(6), placement.offset as usize), None);
            }
        }

        #[test]
        fn likely_code_never_breaks_the_rule(parts in prop::collection::vec(likely(), 0..12), args in 0usize..4) {
            let code = parts.concat();
            let placement = place(Arch::X86_64, &code, 0x1000, args);
            if placement.offset > 0 {
                prop_assert_eq!(breaks_rule(&code, 0x1000, args, placement.offset as usize), None);
            }
        }
    }
}
