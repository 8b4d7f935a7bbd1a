//! Where a function takes the first argument of a call from: the code before the call, followed instruction by
//! instruction. x86-64 only.
//!
//! What comes out is everything that held the argument, but for a constant, where the call cannot be missed any more: one of
//! these a variable's place may match.
//!
//! Nothing is assumed about which way the function took. Where ways meet, only registers that are written once in the
//! whole function keep what is known of them.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};
use std::collections::{HashSet, VecDeque};

/// Bytes of a function that are looked at.
const MAX_CODE: usize = 256 << 10;
/// Instructions before the call that are looked at for what they know.
const MAX_TRAIL: usize = 256;
/// General registers.
const REGISTERS: usize = 16;
/// Those that a called function may change, in the order of the machine's encoding: all but rbx, rsp, rbp, r12 to r15.
const CLOBBERED: u32 = 0b0000_1111_1100_0111;
const RBP: usize = 5;
const RDI: usize = 7;
/// The numbers that DWARF has for the registers.
const DWARF: [u16; REGISTERS] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];

/// What a value was computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// What was in a register (DWARF's number).
    Register(u16),
    /// What was in memory so far from where the frame pointer points.
    Frame(i64),
}

/// A value: something, and a constant added to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value {
    /// What it was computed from.
    pub(super) base: Base,
    /// The address of the instruction before which `base` held it.
    pub(super) at: u64,
    /// What was added.
    pub(super) offset: i64,
}

impl Value {
    fn register(register: usize, at: u64) -> Self {
        Self { base: Base::Register(DWARF.get(register).copied().unwrap_or_default()), at, offset: 0 }
    }

    fn plus(self, offset: i64) -> Self {
        Self { offset: self.offset.wrapping_add(offset), ..self }
    }
}

/// What the first argument of the call that returns to `return_addr` was computed from, in a function whose `code` begins at
/// `start`: the furthest first.
pub(super) fn first_argument(code: &[u8], start: u64, return_addr: u64) -> Option<Vec<Value>> {
    let code = code.get(..code.len().min(MAX_CODE))?;
    let instructions: Vec<Instruction> = Decoder::with_ip(64, code, start, DecoderOptions::NONE).into_iter().collect();
    let mut factory = InstructionInfoFactory::new();
    let mut labels = HashSet::new();
    let mut writes = [0_u32; REGISTERS];
    for i in &instructions {
        match i.flow_control() {
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                labels.insert(i.near_branch_target());
            }
            // A table of addresses may lead anywhere in the function.
            FlowControl::IndirectBranch => return None,
            _ => {}
        }
        if i.flow_control() != FlowControl::Next && i.flow_control() != FlowControl::ConditionalBranch && !is_call(i) {
            labels.insert(i.next_ip());
        }
        // What is restored at the end was written by the caller.
        let written = if i.mnemonic() == Mnemonic::Pop { 0 } else { written(&mut factory, i) };
        for (register, count) in writes.iter_mut().enumerate() {
            *count += written >> register & 1;
        }
    }
    let mut values: [Value; REGISTERS] = std::array::from_fn(|register| Value::register(register, start));
    let mut done = 0_u32;
    // Since ways met last, each instruction and what is known before it.
    let mut trail = VecDeque::new();
    for i in &instructions {
        if labels.contains(&i.ip()) {
            trail.clear();
            for (register, value) in values.iter_mut().enumerate() {
                let count = writes.get(register).copied().unwrap_or(2);
                if count > 1 || (count == 1 && done >> register & 1 == 0) {
                    *value = Value::register(register, i.ip());
                }
            }
        }
        if trail.len() == MAX_TRAIL {
            trail.pop_front();
        }
        trail.push_back((i.ip(), values));
        if i.next_ip() == return_addr {
            return if is_call(i) { Some(ways(values.get(RDI).copied()?, &trail)) } else { None };
        }
        let computed = computed(i, &values);
        let written = written(&mut factory, i);
        done |= written;
        for (register, value) in values.iter_mut().enumerate().filter(|(register, _)| written >> register & 1 != 0) {
            *value = match computed {
                Some((to, computed)) if to == register => computed,
                _ => Value::register(register, i.next_ip()),
            };
        }
    }
    None
}

/// All that held a value, but for a constant.
fn ways(value: Value, trail: &VecDeque<(u64, [Value; REGISTERS])>) -> Vec<Value> {
    let mut ways = vec![value];
    for &(at, values) in trail {
        let same = values.iter().zip(DWARF).filter(|(v, _)| (v.base, v.at) == (value.base, value.at));
        ways.extend(same.map(|(v, register)| Value {
            base: Base::Register(register),
            at,
            offset: value.offset.wrapping_sub(v.offset),
        }));
    }
    ways
}

