//! Registers while code is followed ahead: known until an instruction makes them what cannot be told without running it.

use super::Memory;
use super::flags::{Flags, is_down};
use super::stack::Stack;
use super::state::Registers;
use super::state::number::{RAX, RBP, RSP};
use iced_x86::{Instruction, InstructionInfo, Mnemonic, OpAccess, OpKind, Register, RflagsBits};

/// What is known of the registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Values {
    general: [Option<u64>; 16],
    fs_base: u64,
    gs_base: u64,
    flags: Option<Flags>,
    /// The carry flag, which may be known without the others.
    carry: Option<bool>,
    down: Option<bool>,
}

/// Whether an operand is written.
#[must_use]
pub fn writes(access: OpAccess) -> bool {
    matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

impl Values {
    /// All of a stopped thread's.
    #[must_use]
    pub fn of(registers: &Registers) -> Self {
        let flags = Flags::of(registers.flags);
        Self {
            general: registers.general.map(Some),
            fs_base: registers.fs_base,
            gs_base: registers.gs_base,
            flags: Some(flags),
            carry: Some(flags.carry()),
            down: Some(is_down(registers.flags)),
        }
    }

    /// A general register of any size, or the base of a segment.
    #[must_use]
    pub fn get(&self, register: Register) -> Option<u64> {
        match register {
            Register::FS => return Some(self.fs_base),
            Register::GS => return Some(self.gs_base),
            Register::ES | Register::CS | Register::SS | Register::DS => return Some(0),
            _ if !register.is_gpr() => return None,
            _ => {}
        }
        let whole = (*self.general.get(register.full_register().number())?)?;
        Some(match register {
            Register::AH | Register::BH | Register::CH | Register::DH => whole >> 8 & 0xff,
            _ => whole & mask(register.size()),
        })
    }

    /// Whether string instructions go downwards.
    #[must_use]
    pub fn down(&self) -> Option<bool> {
        self.down
    }

    /// Whether a conditional branch is taken.
    #[must_use]
    pub fn branches(&self, instruction: &Instruction) -> Option<bool> {
        let count = |register| self.get(register);
        match instruction.mnemonic() {
            Mnemonic::Jrcxz => count(Register::RCX).map(|count| count == 0),
            Mnemonic::Jecxz => count(Register::ECX).map(|count| count == 0),
            // Seldom used, and they count themselves.
            Mnemonic::Loop | Mnemonic::Loope | Mnemonic::Loopne => None,
            _ => self.flags?.holds(instruction.condition_code()),
        }
    }

    /// Registers that are known, but are not what they turned out to be.
    pub fn wrong<'a>(&'a self, actual: &'a Registers) -> impl Iterator<Item = usize> + 'a {
        (0..16).filter(|&n| self.general[n].is_some_and(|value| value != actual.general[n]))
    }

    /// Address of a memory operand; of `lea` without a segment.
    #[must_use]
    pub fn address(&self, instruction: &Instruction, operand: u32) -> Option<u64> {
        instruction.virtual_address(operand, 0, |register, _, _| self.get(register))
    }

    /// Value of an operand, zero-extended.
    fn operand(&self, instruction: &Instruction, operand: u32, stack: &Stack, memory: &mut dyn Memory) -> Option<u64> {
        match instruction.op_kind(operand) {
            OpKind::Register => self.get(instruction.op_register(operand)),
            OpKind::Memory => {
                stack.read(self.address(instruction, operand)?, instruction.memory_size().size() as u64, memory)
            }
            _ => instruction.try_immediate(operand).ok(),
        }
    }

    /// What an instruction writes to memory, if it is known and at most eight bytes. To be asked before [`Values::apply`].
    pub fn stored(&self, instruction: &Instruction, stack: &Stack, memory: &mut dyn Memory) -> Option<u64> {
        match instruction.mnemonic() {
            Mnemonic::Mov if instruction.op0_kind() == OpKind::Memory => {
                let size = instruction.memory_size().size();
                self.operand(instruction, 1, stack, memory).map(|value| value & mask(size))
            }
            Mnemonic::Push if instruction.stack_pointer_increment() == -8 => {
                self.operand(instruction, 0, stack, memory)
            }
            Mnemonic::Call => Some(instruction.next_ip()),
            _ => None,
        }
    }

    /// Takes note of what an instruction does to registers. Its writes to the stack must not have been noted yet.
    pub fn apply(&mut self, instruction: &Instruction, info: &InstructionInfo, stack: &Stack, memory: &mut dyn Memory) {
        let effect = self.effect(instruction, stack, memory);
        for used in info.used_registers().iter().filter(|used| writes(used.access())) {
            let full = used.register().full_register();
            if full.is_gpr()
                && let Some(slot) = self.general.get_mut(full.number())
            {
                *slot = None;
            }
        }
        for (number, value) in effect.registers.into_iter().flatten() {
            if let Some(slot) = self.general.get_mut(number) {
                *slot = value;
            }
        }
        let modified = instruction.rflags_modified();
        if modified & !(RflagsBits::DF | RflagsBits::IF | RflagsBits::AF) != RflagsBits::NONE {
            if modified & RflagsBits::CF != 0 {
                self.carry = effect.flags.map(Flags::carry);
            }
            self.flags = effect.flags;
        }
        if modified & RflagsBits::DF != 0 {
            self.down = match instruction.mnemonic() {
                Mnemonic::Cld => Some(false),
                Mnemonic::Std => Some(true),
                _ => None,
            };
        }
    }

    /// The instruction's results that are known. Two registers at most: a result, and the stack pointer.
    fn effect(&self, instruction: &Instruction, stack: &Stack, memory: &mut dyn Memory) -> Effect {
        let mut effect = Effect::default();
        let sp = self.general[RSP];
        let increment = i64::from(instruction.stack_pointer_increment());
        if increment != 0 {
            effect.registers[1] = Some((RSP, sp.map(|sp| sp.wrapping_add_signed(increment))));
        }
        match instruction.mnemonic() {
            Mnemonic::Mov | Mnemonic::Movzx => {
                let value = self.operand(instruction, 1, stack, memory);
                effect.set(instruction, value);
            }
            Mnemonic::Movsx | Mnemonic::Movsxd => {
                let size = match instruction.op1_kind() {
                    OpKind::Register => instruction.op1_register().size(),
                    _ => instruction.memory_size().size(),
                };
                let value = self.operand(instruction, 1, stack, memory);
                effect.set(instruction, value.map(|value| sign_extended(value, size)));
            }
            Mnemonic::Cdqe => {
                let value = self.get(Register::EAX).map(|value| sign_extended(value, 4));
                effect.registers[0] = Some((RAX, value));
            }
            Mnemonic::Lea => {
                let address = instruction.virtual_address(1, 0, |register, _, _| {
                    if register.is_segment_register() { Some(0) } else { self.get(register) }
                });
                effect.set(instruction, address);
            }
            Mnemonic::Inc | Mnemonic::Dec => self.compute(instruction, Some(1), &mut effect, stack, memory),
            Mnemonic::Xor | Mnemonic::Sub
                if instruction.op0_kind() == OpKind::Register
                    && instruction.op1_kind() == OpKind::Register
                    && instruction.op0_register() == instruction.op1_register() =>
            {
                effect.set(instruction, Some(0));
                effect.flags = Flags::after(Mnemonic::Xor, 0, 0, 8, None).and_then(|(_, flags)| flags);
            }
            Mnemonic::Add
            | Mnemonic::Sub
            | Mnemonic::And
            | Mnemonic::Or
            | Mnemonic::Xor
            | Mnemonic::Shl
            | Mnemonic::Shr
            | Mnemonic::Cmp
            | Mnemonic::Test => {
                let b = self.operand(instruction, 1, stack, memory);
                self.compute(instruction, b, &mut effect, stack, memory);
            }
            Mnemonic::Pop if increment == 8 && instruction.op0_kind() == OpKind::Register => {
                let value = sp.and_then(|sp| stack.read(sp, 8, memory));
                effect.set(instruction, value);
                if instruction.op0_register() == Register::RSP {
                    effect.registers[1] = None;
                }
            }
            Mnemonic::Leave => {
                let frame = self.general[RBP];
                effect.registers =
                    [Some((RBP, frame.and_then(|fp| stack.read(fp, 8, memory)))), Some((RSP, frame.map(|fp| fp + 8)))];
            }
            _ => {}
        }
        effect
    }

    /// An operation on its first operand and `b`.
    fn compute(
        &self,
        instruction: &Instruction,
        b: Option<u64>,
        effect: &mut Effect,
        stack: &Stack,
        memory: &mut dyn Memory,
    ) {
        let size = match instruction.op0_kind() {
            OpKind::Register => instruction.op0_register().size(),
            _ => instruction.memory_size().size(),
        };
        let a = self.operand(instruction, 0, stack, memory);
        let (Some(a), Some(b)) = (a, b) else { return };
        let Some((result, flags)) = Flags::after(instruction.mnemonic(), a, b, size, self.carry) else { return };
        effect.flags = flags;
        if !matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test) {
            effect.set(instruction, Some(result));
        }
    }
}

/// What an instruction does.
#[derive(Default)]
struct Effect {
    registers: [Option<(usize, Option<u64>)>; 2],
    flags: Option<Flags>,
}

impl Effect {
    /// The first operand, if it is a register of four or eight bytes, becomes this. Smaller ones keep a part of what was there.
    fn set(&mut self, instruction: &Instruction, value: Option<u64>) {
        if instruction.op0_kind() != OpKind::Register {
            return;
        }
        let register = instruction.op0_register();
        if register.is_gpr() && register.size() >= 4 {
            let value = value.map(|value| value & mask(register.size()));
            self.registers[0] = Some((register.full_register().number(), value));
        }
    }
}

fn mask(bytes: usize) -> u64 {
    if bytes >= 8 { u64::MAX } else { (1 << (8 * bytes)) - 1 }
}

fn sign_extended(value: u64, bytes: usize) -> u64 {
    let shift = 64 - 8 * bytes.clamp(1, 8) as u32;
    ((value << shift) as i64 >> shift) as u64
}
