//! x86_64: decoded by iced-x86; what is emulated follows the kernel's `arch/x86/kernel/uprobes.c` from 5.15 on.

use super::{Reason, lands_on_line};
use iced_x86::{
    Decoder, DecoderOptions, FastFormatter, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};

/// Argument registers in the System V order.
const ARGS: [Register; 6] = [Register::RDI, Register::RSI, Register::RDX, Register::RCX, Register::R8, Register::R9];

pub(super) fn decoder(code: &[u8], vaddr: u64) -> Decoder<'_> {
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

/// Offset of the first emulated instruction of the straight line that every call runs through, whatever comes before it but calls, and
/// how far the stack pointer is below the return address there.
pub(super) fn early(code: &[u8], vaddr: u64) -> Option<(usize, u64)> {
    let mut decoder = decoder(code, vaddr);
    let mut facts = InstructionInfoFactory::new();
    let mut frame = 0u64;
    while decoder.can_decode() {
        let start = decoder.position();
        let instruction = decoder.decode();
        if emulated(code.get(start..decoder.position())?) {
            return Some((start, frame));
        }
        if instruction.is_invalid() || instruction.flow_control() != FlowControl::Next {
            return None;
        }
        let registers = facts.info(&instruction).used_registers().iter();
        if !registers.clone().any(|r| writes(r.access()) && r.register().full_register() == Register::RSP) {
            continue;
        }
        let taken = instruction.mnemonic() == Mnemonic::Sub
            && matches!(instruction.op1_kind(), OpKind::Immediate8to64 | OpKind::Immediate32to64);
        frame = frame.checked_add(taken.then(|| instruction.immediate(1)).filter(|&bytes| bytes < 1 << 20)?)?;
    }
    None
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
/// branches, and multi-byte nops are single-stepped before 6.16 (and later the one of five bytes is dangerous:
/// [`super::is_rewritten`]).
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

/// Bytes of the NOP that kernels turn into a call.
pub(super) const NOP5: usize = 5;

/// Whether the first instruction is such a NOP.
pub(super) fn is_nop5(code: &[u8]) -> bool {
    let first = decoder(code, 0).decode();
    first.mnemonic() == Mnemonic::Nop && first.len() == NOP5
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

/// A function that changes a word by the only locked instruction in it, which it may have to repeat; what it may do before keeps
/// the stack pointer and the first argument as at the entry.
struct Loop {
    all: Vec<Instruction>,
    /// Index of the branch right after the locked instruction, back into the loop; not taken after a success.
    repeats: usize,
    /// Address of the loop's first instruction.
    head: u64,
}

impl Loop {
    fn of(code: &[u8], vaddr: u64) -> Option<Self> {
        let all: Vec<Instruction> = decoder(code, vaddr).iter().collect();
        let mut locked = all.iter().enumerate().filter(|(_, instruction)| instruction.has_lock_prefix());
        let (at, changes) = locked.next().filter(|_| locked.next().is_none())?;
        let repeats = all.get(at + 1)?;
        let head = repeats.near_branch_target();
        let again = repeats.flow_control() == FlowControl::ConditionalBranch && (vaddr..=changes.ip()).contains(&head);
        let mut facts = InstructionInfoFactory::new();
        let keeps = |instruction: &Instruction| {
            let registers = facts.info(instruction).used_registers().iter();
            let mut written = registers.filter(|r| writes(r.access())).map(|r| r.register().full_register());
            !written.any(|register| register == Register::RDI || register == Register::RSP)
        };
        let odd = |i: &Instruction| i.is_invalid() || i.flow_control() == FlowControl::IndirectBranch;
        (again && all.get(..=at)?.iter().all(keeps) && !all.iter().any(odd)).then_some(Self {
            repeats: at + 1,
            head,
            all,
        })
    }

    /// Whether a branch leads onto the line between these addresses, both included.
    fn is_entered(&self, from: u64, to: u64) -> bool {
        self.all.iter().filter_map(branches).any(|target| (from..=to).contains(&target))
    }
}

/// Offset of an instruction that the kernel emulates.
fn emulated_at(instruction: &Instruction, code: &[u8], vaddr: u64) -> Option<usize> {
    let start = usize::try_from(instruction.ip().wrapping_sub(vaddr)).ok()?;
    emulated(code.get(start..start + instruction.len())?).then_some(start)
}

/// Offset of the first emulated instruction past the function's loop, if no other way leads to it.
pub(super) fn after_loop(code: &[u8], vaddr: u64) -> Option<usize> {
    let lock_loop = Loop::of(code, vaddr)?;
    let begin = lock_loop.all.get(lock_loop.repeats)?.next_ip();
    let mut facts = InstructionInfoFactory::new();
    for instruction in lock_loop.all.get(lock_loop.repeats + 1..)? {
        if let Some(site) = emulated_at(instruction, code, vaddr) {
            return (!lock_loop.is_entered(begin, instruction.ip())).then_some(site);
        }
        if disturbs(instruction, &mut facts, 1).is_some() {
            return None;
        }
    }
    None
}

/// The branch by which a function gives up in its loop, if taken, and the one that tells its success, if not taken; each with the
/// last four bits of its opcode.
pub(super) fn loop_exits(code: &[u8], vaddr: u64) -> Option<[(usize, u8); 2]> {
    let lock_loop = Loop::of(code, vaddr)?;
    let repeats = lock_loop.all.get(lock_loop.repeats)?;
    let before = lock_loop.all.get(..lock_loop.repeats)?.iter();
    let mut branches_before = before.filter(|i| branches(i).is_some());
    let gives_up = branches_before.next().filter(|_| branches_before.next().is_none())?;
    let in_loop = gives_up.flow_control() == FlowControl::ConditionalBranch && gives_up.ip() >= lock_loop.head;
    // What it does then must not lead back: a call would give up, and then try again.
    let leaves = gives_up.near_branch_target() > repeats.ip();
    let comes_back =
        lock_loop.all.get(lock_loop.repeats + 1..)?.iter().filter_map(branches).any(|to| to <= repeats.ip());
    let exit = |instruction| {
        let at = emulated_at(instruction, code, vaddr)?;
        let opcode = match code.get(at..at + 2)? {
            [0x0f, opcode] | [opcode, _] => opcode & 0xf,
            _ => return None,
        };
        Some((at, opcode))
    };
    if !in_loop || !leaves || comes_back { None } else { Some([exit(gives_up)?, exit(repeats)?]) }
}

/// Offset of the first call, and by how many bytes the stack pointer has been moved by then, if nothing else has happened but what
/// prepares it.
pub(super) fn call(code: &[u8], vaddr: u64) -> Option<(usize, u16)> {
    let mut decoder = decoder(code, vaddr);
    let mut facts = InstructionInfoFactory::new();
    let mut frame = 0u16;
    while decoder.can_decode() {
        let start = decoder.position();
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return None;
        }
        if emulated(code.get(start..decoder.position())?) {
            let is_call = instruction.flow_control() == FlowControl::Call;
            return (is_call && obstacle(code, vaddr, start).is_none()).then_some((start, frame));
        }
        if instruction.mnemonic() == Mnemonic::Sub && instruction.op0_register() == Register::RSP {
            frame = frame.checked_add(u16::try_from(instruction.try_immediate(1).ok()?).ok()?)?;
        } else if disturbs(&instruction, &mut facts, 1).is_some() {
            return None;
        }
    }
    None
}

/// Where a direct branch or call leads.
pub(super) fn branches(instruction: &Instruction) -> Option<u64> {
    matches!(instruction.op0_kind(), OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64)
        .then(|| instruction.near_branch_target())
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
        let target = branches(&instruction)?;
        lands_on_line(target, vaddr, site).then_some(Reason::JumpedInto)
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

    /// `sem_post` of glibc 2.36.
    const POST: &[u8] = &[
        0x8b, 0x77, 0x08, 0x48, 0x8b, 0x07, 0x3d, 0xff, 0xff, 0xff, 0x7f, 0x74, 0x33, 0x48, 0x8d, 0x50, 0x01, 0xf0,
        0x48, 0x0f, 0xb1, 0x17, 0x75, 0xee, 0x48, 0xc1, 0xe8, 0x20, 0x74, 0x1b, 0x40, 0x80, 0xf6, 0x81, 0xc3,
    ];

    #[test]
    fn a_loop_that_changes_the_lock_is_left_once() {
        assert_eq!(after_loop(POST, 0x905c0), Some(28));
        assert_eq!(placed(POST, 1), (0, Reason::JumpedInto));
        let changed = |at: usize, to: &[u8]| {
            let mut code = POST.to_vec();
            code[at..at + to.len()].copy_from_slice(to);
            after_loop(&code, 0x905c0)
        };
        // The first branch leads onto the line; the loop's leads forward; a second locked instruction; the argument is lost.
        assert_eq!(changed(12, &[0x0b]), None);
        assert_eq!(changed(23, &[0x02]), None);
        assert_eq!(changed(30, &[0xf0, 0x48, 0x0f, 0xb1, 0x17]), None);
        assert_eq!(changed(13, &[0x48, 0x8d, 0x78, 0x01]), None);
        // The line ends without an emulated instruction.
        assert_eq!(changed(28, &[0xc3, 0x90]), None);
        assert_eq!(after_loop(&[], 0), None);
    }

    /// `sem_trywait` of glibc 2.36.
    const TRY: &[u8] = &[
        0x48, 0x8b, 0x07, 0x85, 0xc0, 0x74, 0x11, 0x48, 0x8d, 0x50, 0xff, 0xf0, 0x48, 0x0f, 0xb1, 0x17, 0x75, 0xf1,
        0x31, 0xc0, 0xc3, 0x0f, 0x1f, 0x00, 0xb8, 0xff, 0xff, 0xff, 0xff, 0xc3,
    ];

    #[test]
    fn a_loop_that_may_fail_has_two_exits() {
        assert_eq!(loop_exits(TRY, 0x90e00), Some([(5, 4), (16, 5)]));
        let changed = |at: usize, to: &[u8]| {
            let mut code = TRY.to_vec();
            code[at..at + to.len()].copy_from_slice(to);
            loop_exits(&code, 0x90e00)
        };
        // It gives up to inside of the loop; comes back from having failed; may give up at two places; the argument is lost.
        assert_eq!(changed(6, &[0x00]), None);
        assert_eq!(changed(24, &[0xeb, 0xe9]), None);
        assert_eq!(changed(7, &[0x74, 0x0f, 0x90, 0x90]), None);
        assert_eq!(changed(7, &[0x48, 0x8d, 0x78, 0xff]), None);
        assert_eq!(loop_exits(POST, 0x905c0).map(|exits| exits[0]), Some((11, 4)));
        assert_eq!(loop_exits(&[], 0), None);
    }

    #[test]
    fn a_wrapper_is_probed_at_its_call() {
        let wrapper = [0x48, 0x83, 0xec, 0x08, 0xe8, 0x67, 0xab, 0xff, 0xff, 0x83, 0xf8, 0x10, 0xc3];
        assert_eq!(call(&wrapper, 0x91800), Some((4, 8)));
        assert_eq!(call(&wrapper[4..], 0x91800), Some((0, 0)));
        // A frame that grows, a call by a jump, an argument that is changed, a loop around the call.
        assert_eq!(call(&[0x48, 0x83, 0xec, 0xf8, 0xe8, 0, 0, 0, 0], 0), None);
        assert_eq!(call(&[0x48, 0x83, 0xec, 0x08, 0xe9, 0, 0, 0, 0], 0), None);
        assert_eq!(call(&[0x48, 0x89, 0xf7, 0xe8, 0, 0, 0, 0], 0), None);
        assert_eq!(call(&[0x48, 0x83, 0xec, 0x08, 0xe8, 0, 0, 0, 0, 0x75, 0xf9], 0), None);
    }

    #[test]
    fn nops_of_several_bytes_are_passed_but_not_chosen() {
        assert_eq!(placed(&[0x0f, 0x1f, 0x44, 0, 0, 0x53, 0xc3], 1), (5, Reason::PastNop));
        assert_eq!(placed(&[0x0f, 0x1f, 0x40, 0, 0x53, 0xc3], 1), (4, Reason::FirstEmulated));
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
                let to = instruction.op0_register().full_register();
                let hits = to == Register::RSP || ARGS[..args].contains(&to);
                if writes_first(&instruction) && instruction.op0_kind() == OpKind::Register && hits {
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

    /// Whether the instruction is one of those that write their first operand: of the common ones, all.
    fn writes_first(instruction: &Instruction) -> bool {
        use iced_x86::Mnemonic::{
            Adc, Add, And, Bsf, Bsr, Bswap, Btc, Btr, Bts, Dec, Imul, Inc, Lea, Lzcnt, Mov, Movd, Movq, Movsx, Movsxd,
            Movzx, Neg, Not, Or, Popcnt, Rcl, Rcr, Rol, Ror, Sar, Sbb, Shl, Shld, Shr, Shrd, Sub, Tzcnt, Xadd, Xchg,
            Xor,
        };
        match instruction.mnemonic() {
            // With one operand it only reads that.
            Imul => instruction.op_count() > 1,
            Adc | Add | And | Bsf | Bsr | Bswap | Btc | Btr | Bts | Dec | Inc | Lea | Lzcnt | Mov | Movd | Movq
            | Movsx | Movsxd | Movzx | Neg | Not | Or | Popcnt | Rcl | Rcr | Rol | Ror | Sar | Sbb | Shl | Shld
            | Shr | Shrd | Sub | Tzcnt | Xadd | Xchg | Xor => true,
            _ => {
                instruction.code().condition_code() != iced_x86::ConditionCode::None
                    && !instruction.is_jcc_short_or_near()
            }
        }
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
        fn noise_has_no_loops_nor_calls_out_of_bounds(code in prop::collection::vec(any::<u8>(), 0..64), vaddr: u64) {
            let exits = loop_exits(&code, vaddr).into_iter().flatten().map(|(site, _)| site);
            let others = [after_loop(&code, vaddr), call(&code, vaddr).map(|(site, _)| site)].into_iter().flatten();
            for site in exits.chain(others) {
                prop_assert!(describe(&code[site..], vaddr.wrapping_add(site as u64)).1);
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
