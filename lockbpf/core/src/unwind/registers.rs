//! The registers that a stack is unwound with, by their DWARF numbers.

/// Registers with DWARF numbers up to this are kept: on x86-64 the general ones, on aarch64 also the stack pointer.
const KEPT: usize = 32;

/// What differs between machines.
#[derive(Debug)]
pub struct Machine {
    /// DWARF numbers of the words of the saved registers.
    saved: &'static [Option<u16>],
    /// Word of the instruction pointer in them.
    ip: usize,
    /// DWARF number of the stack pointer.
    pub stack_pointer: u16,
    /// DWARF number of the frame pointer.
    pub frame_pointer: u16,
    /// DWARF numbers of the registers that a called function gives back as they were.
    preserved: &'static [u16],
    /// What in a return address is address.
    pub address_bits: u64,
}

// r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi, orig_rax, rip, cs, eflags, rsp, ss.
/// This machine.
#[cfg(target_arch = "x86_64")]
pub const MACHINE: Machine = Machine {
    saved: &[
        Some(15),
        Some(14),
        Some(13),
        Some(12),
        Some(6),
        Some(3),
        Some(11),
        Some(10),
        Some(9),
        Some(8),
        Some(0),
        Some(2),
        Some(1),
        Some(4),
        Some(5),
        None,
        None,
        None,
        None,
        Some(7),
    ],
    ip: 16,
    stack_pointer: 7,
    frame_pointer: 6,
    preserved: &[3, 6, 12, 13, 14, 15],
    address_bits: u64::MAX,
};

// x0 to x30, sp, pc.
/// This machine.
#[cfg(target_arch = "aarch64")]
pub const MACHINE: Machine = Machine {
    saved: &{
        let mut saved = [None; 32];
        let mut n = 0;
        while n < saved.len() {
            saved[n] = Some(n as u16);
            n += 1;
        }
        saved
    },
    ip: 32,
    stack_pointer: 31,
    frame_pointer: 29,
    preserved: &[19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29],
    // The upper bits may carry a signature.
    address_bits: lockbpf_common::record::LOW48,
};

/// Values of registers, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// The instruction pointer.
    pub ip: u64,
    kept: [Option<u64>; KEPT],
}

impl Registers {
    /// From the words that the kernel saves; what is missing of them is not known.
    #[must_use]
    pub fn saved(words: &[u64]) -> Self {
        let mut registers = Self { ip: words.get(MACHINE.ip).copied().unwrap_or(0), ..Self::default() };
        for (&word, &number) in words.iter().zip(MACHINE.saved) {
            if let Some(number) = number {
                registers.set(number, Some(word));
            }
        }
        registers
    }

    /// Of these only.
    #[must_use]
    pub fn of(ip: u64, stack_pointer: u64, frame_pointer: u64) -> Self {
        let mut registers = Self { ip, ..Self::default() };
        registers.set(MACHINE.stack_pointer, Some(stack_pointer));
        registers.set(MACHINE.frame_pointer, Some(frame_pointer));
        registers
    }

    /// A register's value, by its DWARF number.
    #[must_use]
    pub fn get(&self, number: u16) -> Option<u64> {
        self.kept.get(usize::from(number)).copied().flatten()
    }

    /// The stack pointer.
    #[must_use]
    pub fn stack_pointer(&self) -> Option<u64> {
        self.get(MACHINE.stack_pointer)
    }

    /// Changes a value; of a register that is not kept there is none.
    pub fn set(&mut self, number: u16, value: Option<u64>) {
        if let Some(slot) = self.kept.get_mut(usize::from(number)) {
            *slot = value;
        }
    }

    /// Those that a caller finds as they are here.
    #[must_use]
    pub fn preserved(&self) -> Self {
        let mut kept = Self::default();
        for &number in MACHINE.preserved {
            kept.set(number, self.get(number));
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_words_become_registers() {
        let mut words = [0; lockbpf_common::stack_copy::REGISTERS];
        words[MACHINE.ip] = 1;
        for (value, register) in [(2, MACHINE.stack_pointer), (3, MACHINE.frame_pointer)] {
            words[MACHINE.saved.iter().position(|&n| n == Some(register)).unwrap()] = value;
        }
        let registers = Registers::saved(&words);
        assert_eq!((registers.ip, registers.stack_pointer()), (1, Some(2)));
        assert_eq!(registers.preserved().get(MACHINE.frame_pointer), Some(3));
        assert_eq!(registers.preserved().stack_pointer(), None);
        assert_eq!(registers.get(u16::MAX), None);
        assert_eq!(Registers::saved(&[]), Registers::default());
        assert_eq!(Registers::of(1, 2, 3).get(MACHINE.frame_pointer), Some(3));
    }
}
