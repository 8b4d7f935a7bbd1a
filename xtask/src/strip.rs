//! Removes DWARF from a linked eBPF object: the loader reads BTF only, and the objects are committed.

use anyhow::{Context as _, Result};
use object::{
    build::elf::{Builder, SectionData},
    elf::SHT_STRTAB,
};

/// `elf` without its `.debug_*` sections and their relocations.
///
/// # Errors
/// `elf` is not a well-formed ELF file.
pub(crate) fn without_debug_sections(elf: &[u8]) -> Result<Vec<u8>> {
    let mut builder = Builder::read(elf).context("failed to read the linked object")?;
    for section in &mut builder.sections {
        let name = section.name.as_slice();
        section.delete = name.starts_with(b".debug_") || name.starts_with(b".rel.debug_");
    }
    builder.delete_orphans();
    add_section_names(&mut builder);
    builder.set_section_sizes();
    let mut stripped = Vec::new();
    builder.write(&mut stripped).context("failed to write the stripped object")?;
    Ok(stripped)
}

/// LLVM keeps the names of sections and of symbols in one table; this writer needs two.
fn add_section_names(builder: &mut Builder<'_>) {
    if !builder.sections.iter().any(|section| matches!(section.data, SectionData::SectionString)) {
        let names = builder.sections.add();
        names.name = ".shstrtab".into();
        names.sh_type = SHT_STRTAB;
        names.sh_addralign = 1;
        names.data = SectionData::SectionString;
    }
}

#[cfg(test)]
mod tests {
    use object::{
        Architecture, BinaryFormat, Endianness, Object as _, SectionKind,
        write::{Object, StandardSegment},
    };

    use super::*;

    #[test]
    fn keeps_everything_but_dwarf() {
        let mut object = Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
        for (name, kind) in
            [("uprobe", SectionKind::Text), (".debug_info", SectionKind::Debug), (".BTF", SectionKind::Other)]
        {
            let segment = object.segment_name(StandardSegment::Data).to_vec();
            let id = object.add_section(segment, name.into(), kind);
            object.append_section_data(id, b"12345678", 8);
        }
        let stripped = without_debug_sections(&object.write().unwrap()).unwrap();
        let file = object::File::parse(&*stripped).unwrap();
        assert!(file.section_by_name("uprobe").is_some());
        assert!(file.section_by_name(".BTF").is_some());
        assert!(file.section_by_name(".debug_info").is_none());
    }

    #[test]
    fn what_is_no_elf_file_is_an_error() {
        assert!(without_debug_sections(b"no object").is_err());
    }
}
