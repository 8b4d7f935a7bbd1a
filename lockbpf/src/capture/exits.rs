//! Where a function's end is certain: its `ret` instructions, or branches from which a straight line leads to one.
//!
//! The kernel single-steps `ret` on x86_64, which takes up to twenty times as long as emulating a branch, while the lock is held
//! already. So the search goes back from each `ret`, along lines without branches, to the branches that lead there. A
//! conditional one counts in that state of the flags only in which it goes that way. A system call before which the thread made
//! itself ready to be cancelled ends where it calls what takes that back.

use super::prologue::Arch;
use iced_x86::{Code, ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// The condition of an instruction that is on the way in any case.
pub(super) const ALWAYS: u32 = 0;
/// Ends of one function; more are of no use.
const MAX_EXITS: usize = 32;
/// Instructions gone back from a `ret`, or from a call to the system call before it.
const MAX_BACK: usize = 16;
/// `ret` on aarch64.
const RET: u32 = 0xd65f_03c0;

/// Where a function ends, and where it goes on elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Exits {
    /// The ends.
    pub(super) ends: Vec<Exit>,
    /// Addresses outside of it to which it jumps: what is there ends it as well.
    pub(super) jumps: Vec<u64>,
}

/// An instruction by which a function's end is seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Exit {
    /// Bytes from the function's first instruction.
    pub(super) offset: u64,
    /// When it is on the way to the end ([`lockbpf_common::gate::condition`]).
    pub(super) condition: u32,
    /// How far the stack pointer is below the return address there, bytes.
    pub(super) frame: u64,
    /// Whether the kernel emulates it.
    pub(super) emulated: bool,
    /// As text.
    pub(super) instruction: String,
}

/// The ends of a function of which `code` is the whole; `None` if it is not understood.
pub(super) fn of(arch: Arch, code: &[u8], vaddr: u64) -> Option<Exits> {
    let exits = match arch {
        Arch::X86_64 => x86(code, vaddr)?,
        Arch::Aarch64 => aarch64(code, vaddr)?,
    };
    (exits.ends.len() <= MAX_EXITS).then_some(exits)
}

/// Fixed width, and the kernel simulates `ret`.
fn aarch64(code: &[u8], vaddr: u64) -> Option<Exits> {
    let mut exits = Exits::default();
    for (n, word) in code.as_chunks::<4>().0.iter().enumerate() {
        let (offset, word) = (4 * n as u64, u32::from_le_bytes(*word));
        // The lowest bit of the target and how many there are.
        let field = match word {
            RET => {
                let instruction = "ret".to_owned();
                exits.ends.push(Exit { offset, condition: ALWAYS, frame: 0, emulated: true, instruction });
                continue;
            }
            // To an address in a register: only a call comes back.
            _ if word >> 25 == 0x6b && word >> 21 & 0x7 != 1 => return None,
            _ if word >> 26 == 0x05 => (0, 26),
            _ if word >> 24 == 0x54 || word >> 25 & 0x3f == 0x1a => (5, 19),
            _ if word >> 25 & 0x3f == 0x1b => (5, 14),
            _ => continue,
        };
        let (low, bits) = field;
        let distance = i64::from(((word >> low) << (32 - bits)).cast_signed() >> (32 - bits)) * 4;
        let to = vaddr.wrapping_add(offset).wrapping_add_signed(distance);
        if to.wrapping_sub(vaddr) >= code.len() as u64 {
            exits.jumps.push(to);
        }
    }
    Some(exits)
}

fn x86(code: &[u8], vaddr: u64) -> Option<Exits> {
    let mut line = Vec::new();
    for instruction in &mut Decoder::with_ip(64, code, vaddr, DecoderOptions::NONE) {
        // Neither has Go in its functions; after the last one the space up to the next function is filled with `int3`.
        if instruction.is_invalid() || instruction.flow_control() == FlowControl::IndirectBranch {
            return None;
        }
        line.push(instruction);
    }
    // Branches must lead to instructions, or something was taken for code that is none.
    let ends = vaddr.checked_add(code.len() as u64)?;
    let sound = line
        .iter()
        .filter_map(target)
        .all(|to| !(vaddr..ends).contains(&to) || line.binary_search_by_key(&to, Instruction::ip).is_ok());
    if !sound {
        return None;
    }
    let is_jump = |from: &&Instruction| {
        matches!(from.flow_control(), FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch)
    };
    let jumps = line.iter().filter(is_jump).filter_map(target).filter(|to| !(vaddr..ends).contains(to)).collect();
    let mut exits = Vec::new();
    for ret in (0..line.len()).filter(|&n| line[n].flow_control() == FlowControl::Return) {
        let early = before(&line, ret, code, vaddr);
        let late = || Exit {
            offset: line[ret].ip().wrapping_sub(vaddr),
            condition: ALWAYS,
            frame: 0,
            emulated: false,
            instruction: "ret".to_owned(),
        };
        exits.extend(early.unwrap_or_else(|| vec![late()]));
    }
    exits.sort_by_key(|exit| exit.offset);
    exits.dedup_by(|next, exit| {
        let same = next.offset == exit.offset;
        // Lines may meet, and both ways from a branch lead to the end.
        if same && next.condition != exit.condition {
            exit.condition = ALWAYS;
        }
        same
    });
    Some(Exits { ends: exits, jumps })
}

