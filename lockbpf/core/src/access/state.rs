//! The registers of a stopped thread, as the kernel tells them.

use crate::unwind;

/// General registers in the order of their encoding: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// By number.
    pub general: [u64; 16],
    /// The next instruction.
    pub ip: u64,
    /// Flags.
    pub flags: u64,
    /// Base of the segment of thread-local storage.
    pub fs_base: u64,
    /// Base of the other one.
    pub gs_base: u64,
}

/// Numbers of registers that have a part in calls.
pub mod number {
    /// Result.
    pub const RAX: usize = 0;
    /// Count of string instructions.
    pub const RCX: usize = 1;
    /// Third argument.
    pub const RDX: usize = 2;
    /// Stack pointer.
    pub const RSP: usize = 4;
    /// Frame pointer.
    pub const RBP: usize = 5;
    /// Second argument.
    pub const RSI: usize = 6;
    /// First argument.
    pub const RDI: usize = 7;
}

impl Registers {
    /// Stack pointer.
    #[must_use]
    pub fn sp(&self) -> u64 {
        self.general[number::RSP]
    }

    /// An argument of a call, at the function's entry; 0 beyond the third.
    #[must_use]
    pub fn argument(&self, index: usize) -> u64 {
        [number::RDI, number::RSI, number::RDX].get(index).map_or(0, |&number| self.general[number])
    }

    /// For unwinding.
    #[must_use]
    pub fn unwindable(&self) -> unwind::Registers {
        /// By number of the encoding: that of DWARF.
        const DWARF: [u16; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];
        let mut registers = unwind::Registers::of(self.ip, self.sp(), self.general[number::RBP]);
        DWARF.into_iter().zip(self.general).for_each(|(number, value)| registers.set(number, Some(value)));
        registers
    }

    /// What a function returned.
    #[must_use]
    pub fn result(&self) -> u64 {
        self.general[number::RAX]
    }
}

/// The vector and mask registers of a stopped thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vectors {
    /// zmm0 to zmm31; the lower halves are ymm, the lower quarters xmm.
    pub vector: [[u8; 64]; 32],
    /// k0 to k7.
    pub mask: [u64; 8],
    /// mm0 to mm7.
    pub mmx: [u64; 8],
}

impl Default for Vectors {
    fn default() -> Self {
        Self { vector: [[0; 64]; 32], mask: [0; 8], mmx: [0; 8] }
    }
}

/// Sizes of the areas of the extended state, which differ between processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Bytes that `xsave` and its like write.
    pub xsave_bytes: u64,
}
