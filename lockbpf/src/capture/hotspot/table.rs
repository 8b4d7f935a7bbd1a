//! The tables that HotSpot keeps for debuggers: where the fields of its structures are (`gHotSpotVMStructs`), and how large its types are
//! (`gHotSpotVMTypes`; both `vmStructs.cpp`).

use super::{part, text_until_end, word};
use crate::capture::owner::read;
use std::collections::HashMap;

/// The variable that points to the table of fields.
pub const FIELDS: &str = "gHotSpotVMStructs";
/// The one of the types.
pub const TYPES: &str = "gHotSpotVMTypes";

/// Bytes of an entry: type, field and type of the field (strings), whether it is static, offset, address.
const FIELD: usize = 48;
/// Bytes of an entry: type and type above it (strings), three numbers of four bytes, size.
const TYPE: usize = 40;
/// Entries that are read of each; JDK 25 has 586 fields.
const MAX_ENTRIES: u64 = 4_096;
/// Bytes of the largest structure whose fields are believed: what the tables say is the target's.
const MAX_SIZE: u64 = 1 << 20;
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
        for entry in entries::<FIELD>(pid, word(pid, fields).filter(|&begin| begin != 0)?)? {
            let (owner, field) = (part(&entry, 0)?, part(&entry, 8)?);
            if let (Some(owner), Some(field)) = (name(pid, owner), name(pid, field)) {
                table.fields.insert((owner, field), (part(&entry, 32)?, part(&entry, 40)?));
            }
        }
        if let Some(begin) = types.and_then(|types| word(pid, types)).filter(|&begin| begin != 0) {
            for entry in entries::<TYPE>(pid, begin)? {
                if let Some(of) = name(pid, part(&entry, 0)?) {
                    table.sizes.insert(of, part(&entry, 32)?);
                }
            }
        }
        Some(table)
    }

    /// Where in its structure the first of these fields is that there is.
    pub(super) fn offset(&self, fields: &[(&str, &str)]) -> Option<u64> {
        self.field(fields).map(|(offset, _)| offset).filter(|&offset| offset < MAX_SIZE)
    }

    /// Where the first of these static fields is.
    pub(super) fn address(&self, fields: &[(&str, &str)]) -> Option<u64> {
        self.field(fields).map(|(_, address)| address)
    }

    /// The size of a type, bytes.
    pub(super) fn size(&self, of: &str) -> Option<u64> {
        self.sizes.get(of).copied().filter(|&size| size < MAX_SIZE)
    }

    fn field(&self, fields: &[(&str, &str)]) -> Option<Field> {
        let find = |&(owner, field): &(&str, &str)| self.fields.get(&(owner.to_owned(), field.to_owned()));
        fields.iter().find_map(find).copied()
    }
}

/// The entries of a table that begins there, up to the one whose first word is zero.
fn entries<const N: usize>(pid: u32, begin: u64) -> Option<Vec<[u8; N]>> {
    let mut found = Vec::new();
    for n in 0..MAX_ENTRIES {
        let entry: [u8; N] = read(pid, begin.checked_add(n * N as u64)?)?;
        if part(&entry, 0)? == 0 {
            break;
        }
        found.push(entry);
    }
    Some(found)
}

/// `None` for a longer one.
fn name(pid: u32, addr: u64) -> Option<String> {
    // Those of the table are in the library's constant data, which does not end with them.
    text_until_end::<NAME>(pid, addr)
}
