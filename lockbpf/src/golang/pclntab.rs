//! Go's table of functions: names, extents, source lines, and what was inlined where. The running program needs it for its own
//! stack traces, so it is there in stripped programs, too. Layouts of Go 1.18 and later (`runtime/symtab.go`).

use super::{Program, u32_at, u64_at};
use object::ReadRef;

/// First word of the table from Go 1.18 on.
const MAGIC_1_18: u32 = 0xffff_fff0;
/// From Go 1.20 on: functions know their first line.
const MAGIC_1_20: u32 = 0xffff_fff1;
/// Bytes of the header.
const HEADER: usize = 72;
/// Alignment of the table, by which it is looked for where sections have no names.
const ALIGN: usize = 8;
/// Bytes of an entry in the list of functions.
const ENTRY: usize = 8;
/// Bytes of what is told of a function before its variable part: Go 1.18, and 1.20.
const FUNCTION: [usize; 2] = [40, 44];
/// Which table of a function says which inlined call an instruction belongs to.
const INLINED_INDEX: usize = 2;
/// Which data of a function lists its inlined calls.
const INLINED_TREE: usize = 3;
/// Words of the module's description (`runtime.moduledata`) before the address of the code.
const MODULE_TEXT: usize = 22;
/// Words of it before the address of the functions' data, by release: 1.18, 1.20, 1.27.
const MODULE_GOFUNC: [usize; 3] = [38, 40, 43];
/// Inlined calls one inside the other that are followed.
const MAX_INLINED: usize = 64;
/// Bytes of a name or path.
const MAX_NAME: usize = 4096;
/// Functions of a program; the largest have some hundred thousand.
const MAX_FUNCTIONS: usize = 1 << 21;
/// Steps of one of a function's tables that are followed.
const MAX_STEPS: usize = 1 << 20;
/// Steps that are followed to find out where the functions' data is.
const MAX_TRIED: usize = 1 << 24;
/// Bytes of a segment that are looked through.
const MAX_SEARCHED: u64 = 256 << 20;

/// A function of a Go program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function<'t> {
    /// Its name, `main.(*Server).handle`.
    pub name: &'t str,
    /// Address of its first instruction, as the file numbers it.
    pub entry: u64,
    /// Bytes up to the next function.
    pub size: u64,
}

/// A function, or an inlined one, at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Name of the function.
    pub function: String,
    /// Source file and line.
    pub location: Option<(String, u32)>,
    /// Whether it was inlined into the next one.
    pub inlined: bool,
}

/// The table.
#[derive(Debug)]
pub struct Pclntab {
    table: Vec<u8>,
    /// The functions' data, from where their offsets count.
    gofunc: Vec<u8>,
    text: u64,
    count: usize,
    quantum: u64,
    modern: bool,
    /// Offsets in the table: names, compilation units, files, lines, functions.
    parts: [usize; 5],
}

/// A function's description in the table.
#[derive(Clone, Copy)]
struct Described {
    at: usize,
    entry: u64,
    size: u64,
}

impl Pclntab {
    /// Finds and reads the table of a program; `None` if it has none of a known layout.
    #[must_use]
    pub fn read<'data, R: ReadRef<'data>>(program: &Program<R>) -> Option<Self> {
        let named = [".gopclntab", ".data.rel.ro.gopclntab"].iter().find_map(|name| program.section(name));
        let (vaddr, bytes) = named.filter(|(_, bytes)| header(bytes).is_some()).or_else(|| search(program))?;
        let mut table = header(bytes)?;
        let module = module(program, vaddr, &table);
        let in_header = u64_at(bytes, 24).filter(|&text| text != 0);
        let text_section = || program.section(".text").map(|(vaddr, _)| vaddr);
        table.text = module.map(|(text, _)| text).or(in_header).or_else(text_section)?;
        table.table = bytes.to_vec();
        if let Some((_, candidates)) = module {
            let gofunc = candidates.iter().find_map(|&base| {
                table.gofunc = data_at(program, base, vaddr, bytes)?;
                table.tells_inlined().then(|| std::mem::take(&mut table.gofunc))
            });
            table.gofunc = gofunc.unwrap_or_default();
        }
        Some(table)
    }

