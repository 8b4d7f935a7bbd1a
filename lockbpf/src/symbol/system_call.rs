//! System calls in code without symbols: by the numbers that the code loads before them. x86-64 only.
//!
//! A program that is linked statically and stripped brings its C library's locks along, and nothing tells where these are; but only
//! they make the futex call. What makes it is part of locking, and so is what changes a word that all CPUs see and calls such a
//! function directly.

use super::tail_call::Code;
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};
use std::collections::{BTreeSet, HashSet};
use syscalls::x86_64::Sysno;

/// The instruction.
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// A function that calls more others is no lock's.
const MAX_CALLED: usize = 32;

/// The name of the system call that returns to an address, if it is certain.
pub(super) fn name(file: &impl Code, return_addr: u64) -> Option<&'static str> {
    let call = return_addr.checked_sub(SYSCALL.len() as u64)?;
    if file.code(call..return_addr)? != SYSCALL {
        return None;
    }
    let number = calls(&body(file, call)?).into_iter().find(|&(at, _)| at == return_addr)?.1?;
    Some(Sysno::new(usize::try_from(number).ok()?)?.name())
}

/// Whether the function around an address is part of locking.
pub(super) fn is_locking(file: &impl Code, address: u64) -> bool {
    let Some(body) = body(file, address) else { return false };
    if makes_futex_call(&body) {
        return true;
    }
    let direct = |i: &&Instruction| i.flow_control() == FlowControl::Call;
    let called: BTreeSet<u64> = body.iter().filter(direct).map(Instruction::near_branch_target).collect();
    body.iter().any(changes_shared_word)
        && called.len() <= MAX_CALLED
        && called.into_iter().any(|start| {
            file.function(start).is_some_and(|function| function.start == start)
                && self::body(file, start).is_some_and(|body| makes_futex_call(&body))
        })
}

fn makes_futex_call(body: &[Instruction]) -> bool {
    calls(body).iter().any(|&(_, number)| number == Some(Sysno::futex as u64))
}

/// Whether it changes a word that was handed to the function, for all CPUs at once.
fn changes_shared_word(i: &Instruction) -> bool {
    let atomic = i.has_lock_prefix() || i.mnemonic() == Mnemonic::Xchg;
    let base = i.memory_base();
    atomic && i.op0_kind() == OpKind::Memory && base.is_gpr64() && base != Register::RSP
}

/// The instructions of the function around an address.
fn body(file: &impl Code, address: u64) -> Option<Vec<Instruction>> {
    let function = file.function(address)?;
    let code = file.code(function.clone())?;
    Some(Decoder::with_ip(64, &code, function.start, DecoderOptions::NONE).into_iter().collect())
}

/// The system calls of a function: the address behind each, and its number where that is the same on every way to it.
fn calls(body: &[Instruction]) -> Vec<(u64, Option<u64>)> {
    // A table of addresses may lead anywhere in the function.
    if body.iter().any(|i| i.flow_control() == FlowControl::IndirectBranch && !i.is_ip_rel_memory_operand()) {
        return Vec::new();
    }
    let is_branch = |i: &&Instruction| {
        matches!(i.flow_control(), FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch)
    };
    let labels: HashSet<u64> = body.iter().filter(is_branch).map(Instruction::near_branch_target).collect();
    let mut factory = InstructionInfoFactory::new();
    let (mut calls, mut number) = (Vec::new(), None);
    for i in body.iter().take_while(|i| !i.is_invalid()) {
        if labels.contains(&i.ip()) {
            number = None;
        }
        if i.mnemonic() == Mnemonic::Syscall {
            calls.push((i.next_ip(), number));
            number = None;
        } else if let Some(loaded) = loaded(i) {
            number = Some(loaded);
        } else if !matches!(i.flow_control(), FlowControl::Next | FlowControl::ConditionalBranch)
            || changes_number(&mut factory, i)
        {
            number = None;
        }
    }
    calls
}

/// What an instruction puts into the register of the system call's number.
fn loaded(i: &Instruction) -> Option<u64> {
    let is_number = i.op0_kind() == OpKind::Register && matches!(i.op0_register(), Register::EAX | Register::RAX);
    match i.mnemonic() {
        Mnemonic::Mov if is_number => i.try_immediate(1).ok(),
        Mnemonic::Xor if is_number && i.op1_kind() == OpKind::Register && i.op1_register() == i.op0_register() => {
            Some(0)
        }
        _ => None,
    }
}

