//! What is read of an ELF file before any symbol is asked for: where its segments lie in memory, and what identifies it
//! and its separate debug file. Sizes in the file are untrusted: tables beyond the bounds here are refused unread.

use super::maps::Mapping;
use crate::sandbox::NotRead;
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::read::{FileKind, ReadCache};
use object::{Endian, Endianness};
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;

/// A file's bytes, read piece by piece; never mapped, since the observed program may truncate the file at any time.
pub(super) type Data<'f> = ReadCache<&'f File>;

/// Program and section headers of a file.
const MAX_HEADERS: usize = 65_536;
/// Bytes of one string that are looked at: many symbols may share a name of any length.
const MAX_STRING: usize = 64 << 10;
/// Bytes of notes; a build id has twenty.
const MAX_NOTES: u64 = 1 << 20;
/// Bytes of one table (symbols, strings).
const MAX_TABLE_BYTES: u64 = 512 << 20;

/// Why an ELF file could not be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ElfError {
    /// Some other kind of file is mapped executable.
    #[error("not an ELF file")]
    NotElf,
    /// A header claims more than [`MAX_HEADERS`] or [`MAX_TABLE_BYTES`].
    #[error("an ELF table is larger than any real one")]
    TooLarge,
    /// Headers contradict each other or the file's length.
    #[error("malformed ELF file: {0}")]
    Malformed(#[from] object::Error),
    /// As the process says that reads such files.
    #[error("{0}")]
    Told(String),
    /// It was not read.
    #[error(transparent)]
    NotRead(#[from] NotRead),
}

/// A part of the file that is loaded into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Segment {
    /// Offset in the file.
    pub(super) offset: u64,
    /// Bytes in the file.
    pub(super) file_size: u64,
    /// Address as the file numbers it.
    pub(super) addr: u64,
    /// Bytes in memory; what exceeds `file_size` starts as zeros (`.bss`).
    pub(super) mem_size: u64,
    /// Whether it holds code.
    pub(super) executable: bool,
}

impl Segment {
    fn covers(&self, addr: u64) -> bool {
        addr.checked_sub(self.addr).is_some_and(|offset| offset < self.mem_size)
    }
}

/// Segments and identity of an ELF file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Layout {
    /// Loaded segments.
    pub(super) segments: Vec<Segment>,
    /// GNU build id.
    pub(super) build_id: Option<Vec<u8>>,
    /// File name and CRC-32 of the separate debug file.
    pub(super) debug_link: Option<(OsString, u32)>,
    /// File name and build id of what this debug file shares with others (`dwz`).
    pub(super) shared_link: Option<(OsString, Vec<u8>)>,
    /// Whether it is code for x86-64.
    pub(super) is_x86_64: bool,
    /// Whether the file holds its own DWARF.
    pub(super) has_dwarf: bool,
    /// Whether it is a program that needs no dynamic linker, and has no symbols.
    pub(super) is_bare: bool,
}

impl Layout {
    /// Reads the headers of a file.
    pub(super) fn read(file: &File) -> Result<Self, ElfError> {
        let data = Data::new(file);
        match FileKind::parse(&data) {
            Ok(FileKind::Elf64) => Self::parse::<FileHeader64<Endianness>>(&data),
            Ok(FileKind::Elf32) => Self::parse::<FileHeader32<Endianness>>(&data),
            _ => Err(ElfError::NotElf),
        }
    }

