//! What critical sections read and write: from instructions and registers to accesses, from accesses to locations, records and a
//! table. Nothing here touches a process: whoever profiles one hands in registers and memory, and does what is asked.
//!
//! A thread in a section is not stopped at every instruction. [`walk`] follows its code ahead for as long as the registers that
//! make addresses and decide branches are known, and tells where it must be stopped next.
#![forbid(unsafe_code)]

pub mod classify;
pub mod flags;
pub mod locations;
pub mod operands;
pub mod record;
pub mod section;
pub mod stack;
pub mod state;
pub mod strings;
pub mod summary;
pub mod syscalls;
pub mod table;
pub mod values;
pub mod vector;
pub mod walk;

#[cfg(test)]
mod tests;

/// The memory of a thread that is stopped.
pub trait Memory {
    /// Fills `bytes` from an address on; false if not all of it can be read.
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool;

    /// A word.
    fn word(&mut self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
    }
}

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Reads, then writes.
    Update,
}

impl Kind {
    /// Whether it writes.
    #[must_use]
    pub fn writes(self) -> bool {
        self != Self::Read
    }

    /// Whether it reads.
    #[must_use]
    pub fn reads(self) -> bool {
        self != Self::Write
    }
}

/// Bytes that an instruction accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Touch {
    /// The first byte.
    pub address: u64,
    /// How many; at least one.
    pub size: u64,
    /// How.
    pub kind: Kind,
    /// By which way, where that tells what the memory is.
    pub way: Way,
}

/// Ways to memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Way {
    /// No certain one.
    #[default]
    Plain,
    /// Through the segment register of thread-local storage.
    ThreadLocal,
    /// For the target of a jump or call, from beside the code: where the dynamic linker puts addresses of functions.
    Linkage,
}

/// An access, and the instruction that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Address of the instruction.
    pub at: u64,
    /// What it touched.
    pub touch: Touch,
}
