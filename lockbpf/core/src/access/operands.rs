//! From an instruction and the registers before it to the bytes that it accesses.

use super::state::{Machine, Vectors};
use super::values::Values;
use super::vector::{element, mask_bits, sign_bits, stretches};
use super::{Kind, Memory, Touch, Way, strings};
use iced_x86::{
    EncodingKind, FlowControl, Instruction, InstructionInfo, MemorySize, Mnemonic, OpAccess, OpKind, Register,
    UsedMemory,
};

/// Why the accesses of an instruction are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// A general register is not known: the thread must be stopped before it.
    Register,
    /// A vector or mask register decides, and those were not given.
    Vectors,
    /// It cannot be told.
    Unsupported,
}

/// What the accesses of an instruction depend on beside general registers.
pub struct Surroundings<'a> {
    /// Vector registers, where they were read. They are known only of the instruction that is executed next.
    pub vectors: Option<&'a Vectors>,
    /// Whether the instruction is executed next, so that memory is as it will find it.
    pub now: bool,
    /// Sizes.
    pub machine: Machine,
    /// The thread's memory.
    pub memory: &'a mut dyn Memory,
}

/// The bytes that an instruction accesses, in the order of the operands.
///
/// # Errors
/// When something that decides it is not known.
pub fn touches(
    instruction: &Instruction,
    info: &InstructionInfo,
    values: &Values,
    around: &mut Surroundings<'_>,
) -> Result<Vec<Touch>, Unknown> {
    let mut found = Vec::new();
    if info.used_memory().iter().all(|used| kind(used.access()).is_none()) {
        return Ok(found);
    }
    let string = instruction.is_string_instruction();
    let (count, down) =
        if string { strings::extent(instruction, info, values, around.now, around.memory)? } else { (1, false) };
    for used in info.used_memory() {
        let Some(kind) = kind(used.access()) else { continue };
        let way = way(instruction, used);
        let mut push = |address, size| {
            if size > 0 {
                found.push(Touch { address, size, kind, way });
            }
        };
        if used.vsib_size() != 0 {
            for (address, size) in scattered(instruction, used, values, around.vectors)? {
                push(address, size);
            }
            continue;
        }
        let address = used.virtual_address(0, |register, _, _| values.get(register)).ok_or(Unknown::Register)?;
        // A repeated instruction does not tell the operand's own size.
        let size = size(if string { instruction.memory_size() } else { used.memory_size() }, around.machine)?;
        let address = address.wrapping_add(bit_offset(instruction, size, values)?);
        if string {
            let all = size.checked_mul(count).ok_or(Unknown::Unsupported)?;
            let first = if down && count > 0 { address.wrapping_sub(all - size) } else { address };
            push(first, all);
        } else {
            match masked(instruction, used, around.vectors)? {
                Some(parts) => parts.into_iter().for_each(|(offset, size)| push(address.wrapping_add(offset), size)),
                None => push(address, size),
            }
        }
    }
    Ok(found)
}

/// Bit instructions with a bit number in a register reach memory beyond their operand.
fn bit_offset(instruction: &Instruction, size: u64, values: &Values) -> Result<u64, Unknown> {
    let bits = matches!(instruction.mnemonic(), Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc);
    if !bits || instruction.op1_kind() != OpKind::Register {
        return Ok(0);
    }
    let register = instruction.op1_register();
    let number = values.get(register).ok_or(Unknown::Register)?;
    let unused = 64 - 8 * register.size().clamp(1, 8) as u32;
    let number = (number << unused) as i64 >> unused;
    Ok((number.div_euclid(8 * size as i64) * size as i64) as u64)
}

fn way(instruction: &Instruction, used: &UsedMemory) -> Way {
    let target = matches!(instruction.flow_control(), FlowControl::IndirectBranch | FlowControl::IndirectCall);
    if matches!(used.segment(), Register::FS | Register::GS) {
        Way::ThreadLocal
    } else if target && instruction.is_ip_rel_memory_operand() && used.base() == Register::None {
        Way::Linkage
    } else {
        Way::Plain
    }
}

fn kind(access: OpAccess) -> Option<Kind> {
    match access {
        OpAccess::None | OpAccess::NoMemAccess => None,
        OpAccess::Read | OpAccess::CondRead => Some(Kind::Read),
        OpAccess::Write | OpAccess::CondWrite => Some(Kind::Write),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => Some(Kind::Update),
    }
}

