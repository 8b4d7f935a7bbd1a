//! Instructions as an assembler gives them, with what they access.

mod operands;
mod walk;

use super::Memory;
use super::state::{Registers, Vectors, number};
use std::collections::BTreeMap;

/// Memory in which some bytes are known.
#[derive(Default)]
struct Bytes(BTreeMap<u64, u8>);

impl Bytes {
    fn with(address: u64, bytes: &[u8]) -> Self {
        let mut memory = Self::default();
        memory.put(address, bytes);
        memory
    }

    fn put(&mut self, address: u64, bytes: &[u8]) {
        self.0.extend((address..).zip(bytes.iter().copied()));
    }
}

impl Memory for Bytes {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        for (at, byte) in (address..).zip(bytes) {
            // Code is read in whole blocks.
            *byte = self.0.get(&at).copied().unwrap_or(0x90);
        }
        true
    }
}

const RAX: u64 = 0x1_0000;
const RBX: u64 = 0x2_0000;
const RSI: u64 = 0x3_0000;
const RDI: u64 = 0x4_0000;
const RSP: u64 = 0x7_0000;
const RBP: u64 = 0x7_0100;
const FS: u64 = 0x9_0000;
/// Where the code is.
const IP: u64 = 0x50_0000;

fn registers() -> Registers {
    let mut registers = Registers { ip: IP, flags: 0x202, fs_base: FS, ..Registers::default() };
    for (register, value) in [
        (number::RAX, RAX),
        (number::RCX, 3),
        (3, RBX),
        (number::RSP, RSP),
        (number::RBP, RBP),
        (number::RSI, RSI),
        (number::RDI, RDI),
    ] {
        registers.general[register] = value;
    }
    registers
}

/// Lanes of 4 bytes.
fn lanes(vectors: &mut Vectors, register: usize, values: &[u32]) {
    for (i, value) in values.iter().enumerate() {
        vectors.vector[register][4 * i..4 * i + 4].copy_from_slice(&value.to_le_bytes());
    }
}