fn changes_number(factory: &mut InstructionInfoFactory, i: &Instruction) -> bool {
    factory.info(i).used_registers().iter().any(|used| {
        used.register().full_register() == Register::RAX
            && !matches!(used.access(), OpAccess::Read | OpAccess::CondRead)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;

    /// Functions one after the other, each from a multiple of 0x40 on.
    struct Functions(Vec<Vec<u8>>);

    impl Code for Functions {
        fn code(&self, range: Range<u64>) -> Option<Vec<u8>> {
            let function = self.0.get((range.start / 0x40) as usize)?;
            let start = (range.start % 0x40) as usize;
            function.get(start..start + (range.end - range.start) as usize).map(<[u8]>::to_vec)
        }

        fn function(&self, address: u64) -> Option<Range<u64>> {
            let start = address / 0x40 * 0x40;
            self.0.get((address / 0x40) as usize).map(|code| start..start + code.len() as u64)
        }
    }

    const NANOSLEEP: [u8; 5] = [0xb8, 0xe6, 0, 0, 0];
    const FUTEX: [u8; 5] = [0xb8, 0xca, 0, 0, 0];
    const RETURN: &[u8] = &[0xc3];

    #[track_caller]
    fn check(code: &[&[u8]], expected: Option<&str>) {
        let code = code.concat();
        let behind = code.windows(2).position(|bytes| bytes == SYSCALL).map_or(0, |at| at as u64 + 2);
        assert_eq!(name(&Functions(vec![code]), behind), expected);
    }

    #[test]
    fn a_system_call_is_known_by_its_number() {
        check(&[&NANOSLEEP, &SYSCALL, RETURN], Some("clock_nanosleep"));
        // xor %eax,%eax
        check(&[&[0x31, 0xc0], &SYSCALL, RETURN], Some("read"));
        // Other registers meanwhile: xor $0x80,%sil.
        check(&[&FUTEX, &[0x40, 0x80, 0xf6, 0x80], &SYSCALL, RETURN], Some("futex"));
        // A way around it: je to the return.
        check(&[&NANOSLEEP, &[0x74, 0x02], &SYSCALL, RETURN], Some("clock_nanosleep"));
    }

    #[test]
    fn what_is_not_certain_is_not_told() {
        // The number is an argument: mov %edi,%eax.
        check(&[&[0x89, 0xf8], &SYSCALL, RETURN], None);
        check(&[&NANOSLEEP, &[0x89, 0xf8], &SYSCALL, RETURN], None);
        // Another way leads to it: jmp to the instruction, from behind.
        check(&[&NANOSLEEP, &SYSCALL, &[0xeb, 0xfc]], None);
        // A call in between changes it, whatever it calls.
        check(&[&NANOSLEEP, &[0xe8, 0, 1, 0, 0], &SYSCALL, RETURN], None);
        // A table of addresses: jmp *%rax.
        check(&[&NANOSLEEP, &SYSCALL, &[0xff, 0xe0]], None);
        // No such number, no such instruction, no code.
        check(&[&[0xb8, 0xff, 0xff, 0, 0], &SYSCALL, RETURN], None);
        check(&[&NANOSLEEP, RETURN], None);
        assert_eq!(name(&Functions(Vec::new()), 7), None);
    }

    #[test]
    fn locking_functions_are_known_by_the_futex_call() {
        let call = |at: u64, to: u64| {
            let mut call = vec![0xe8];
            call.extend((to as i32 - at as i32 - 5).to_le_bytes());
            call
        };
        // xchg %eax,(%rdi)
        let exchange = [0x87, 0x07];
        let functions = Functions(vec![
            [&FUTEX[..], &SYSCALL, RETURN].concat(),
            [&exchange[..], &call(0x42, 0), RETURN].concat(),
            // The program: it changes a word of its own (lock incl 0(%rip)), and calls what locks.
            [&[0xf0, 0xff, 0x05, 0, 0, 0, 0][..], &call(0x87, 0x40), RETURN].concat(),
            [&exchange[..], &call(0xc2, 0x40), RETURN].concat(),
            // It wakes a word without changing it.
            [&call(0x100, 0)[..], RETURN].concat(),
        ]);
        let locking: Vec<bool> = (0..6).map(|n| is_locking(&functions, n * 0x40 + 1)).collect();
        assert_eq!(locking, [true, true, false, false, false, false]);
    }
}
