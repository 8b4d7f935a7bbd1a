//! The parts of an ELF file in which Go keeps what is read here. Sections are found by name where there are names; all else
//! by what the program headers say, which no tool removes.

use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, ReadRef};

type Header = FileHeader64<Endianness>;

/// Tables larger than this are of no real program.
const MAX_BYTES: u64 = 512 << 20;

/// A part of the file that is loaded into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Address as the file numbers it.
    pub vaddr: u64,
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Bytes in the file.
    pub size: u64,
    /// Whether it is code.
    pub executable: bool,
    /// Whether it is data that changes.
    pub writable: bool,
}

/// A section by its name: address, offset in the file, bytes.
#[derive(Clone, Debug)]
struct Section {
    name: Vec<u8>,
    vaddr: u64,
    offset: u64,
    size: u64,
}

/// Where things are in a 64-bit little-endian ELF file.
#[derive(Clone, Debug)]
pub struct Program<R> {
    data: R,
    segments: Vec<Segment>,
    sections: Vec<Section>,
}

impl<'data, R: ReadRef<'data>> Program<R> {
    /// Reads the headers; `None` if the file is none that Go programs could be.
    #[must_use]
    pub fn read(data: R) -> Option<Self> {
        let header = Header::parse(data).ok()?;
        let endian = header.endian().ok()?;
        if endian != Endianness::Little {
            return None;
        }
        let segments = header.program_headers(endian, data).ok()?.iter();
        let segments = segments.filter(|s| s.p_type(endian) == elf::PT_LOAD).map(|s| Segment {
            vaddr: s.p_vaddr(endian),
            offset: s.p_offset(endian),
            size: s.p_filesz(endian),
            executable: s.p_flags(endian) & elf::PF_X != 0,
            writable: s.p_flags(endian) & elf::PF_W != 0,
        });
        let segments = segments.collect();
        Some(Self { data, segments, sections: sections(header, endian, data).unwrap_or_default() })
    }

    /// What is loaded.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Where a section is loaded, and its bytes.
    #[must_use]
    pub fn section(&self, name: &str) -> Option<(u64, &'data [u8])> {
        let section = self.sections.iter().find(|s| s.name == name.as_bytes())?;
        Some((section.vaddr, self.bytes(section.offset, section.size)?))
    }

    /// The bytes of a segment, at most `max` of them.
    #[must_use]
    pub fn segment(&self, segment: &Segment, max: u64) -> Option<&'data [u8]> {
        self.bytes(segment.offset, segment.size.min(max))
    }

    /// `len` bytes at an address, if they are in the file.
    #[must_use]
    pub fn at(&self, vaddr: u64, len: u64) -> Option<&'data [u8]> {
        self.bytes(self.file_offset(vaddr)?, len)
    }

    /// Where an address is in the file.
    #[must_use]
    pub fn file_offset(&self, vaddr: u64) -> Option<u64> {
        let inside = |s: &Segment| vaddr.checked_sub(s.vaddr).filter(|&inside| inside < s.size);
        self.segments.iter().find_map(|s| s.offset.checked_add(inside(s)?))
    }

    fn bytes(&self, offset: u64, len: u64) -> Option<&'data [u8]> {
        if len > MAX_BYTES {
            return None;
        }
        self.data.read_bytes_at(offset, len).ok()
    }
}

fn sections<'data, R: ReadRef<'data>>(header: &Header, endian: Endianness, data: R) -> Option<Vec<Section>> {
    let table = header.sections(endian, data).ok()?;
    let section = |section: &elf::SectionHeader64<Endianness>| {
        (section.sh_type(endian) != elf::SHT_NOBITS).then(|| {
            Some(Section {
                name: table.section_name(endian, section).ok()?.to_vec(),
                vaddr: section.sh_addr(endian),
                offset: section.sh_offset(endian),
                size: section.sh_size(endian),
            })
        })?
    };
    Some(table.iter().filter_map(section).collect())
}