    /// Every function, by address.
    pub fn functions(&self) -> impl Iterator<Item = Function<'_>> {
        (0..self.count).filter_map(|n| self.function(self.described(n)?))
    }

    /// The function at an address.
    #[must_use]
    pub fn find(&self, addr: u64) -> Option<Function<'_>> {
        self.function(self.covering(addr)?)
    }

    /// The functions at an address, most deeply inlined first; empty if no Go function is there.
    #[must_use]
    pub fn places(&self, addr: u64) -> Vec<Place> {
        let Some(at) = self.covering(addr) else { return Vec::new() };
        let Some(function) = self.function(at) else { return Vec::new() };
        let mut places = Vec::new();
        let mut pc = addr;
        while places.len() < MAX_INLINED
            && let Some((name, parent)) = self.inlined(at, pc)
        {
            places.push(Place { function: name.to_owned(), location: self.location(at, pc), inlined: true });
            pc = parent;
        }
        places.push(Place { function: function.name.to_owned(), location: self.location(at, pc), inlined: false });
        places
    }

    fn described(&self, n: usize) -> Option<Described> {
        let list = self.parts[4];
        let at = list.checked_add(n.checked_mul(ENTRY)?)?;
        let (entry, offset) = (u32_at(&self.table, at)?, u32_at(&self.table, at + 4)?);
        let next = u32_at(&self.table, at + ENTRY)?;
        let size = u64::from(next.checked_sub(entry)?);
        Some(Described {
            at: list.checked_add(offset as usize)?,
            entry: self.text.checked_add(u64::from(entry))?,
            size,
        })
    }

    fn covering(&self, addr: u64) -> Option<Described> {
        let wanted = u32::try_from(addr.checked_sub(self.text)?).ok()?;
        let entry = |n: usize| u32_at(&self.table, self.parts[4] + n * ENTRY);
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if entry(middle)? <= wanted { low = middle + 1 } else { high = middle }
        }
        let found = self.described(low.checked_sub(1)?)?;
        (addr - found.entry < found.size).then_some(found)
    }

    fn function(&self, at: Described) -> Option<Function<'_>> {
        let name = self.name(u32_at(&self.table, at.at + 4)?)?;
        Some(Function { name, entry: at.entry, size: at.size })
    }

    fn name(&self, offset: u32) -> Option<&str> {
        text(&self.table, self.parts[0].checked_add(offset as usize)?)
    }

    fn location(&self, at: Described, pc: u64) -> Option<(String, u32)> {
        let word = |n: usize| u32_at(&self.table, at.at + 4 * n);
        let file = u32::try_from(self.value(word(5)?, at.entry, pc)?).ok()?;
        let line = u32::try_from(self.value(word(6)?, at.entry, pc)?).ok().filter(|&line| line > 0)?;
        let unit = (word(8)? as usize).checked_add(file as usize)?;
        let path = u32_at(&self.table, self.parts[1].checked_add(unit.checked_mul(4)?)?)?;
        Some((text(&self.table, self.parts[2].checked_add(path as usize)?)?.to_owned(), line))
    }

    /// The inlined call at an address: its function, and an address that stands for the call itself.
    fn inlined(&self, at: Described, pc: u64) -> Option<(&str, u64)> {
        let fixed = FUNCTION[usize::from(self.modern)];
        let tables = u32_at(&self.table, at.at + 28)? as usize;
        let count = *self.table.get(at.at + fixed - 1)? as usize;
        if tables <= INLINED_INDEX || count <= INLINED_TREE {
            return None;
        }
        let index = u32_at(&self.table, at.at + fixed + 4 * INLINED_INDEX).filter(|&offset| offset != 0)?;
        let data = at.at.checked_add(fixed)?.checked_add(tables.checked_mul(4)?)?;
        let tree = u32_at(&self.table, data + 4 * INLINED_TREE).filter(|&offset| offset != u32::MAX)?;
        let node = usize::try_from(self.value(index, at.entry, pc)?).ok()?;
        let (size, name, parent) = if self.modern { (16, 4, 8) } else { (20, 12, 16) };
        let node = (tree as usize).checked_add(node.checked_mul(size)?)?;
        let parent = u64::from(u32_at(&self.gofunc, node.checked_add(parent)?)?);
        let name = self.name(u32_at(&self.gofunc, node.checked_add(name)?)?)?;
        (parent < at.size && !name.is_empty()).then(|| (name, at.entry.wrapping_add(parent)))
    }

    /// Whether the first functions with inlined calls have sensible ones: the functions' data is where it was taken from.
    fn tells_inlined(&self) -> bool {
        let mut left = MAX_TRIED;
        let tried = (0..self.count).filter_map(|n| {
            let at = self.described(n).filter(|_| left > 0)?;
            let index = u32_at(&self.table, at.at + FUNCTION[usize::from(self.modern)] + 4 * INLINED_INDEX)?;
            if u32_at(&self.table, at.at + 28)? as usize <= INLINED_INDEX || index == 0 {
                return None;
            }
            let end = at.entry.checked_add(at.size)?;
            let inside = self.steps(index, at.entry).take(left).take_while(|&(start, ..)| start < end);
            let inlined = inside.inspect(|_| left -= 1).find(|&(_, _, node)| node >= 0);
            let (pc, ..) = inlined?;
            Some(self.inlined(at, pc).is_some_and(|(name, _)| name.contains('.')))
        });
        let tried: Vec<bool> = tried.take(8).collect();
        !tried.is_empty() && tried.iter().all(|&sensible| sensible)
    }

    /// What one of a function's tables says of an address: a list of steps, each a change of the value and of the address.
    fn value(&self, offset: u32, entry: u64, target: u64) -> Option<i64> {
        self.steps(offset, entry).take(MAX_STEPS).find(|&(_, end, _)| target < end).map(|(.., value)| value)
    }

    /// The steps: from which address up to which one the table has which value.
    fn steps(&self, offset: u32, entry: u64) -> impl Iterator<Item = (u64, u64, i64)> {
        let start = self.parts[3].checked_add(offset as usize);
        let mut rest = start.and_then(|start| self.table.get(start..)).unwrap_or_default();
        let (mut value, mut pc) = (-1i64, entry);
        std::iter::from_fn(move || {
            let (change, used) = varint(rest)?;
            if change == 0 && pc != entry {
                return None;
            }
            let (step, more) = varint(rest.get(used..)?)?;
            rest = rest.get(used + more..)?;
            let change = if change & 1 == 0 { (change >> 1).cast_signed() } else { !(change >> 1).cast_signed() };
            value = value.checked_add(change)?;
            let before = pc;
            pc = pc.checked_add(step.checked_mul(self.quantum)?)?;
            Some((before, pc, value))
        })
    }
}

