//! String instructions: how many elements they go over.

use super::Memory;
use super::operands::Unknown;
use super::values::Values;
use iced_x86::{CodeSize, Instruction, InstructionInfo, Mnemonic, Register};

/// Elements that a repeated comparison is followed over.
const MAX_COMPARED: u64 = 1 << 20;

/// How many elements a string instruction accesses, and whether downwards. A repeated comparison stops where memory tells, so
/// that is known only of one that is about to be executed (`now`).
///
/// # Errors
/// When a register that decides it is not known.
pub fn extent(
    instruction: &Instruction,
    info: &InstructionInfo,
    values: &Values,
    now: bool,
    memory: &mut dyn Memory,
) -> Result<(u64, bool), Unknown> {
    let down = values.down().ok_or(Unknown::Register)?;
    if !instruction.has_rep_prefix() && !instruction.has_repne_prefix() {
        return Ok((1, down));
    }
    let narrow = info.used_memory().iter().any(|used| used.address_size() == CodeSize::Code32);
    let counter = if narrow { Register::ECX } else { Register::RCX };
    let count = values.get(counter).ok_or(Unknown::Register)?;
    if !compares(instruction) {
        return Ok((count, down));
    }
    if !now {
        return Err(Unknown::Register);
    }
    Ok((compared(instruction, info, values, count, down, memory)?, down))
}

fn compares(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Cmpsb
            | Mnemonic::Cmpsw
            | Mnemonic::Cmpsd
            | Mnemonic::Cmpsq
            | Mnemonic::Scasb
            | Mnemonic::Scasw
            | Mnemonic::Scasd
            | Mnemonic::Scasq
    )
}

/// Goes over the memory as the instruction will.
fn compared(
    instruction: &Instruction,
    info: &InstructionInfo,
    values: &Values,
    count: u64,
    down: bool,
    memory: &mut dyn Memory,
) -> Result<u64, Unknown> {
    let mut starts = Vec::new();
    let size = instruction.memory_size().size() as u64;
    for used in info.used_memory() {
        starts.push(used.virtual_address(0, |r, _, _| values.get(r)).ok_or(Unknown::Register)?);
    }
    if size == 0 || size > 8 {
        return Err(Unknown::Unsupported);
    }
    let accumulator = match size {
        1 => Register::AL,
        2 => Register::AX,
        4 => Register::EAX,
        _ => Register::RAX,
    };
    let other = values.get(accumulator).ok_or(Unknown::Register)?;
    let mut element = |start: u64, i: u64| {
        let offset = i.wrapping_mul(size);
        let address = if down { start.wrapping_sub(offset) } else { start.wrapping_add(offset) };
        let mut bytes = [0; 8];
        memory.read(address, &mut bytes[..size as usize]).then(|| u64::from_le_bytes(bytes)).ok_or(Unknown::Unsupported)
    };
    for i in 0..count {
        if i == MAX_COMPARED {
            return Err(Unknown::Unsupported);
        }
        let equal = match *starts.as_slice() {
            [one] => element(one, i)? == other,
            [one, two] => element(one, i)? == element(two, i)?,
            _ => return Err(Unknown::Unsupported),
        };
        // `repe` goes on while they are equal, `repne` while they are not.
        if equal == instruction.has_repne_prefix() {
            return Ok(i + 1);
        }
    }
    Ok(count)
}
