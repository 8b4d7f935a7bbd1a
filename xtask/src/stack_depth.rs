//! How deep the stack of compiled eBPF programs gets. The verifiers of some supported kernels allow less than this machine's:
//! what they would refuse is refused here.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use object::{File, Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget, SymbolKind};

/// Most that the frames of functions that call one another may take together, bytes (`MAX_BPF_STACK`).
const LIMIT: u32 = 512;
/// What kernels before 6.8 round each frame up to, bytes.
const ROUNDING: u32 = 32;
/// Most frames at a time, the program's own among them (`MAX_CALL_FRAMES`).
const MAX_FRAMES: usize = 8;
/// Bytes of an instruction.
const INSTRUCTION: u64 = 8;
/// The register that points to the frame's end.
const FRAME: u8 = 10;

/// Where a function begins: its section, and the offset there.
type Place = (usize, u64);

struct Function {
    name: String,
    /// Bytes of its frame.
    frame: u32,
    calls: Vec<Place>,
}

/// Checks every program of an object.
///
/// # Errors
/// It is no eBPF object, or a chain of calls needs too much stack; the error names it.
pub(crate) fn check(elf: &[u8]) -> Result<()> {
    let file = File::parse(elf).context("failed to read the linked object")?;
    let functions = functions(&file)?;
    let mut deep = Vec::new();
    for (place, function) in &functions {
        let chain = deepest(&functions, *place, 0).with_context(|| format!("failed to follow {}", function.name))?;
        let depth: u32 = chain.iter().map(|&(_, frame)| frame).sum();
        if depth > LIMIT {
            let chain: Vec<_> = chain.iter().map(|(name, frame)| format!("{name} {frame}")).collect();
            deep.push(format!("{depth} bytes: {}", chain.join(" + ")));
        }
    }
    ensure!(
        deep.is_empty(),
        "kernels before 6.8 would refuse more than {LIMIT} bytes of stack:\n  {}",
        deep.join("\n  ")
    );
    Ok(())
}

fn functions(file: &File<'_>) -> Result<BTreeMap<Place, Function>> {
    let mut functions = BTreeMap::new();
    for symbol in file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0) {
        let Some(index) = symbol.section_index() else { continue };
        let section = file.section_by_index(index)?;
        let relocations: BTreeMap<u64, RelocationTarget> =
            section.relocations().map(|(offset, relocation)| (offset, relocation.target())).collect();
        let name = symbol.name()?.to_owned();
        let code =
            section.data_range(symbol.address(), symbol.size())?.with_context(|| format!("{name} has no code"))?;
        let (mut frame, mut calls) = (Frame::default(), Vec::new());
        let (instructions, _) = code.as_chunks::<{ INSTRUCTION as usize }>();
        for (i, &instruction) in instructions.iter().enumerate() {
            let at = symbol.address() + i as u64 * INSTRUCTION;
            frame.follow(instruction);
            let [opcode, registers, _, _, immediate @ ..] = instruction;
            // A call of a function, not of a helper.
            if opcode == 0x85 && registers >> 4 == 1 {
                let relative = (i64::from(i32::from_le_bytes(immediate)) + 1) * INSTRUCTION as i64;
                let (section, base) = match relocations.get(&at) {
                    Some(&RelocationTarget::Symbol(target)) => {
                        let target = file.symbol_by_index(target)?;
                        (target.section_index().context("a call leads out of the object")?.0, target.address())
                    }
                    _ => (index.0, at),
                };
                calls.push((section, base.wrapping_add_signed(relative)));
            }
        }
        functions.insert((index.0, symbol.address()), Function { name, frame: frame.bytes, calls });
    }
    Ok(functions)
}

/// How far below its frame's end a function reaches, bytes.
#[derive(Default)]
struct Frame {
    bytes: u32,
    /// Registers that hold a copy of the frame pointer, a bit each. An address below it is made of one at once.
    copies: u16,
}

