//! The sections of debug information that names need, read into memory and bounded.

use super::super::elf::Data;
use gimli::{Dwarf, EndianRcSlice, RunTimeEndian, Section, SectionId};
use object::read::{CompressedData, CompressionFormat};
use object::{Object, ObjectSection};
use std::fs::File;
use std::io;
use std::iter::repeat_n;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

/// Bytes of debug information that are held at one time: sections after decompression.
pub(super) const MAX_BYTES: u64 = 512 << 20;

/// How debug information is read.
pub(super) type Bytes = EndianRcSlice<RunTimeEndian>;

/// Why debug information was not used.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum DwarfError {
    /// A limit of ours.
    #[error("its debug information takes {} MiB, more than {} MiB are not read", .0 >> 20, MAX_BYTES >> 20)]
    TooLarge(u64),
    /// Not an ELF file, or a section that contradicts itself.
    #[error("malformed ELF file: {0}")]
    Elf(#[from] object::Error),
    /// The file could not be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The unit headers make no sense.
    #[error("malformed debug information: {0}")]
    Dwarf(#[from] gimli::Error),
    /// It made its parser panic.
    #[error("its debug information is damaged")]
    Damaged,
}

/// Sections that are needed, here and for calls. Line numbers are blazesym's business.
const NEEDED: &[SectionId] = &[
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugInfo,
    SectionId::DebugLineStr,
    SectionId::DebugLoc,
    SectionId::DebugLocLists,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
    SectionId::DebugTypes,
];

/// What is read of one file.
pub(super) struct Sections {
    /// All that is needed of it.
    pub(super) dwarf: Dwarf<Bytes>,
    /// Size of that.
    pub(super) bytes: u64,
}

/// Where a section's bytes are.
struct Part {
    offset: u64,
    stored: u64,
    size: u64,
    format: CompressionFormat,
}

/// Reads the debug information of a file; `None` if it has none.
pub(super) fn load(file: &File) -> Result<Option<Sections>, DwarfError> {
    let data = Data::new(file);
    let elf = object::File::parse(&data)?;
    let endian = if elf.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let part = |id: SectionId| -> Result<Option<Part>, object::Error> {
        let Some(section) = elf.section_by_name(id.name()) else { return Ok(None) };
        let range = section.compressed_file_range()?;
        let (offset, stored, size) = (range.offset, range.compressed_size, range.uncompressed_size);
        Ok(Some(Part { offset, stored, size, format: range.format }))
    };
    let mut bytes = 0_u64;
    for &id in NEEDED {
        bytes = bytes.saturating_add(part(id)?.map_or(0, |part| part.size.max(part.stored)));
    }
    if bytes > MAX_BYTES {
        return Err(DwarfError::TooLarge(bytes));
    }
    let dwarf = Dwarf::load(|id| {
        let part = if NEEDED.contains(&id) { part(id)? } else { None };
        let bytes = part.map_or_else(|| Ok(Rc::from([])), |part| read(file, &part))?;
        Ok::<_, DwarfError>(Bytes::new(bytes, endian))
    })?;
    if dwarf.debug_info.reader().bytes().is_empty() {
        return Ok(None);
    }
    Ok(Some(Sections { dwarf, bytes }))
}

fn read(file: &File, part: &Part) -> Result<Rc<[u8]>, DwarfError> {
    let stored = usize::try_from(part.stored).map_err(|_| DwarfError::TooLarge(part.stored))?;
    let mut bytes: Rc<[u8]> = repeat_n(0, stored).collect();
    if let Some(bytes) = Rc::get_mut(&mut bytes) {
        file.read_exact_at(bytes, part.offset)?;
    }
    if part.format == CompressionFormat::None {
        return Ok(bytes);
    }
    let packed = CompressedData { format: part.format, data: &bytes, uncompressed_size: part.size };
    Ok(packed.decompress()?.into())
}
