//! The code that HotSpot generates: its code cache is walked block by block (`CodeHeap`, `codeBlob.hpp`), and each block told by its method,
//! or, if it belongs to the machine itself, by its name. What a compiler has inlined into a method counts as that method's.

use super::{Names, Table, part, text_until_end, word};
use crate::capture::owner::read;
use std::collections::HashMap;
use std::ops::Range;

/// Bytes read of each block at once: where all but the largest structures' fields are.
const HEAD: usize = 512;
/// Bytes of the longest name of a block that matters, with its end.
const BLOCK_NAME: usize = 64;
/// Heaps, and blocks of all heaps, that are looked at.
const MAX_HEAPS: u64 = 16;
const MAX_BLOCKS: usize = 1 << 17;
/// Methods whose names are kept.
const MAX_METHODS: usize = 1 << 17;

/// A piece of generated code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generated {
    /// Where it is.
    pub range: Range<u64>,
    /// `Class.method`, or what the machine calls it.
    pub name: String,
    /// Bytes of its frame, the return address included; `None` if it is not always the same.
    pub frame: Option<u64>,
}

impl Generated {
    /// Whether it interprets methods.
    #[must_use]
    pub fn is_interpreter(&self) -> bool {
        self.name == "Interpreter"
    }
}

/// Words below the frame pointer at which the interpreter has its method (`interpreter_frame_method_offset`; x86_64 and aarch64).
pub const METHOD_BELOW: u64 = 3;

/// Where what leads to the code cache's blocks and their names is.
#[derive(Clone, Debug)]
pub struct Code {
    /// The heaps: where the pointer to their array is, and in that their number and themselves.
    heaps: u64,
    array: [u64; 2],
    /// In a heap: the first and last address, and the binary logarithm of the bytes of a segment.
    bounds: [u64; 2],
    segment: u64,
    /// In a block: its length in segments, whether it is used, and its contents.
    length: u64,
    used: u64,
    contents: u64,
    /// In the contents: a name, the words of a frame, the method.
    name: u64,
    frame: u64,
    method: u64,
    /// From a method to its name and its class.
    const_method: u64,
    constants: u64,
    name_index: u64,
    pool: u64,
    holder: u64,
    names: Names,
    known: HashMap<u64, Option<String>>,
}

impl Code {
    /// By the table; `None` if it does not tell all.
    #[must_use]
    pub fn of(table: &Table) -> Option<Self> {
        let memory = table.offset(&[("CodeHeap", "_memory")])?;
        let bound = |field| Some(memory + table.offset(&[("VirtualSpace", field)])?);
        let header = table.offset(&[("HeapBlock", "_header")])?;
        let of_header = |field| Some(header + table.offset(&[("HeapBlock::Header", field)])?);
        Some(Self {
            heaps: table.address(&[("CodeCache", "_heaps")])?,
            array: [
                table.offset(&[("GrowableArrayBase", "_len"), ("GenericGrowableArray", "_len")])?,
                table.offset(&[("GrowableArray<int>", "_data")])?,
            ],
            bounds: [bound("_low")?, bound("_high")?],
            segment: table.offset(&[("CodeHeap", "_log2_segment_size")])?,
            length: of_header("_length")?,
            used: of_header("_used")?,
            contents: table.size("HeapBlock")?,
            name: table.offset(&[("CodeBlob", "_name")])?,
            frame: table.offset(&[("CodeBlob", "_frame_size")])?,
            method: table.offset(&[("nmethod", "_method"), ("CompiledMethod", "_method")])?,
            const_method: table.offset(&[("Method", "_constMethod")])?,
            constants: table.offset(&[("ConstMethod", "_constants")])?,
            name_index: table.offset(&[("ConstMethod", "_name_index")])?,
            pool: table.size("ConstantPool")?,
            holder: table.offset(&[("ConstantPool", "_pool_holder")])?,
            names: Names::of(table)?,
            known: HashMap::new(),
        })
    }