    fn parse<E: FileHeader<Endian = Endianness>>(data: &Data<'_>) -> Result<Self, ElfError> {
        let header = E::parse(data)?;
        let endian = header.endian()?;
        if header.phnum(endian, data)? > MAX_HEADERS {
            return Err(ElfError::TooLarge);
        }
        let programs = header.program_headers(endian, data)?;
        let needs_linker = programs.iter().any(|p| p.p_type(endian) == elf::PT_INTERP);
        let load = programs.iter().filter(|p| p.p_type(endian) == elf::PT_LOAD);
        let mut layout = Self {
            segments: load.map(|p| segment::<E>(p, endian)).collect(),
            is_x86_64: header.e_machine(endian) == elf::EM_X86_64,
            // Libraries need none either, but most have no entry.
            is_bare: !needs_linker && header.e_entry(endian).into() != 0,
            ..Self::default()
        };
        // A file without section headers still runs; it only has no more to tell.
        let Ok(sections) = sections(header, endian, data) else { return Ok(layout) };
        let names = match header.section_strings_index(endian, data) {
            Ok(index) => sections.get(index.0).map_or(Ok(&[][..]), |s| contents::<E>(s, endian, data))?,
            Err(_) => &[],
        };
        for section in sections {
            let name = string_at(names, section.sh_name(endian));
            // Go's programs have a table of their own.
            layout.is_bare &= section.sh_type(endian) != elf::SHT_SYMTAB && !name.ends_with(b".gopclntab");
            match name {
                b".debug_info" | b".zdebug_info" => layout.has_dwarf |= section.sh_type(endian) != elf::SHT_NOBITS,
                b".gnu_debuglink" => layout.debug_link = debug_link(contents::<E>(section, endian, data)?, endian),
                b".gnu_debugaltlink" => layout.shared_link = shared_link(contents::<E>(section, endian, data)?),
                _ if section.sh_type(endian) == elf::SHT_NOTE && section.sh_size(endian).into() <= MAX_NOTES => {
                    if let Some(mut notes) = section.notes(endian, data)? {
                        while let Ok(Some(note)) = notes.next() {
                            if note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID {
                                layout.build_id = Some(note.desc().to_vec());
                            }
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(layout)
    }

    /// What must be added to the file's addresses to get those of the process, judging by one executable mapping of the
    /// file; `None` if no code segment is in that mapping.
    pub(super) fn bias(&self, mapping: &Mapping) -> Option<u64> {
        let mapped = mapping.offset..mapping.offset.saturating_add(mapping.len());
        let overlap = |s: &Segment| {
            let end = s.offset.saturating_add(s.file_size).min(mapped.end);
            end.saturating_sub(s.offset.max(mapped.start))
        };
        // A page on the border of two segments is mapped for both: the mapping is of the one that it shows more of.
        let code = self.segments.iter().filter(|s| s.executable).max_by_key(|s| overlap(s))?;
        // Offset and address of a segment are congruent modulo the page size, whatever that is.
        (overlap(code) > 0).then(|| {
            let file_start = mapping.start.wrapping_sub(mapping.offset);
            file_start.wrapping_sub(code.addr.wrapping_sub(code.offset))
        })
    }

    /// Addresses from the first to past the last segment, as the file numbers them; empty without segments.
    pub(super) fn extent(&self) -> Range<u64> {
        let start = self.segments.iter().map(|s| s.addr).min().unwrap_or(0);
        let end = self.segments.iter().map(|s| s.addr.saturating_add(s.mem_size)).max().unwrap_or(0);
        start..end
    }

    /// Where in the file the code from one address up to another is, as the file numbers addresses.
    pub(super) fn code_at(&self, range: &Range<u64>) -> Option<u64> {
        let segment = self.segments.iter().find(|s| s.executable && s.covers(range.start))?;
        let from = range.start - segment.addr;
        (range.end.checked_sub(segment.addr)? <= segment.file_size).then_some(segment.offset.checked_add(from)?)
    }

    /// Whether an address, as the file numbers it, lies in a segment and not in a gap.
    pub(super) fn covers(&self, addr: u64) -> bool {
        self.segments.iter().any(|s| s.covers(addr))
    }

    /// Whether an address, as the file numbers it, lies in an executable segment.
    pub(super) fn is_code(&self, addr: u64) -> bool {
        self.segments.iter().any(|s| s.executable && s.covers(addr))
    }
}

fn segment<E: FileHeader>(p: &E::ProgramHeader, endian: E::Endian) -> Segment {
    Segment {
        offset: p.p_offset(endian).into(),
        file_size: p.p_filesz(endian).into(),
        addr: p.p_vaddr(endian).into(),
        mem_size: p.p_memsz(endian).into(),
        executable: p.p_flags(endian) & elf::PF_X != 0,
    }
}

/// Name and checksum: a NUL-terminated name, zeros up to a multiple of four, the checksum.
fn debug_link(bytes: &[u8], endian: Endianness) -> Option<(OsString, u32)> {
    let name = string_at(bytes, 0);
    let crc = bytes.get((name.len() + 1).next_multiple_of(4)..)?.first_chunk::<4>()?;
    (!name.is_empty()).then(|| (OsStr::from_bytes(name).to_owned(), endian.read_u32_bytes(*crc)))
}

/// Name and build id: a NUL-terminated name, the bytes of the id.
fn shared_link(bytes: &[u8]) -> Option<(OsString, Vec<u8>)> {
    let name = string_at(bytes, 0);
    let id = bytes.get(name.len() + 1..)?;
    (!name.is_empty() && !id.is_empty()).then(|| (OsStr::from_bytes(name).to_owned(), id.to_vec()))
}

/// The section headers of a file.
pub(super) fn sections<'d, E: FileHeader<Endian = Endianness>>(
    header: &E,
    endian: Endianness,
    data: &'d Data<'_>,
) -> Result<&'d [E::SectionHeader], ElfError> {
    if header.shnum(endian, data)? > MAX_HEADERS {
        return Err(ElfError::TooLarge);
    }
    Ok(header.section_headers(endian, data)?)
}

/// The bytes of a section.
pub(super) fn contents<'d, E: FileHeader<Endian = Endianness>>(
    section: &E::SectionHeader,
    endian: Endianness,
    data: &'d Data<'_>,
) -> Result<&'d [u8], ElfError> {
    if section.sh_size(endian).into() > MAX_TABLE_BYTES {
        return Err(ElfError::TooLarge);
    }
    Ok(section.data(endian, data)?)
}

/// The NUL-terminated string at an offset of a string table, or the beginning of a very long one; empty if there is none.
pub(super) fn string_at(strings: &[u8], offset: u32) -> &[u8] {
    let rest = strings.get(offset as usize..).unwrap_or_default();
    let rest = rest.get(..MAX_STRING).unwrap_or(rest);
    memchr::memchr(0, rest).and_then(|end| rest.get(..end)).unwrap_or(rest)
}