fn is_call(i: &Instruction) -> bool {
    matches!(i.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
}

fn number(register: Register) -> Option<usize> {
    register.is_gpr().then(|| register.full_register().number())
}

/// The registers that an instruction changes, a bit for each.
fn written(factory: &mut InstructionInfoFactory, i: &Instruction) -> u32 {
    let access = |access| {
        matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
    };
    let used = factory.info(i).used_registers().iter().filter(|used| access(used.access()));
    let own = used.filter_map(|used| number(used.register())).fold(0, |all, register| all | 1 << register);
    if is_call(i) { own | CLOBBERED } else { own }
}

/// The register that an instruction writes, and the value, if that is known from others.
fn computed(i: &Instruction, values: &[Value; REGISTERS]) -> Option<(usize, Value)> {
    if i.op_count() != 2 || i.op0_kind() != OpKind::Register || !i.op0_register().is_gpr64() {
        return None;
    }
    let to = number(i.op0_register())?;
    let of = |register| number(register).and_then(|register| values.get(register)).copied();
    let plain = i.memory_index() == Register::None && i.segment_prefix() == Register::None;
    let displacement = i.memory_displacement64() as i64;
    let value = match i.code() {
        Code::Mov_r64_rm64 | Code::Mov_rm64_r64 if i.op1_kind() == OpKind::Register => of(i.op1_register())?,
        Code::Lea_r64_m if plain && i.memory_base().is_gpr64() => of(i.memory_base())?.plus(displacement),
        Code::Mov_r64_rm64 if plain && number(i.memory_base()) == Some(RBP) => {
            Value { base: Base::Frame(displacement), at: i.ip(), offset: 0 }
        }
        Code::Add_rm64_imm8 | Code::Add_rm64_imm32 | Code::Add_RAX_imm32 => {
            of(i.op0_register())?.plus(i.immediate(1) as i64)
        }
        Code::Sub_rm64_imm8 | Code::Sub_rm64_imm32 | Code::Sub_RAX_imm32 => {
            of(i.op0_register())?.plus((i.immediate(1) as i64).wrapping_neg())
        }
        _ => return None,
    };
    Some((to, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const START: u64 = 0x1000;

    #[track_caller]
    fn check(code: &[u8], expected: Option<(Base, u64, i64)>) {
        // call +0 follows, and then what the tests do not reach
        let call = [0xe8, 0, 0, 0, 0];
        let whole = [code, &call].concat();
        let found = first_argument(&whole, START, START + whole.len() as u64);
        let call = START + code.len() as u64;
        let at_call = |ways: &Vec<Value>| ways.contains(&Value { base: Base::Register(5), at: call, offset: 0 });
        assert!(found.as_ref().is_none_or(at_call), "{found:?}");
        assert_eq!(found.and_then(|ways| ways.first().copied()).map(|v| (v.base, v.at - START, v.offset)), expected);
    }

    #[test]
    fn from_the_call_to_where_the_value_was_had() {
        // add rdi, 0x10
        check(&[0x48, 0x83, 0xc7, 0x10], Some((Base::Register(5), 0, 0x10)));
        // push rbx; lea rbx, [rdi+0x28]; mov rdi, rbx
        check(&[0x53, 0x48, 0x8d, 0x5f, 0x28, 0x48, 0x89, 0xdf], Some((Base::Register(5), 0, 0x28)));
        // mov rax, [rbp-8]; add rax, 0x28; mov rdi, rax
        let slot = [0x48, 0x8b, 0x45, 0xf8, 0x48, 0x83, 0xc0, 0x28, 0x48, 0x89, 0xc7];
        check(&slot, Some((Base::Frame(-8), 0, 0x28)));
        // call; mov rbx, rax; lea rdi, [rbx+8]
        let called = [0xe8, 0, 0, 0, 0, 0x48, 0x89, 0xc3, 0x48, 0x8d, 0x7b, 0x08];
        check(&called, Some((Base::Register(0), 5, 8)));
        // mov rdi, [rax]
        check(&[0x48, 0x8b, 0x38], Some((Base::Register(5), 3, 0)));
    }

    #[test]
    fn where_ways_meet_only_what_is_written_once_is_known() {
        // lea rbx, [rdi+0x28]; jne over the next; lea rdi, [rsi+8]; mov rdi, rbx
        let once = [0x48, 0x8d, 0x5f, 0x28, 0x75, 4, 0x48, 0x8d, 0x7e, 8, 0x48, 0x89, 0xdf];
        check(&once, Some((Base::Register(5), 0, 0x28)));
        // test: add rdi, 8; jne over the next; lea rdi, [rsi+8]
        let twice = [0x48, 0x83, 0xc7, 8, 0x75, 4, 0x48, 0x8d, 0x7e, 8];
        check(&twice, Some((Base::Register(5), 10, 0)));
        // jmp rax somewhere
        check(&[0xff, 0xe0, 0x48, 0x83, 0xc7, 0x10], None);
    }

    proptest! {
        #[test]
        fn no_code_is_a_panic(code in prop::collection::vec(any::<u8>(), 0..80), back in 0u64..90) {
            first_argument(&code, START, START + back);
        }
    }
}
