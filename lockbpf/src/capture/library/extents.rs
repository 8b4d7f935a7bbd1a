//! How far functions without symbols extend, by the unwind information.

use gimli::{BaseAddresses, CieOrFde, EhFrame, EndianSlice, LittleEndian, UnwindSection};
use object::{Object, ObjectSection};
use std::collections::HashMap;
use std::ops::Range;

/// The functions that a file's `.eh_frame` tells of, in the order of their addresses.
#[derive(Clone, Debug, Default)]
pub(super) struct Extents(Vec<Range<u64>>);

impl Extents {
    /// Reads them; none from a file that has none, or is damaged, from there on.
    pub(super) fn read(data: &[u8]) -> Self {
        let mut all = Vec::new();
        collect(data, &mut all);
        all.sort_unstable_by_key(|range: &Range<u64>| range.start);
        Self(all)
    }

    /// The function around an address.
    pub(super) fn around(&self, address: u64) -> Option<&Range<u64>> {
        let next = self.0.partition_point(|range| range.start <= address);
        self.0.get(next.checked_sub(1)?).filter(|range| range.contains(&address))
    }
}

fn collect(data: &[u8], all: &mut Vec<Range<u64>>) -> Option<()> {
    let file = object::File::parse(data).ok()?;
    let address = |name: &str| file.section_by_name(name).map_or(0, |section| section.address());
    let section = file.section_by_name(".eh_frame")?;
    let bytes = section.data().ok()?;
    let bases =
        BaseAddresses::default().set_eh_frame(section.address()).set_text(address(".text")).set_got(address(".got"));
    let frames = EhFrame::from(EndianSlice::new(bytes, LittleEndian));
    let mut entries = frames.entries(&bases);
    let mut cies = HashMap::new();
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let parsed = partial.parse(|section, bases, offset| {
            if let Some(cie) = cies.get(&offset) {
                return Ok(Clone::clone(cie));
            }
            let cie = section.cie_from_offset(bases, offset)?;
            cies.insert(offset, cie.clone());
            Ok(cie)
        });
        if let Ok(fde) = parsed {
            let start = fde.initial_address();
            all.extend(start.checked_add(fde.len()).map(|end| start..end));
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Damage, compiled};
    use proptest::prelude::*;

    #[test]
    fn a_function_without_a_symbol() {
        let data =
            compiled(&["-s"], "static int f(int n) { return n * 3; } int main(int n, char **v) { return f(n); }");
        let entry = object::File::parse(&data[..]).unwrap().entry();
        let extents = Extents::read(&data);
        let start = extents.around(entry).expect("what is executed first");
        assert!(start.contains(&entry) && extents.around(u64::MAX).is_none(), "{extents:?}");
    }

    proptest! {
        #[test]
        fn damage_never_panics(damage in Damage::any(8)) {
            let data = compiled(&[], "int main(void) { return 0; }");
            Extents::read(&damage.of(data));
        }
    }
}
