//! The address space of a process, as far as names need it: which file's image covers an address.

use super::files::{FileId, Files};
use super::maps::Mapping;
use std::collections::HashSet;
use std::hash::Hash;
use std::ops::Range;

/// Images and regions kept of one process; a program with more than a few hundred libraries has not been seen.
pub(super) const MAX_ENTRIES: usize = 4_096;

/// A file as it lies in memory, from its first to its last segment. The zero-filled end of a segment (`.bss`) belongs
/// to it, although the kernel lists that memory as anonymous.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Image {
    range: Range<u64>,
    bias: u64,
    file: FileId,
}

impl Image {
    /// The image that an executable mapping of a file is part of.
    pub(super) fn of(mapping: &Mapping, id: FileId, files: &Files) -> Option<Self> {
        let layout = &files.get(id)?.layout;
        let bias = layout.bias(mapping)?;
        let extent = layout.extent();
        let (start, end) = (extent.start.wrapping_add(bias), extent.end.wrapping_add(bias));
        (start < end).then_some(Self { range: start..end, bias, file: id })
    }
}

/// Executable memory that is no ELF file: `[vdso]`, generated code.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Region {
    range: Range<u64>,
    offset: u64,
    /// Empty for anonymous memory.
    name: String,
}

impl Region {
    /// The region that a mapping is.
    pub(super) fn of(mapping: &Mapping) -> Self {
        Self { range: mapping.start..mapping.end, offset: mapping.offset, name: mapping.base_name() }
    }
}

/// Where an address lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place<'s> {
    /// In a file's image, at this address as the file numbers it.
    File(FileId, u64),
    /// In some other executable memory, of this name (empty if anonymous) and at this offset.
    Region(&'s str, u64),
}

/// Everything known of one process, the newest first: what has been unmapped stays known, and yields where something
/// newer lies in its place.
#[derive(Clone, Debug, Default)]
pub(super) struct AddressSpace {
    images: Vec<Image>,
    regions: Vec<Region>,
}

impl AddressSpace {
    /// Adds what is mapped now.
    pub(super) fn merge(&mut self, images: Vec<Image>, regions: Vec<Region>) {
        merge(&mut self.images, images);
        merge(&mut self.regions, regions);
    }

    /// Whether nothing is known.
    pub(super) fn is_empty(&self) -> bool {
        self.images.is_empty()
    }

    /// Every image: where it lies, what is added to its file's addresses, and the file.
    pub(super) fn images(&self) -> impl Iterator<Item = (Range<u64>, u64, FileId)> + '_ {
        self.images.iter().map(|image| (image.range.clone(), image.bias, image.file))
    }

    /// Where an address lies; `None` for heaps and stacks.
    pub(super) fn place(&self, addr: u64, files: &Files) -> Option<Place<'_>> {
        let covers = |file, addr| files.get(file).is_some_and(|f| f.layout.covers(addr));
        self.images
            .iter()
            .filter(|image| image.range.contains(&addr))
            .map(|image| (image.file, addr.wrapping_sub(image.bias)))
            .find(|&(file, addr)| covers(file, addr))
            .map(|(file, addr)| Place::File(file, addr))
            .or_else(|| {
                let region = self.regions.iter().find(|r| r.range.contains(&addr))?;
                Some(Place::Region(&region.name, (addr - region.range.start).saturating_add(region.offset)))
            })
    }
}

fn merge<T: Clone + Eq + Hash>(known: &mut Vec<T>, current: Vec<T>) {
    let mut seen = HashSet::new();
    let all = current.into_iter().chain(known.drain(..));
    *known = all.filter(|entry| seen.insert(entry.clone())).take(MAX_ENTRIES).collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_first_and_bounded() {
        let mut known = vec![1, 2, 3];
        merge(&mut known, vec![4, 2, 4]);
        assert_eq!(known, [4, 2, 1, 3]);
        merge(&mut known, (0..2 * MAX_ENTRIES as i32).collect());
        assert_eq!(known.len(), MAX_ENTRIES);
    }

    #[test]
    fn executable_memory_without_a_program() {
        let mapping = |start, path: &str| Mapping {
            start,
            end: start + 0x1000,
            offset: 0x2000,
            dev: (0, 1),
            inode: 0,
            path: path.into(),
            deleted: false,
        };
        let mut space = AddressSpace::default();
        space.merge(Vec::new(), [mapping(0x1000, "[vdso]"), mapping(0x3000, "")].iter().map(Region::of).collect());
        let files = Files::none();
        assert_eq!(space.place(0x1010, &files), Some(Place::Region("[vdso]", 0x2010)));
        assert_eq!(space.place(0x3010, &files), Some(Place::Region("", 0x2010)));
        assert_eq!(space.place(0x2010, &files), None);
    }
}
