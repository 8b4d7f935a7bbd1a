//! What a Java monitor belongs to: the class of its object, read from the memory of a process that runs HotSpot. Where everything is
//! there, HotSpot tells by itself, in the table that it keeps for debuggers (`gHotSpotVMStructs`, `vmStructs.cpp`).

use super::owner::read;

/// The variable that points to the table, in this library.
pub const TABLE: &str = "gHotSpotVMStructs";
/// The library.
pub const LIBRARY: &str = "libjvm.so";

/// Bytes of an entry: type, field and type of the field (strings), whether it is static, offset, address.
const ENTRY: u64 = 48;
/// Entries that are read; JDK 25 has 586.
const MAX_ENTRIES: u64 = 4_096;
/// Bytes of the longest name of a type or field that matters, with its end.
const NAME: usize = 32;
/// Bytes of a class's name that are read.
const CLASS: usize = 256;

/// Where what leads from a monitor to its class's name is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotSpot {
    /// In a monitor: a handle of its object.
    object: u64,
    /// In an object: its class, in half a word.
    class: u64,
    /// By which that is shifted, and to what it is added.
    shift: u32,
    base: u64,
    /// In a class: its name.
    name: u64,
    /// In a name: its length and its text.
    length: u64,
    text: u64,
}

impl HotSpot {
    /// Reads the table, by the address of the variable that points to it; `None` while the machine has not begun, and for one that
    /// keeps its objects or classes otherwise: without compressed class pointers, or before JDK 15.
    #[must_use]
    pub fn read(pid: u32, table: u64) -> Option<Self> {
        let table = word(pid, table).filter(|&table| table != 0)?;
        let mut fields = [None; 7];
        for n in 0..MAX_ENTRIES {
            let entry = read::<{ ENTRY as usize }>(pid, table.checked_add(n * ENTRY)?)?;
            let part = |at: usize| entry.get(at..)?.first_chunk().copied().map(u64::from_ne_bytes);
            let (owner, field, offset, address) = (part(0)?, part(8)?, part(32)?, part(40)?);
            if owner == 0 {
                break;
            }
            let (Some(owner), Some(field)) = (string(pid, owner), string(pid, field)) else { continue };
            let (place, value) = match (owner.as_str(), field.as_str()) {
                ("ObjectMonitor", "_object") => (0, offset),
                ("oopDesc", "_metadata._compressed_klass") => (1, offset),
                ("CompressedKlassPointers", "_narrow_klass._shift" | "_shift") => (2, address),
                ("CompressedKlassPointers", "_narrow_klass._base" | "_base") => (3, address),
                ("Klass", "_name") => (4, offset),
                ("Symbol", "_length") => (5, offset),
                ("Symbol", "_body[0]") => (6, offset),
                _ => continue,
            };
            fields[place] = Some(value);
        }
        let [object, class, shift, base, name, length, text] = fields;
        let shift = u32::from_ne_bytes(read(pid, shift?)?);
        let base = word(pid, base?)?;
        let found = Self { object: object?, class: class?, shift, base, name: name?, length: length?, text: text? };
        // Both are set when the machine's memory is laid out.
        (found.shift < 32 && (found.base != 0 || found.shift != 0)).then_some(found)
    }

    /// The name of the class of a monitor's object, as Java writes it; `None` if what is there is none: its object may be gone, or a
    /// collector marks the pointers (ZGC).
    #[must_use]
    pub fn class_of(&self, pid: u32, monitor: u64) -> Option<String> {
        let handle = word(pid, monitor.checked_add(self.object)?)?;
        let object = word(pid, handle)?;
        let narrow = u32::from_ne_bytes(read(pid, object.checked_add(self.class)?)?);
        let class = self.base.checked_add(u64::from(narrow) << self.shift)?;
        let name = word(pid, class.checked_add(self.name)?)?;
        let length = usize::from(u16::from_ne_bytes(read(pid, name.checked_add(self.length)?)?));
        let text = text(pid, name.checked_add(self.text)?, length.min(CLASS))?;
        let plain = |c: char| c.is_alphanumeric() || "/$_;[-.+".contains(c);
        (!text.is_empty() && text.chars().all(plain)).then(|| text.replace('/', "."))
    }
}

fn word(pid: u32, addr: u64) -> Option<u64> {
    read(pid, addr).map(u64::from_ne_bytes)
}

/// A string of at most [`NAME`] bytes, with its end; `None` for a longer one.
fn string(pid: u32, addr: u64) -> Option<String> {
    // Those of the table are in the library's constant data, which does not end with them.
    let bytes = read::<NAME>(pid, addr)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn own(addr: *const impl Sized) -> u64 {
        addr as u64
    }

    /// A machine of its own in this process's memory.
    #[test]
    fn a_class_is_found_from_a_monitor() {
        let symbol = *b"\x11\0\0\0\x10\0java/lang/Object";
        let symbol = [&symbol[..], &[0; 8]].concat();
        let class = [0, own(symbol.as_ptr())];
        let base = own(class.as_ptr()) & !0xfff;
        let object = [0, own(class.as_ptr()) - base];
        let handle = own(object.as_ptr());
        let monitor = [0, own(&raw const handle)];
        let shift = 0_u32;
        let strings = |names: [&str; 2]| names.map(|name| format!("{name:\0<32}"));
        let names = [
            strings(["ObjectMonitor", "_object"]),
            strings(["oopDesc", "_metadata._compressed_klass"]),
            strings(["CompressedKlassPointers", "_shift"]),
            strings(["CompressedKlassPointers", "_base"]),
            strings(["Klass", "_name"]),
            strings(["Symbol", "_length"]),
            strings(["Symbol", "_body[0]"]),
        ];
        let places = [8, 8, own(&raw const shift), own(&raw const base), 8, 4, 6];
        let entries = names.iter().zip(places).flat_map(|([owner, field], place)| {
            let is_static = place > 8;
            [own(owner.as_ptr()), own(field.as_ptr()), 0, u64::from(is_static), place * u64::from(!is_static), place]
        });
        let table: Vec<u64> = entries.chain([0; 6]).collect();
        let pointer = own(table.as_ptr());
        let pid = std::process::id();
        let hotspot = HotSpot::read(pid, own(&raw const pointer)).unwrap();
        assert_eq!(hotspot.class_of(pid, own(monitor.as_ptr())).as_deref(), Some("java.lang.Object"));
        assert_eq!(hotspot.class_of(pid, own(object.as_ptr())), None);
        assert_eq!(hotspot.class_of(pid, u64::MAX), None);
        let nothing = 0_u64;
        assert_eq!(HotSpot::read(pid, own(&raw const nothing)), None);
        assert_eq!(HotSpot::read(u32::MAX, 8), None);
    }
}
