//! What can be read of a process that runs HotSpot, by the tables that it keeps for debuggers: what a Java monitor belongs to, and which
//! methods the code is of that it generates. Everything is read from a running target and may be gone or nonsense at any moment.

mod code;
mod table;
#[cfg(test)]
mod tests;

pub use code::{Code, Generated, METHOD_BELOW};
pub use table::{FIELDS, TYPES, Table};

use super::owner::read;
use lockbpf_common::virtual_thread::{COMPACT_SHIFT, Carrier, uncoloured};

/// The library that has the tables.
pub const LIBRARY: &str = "libjvm.so";

/// The flag that tells whether the first word of an object has its class, in the upper bits (`-XX:+UseCompactObjectHeaders`, from JDK 24 on).
pub const COMPACT: &str = "UseCompactObjectHeaders";

/// Numbers of classes are shifted by less than this.
const MAX_SHIFT: u32 = 32;

/// Bytes of a name that are read.
const SYMBOL: usize = 256;

/// Where the text of a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Names {
    /// In a class: its name.
    name: u64,
    /// In a name: its length and its text.
    length: u64,
    text: u64,
}

impl Names {
    fn of(table: &Table) -> Option<Self> {
        Some(Self {
            name: table.offset(&[("Klass", "_name")])?,
            length: table.offset(&[("Symbol", "_length")])?,
            text: table.offset(&[("Symbol", "_body[0]")])?,
        })
    }

    /// The name of a class, as Java writes it.
    fn class(&self, pid: u32, class: u64) -> Option<String> {
        self.symbol(pid, word(pid, class.checked_add(self.name)?)?).map(|name| name.replace('/', "."))
    }

    /// A name; `None` if what is there is none.
    fn symbol(&self, pid: u32, symbol: u64) -> Option<String> {
        let length = usize::from(u16::from_ne_bytes(read(pid, symbol.checked_add(self.length)?)?));
        let text = text(pid, symbol.checked_add(self.text)?, length.min(SYMBOL))?;
        let plain = |c: char| c.is_alphanumeric() || "/$_;[-.+<>".contains(c);
        (!text.is_empty() && text.chars().all(plain)).then_some(text)
    }
}

/// Where what leads from a monitor to its class's name is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Monitors {
    /// In a monitor: a handle of its object.
    object: u64,
    /// In an object: its class, in half a word; and the address of the flag that tells whether it is in the first word instead.
    class: u64,
    compact: Option<u64>,
    /// The addresses of two numbers: the machine shifts the class's half word by the one and adds the other, which gives the class's address.
    shift: u64,
    base: u64,
    names: Names,
}

impl Monitors {
    /// By the table, and where [`COMPACT`] is; `None` for a machine that keeps its objects or classes otherwise: without compressed class pointers,
    /// or before JDK 15.
    #[must_use]
    pub fn of(table: &Table, compact: Option<u64>) -> Option<Self> {
        const POINTERS: &str = "CompressedKlassPointers";
        Some(Self {
            object: table.offset(&[("ObjectMonitor", "_object")])?,
            class: table.offset(&[("oopDesc", "_metadata._compressed_klass")])?,
            compact,
            shift: table.address(&[(POINTERS, "_narrow_klass._shift"), (POINTERS, "_shift")])?,
            base: table.address(&[(POINTERS, "_narrow_klass._base"), (POINTERS, "_base")])?,
            names: Names::of(table)?,
        })
    }

    /// The name of the class of a monitor's object; `None` if what is there is none: its object may be gone, or be moved.
    #[must_use]
    pub fn class_of(&self, pid: u32, monitor: u64) -> Option<String> {
        let handle = word(pid, monitor.checked_add(self.object)?)?;
        let object = uncoloured(word(pid, handle)?, cfg!(target_arch = "x86_64"))?;
        let is_compact = self.compact.and_then(|flag| read(pid, flag)) == Some([1]);
        let narrow = if is_compact {
            word(pid, object)? >> COMPACT_SHIFT
        } else {
            u32::from_ne_bytes(read(pid, object.checked_add(self.class)?)?).into()
        };
        let shift = Some(u32::from_ne_bytes(read(pid, self.shift)?)).filter(|&shift| shift < MAX_SHIFT)?;
        // Both numbers may be zero: JDK 25 keeps classes below 4 GiB where it can.
        self.names.class(pid, (narrow << shift).checked_add(word(pid, self.base)?)?)
    }
}

