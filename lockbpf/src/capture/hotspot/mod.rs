//! What can be read of a process that runs HotSpot, by the tables that it keeps for debuggers: what a Java monitor belongs to, and which
//! methods the code is of that it generates. Everything is read from a running target and may be gone or nonsense at any moment.

mod code;
mod table;
#[cfg(test)]
mod tests;

pub use code::{Code, Generated, METHOD_BELOW};
pub use table::{FIELDS, TYPES, Table};

use super::owner::read;

/// The library that has the tables.
pub const LIBRARY: &str = "libjvm.so";

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
    /// In an object: its class, in half a word.
    class: u64,
    /// The machine shifts the class's half word by `shift` and adds `base`: that is the class's address.
    shift: u32,
    base: u64,
    names: Names,
}

impl Monitors {
    /// By the table; `None` for a machine that keeps its objects or classes otherwise: without compressed class pointers, or before
    /// JDK 15.
    #[must_use]
    pub fn of(pid: u32, table: &Table) -> Option<Self> {
        const POINTERS: &str = "CompressedKlassPointers";
        let shift = table.address(&[(POINTERS, "_narrow_klass._shift"), (POINTERS, "_shift")])?;
        let base = table.address(&[(POINTERS, "_narrow_klass._base"), (POINTERS, "_base")])?;
        let found = Self {
            object: table.offset(&[("ObjectMonitor", "_object")])?,
            class: table.offset(&[("oopDesc", "_metadata._compressed_klass")])?,
            shift: u32::from_ne_bytes(read(pid, shift)?),
            base: word(pid, base)?,
            names: Names::of(table)?,
        };
        // Both are set when the machine's memory is laid out.
        (found.shift < 32 && (found.base != 0 || found.shift != 0)).then_some(found)
    }

    /// The name of the class of a monitor's object; `None` if what is there is none: its object may be gone, or a collector marks the
    /// pointers (ZGC).
    #[must_use]
    pub fn class_of(&self, pid: u32, monitor: u64) -> Option<String> {
        let handle = word(pid, monitor.checked_add(self.object)?)?;
        let object = word(pid, handle)?;
        let narrow = u32::from_ne_bytes(read(pid, object.checked_add(self.class)?)?);
        self.names.class(pid, self.base.checked_add(u64::from(narrow) << self.shift)?)
    }
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