/// The emulated branches that lead to the instruction at `end` without another one in between, if these are all ways there.
fn before(line: &[Instruction], end: usize, code: &[u8], vaddr: u64) -> Option<Vec<Exit>> {
    let mut exits = Vec::new();
    let mut at = end;
    // What the stack pointer goes up from `at` to the end.
    let mut frame = 0;
    for _ in 0..MAX_BACK {
        for from in line.iter().filter(|from| target(from) == Some(line[at].ip())) {
            exits.push(branch(from, true, frame, code, vaddr)?);
        }
        let from = at.checked_sub(1)?;
        match line[from].flow_control() {
            FlowControl::Next => {
                at = from;
                frame += given_back(&line[from])?;
            }
            // Execution never comes from there.
            FlowControl::UnconditionalBranch
            | FlowControl::Return
            | FlowControl::Interrupt
            | FlowControl::Exception => return (!exits.is_empty()).then_some(exits),
            FlowControl::ConditionalBranch => {
                exits.push(branch(&line[from], false, frame, code, vaddr)?);
                return Some(exits);
            }
            FlowControl::Call if follows_system_call(line, from) => {
                exits.push(branch(&line[from], true, frame, code, vaddr)?);
                return Some(exits);
            }
            // A call: what comes before it is not the end yet.
            _ => return None,
        }
    }
    None
}

/// Whether a straight way to the instruction at `call` is from a system call just before it: then it comes after that on all ways.
fn follows_system_call(line: &[Instruction], call: usize) -> bool {
    for from in (call.saturating_sub(MAX_BACK)..call).rev() {
        match line[from].flow_control() {
            _ if line[from].mnemonic() == Mnemonic::Syscall => return true,
            FlowControl::Next | FlowControl::ConditionalBranch => {}
            _ => return false,
        }
    }
    false
}

/// By how many bytes an instruction that gives back stack moves the stack pointer; `None` if it does anything else to it.
fn given_back(instruction: &Instruction) -> Option<u64> {
    if instruction.is_stack_instruction() {
        let popped = instruction.mnemonic() == Mnemonic::Pop;
        return u64::try_from(instruction.stack_pointer_increment()).ok().filter(|_| popped);
    }
    let to_stack = instruction.op0_kind() == OpKind::Register && instruction.op0_register() == Register::RSP;
    if !to_stack || matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test) {
        return Some(0);
    }
    if instruction.mnemonic() != Mnemonic::Add || !is_number(instruction.op1_kind()) {
        return None;
    }
    Some(instruction.immediate(1)).filter(|&bytes| bytes < 1 << 20)
}

fn is_number(kind: OpKind) -> bool {
    matches!(kind, OpKind::Immediate8to64 | OpKind::Immediate32to64)
}

/// A branch that goes to the end if it is taken, or if it is not; or a call. `None` if the kernel does not emulate it.
fn branch(from: &Instruction, taken: bool, frame: u64, code: &[u8], vaddr: u64) -> Option<Exit> {
    let start = usize::try_from(from.ip().checked_sub(vaddr)?).ok()?;
    let bytes = code.get(start..start.checked_add(from.len())?)?;
    if !matches!(bytes, [0xeb | 0x70..=0x7f, _] | [0xe8 | 0xe9, _, _, _, _] | [0x0f, 0x80..=0x8f, _, _, _, _]) {
        return None;
    }
    let condition = match (from.condition_code(), bytes) {
        (ConditionCode::None, _) => ALWAYS,
        (_, [0x0f, opcode, ..] | [opcode, ..]) => lockbpf_common::gate::condition((opcode & 0xf) ^ u8::from(!taken)),
        _ => return None,
    };
    let name = format!("{:?}", from.mnemonic()).to_lowercase();
    let instruction = format!("{name} {:#x}", target(from)?);
    Some(Exit { offset: start as u64, condition, frame, emulated: true, instruction })
}

