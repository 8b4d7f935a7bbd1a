//! The unwind information of one file: `.eh_frame`, and `.debug_frame` for what that does not cover.

use crate::symbol::elf::Data;
use crate::symbol::files::ObjectFile;
use gimli::{BaseAddresses, CieOrFde, DebugFrame, EhFrame, EndianSlice, LittleEndian, UnwindSection};
use object::{Object, ObjectSection};
use std::fs::File;
use std::ops::Range;

/// Bytes of one section; those of the largest browsers have a fifth of it.
const MAX_BYTES: u64 = 256 << 20;
/// Functions of one section.
const MAX_FUNCTIONS: usize = 4 << 20;

/// Whose extensions of the format are meant.
const VENDOR: gimli::Vendor =
    if cfg!(target_arch = "aarch64") { gimli::Vendor::AArch64 } else { gimli::Vendor::Default };

/// How the bytes of unwind information are read.
pub(super) type Bytes<'d> = EndianSlice<'d, LittleEndian>;

/// The code that an entry is for, and where the entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Function {
    start: u64,
    end: u64,
    entry: usize,
}

/// Which section it is: their formats differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Eh,
    Debug,
}

/// One section and its index.
#[derive(Debug)]
pub(super) struct Table {
    format: Format,
    bytes: Vec<u8>,
    bases: BaseAddresses,
    /// By start.
    functions: Vec<Function>,
}

/// What to do with the entry that was found.
pub(super) trait Visitor {
    /// What comes of it.
    type Output;

    /// Called with the section and the offset of the entry in it.
    fn visit<'d, S>(self, section: &S, bases: &BaseAddresses, entry: S::Offset) -> Self::Output
    where
        S: UnwindSection<Bytes<'d>>,
        S::Offset: gimli::UnwindOffset;
}

/// The tables of a file, best first. A damaged one yields what can be read of it.
pub(super) fn read(object: &ObjectFile) -> Vec<Table> {
    let mut tables = of_file(&object.file);
    if let Some(debug) = &object.debug {
        tables.extend(of_file(debug));
    }
    tables
}

fn of_file(file: &File) -> Vec<Table> {
    let data = Data::new(file);
    let Ok(elf) = object::File::parse(&data) else { return Vec::new() };
    if !elf.is_64() || !elf.is_little_endian() {
        return Vec::new();
    }
    let address = |name: &str| elf.section_by_name(name).map(|section| section.address());
    let mut bases = BaseAddresses::default();
    bases = bases.set_text(address(".text").unwrap_or(0)).set_got(address(".got").unwrap_or(0));
    let mut tables = Vec::new();
    for (name, format) in [(".eh_frame", Format::Eh), (".debug_frame", Format::Debug)] {
        let Some(section) = elf.section_by_name(name) else { continue };
        let size = section.compressed_file_range().map(|range| range.uncompressed_size.max(range.compressed_size));
        if size.is_err() || size.is_ok_and(|size| size > MAX_BYTES) {
            continue;
        }
        let Ok(bytes) = section.uncompressed_data() else { continue };
        tables.push(Table::new(format, bytes.into_owned(), bases.clone().set_eh_frame(section.address())));
    }
    tables
}

impl Table {
    fn new(format: Format, bytes: Vec<u8>, bases: BaseAddresses) -> Self {
        let functions = match format {
            Format::Eh => functions(&eh_frame(&bytes), &bases),
            Format::Debug => functions(&debug_frame(&bytes), &bases),
        };
        Self { format, bytes, bases, functions }
    }

    /// A table of `.eh_frame`'s format from its bytes.
    #[cfg(test)]
    pub(super) fn of_eh_frame(bytes: Vec<u8>, address: u64) -> Self {
        Self::new(Format::Eh, bytes, BaseAddresses::default().set_eh_frame(address))
    }

    /// Where the functions begin that it tells of.
    #[cfg(test)]
    pub(super) fn starts(&self) -> Vec<u64> {
        self.functions.iter().map(|function| function.start).collect()
    }

    /// The bytes and the address of a file's `.eh_frame`.
    #[cfg(test)]
    pub(super) fn eh_frame_of(file: &File) -> (Vec<u8>, u64) {
        let table = of_file(file).into_iter().find(|table| table.format == Format::Eh).expect("there is one");
        let data = Data::new(file);
        let address = object::File::parse(&data).unwrap().section_by_name(".eh_frame").unwrap().address();
        (table.bytes, address)
    }

    /// The function around an address, as the file numbers it.
    pub(super) fn function(&self, address: u64) -> Option<Range<u64>> {
        self.around(address).map(|function| function.start..function.end)
    }

    fn around(&self, address: u64) -> Option<&Function> {
        let next = self.functions.partition_point(|function| function.start <= address);
        self.functions.get(next.checked_sub(1)?).filter(|function| address < function.end)
    }

    /// Visits the entry for an address, as the file numbers it; `None` if there is none.
    pub(super) fn find<V: Visitor>(&self, address: u64, visitor: V) -> Option<V::Output> {
        let function = self.around(address)?;
        Some(match self.format {
            Format::Eh => visitor.visit(&eh_frame(&self.bytes), &self.bases, function.entry.into()),
            Format::Debug => visitor.visit(&debug_frame(&self.bytes), &self.bases, function.entry.into()),
        })
    }
}

fn eh_frame(bytes: &[u8]) -> EhFrame<Bytes<'_>> {
    let mut section = EhFrame::new(bytes, LittleEndian);
    section.set_address_size(8);
    section.set_vendor(VENDOR);
    section
}

fn debug_frame(bytes: &[u8]) -> DebugFrame<Bytes<'_>> {
    let mut section = DebugFrame::new(bytes, LittleEndian);
    section.set_address_size(8);
    section.set_vendor(VENDOR);
    section
}

/// The functions that a section tells of, up to the first entry that cannot be read.
fn functions<'d, S>(section: &S, bases: &BaseAddresses) -> Vec<Function>
where
    S: UnwindSection<Bytes<'d>>,
    S::Offset: gimli::UnwindOffset,
{
    let mut functions = Vec::new();
    let mut entries = section.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        // One that is damaged says nothing of the others.
        let Ok(fde) = partial.parse(S::cie_from_offset) else { continue };
        let (start, end) = (fde.initial_address(), fde.end_address());
        // Code that the linker has dropped is left at address 0.
        if start > 0 && start < end && functions.len() < MAX_FUNCTIONS {
            functions.push(Function { start, end, entry: fde.offset() });
        }
    }
    functions.sort_unstable_by_key(|function| function.start);
    functions
}
