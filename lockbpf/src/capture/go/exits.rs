//! Where a function's end is certain: its `ret` instructions, or branches from which a straight line leads to one.
//!
//! The kernel single-steps `ret` on x86_64, which takes up to twenty times as long as emulating a branch, while the lock is held
//! already. So the search goes back from each `ret`, along lines without branches, to the branches that lead there. A
//! conditional one counts in that state of the flags only in which it goes that way.

use crate::capture::prologue::Arch;
use iced_x86::{Code, ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction, OpKind};

/// The condition of an instruction that is on the way in any case.
pub(super) const ALWAYS: u16 = 0;
/// Ends of one function; more are of no use.
const MAX_EXITS: usize = 16;
/// Instructions gone back from a `ret`.
const MAX_BACK: usize = 8;
/// `ret` on aarch64.
const RET: u32 = 0xd65f_03c0;

/// An instruction by which a function's end is seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Exit {
    /// Bytes from the function's first instruction.
    pub(super) offset: u64,
    /// When it is on the way to the end ([`lockbpf_common::gate::condition`]).
    pub(super) condition: u16,
    /// Whether the kernel emulates it.
    pub(super) emulated: bool,
    /// As text.
    pub(super) instruction: String,
}

/// The ends of a function of which `code` is the whole; `None` if it is not understood.
pub(super) fn of(arch: Arch, code: &[u8], vaddr: u64) -> Option<Vec<Exit>> {
    let exits = match arch {
        Arch::X86_64 => x86(code, vaddr)?,
        Arch::Aarch64 => aarch64(code),
    };
    (1..=MAX_EXITS).contains(&exits.len()).then_some(exits)
}

/// Fixed width, and the kernel simulates `ret`.
fn aarch64(code: &[u8]) -> Vec<Exit> {
    let words = code.as_chunks::<4>().0.iter().enumerate();
    words
        .filter(|&(_, &word)| u32::from_le_bytes(word) == RET)
        .map(|(n, _)| Exit { offset: 4 * n as u64, condition: ALWAYS, emulated: true, instruction: "ret".to_owned() })
        .collect()
}

fn x86(code: &[u8], vaddr: u64) -> Option<Vec<Exit>> {
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
    let mut exits = Vec::new();
    for ret in (0..line.len()).filter(|&n| line[n].flow_control() == FlowControl::Return) {
        let early = before(&line, ret, code, vaddr);
        exits.extend(early.unwrap_or_else(|| vec![exit(&line[ret], ALWAYS, vaddr, "ret".to_owned(), false)]));
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
    Some(exits)
}

/// The emulated branches that lead to the instruction at `end` without another one in between, if these are all ways there.
fn before(line: &[Instruction], end: usize, code: &[u8], vaddr: u64) -> Option<Vec<Exit>> {
    let mut exits = Vec::new();
    let mut at = end;
    for _ in 0..MAX_BACK {
        for from in line.iter().filter(|from| target(from) == Some(line[at].ip())) {
            exits.push(branch(from, true, code, vaddr)?);
        }
        let from = at.checked_sub(1)?;
        match line[from].flow_control() {
            FlowControl::Next => at = from,
            // Execution never comes from there.
            FlowControl::UnconditionalBranch
            | FlowControl::Return
            | FlowControl::Interrupt
            | FlowControl::Exception => return (!exits.is_empty()).then_some(exits),
            FlowControl::ConditionalBranch => {
                exits.push(branch(&line[from], false, code, vaddr)?);
                return Some(exits);
            }
            // A call: what comes before it is not the end yet.
            _ => return None,
        }
    }
    None
}

/// A branch that goes to the end if it is taken, or if it is not; `None` if the kernel does not emulate it.
fn branch(from: &Instruction, taken: bool, code: &[u8], vaddr: u64) -> Option<Exit> {
    let start = usize::try_from(from.ip().checked_sub(vaddr)?).ok()?;
    let bytes = code.get(start..start.checked_add(from.len())?)?;
    if !matches!(bytes, [0xeb | 0x70..=0x7f, _] | [0xe9, _, _, _, _] | [0x0f, 0x80..=0x8f, _, _, _, _]) {
        return None;
    }
    let condition = match (from.condition_code(), bytes) {
        (ConditionCode::None, _) => ALWAYS,
        (_, [0x0f, opcode, ..] | [opcode, ..]) => lockbpf_common::gate::condition((opcode & 0xf) ^ u8::from(!taken)),
        _ => return None,
    };
    let name = format!("{:?}", from.mnemonic()).to_lowercase();
    Some(exit(from, condition, vaddr, format!("{name} {:#x}", target(from)?), true))
}

fn exit(at: &Instruction, condition: u16, vaddr: u64, instruction: String, emulated: bool) -> Exit {
    Exit { offset: at.ip().wrapping_sub(vaddr), condition, emulated, instruction }
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

    fn exits(code: &[u8]) -> Vec<(u64, u16, bool)> {
        let exits = of(Arch::X86_64, code, 0x46_1040).unwrap_or_default();
        exits.iter().map(|e| (e.offset, e.condition, e.emulated)).collect()
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
        let offsets: Vec<u64> = of(Arch::Aarch64, &code, 0).unwrap().iter().map(|e| e.offset).collect();
        assert_eq!(offsets, [4, 12]);
    }

    proptest! {
        #[test]
        fn noise_never_panics(code: Vec<u8>, vaddr: u64) {
            let _ = of(Arch::X86_64, &code, vaddr);
            let _ = of(Arch::Aarch64, &code, vaddr);
        }
    }
}