impl Frame {
    fn follow(&mut self, instruction: [u8; 8]) {
        let [opcode, registers, low, high, immediate @ ..] = instruction;
        let (destination, source) = (registers & 0xf, registers >> 4);
        let offset = i32::from(i16::from_le_bytes([low, high]));
        let copied = self.copies & 1 << destination != 0;
        let below = match opcode & 0x07 {
            // Loads and stores.
            0x01 if source == FRAME => offset,
            0x02 | 0x03 if destination == FRAME => offset,
            // An addition of a constant.
            0x07 if opcode == 0x07 && copied => i32::from_le_bytes(immediate),
            _ => 0,
        };
        self.bytes = self.bytes.max(below.min(0).unsigned_abs());
        if opcode & 0x07 == 0x07 {
            let copy = u16::from(opcode == 0xbf && source == FRAME);
            self.copies = self.copies & !(1 << destination) | copy << destination;
        }
    }
}

/// The chain of calls with the largest frames, each with its rounded size.
fn deepest(functions: &BTreeMap<Place, Function>, place: Place, depth: usize) -> Result<Vec<(&str, u32)>> {
    if depth == MAX_FRAMES {
        bail!("it needs more than {MAX_FRAMES} frames: the last call is one too many");
    }
    let function = functions.get(&place).context("a call leads to no function")?;
    let mut worst = Vec::new();
    let sum = |chain: &[(&str, u32)]| chain.iter().map(|&(_, frame)| frame).sum::<u32>();
    for &call in &function.calls {
        let chain = deepest(functions, call, depth + 1)?;
        if sum(&chain) > sum(&worst) {
            worst = chain;
        }
    }
    worst.insert(0, (&function.name, function.frame.max(1).next_multiple_of(ROUNDING)));
    Ok(worst)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_what_lies_below_the_frame_pointer() {
        let mut frame = Frame::default();
        for instruction in [
            // *(u64 *)(r10 - 16) = r1
            [0x7b, 0x1a, 0xf0, 0xff, 0, 0, 0, 0],
            // r2 += -449, which is no address
            [0x07, 0x02, 0, 0, 0x3f, 0xfe, 0xff, 0xff],
            // r3 = r10; r3 += -40
            [0xbf, 0xa3, 0, 0, 0, 0, 0, 0],
            [0x07, 0x03, 0, 0, 0xd8, 0xff, 0xff, 0xff],
            // r3 += -100, once more
            [0x07, 0x03, 0, 0, 0x9c, 0xff, 0xff, 0xff],
        ] {
            frame.follow(instruction);
        }
        assert_eq!(frame.bytes, 40);
    }

    fn function(name: &str, frame: u32, calls: &[u64]) -> Function {
        Function { name: name.to_owned(), frame, calls: calls.iter().map(|&at| (0, at)).collect() }
    }

    #[test]
    fn the_deepest_chain_is_the_one_with_the_largest_frames() {
        let functions = BTreeMap::from([
            ((0, 0), function("program", 100, &[1, 2])),
            ((0, 1), function("small", 1, &[3])),
            ((0, 2), function("large", 200, &[])),
            ((0, 3), function("tiny", 0, &[])),
        ]);
        assert_eq!(deepest(&functions, (0, 0), 0).unwrap(), [("program", 128), ("large", 224)]);
        let chain = |frames: u64| {
            (0..frames).map(move |at| {
                let next = at + 1;
                ((0, at), function("link", 8, if next < frames { std::slice::from_ref(&next) } else { &[] }))
            })
        };
        assert_eq!(deepest(&chain(8).collect(), (0, 0), 0).unwrap().len(), 8);
        assert!(deepest(&chain(9).collect(), (0, 0), 0).is_err());
        let endless = BTreeMap::from([((0, 0), function("program", 8, &[0]))]);
        assert!(deepest(&endless, (0, 0), 0).is_err());
    }
}
