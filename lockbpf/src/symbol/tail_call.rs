//! Functions that are left by a jump to another one, as compilers make of a call that comes last: they are on no stack, but their
//! caller's code calls them. `flush() { lock(); …; unlock(); }` gives the lock back so. x86-64 only.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use std::collections::BTreeSet;
use std::ops::Range;

/// Bytes of a direct call.
const CALL: u64 = 5;

/// The code of one file.
pub(super) trait Code {
    /// The code from one address up to another.
    fn code(&self, range: Range<u64>) -> Option<Vec<u8>>;

    /// The function around an address.
    fn function(&self, address: u64) -> Option<Range<u64>>;
}

/// Behind the jump by which the function was left that was called before `return_addr`, whose frame is not on the stack. `None` if that
/// call leads elsewhere, or to one that calls nothing: that is the unlocking function itself, or only stands for it, and what a
/// reader knows is its caller.
pub(super) fn left_by_jump(file: &impl Code, return_addr: u64) -> Option<u64> {
    let (function, code) = called(file, return_addr)?;
    let instructions = || Decoder::with_ip(64, &code, function.start, DecoderOptions::NONE).into_iter();
    if !instructions().any(|i| is_call(&i)) {
        return None;
    }
    let leaves = |i: &Instruction| match i.flow_control() {
        FlowControl::UnconditionalBranch => !function.contains(&i.near_branch_target()),
        // Through a word of memory at a fixed place: another library's function. Else it is a table of a `switch`.
        FlowControl::IndirectBranch => i.is_ip_rel_memory_operand(),
        _ => false,
    };
    instructions().filter(leaves).last().map(|jump| jump.next_ip())
}

/// Whether the function that was called before `return_addr` only stands for one that it jumps to. An entry in a table of another library's
/// functions jumps through memory: it is that function to a reader.
pub(super) fn stands_in(file: &impl Code, return_addr: u64) -> bool {
    let Some((function, code)) = called(file, return_addr) else { return false };
    let instructions = || Decoder::with_ip(64, &code, function.start, DecoderOptions::NONE).into_iter();
    !instructions().any(|i| is_call(&i) || i.flow_control() == FlowControl::IndirectBranch)
        && !goes_on_in(file, &function).is_empty()
}

/// The function that a direct call before `return_addr` leads to, and its code.
fn called(file: &impl Code, return_addr: u64) -> Option<(Range<u64>, Vec<u8>)> {
    let call = file.code(return_addr.checked_sub(CALL)?..return_addr)?;
    let &[0xe8, a, b, c, d] = call.as_slice() else { return None };
    let start = return_addr.wrapping_add_signed(i32::from_le_bytes([a, b, c, d]).into());
    let function = file.function(start).filter(|function| function.start == start)?;
    let code = file.code(function.clone())?;
    Some((function, code))
}

fn is_call(instruction: &Instruction) -> bool {
    matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
}

/// Where a function may go on in another one that it jumps to, and is on no stack itself then.
pub(super) fn goes_on_in(file: &impl Code, function: &Range<u64>) -> BTreeSet<u64> {
    let code = file.code(function.clone()).unwrap_or_default();
    Decoder::with_ip(64, &code, function.start, DecoderOptions::NONE)
        .into_iter()
        .filter(|i| i.flow_control() == FlowControl::UnconditionalBranch)
        .map(|i| i.near_branch_target())
        .filter(|to| !function.contains(to))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Functions one after the other, each from a multiple of 0x40 on.
    struct Functions(Vec<Vec<u8>>);

    const SIZE: u64 = 0x40;

    impl Code for Functions {
        fn code(&self, range: Range<u64>) -> Option<Vec<u8>> {
            let function = self.0.get((range.start / SIZE) as usize)?;
            let at = |address: u64| (address % SIZE) as usize;
            let end = at(range.start) + usize::try_from(range.end.checked_sub(range.start)?).ok()?;
            function.get(at(range.start)..end).map(<[u8]>::to_vec)
        }

        fn function(&self, address: u64) -> Option<Range<u64>> {
            let start = address / SIZE * SIZE;
            self.0.get((address / SIZE) as usize).map(|code| start..start + code.len() as u64)
        }
    }

    /// A call or jump at an address to another.
    fn near(opcode: u8, at: u64, to: u64) -> Vec<u8> {
        let mut code = vec![opcode];
        code.extend(((to as i64 - at as i64 - 5) as i32).to_le_bytes());
        code
    }

    fn functions(flush: Vec<u8>) -> Functions {
        // The caller at 0 calls what is at 0x40.
        Functions(vec![[near(0xe8, 0, 0x40), vec![0xc3]].concat(), flush, vec![0xc3]])
    }

    #[test]
    fn a_function_that_ends_by_a_jump_is_found() {
        let flush = [near(0xe8, 0x40, 0x80), near(0xe9, 0x45, 0x80)].concat();
        assert_eq!(left_by_jump(&functions(flush), 5), Some(0x4a));
        // Through the table of another library's functions, after one path that returns.
        let flush = [near(0xe8, 0x40, 0x80), vec![0xc3], vec![0xff, 0x25, 0, 1, 0, 0]].concat();
        assert_eq!(left_by_jump(&functions(flush), 5), Some(0x4c));
    }

    #[test]
    fn others_are_not() {
        // It returns.
        assert_eq!(left_by_jump(&functions([near(0xe8, 0x40, 0x80), vec![0xc3]].concat()), 5), None);
        // It jumps within itself.
        assert_eq!(left_by_jump(&functions([near(0xe8, 0x40, 0x80), near(0xe9, 0x45, 0x40)].concat()), 5), None);
        // It only stands for the one it jumps to.
        assert_eq!(left_by_jump(&functions(near(0xe9, 0x40, 0x80)), 5), None);
        // No call, no function, no code.
        let flush = [near(0xe8, 0x40, 0x80), near(0xe9, 0x45, 0x80)].concat();
        assert_eq!(left_by_jump(&functions(flush), 6), None);
        assert_eq!(left_by_jump(&Functions(vec![near(0xe8, 0, 0x50), vec![0xc3]]), 5), None);
        assert_eq!(left_by_jump(&Functions(vec![]), 3), None);
    }

    #[test]
    fn a_function_that_only_stands_for_another_is_known() {
        assert!(stands_in(&functions([vec![0x90], near(0xe9, 0x41, 0x80)].concat()), 5));
        // It calls something, it returns, it is an entry in a table of another library's functions.
        assert!(!stands_in(&functions([near(0xe8, 0x40, 0x80), near(0xe9, 0x45, 0x80)].concat()), 5));
        assert!(!stands_in(&functions(vec![0x90, 0xc3]), 5));
        assert!(!stands_in(&functions(vec![0xff, 0x25, 0, 1, 0, 0]), 5));
        assert!(!stands_in(&Functions(vec![]), 5));
    }

    #[test]
    fn where_a_function_goes_on_is_told() {
        // je and jmp inside of it, a call, and two jumps to others.
        let parts =
            [vec![0x74, 0x00], vec![0xeb, 0x00], near(0xe8, 4, 0x40), near(0xe9, 9, 0x80), near(0xe9, 14, 0x40)];
        let file = functions(vec![0xc3]);
        let file = Functions([vec![parts.concat()], file.0].concat());
        assert_eq!(goes_on_in(&file, &(0..19)), BTreeSet::from([0x40, 0x80]));
        assert_eq!(goes_on_in(&file, &(0x400..0x410)), BTreeSet::new());
    }
}