    /// What has been generated so far. Blocks that change meanwhile may be missing.
    pub fn look(&mut self, pid: u32) -> Vec<Generated> {
        let mut found = Vec::new();
        let mut blocks = MAX_BLOCKS;
        for heap in self.heaps_of(pid).unwrap_or_default() {
            let _ = self.walk(pid, heap, &mut blocks, &mut found);
        }
        found
    }

    fn heaps_of(&self, pid: u32) -> Option<Vec<u64>> {
        let array = word(pid, self.heaps)?;
        let [length, data] = self.array;
        let length = u64::from(u32::from_ne_bytes(read(pid, array.checked_add(length)?)?));
        let data = word(pid, array.checked_add(data)?)?;
        (0..length.min(MAX_HEAPS)).map(|n| word(pid, data.checked_add(8 * n)?)).collect()
    }

    fn walk(&mut self, pid: u32, heap: u64, blocks: &mut usize, found: &mut Vec<Generated>) -> Option<()> {
        let [low, high] = self.bounds.map(|bound| heap.checked_add(bound).and_then(|at| word(pid, at)));
        let (mut at, high) = (low?, high?);
        let shift = u32::from_ne_bytes(read(pid, heap.checked_add(self.segment)?)?);
        while at < high && *blocks > 0 {
            *blocks -= 1;
            let head: [u8; HEAD] = read(pid, at)?;
            let length = self.segments(&head).filter(|&length| length > 0)?.checked_shl(shift)?;
            let end = at.checked_add(length).filter(|&end| end > at && end <= high)?;
            if head.get(usize::try_from(self.used).ok()?) == Some(&1) {
                found.extend(self.block(pid, at, &head).map(|(name, frame)| Generated { range: at..end, name, frame }));
            }
            at = end;
        }
        Some(())
    }

    /// The length of a block, in segments. It ends where the flag begins that tells whether the block is used: it has 8 bytes, from JDK 23 on 4.
    fn segments(&self, head: &[u8]) -> Option<u64> {
        let bits = 8 * self.used.checked_sub(self.length)?;
        let length = part(head, self.length)?;
        Some(if bits < u64::BITS.into() { length & ((1 << bits) - 1) } else { length })
    }

    /// Name and frame of a block.
    fn block(&mut self, pid: u32, at: u64, head: &[u8]) -> Option<(String, Option<u64>)> {
        let field = |offset: u64| {
            let offset = self.contents + offset;
            part(head, offset).or_else(|| word(pid, at.checked_add(offset)?))
        };
        let name = text_until_end::<BLOCK_NAME>(pid, field(self.name)?)?;
        // The machine's own: stubs that are called keep a frame of a fixed size, the interpreter does not.
        let words = field(self.frame)? as u32;
        let frame = (1..1 << 16).contains(&words).then_some(8 * u64::from(words));
        if !name.ends_with("nmethod") {
            return Some((name, frame));
        }
        Some((self.method_name(pid, field(self.method)?)?, frame))
    }

    /// `Class.method` of a method, by its address; read once.
    pub fn method_name(&mut self, pid: u32, method: u64) -> Option<String> {
        if let Some(known) = self.known.get(&method) {
            return known.clone();
        }
        if self.known.len() >= MAX_METHODS {
            self.known.clear();
        }
        let name = self.read_name(pid, method);
        self.known.insert(method, name.clone());
        name
    }

    fn read_name(&self, pid: u32, method: u64) -> Option<String> {
        let at = word(pid, method.checked_add(self.const_method)?)?;
        let pool = word(pid, at.checked_add(self.constants)?)?;
        let index = u64::from(u16::from_ne_bytes(read(pid, at.checked_add(self.name_index)?)?));
        let name = self.names.symbol(pid, word(pid, pool.checked_add(self.pool)?.checked_add(8 * index)?)?)?;
        let class = self.names.class(pid, word(pid, pool.checked_add(self.holder)?)?)?;
        Some(format!("{class}.{name}"))
    }
}
