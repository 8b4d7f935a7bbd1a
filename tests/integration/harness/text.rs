//! The code of a running process against the file it came from: where they differ, there is a breakpoint.

use aya::programs::ProgramInfo;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes in which the executable mappings of a process differ from their files.
pub(crate) fn modified_bytes(pid: u32) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("failed to read the maps of a target");
    let memory = File::open(format!("/proc/{pid}/mem")).expect("failed to open the memory of a target");
    maps.lines().filter_map(Mapping::executable).map(|mapping| mapping.differences(&memory)).sum()
}

struct Mapping<'a> {
    start: u64,
    end: u64,
    offset: u64,
    file: &'a Path,
}

impl<'a> Mapping<'a> {
    /// The mapping in a line of `/proc/PID/maps`, if it is code from a file.
    fn executable(line: &'a str) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        if !fields.next()?.contains('x') {
            return None;
        }
        let offset = fields.next()?;
        let path = fields.nth(2).filter(|path| path.starts_with('/'))?;
        let number = |digits| u64::from_str_radix(digits, 16).ok();
        Some(Self { start: number(start)?, end: number(end)?, offset: number(offset)?, file: Path::new(path) })
    }

    fn differences(&self, memory: &File) -> usize {
        let file = std::fs::read(self.file).unwrap_or_else(|error| panic!("{}: {error}", self.file.display()));
        let from = usize::try_from(self.offset).expect("an offset fits");
        let length = usize::try_from(self.end - self.start).expect("a length fits").min(file.len() - from);
        let mut mapped = vec![0; length];
        memory.read_exact_at(&mut mapped, self.start).expect("failed to read the code of a target");
        mapped.iter().zip(&file[from..]).filter(|(a, b)| a != b).count()
    }
}

/// The eBPF programs that a process holds open.
pub(crate) fn programs_of(pid: u32) -> Vec<u32> {
    let fds = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("failed to list the descriptors of lockbpf");
    let infos = fds.filter_map(|fd| std::fs::read_to_string(fd.ok()?.path()).ok());
    let ids = infos.filter_map(|info| info.lines().find_map(|l| l.strip_prefix("prog_id:")?.trim().parse().ok()));
    let mut ids: Vec<u32> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Whether any of these eBPF programs is attached to anything.
pub(crate) fn any_attached(ids: &[u32]) -> bool {
    // Other observers' links may go away while they are listed.
    aya::programs::loaded_links().filter_map(Result::ok).any(|info| ids.contains(&info.program_id()))
}

/// Those of these eBPF programs that are loaded. Other observers' may go away while they are listed.
fn loaded(ids: &[u32]) -> impl Iterator<Item = ProgramInfo> {
    aya::programs::loaded_programs().filter_map(Result::ok).filter(|info| ids.contains(&info.id()))
}

/// Whether any of these eBPF programs is loaded.
pub(crate) fn any_loaded(ids: &[u32]) -> bool {
    loaded(ids).next().is_some()
}

/// Whether a process holds an eBPF program of this name.
pub(crate) fn has_program(pid: u32, name: &str) -> bool {
    loaded(&programs_of(pid)).any(|info| info.name_as_str() == Some(name))
}
