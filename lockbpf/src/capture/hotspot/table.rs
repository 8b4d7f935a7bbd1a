//! The tables that HotSpot keeps for debuggers: where the fields of its structures are (`gHotSpotVMStructs`), and how large its types are
//! (`gHotSpotVMTypes`; both `vmStructs.cpp`).

use super::{text_until_end, word};
use crate::capture::owner::read;
use std::collections::HashMap;

/// The variable that points to the table of fields.
pub const FIELDS: &str = "gHotSpotVMStructs";
/// The one of the types.
pub const TYPES: &str = "gHotSpotVMTypes";

/// Bytes of an entry: type, field and type of the field (strings), whether it is static, offset, address.
const FIELD: u64 = 48;
/// Bytes of an entry: type and type above it (strings), three numbers of four bytes, size.
const TYPE: u64 = 40;
/// Entries that are read of each; JDK 25 has 586 fields.
const MAX_ENTRIES: u64 = 4_096;
/// Bytes of the longest name of a type or field that matters, with its end.
const NAME: usize = 32;

/// Offset and address of a field: one of them counts.
type Field = (u64, u64);

/// What the tables say of some types.
#[derive(Clone, Debug, Default)]
pub struct Table {
    fields: HashMap<(String, String), Field>,
    sizes: HashMap<String, u64>,
}

impl Table {
    /// Reads the tables, by the addresses of the variables that point to them. `None` while the machine has not begun.
    #[must_use]
    pub fn read(pid: u32, fields: u64, types: Option<u64>) -> Option<Self> {
        let mut table = Self::default();
        let begin = word(pid, fields).filter(|&begin| begin != 0)?;
        for n in 0..MAX_ENTRIES {
            let entry: [u8; FIELD as usize] = read(pid, begin.checked_add(n * FIELD)?)?;
            let [owner, field, offset, address] = [0, 8, 32, 40].map(|at| part(&entry, at));
            if owner == 0 {
                break;
            }
            if let (Some(owner), Some(field)) = (name(pid, owner), name(pid, field)) {
                table.fields.insert((owner, field), (offset, address));
            }
        }
        let Some(begin) = types.and_then(|types| word(pid, types)).filter(|&begin| begin != 0) else {
            return Some(table);
        };
        for n in 0..MAX_ENTRIES {
            let entry: [u8; TYPE as usize] = read(pid, begin.checked_add(n * TYPE)?)?;
            let [owner, size] = [0, 32].map(|at| part(&entry, at));
            if owner == 0 {
                break;
            }
            if let Some(owner) = name(pid, owner) {
                table.sizes.insert(owner, size);
            }
        }
        Some(table)
    }

    /// Where in its structure the first of these fields is that there is.
    pub(super) fn offset(&self, fields: &[(&str, &str)]) -> Option<u64> {
        self.field(fields).map(|(offset, _)| offset)
    }

    /// Where the first of these static fields is.
    pub(super) fn address(&self, fields: &[(&str, &str)]) -> Option<u64> {
        self.field(fields).map(|(_, address)| address)
    }

    /// The size of a type, bytes.
    pub(super) fn size(&self, of: &str) -> Option<u64> {
        self.sizes.get(of).copied()
    }

    fn field(&self, fields: &[(&str, &str)]) -> Option<Field> {
        let find = |&(owner, field): &(&str, &str)| self.fields.get(&(owner.to_owned(), field.to_owned()));
        fields.iter().find_map(find).copied()
    }
}

fn part(entry: &[u8], at: usize) -> u64 {
    entry.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |&bytes| u64::from_ne_bytes(bytes))
}

/// `None` for a longer one.
fn name(pid: u32, addr: u64) -> Option<String> {
    // Those of the table are in the library's constant data, which does not end with them.
    text_until_end::<NAME>(pid, addr)
}
