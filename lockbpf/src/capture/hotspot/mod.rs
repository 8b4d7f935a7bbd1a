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

/// The flag that tells whether the first word of an object has its class, in the upper bits (`-XX:+UseCompactObjectHeaders`, from JDK 24 on).
pub const COMPACT: &str = "UseCompactObjectHeaders";

/// The lowest of these bits (`markWord::klass_shift`, JDK 24 and 25).
const COMPACT_SHIFT: u32 = 42;

/// Numbers of classes are shifted by less than this.
const MAX_SHIFT: u32 = 32;

/// Pointers from here on are coloured: ZGC's, which has heaps up to 2^46.
const COLOURED: u64 = 1 << 47;
/// On x86_64 a coloured pointer has one of the four bits set that begin here. The bits above that one are the address (`zAddress.hpp`, JDK 21).
const COLOUR: u32 = 12;
/// On other machines the address begins at this bit.
const COLOURS: u32 = 16;

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
        let object = uncoloured(word(pid, handle)?)?;
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

/// The address in a pointer to an object.
fn uncoloured(pointer: u64) -> Option<u64> {
    if pointer < COLOURED {
        return Some(pointer);
    }
    if cfg!(not(target_arch = "x86_64")) {
        return Some(pointer >> COLOURS);
    }
    let colour = pointer >> COLOUR & 0xf;
    colour.is_power_of_two().then(|| pointer >> (COLOUR + 1 + colour.trailing_zeros()))
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