/// The variables that tell where fields of objects are: in a thread what it is parked for (`Thread.parkBlocker`) and its number, in a lock of
/// `java.util.concurrent` the thread that has it.
const BLOCKER: &str = "java_lang_Thread::_park_blocker_offset";
const NUMBER: &str = "java_lang_Thread::_tid_offset";
const OWNER: &str = "java_util_concurrent_locks_AbstractOwnableSynchronizer::_owner_offset";
/// The flag that tells whether pointers to objects are half a word long.
const COMPRESSED: &str = "UseCompressedOops";

/// Bytes of the largest object whose fields are believed.
const MAX_OBJECT: u32 = 4_096;

/// Where the machine's threads tell which of Java's they run, and what these are parked for, by the table and the addresses of variables; `None` for a
/// machine whose virtual threads block them when they wait for a monitor (before JDK 24), and for one without symbols.
#[must_use]
pub fn carrier(pid: u32, table: &Table, variable: impl Fn(&str) -> Option<u64>) -> Option<Carrier> {
    let offset = |field| u32::try_from(table.offset(&[("JavaThread", field)])?).ok();
    let number = |name| variable(name).and_then(|variable| read(pid, variable)).map(u32::from_ne_bytes);
    let field = |name| number(name).filter(|&offset| offset < MAX_OBJECT).unwrap_or(0);
    // Without symbols the machine's functions are not found either.
    variable(BLOCKER)?;
    let is_set = |flag| variable(flag).and_then(|flag| read(pid, flag)) == Some([1]);
    let of_pointers = |field| table.address(&[("CompressedOops", field)]);
    let base = of_pointers("_narrow_oop._base").or_else(|| of_pointers("_base"));
    let shift = of_pointers("_narrow_oop._shift").or_else(|| of_pointers("_shift"));
    Some(Carrier {
        base: base.and_then(|base| word(pid, base)).unwrap_or(0),
        process: 0,
        id: offset("_monitor_owner_id")?,
        own: offset("_threadObj")?,
        runs: offset("_vthread")?,
        blocker: field(BLOCKER),
        pointer: if is_set(COMPRESSED) { 4 } else { 8 },
        shift: shift
            .and_then(|shift| read(pid, shift))
            .map(u32::from_ne_bytes)
            .filter(|&shift| shift < MAX_SHIFT)
            .unwrap_or(0),
        owner: field(OWNER),
        number: field(NUMBER),
        compact: is_set(COMPACT).into(),
    })
}

fn word(pid: u32, addr: u64) -> Option<u64> {
    read(pid, addr).map(u64::from_ne_bytes)
}

/// The word at an offset of bytes that were read.
fn part(bytes: &[u8], at: u64) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(usize::try_from(at).ok()?..)?.first_chunk()?))
}

/// A string that ends within `N` bytes; `None` for a longer one.
fn text_until_end<const N: usize>(pid: u32, addr: u64) -> Option<String> {
    let bytes = read::<N>(pid, addr)?;
    let end = bytes.iter().position(|&b| b == 0)?;
    Some(str::from_utf8(bytes.get(..end)?).ok()?.to_owned())
}

/// So many bytes of text.
fn text(pid: u32, addr: u64, length: usize) -> Option<String> {
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        let part = read::<8>(pid, addr.checked_add(bytes.len() as u64)?)?;
        bytes.extend_from_slice(part.get(..(length - bytes.len()).min(8))?);
    }
    String::from_utf8(bytes).ok()
}