/// The table's header, if it is one; what is outside of the table is left empty.
fn header(bytes: &[u8]) -> Option<Pclntab> {
    let magic = u32_at(bytes, 0)?;
    let [_, _, quantum, pointer] = u32_at(bytes, 4)?.to_le_bytes();
    let sensible = matches!(magic, MAGIC_1_18 | MAGIC_1_20) && matches!(quantum, 1 | 4) && pointer == 8;
    if !sensible || bytes.get(4..6)? != [0, 0] {
        return None;
    }
    let mut parts = [0; 5];
    for (n, part) in parts.iter_mut().enumerate() {
        *part =
            usize::try_from(u64_at(bytes, 32 + 8 * n)?).ok().filter(|&part| (HEADER..bytes.len()).contains(&part))?;
    }
    let count = usize::try_from(u64_at(bytes, 8)?).ok().filter(|&count| count <= MAX_FUNCTIONS)?;
    let list = count.checked_add(1)?.checked_mul(ENTRY)?;
    bytes.get(parts[4]..parts[4].checked_add(list)?)?;
    let (quantum, modern) = (u64::from(quantum), magic == MAGIC_1_20);
    Some(Pclntab { table: Vec::new(), gofunc: Vec::new(), text: 0, count, quantum, modern, parts })
}

/// The table in a program whose sections have no names.
fn search<'data, R: ReadRef<'data>>(program: &Program<R>) -> Option<(u64, &'data [u8])> {
    program.segments().iter().filter(|segment| !segment.executable).find_map(|segment| {
        let bytes = program.segment(segment, MAX_SEARCHED)?;
        let is_table = |&at: &usize| bytes.get(at..).is_some_and(|rest| header(rest).is_some());
        // Where the address is aligned, not the place in the file.
        let first = (ALIGN - segment.vaddr as usize % ALIGN) % ALIGN;
        let at = (first..bytes.len()).step_by(ALIGN).find(is_table)?;
        Some((segment.vaddr.checked_add(at as u64)?, bytes.get(at..)?))
    })
}

/// What the module's description says: the address of the code, and where the functions' data may be, by release.
fn module<'data, R: ReadRef<'data>>(
    program: &Program<R>,
    vaddr: u64,
    table: &Pclntab,
) -> Option<(u64, [u64; MODULE_GOFUNC.len()])> {
    let names = vaddr.checked_add(table.parts[0] as u64)?;
    let head = [vaddr.to_le_bytes(), names.to_le_bytes()].concat();
    let (data, at) = program.segments().iter().filter(|segment| segment.writable).find_map(|segment| {
        let bytes = program.segment(segment, MAX_SEARCHED)?;
        Some((bytes, memchr::memmem::find(bytes, &head)?))
    })?;
    let word = |n: usize| u64_at(data, at + 8 * n);
    Some((word(MODULE_TEXT)?, MODULE_GOFUNC.map(|n| word(n).unwrap_or(0))))
}

/// The program's data from an address up to the table, or what is left of the table.
fn data_at<'data, R: ReadRef<'data>>(program: &Program<R>, base: u64, vaddr: u64, table: &[u8]) -> Option<Vec<u8>> {
    if let Some(inside) = base.checked_sub(vaddr)
        && let Some(rest) = table.get(usize::try_from(inside).ok()?..)
    {
        return Some(rest.to_vec());
    }
    let inside = |s: &&super::Segment| base.checked_sub(s.vaddr).is_some_and(|inside| inside < s.size);
    let segment = program.segments().iter().find(inside)?;
    let end = segment.vaddr.checked_add(segment.size)?;
    let end = if (base..end).contains(&vaddr) { vaddr } else { end };
    Some(program.at(base, end - base)?.to_vec())
}

/// A NUL-terminated string.
fn text(bytes: &[u8], at: usize) -> Option<&str> {
    let rest = bytes.get(at..)?;
    let rest = &rest[..rest.len().min(MAX_NAME)];
    std::str::from_utf8(&rest[..memchr::memchr(0, rest)?]).ok()
}

/// A number of 7 bits a byte, and how many bytes it took.
pub(super) fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0u64;
    for (n, &byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f).checked_shl(7 * n as u32)?;
        if byte & 0x80 == 0 {
            return Some((value, n + 1));
        }
    }
    None
}