/// Where a branch or call leads, if it says so itself.
fn target(instruction: &Instruction) -> Option<u64> {
    let direct = matches!(instruction.op0_kind(), OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64);
    (direct && instruction.code() != Code::INVALID).then(|| instruction.near_branch_target())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn exits(code: &[u8]) -> Vec<(u64, u32, bool)> {
        let exits = of(Arch::X86_64, code, 0x46_1040).unwrap_or_default();
        exits.ends.iter().map(|e| (e.offset, e.condition, e.emulated)).collect()
    }

    #[test]
    fn a_return_is_seen_where_a_branch_leads_to_it() {
        let condition = lockbpf_common::gate::condition;
        // je 4; push; 3: nop; ret: the nop is reached by no branch alone.
        assert_eq!(exits(&[0x74, 0x02, 0xeb, 0x00, 0x90, 0xc3]), [(0, condition(4), true), (2, ALWAYS, true)]);
        // jne 3; jmp -3 (to 1, which is no instruction)
        assert_eq!(exits(&[0x75, 0x02, 0xeb, 0xfd, 0xc3]), []);
        // jne 0; ret: only if it is not taken.
        assert_eq!(exits(&[0x75, 0xfe, 0xc3]), [(0, condition(4), true)]);
        // je 3; nop; ret: both ways.
        assert_eq!(exits(&[0x74, 0x01, 0x90, 0xc3]), [(0, ALWAYS, true)]);
        // call; add $0x18,%rsp; pop %rbp; ret: what comes before the call is not the end.
        assert_eq!(exits(&[0xe8, 0, 0, 0, 0, 0x48, 0x83, 0xc4, 0x18, 0x5d, 0xc3]), [(10, ALWAYS, false)]);
        // Without branches, and without an end.
        assert_eq!(exits(&[0x5d, 0xc3]), [(1, ALWAYS, false)]);
        assert_eq!(exits(&[0x5d, 0xcc]), []);
        // An indirect jump may lead anywhere; some bytes are no code.
        assert_eq!(exits(&[0xff, 0xe0, 0xc3]), []);
        assert_eq!(exits(&[0x06, 0xc3]), []);
    }

    #[test]
    fn every_return_of_fixed_width_code() {
        let code: Vec<u8> = [0xd503_201f_u32, RET, 0x1400_0000, RET].iter().flat_map(|w| w.to_le_bytes()).collect();
        let exits = of(Arch::Aarch64, &code, 0).unwrap();
        let offsets: Vec<u64> = exits.ends.iter().map(|e| e.offset).collect();
        assert_eq!((offsets, exits.jumps), (vec![4, 12], vec![]));
        // b.eq -8; b +4; tbz +8; cbnz -4: the first and the last but one lead outside.
        let jumps = [0x54ff_ffc0_u32, 0x1400_0001, 0x3600_0040, 0xb5ff_ffe0];
        let code: Vec<u8> = jumps.iter().flat_map(|w| w.to_le_bytes()).collect();
        assert_eq!(of(Arch::Aarch64, &code, 0x1000).unwrap().jumps, [0xff8, 0x1010]);
        // br x16; retaa
        for word in [0xd61f_0200_u32, 0xd65f_0bff] {
            assert_eq!(of(Arch::Aarch64, &word.to_le_bytes(), 0), None, "{word:x}");
        }
    }

    #[test]
    fn what_is_still_on_the_stack_at_an_end() {
        let frames = |code: &[u8]| -> Vec<(u64, u64, bool)> {
            let exits = of(Arch::X86_64, code, 0x46_1040).unwrap();
            exits.ends.iter().map(|e| (e.offset, e.frame, e.emulated)).collect()
        };
        // jne 0; add $0x18,%rsp; mov %ebp,%eax; pop %rbx; pop %r12; ret
        let code = [0x75, 0xfe, 0x48, 0x83, 0xc4, 0x18, 0x89, 0xe8, 0x5b, 0x41, 0x5c, 0xc3];
        assert_eq!(frames(&code), [(0, 0x28, true)]);
        // jne 0; leave; ret: only the frame pointer tells.
        assert_eq!(frames(&[0x75, 0xfe, 0xc9, 0xc3]), [(3, 0, false)]);
        // syscall; mov %rax,8(%rsp); call; mov 8(%rsp),%rax; add $0x28,%rsp; ret: the call takes back the readiness.
        let code = [
            0x0f, 0x05, 0x48, 0x89, 0x44, 0x24, 0x08, 0xe8, 0, 0, 0, 0, 0x48, 0x8b, 0x44, 0x24, 0x08, 0x48, 0x83, 0xc4,
            0x28, 0xc3,
        ];
        assert_eq!(frames(&code), [(7, 0x28, true)]);
    }

    #[test]
    fn functions_that_go_on_elsewhere() {
        // je +0x10 (outside); jmp -0x10; call 0
        let code = [0x74, 0x10, 0xeb, 0xec, 0xe8, 0, 0, 0, 0];
        let exits = of(Arch::X86_64, &code, 0x46_1040).unwrap();
        assert_eq!((exits.ends, exits.jumps), (vec![], vec![0x46_1052, 0x46_1030]));
    }

    proptest! {
        #[test]
        fn noise_never_panics(code: Vec<u8>, vaddr: u64) {
            let _ = of(Arch::X86_64, &code, vaddr);
            let _ = of(Arch::Aarch64, &code, vaddr);
        }
    }
}
