//! What an observer may have changed in a process: its code, its threads' CPUs and signals. Of its descendants, too.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use nix::unistd::Pid;

/// Fields of `/proc/PID/task/TID/status` that are to stay as they are.
const MARKS: [&str; 6] = ["Name", "TracerPid", "SigBlk", "SigIgn", "SigCgt", "Cpus_allowed_list"];

/// What is set in the threads of a process and its descendants: each combination once, since children come and go.
pub(super) type Marks = BTreeSet<String>;

/// A process and all that descend from it.
pub(super) fn family(pid: Pid) -> Vec<i32> {
    let mut family = vec![pid.as_raw()];
    let mut next = 0;
    while let Some(&parent) = family.get(next) {
        for task in list(&format!("/proc/{parent}/task")) {
            let children = fs::read_to_string(format!("/proc/{parent}/task/{task}/children")).unwrap_or_default();
            family.extend(children.split_whitespace().filter_map(|child| child.parse::<i32>().ok()));
        }
        next += 1;
    }
    family
}

/// What is set in the threads of these processes.
pub(super) fn marks(family: &[i32]) -> Marks {
    let mut marks = Marks::new();
    for pid in family {
        for tid in list(&format!("/proc/{pid}/task")) {
            // A thread that has gone meanwhile has no marks.
            if let Ok(status) = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")) {
                marks.extend(mark(&status));
            }
        }
    }
    marks
}

/// The marks in one status; `None` of a thread that is exiting.
fn mark(status: &str) -> Option<String> {
    let fields: BTreeMap<&str, &str> = status.lines().filter_map(|line| line.split_once(":\t")).collect();
    let state = fields.get("State")?.chars().next()?;
    if matches!(state, 'Z' | 'X') {
        return None;
    }
    let stopped = if matches!(state, 'T' | 't') { " stopped" } else { "" };
    let words: Vec<String> = MARKS.iter().map(|name| format!("{name} {}", fields.get(name).unwrap_or(&"?"))).collect();
    Some(words.join(", ") + stopped)
}

/// Bytes in which the executable mappings of these processes differ from their files.
pub(super) fn modified_bytes(family: &[i32]) -> usize {
    let mut files = BTreeMap::new();
    family.iter().map(|&pid| modified_in(pid, &mut files)).sum()
}

fn modified_in(pid: i32, files: &mut BTreeMap<PathBuf, Vec<u8>>) -> usize {
    // One that has exited meanwhile has no code.
    let Ok(maps) = fs::read_to_string(format!("/proc/{pid}/maps")) else { return 0 };
    let Ok(memory) = File::open(format!("/proc/{pid}/mem")) else { return 0 };
    let mut differ = 0;
    for mapping in maps.lines().filter_map(Mapping::executable) {
        let file = mapping.file;
        let content = files.entry(file.to_owned()).or_insert_with(|| fs::read(file).unwrap_or_default());
        differ += mapping.differing(&memory, content);
    }
    differ
}

struct Mapping<'a> {
    start: u64,
    length: usize,
    offset: usize,
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
        let offset = usize::from_str_radix(fields.next()?, 16).ok()?;
        let path = fields.nth(2).filter(|path| path.starts_with('/'))?;
        let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
        Some(Self { start, length: usize::try_from(end - start).ok()?, offset, file: Path::new(path) })
    }

    /// Bytes in which a process's memory differs there from what its file has.
    fn differing(&self, memory: &File, content: &[u8]) -> usize {
        let content = content.get(self.offset..).unwrap_or_default();
        let mut mapped = vec![0; self.length.min(content.len())];
        // What has been unmapped meanwhile is not there to differ.
        memory
            .read_exact_at(&mut mapped, self.start)
            .map_or(0, |()| mapped.iter().zip(content).filter(|(a, b)| a != b).count())
    }
}

fn list(dir: &str) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_tell_what_is_set_and_who_is_stopped() {
        let status = |state: &str, cpus: &str| {
            format!(
                "Name:\twork\nState:\t{state} (…)\nTracerPid:\t0\nSigBlk:\t0\nSigIgn:\t1\nSigCgt:\t2\nCpus_allowed_list:\t{cpus}\n"
            )
        };
        let at_work = mark(&status("R", "0-1")).unwrap();
        assert_eq!(Some(&at_work), mark(&status("S", "0-1")).as_ref());
        assert_ne!(Some(&at_work), mark(&status("S", "0")).as_ref());
        assert_eq!(mark(&status("t", "0-1")), Some(format!("{at_work} stopped")));
        assert_eq!(mark(&status("Z", "0-1")), None);
    }

    /// This compares one function, which nobody observes: a test beside this one may have probes in whatever else of this process locks.
    #[test]
    fn code_differs_where_a_byte_of_it_does() {
        let own = std::env::current_exe().unwrap();
        let (maps, memory) = (fs::read_to_string("/proc/self/maps").unwrap(), File::open("/proc/self/mem").unwrap());
        let mut content = fs::read(&own).unwrap();
        let all = maps.lines().filter_map(Mapping::executable).find(|mapping| mapping.file == own).unwrap();
        let into = modified_in as *const () as u64 - all.start;
        let function = Mapping { start: all.start + into, length: 64, offset: all.offset + into as usize, file: &own };
        assert_eq!(function.differing(&memory, &content), 0);
        content[function.offset] ^= 1;
        content[function.offset + 63] ^= 0x80;
        content[function.offset + 64] ^= 1;
        assert_eq!(function.differing(&memory, &content), 2);
        // The same by way of the whole process, whose other code is taken as it is.
        content.truncate(function.offset + 64);
        memory.read_exact_at(&mut content[all.offset..function.offset], all.start).unwrap();
        let mut files: BTreeMap<PathBuf, Vec<u8>> =
            maps.lines().filter_map(Mapping::executable).map(|mapping| (mapping.file.to_owned(), Vec::new())).collect();
        files.insert(own.clone(), content);
        assert_eq!(modified_in(Pid::this().as_raw(), &mut files), 2);
    }

    #[test]
    fn a_process_is_the_first_of_its_family() {
        let own = family(Pid::this());
        assert_eq!(own.first(), Some(&Pid::this().as_raw()));
        assert!(!marks(&own[..1]).is_empty());
    }
}