fn size(size: MemorySize, machine: Machine) -> Result<u64, Unknown> {
    match size {
        MemorySize::Xsave | MemorySize::Xsave64 => Ok(machine.xsave_bytes),
        size if size.size() > 0 => Ok(size.size() as u64),
        _ => Err(Unknown::Unsupported),
    }
}

/// Elements of a gather or scatter.
fn scattered(
    instruction: &Instruction,
    used: &UsedMemory,
    values: &Values,
    vectors: Option<&Vectors>,
) -> Result<Vec<(u64, u64)>, Unknown> {
    let vectors = vectors.ok_or(Unknown::Vectors)?;
    let size = used.memory_size().element_size();
    let registers = (0..instruction.op_count()).filter(|&i| instruction.op_kind(i) == OpKind::Register);
    let data = registers.map(|i| instruction.op_register(i)).find(|r| r.is_vector_register());
    let data = data.ok_or(Unknown::Unsupported)?;
    if size == 0 {
        return Err(Unknown::Unsupported);
    }
    let count = (data.size() / size).min(used.index().size() / used.vsib_size() as usize);
    let mask = if instruction.encoding() == EncodingKind::EVEX {
        mask_bits(vectors, instruction.op_mask())
    } else {
        // AVX2: the third operand masks by its elements' highest bits.
        sign_bits(vectors, instruction.op_register(2), count, size)
    };
    let mask = mask.ok_or(Unknown::Unsupported)?;
    let chosen = (0..count).filter(|i| mask >> i & 1 == 1);
    let address = |i| {
        used.virtual_address(i, |register, index, width| {
            if register.is_vector_register() { element(vectors, register, index, width) } else { values.get(register) }
        })
    };
    chosen.map(|i| Ok((address(i).ok_or(Unknown::Register)?, size as u64))).collect()
}

/// The parts of a memory operand that a masked instruction accesses; `None` if it is not masked.
fn masked(
    instruction: &Instruction,
    used: &UsedMemory,
    vectors: Option<&Vectors>,
) -> Result<Option<Vec<(u64, u64)>>, Unknown> {
    let (whole, size) = (used.memory_size().size(), used.memory_size().element_size().max(1));
    let count = whole / size;
    let by_signs = match instruction.mnemonic() {
        Mnemonic::Vmaskmovps | Mnemonic::Vmaskmovpd | Mnemonic::Vpmaskmovd | Mnemonic::Vpmaskmovq => Some((1, size)),
        Mnemonic::Maskmovq | Mnemonic::Maskmovdqu | Mnemonic::Vmaskmovdqu => Some((2, 1)),
        _ => None,
    };
    if let Some((operand, size)) = by_signs {
        let vectors = vectors.ok_or(Unknown::Vectors)?;
        let mask = sign_bits(vectors, instruction.op_register(operand), whole / size, size);
        return Ok(Some(stretches(mask.ok_or(Unknown::Unsupported)?, whole / size, size)));
    }
    if instruction.op_mask() == Register::None {
        return Ok(None);
    }
    let mask = mask_bits(vectors.ok_or(Unknown::Vectors)?, instruction.op_mask()).ok_or(Unknown::Unsupported)?;
    Ok(Some(if packs(instruction.mnemonic()) {
        // The chosen elements, one after another.
        let chosen = (mask & low_bits(count)).count_ones() as usize;
        stretches(low_bits(chosen), chosen, size)
    } else if used.memory_size().is_broadcast() {
        if mask == 0 { Vec::new() } else { vec![(0, size as u64)] }
    } else {
        stretches(mask, count, size)
    }))
}

fn packs(mnemonic: Mnemonic) -> bool {
    matches!(
        mnemonic,
        Mnemonic::Vpcompressb
            | Mnemonic::Vpcompressw
            | Mnemonic::Vpcompressd
            | Mnemonic::Vpcompressq
            | Mnemonic::Vcompressps
            | Mnemonic::Vcompresspd
            | Mnemonic::Vpexpandb
            | Mnemonic::Vpexpandw
            | Mnemonic::Vpexpandd
            | Mnemonic::Vpexpandq
            | Mnemonic::Vexpandps
            | Mnemonic::Vexpandpd
    )
}

fn low_bits(count: usize) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}
