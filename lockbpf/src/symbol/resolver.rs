//! Addresses in files to functions and source lines, by blazesym; in Go programs by the table that those have in them.

use super::elf::Data;
use super::files::{FileId, ObjectFile};
use super::guard::guarded;
use crate::demangle::demangle;
use crate::golang::pclntab::{Pclntab, Place};
use crate::golang::{Program, buildinfo};
use crate::names::Frame;
use crate::sandbox;
use crate::untrusted::{cleaned, shown_bytes};
use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};
use object::read::CompressionFormat;
use object::{Object, ObjectSection};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Bytes that compressed sections of a file may claim to unpack to, together.
const MAX_UNPACKED: u64 = 512 << 20;

/// Resolves addresses in files. Each file is parsed once, on its first address; nothing is parsed before.
#[derive(Debug)]
pub(super) struct Resolver {
    symbolizer: Symbolizer,
    /// What is asked for the addresses of a file, in this order; a source that cannot be used is dropped.
    sources: HashMap<FileId, Vec<Elf>>,
    /// Go's table of functions, of the files that have one.
    go: HashMap<FileId, Option<Pclntab>>,
}

impl Resolver {
    /// A resolver; supplementary debug files (dwz) are looked for in `debug_dirs`.
    pub(super) fn new(debug_dirs: &[PathBuf]) -> Self {
        // Files are named by descriptors that stay open, so they cannot change behind a path. Demangling is ours, since
        // blazesym's is not bounded.
        let symbolizer = Symbolizer::builder()
            .enable_auto_reload(false)
            .enable_demangling(false)
            .set_debug_dirs(Some(debug_dirs))
            .build();
        Self { symbolizer, sources: HashMap::new(), go: HashMap::new() }
    }

    /// The functions at an address of a file, most deeply inlined first; empty if no symbol covers it. A `plain` file's symbols are
    /// used only. [`Frame::addr`] and [`Frame::module`] are left for the caller.
    pub(super) fn frames(&mut self, id: FileId, file: &ObjectFile, addr: u64, plain: bool) -> Vec<Frame> {
        // What the file shares with others is found below a directory that is not there.
        sandbox::lend(file.shared_debug.as_ref().map(AsFd::as_fd));
        let go = self.go.entry(id).or_insert_with(|| guarded(|| go_table(&file.file)).flatten());
        let mut frames: Vec<Frame> = go.iter().flat_map(|table| table.places(addr)).map(from_go).collect();
        let sources = self.sources.entry(id).or_insert_with(|| sources(file, plain));
        sources.retain(|elf| {
            if !frames.is_empty() {
                return true;
            }
            // Errors of single addresses come back as unknown symbols; an error here condemns the source as a whole.
            let source = Source::Elf(elf.clone());
            match guarded(|| self.symbolizer.symbolize(&source, Input::VirtOffset(&[addr]))) {
                None => {
                    log::debug!("{:?} of {} is damaged", elf.path, file.name);
                    false
                }
                Some(Ok(symbols)) => {
                    if let Some(Symbolized::Sym(symbol)) = symbols.first() {
                        frames = to_frames(symbol);
                    }
                    true
                }
                Some(Err(error)) => {
                    log::debug!("failed to use {:?} of {} for names: {error}", elf.path, file.name);
                    false
                }
            }
        });
        frames
    }
}

/// DWARF where there is any and it is wanted, then plain symbol tables, in case the DWARF is damaged or of an unknown kind.
fn sources(file: &ObjectFile, plain: bool) -> Vec<Elf> {
    let elf = |(file, debug_syms): (&File, bool)| {
        let mut elf = Elf::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
        elf.debug_syms = debug_syms;
        elf
    };
    let sources = match &file.debug {
        Some(debug) => vec![(debug, true), (debug, false), (&file.file, false)],
        None => vec![(&file.file, true), (&file.file, false)],
    };
    let usable = |&(file, debug_syms): &(&File, bool)| {
        !(debug_syms && plain) && guarded(|| unpacked(file, debug_syms)).is_some_and(|bytes| bytes <= MAX_UNPACKED)
    };
    sources.into_iter().filter(usable).map(elf).collect()
}

/// What compressed sections of a file claim to unpack to: blazesym makes room for that without asking whether there is any.
fn unpacked(file: &File, debug_syms: bool) -> u64 {
    let data = Data::new(file);
    let Ok(elf) = object::File::parse(&data) else { return u64::MAX };
    let needed = |name: &str| debug_syms || !name.starts_with(".debug_");
    let needed = elf.sections().filter(|section| section.name().is_ok_and(needed));
    let ranges = needed.filter_map(|section| section.compressed_file_range().ok());
    let packed = ranges.filter(|range| range.format != CompressionFormat::None);
    packed.fold(0, |sum, range| sum.saturating_add(range.uncompressed_size))
}

/// Stripped or not, Go's own table says which function an address belongs to, and what was inlined there. C functions of a cgo
/// program are not in it.
fn go_table(file: &File) -> Option<Pclntab> {
    let data = Data::new(file);
    let program = Program::read(&data)?;
    buildinfo::release(&program)?;
    Pclntab::read(&program)
}

fn from_go(place: Place) -> Frame {
    let Place { function, location, inlined } = place;
    let location = location.map(|(file, line)| (cleaned(file), line));
    Frame { function: Some(cleaned(function)), location, inlined, ..Frame::default() }
}

fn to_frames(symbol: &Sym<'_>) -> Vec<Frame> {
    let frame = |name: &str, code: Option<&CodeInfo<'_>>, inlined| Frame {
        function: (!name.is_empty()).then(|| demangle(name)),
        location: code.and_then(location),
        inlined,
        ..Frame::default()
    };
    // blazesym lists inlined functions outermost first.
    let inlined = symbol.inlined.iter().rev().map(|f| frame(&f.name, f.code_info.as_ref(), true));
    inlined.chain([frame(&symbol.name, symbol.code_info.as_deref(), false)]).collect()
}

/// Compilers use line 0 for code that no line stands for.
fn location(code: &CodeInfo<'_>) -> Option<(String, u32)> {
    let line = code.line.filter(|&line| line > 0)?;
    Some((shown_bytes(code.to_path().as_os_str().as_bytes()), line))
}
