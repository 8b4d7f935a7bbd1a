//! Discovery: the files in which a process, a command or the whole system has its lock functions, each file once.

mod command;
mod error;
mod file;
#[cfg(fuzzing)]
pub mod fuzz;
mod library;
mod process;
mod translated;

pub use super::site::{Missing, Site};
pub use super::unusable::Unusable;
pub use command::of_command;
pub use error::TargetError;
pub use library::{FileKey, Library};

use super::judge::Role;
use super::mangled;
use super::{guardian, remover};
use crate::custom::catalogue;
use crate::leader;
use crate::proc;
use crate::sandbox;
use file::{File, FileId, is_c_library};
use library::{Verdict, examine};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time that all files of one observation may take together; those that turn up later are not looked into.
const PATIENCE: Duration = Duration::from_secs(30);
/// Files that may have lock functions, at most.
const MAX_LIBRARIES: usize = 4_096;
/// Files known, with those in which there is nothing to look for.
const MAX_FILES: usize = 65_536;

/// A process asked for, or come across.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Process id; `None` for a command that has not been started.
    pub pid: Option<u32>,
    /// Name of the main thread, or of the program.
    pub name: String,
    /// The files in which its lock functions are probed.
    pub files: Vec<FileKey>,
    /// Why none of its lock functions can be probed, if so.
    pub unusable: Option<Unusable>,
}

impl Process {
    /// If only its futex calls are seen, a sentence that says so, with the reason.
    #[must_use]
    pub fn waits_only(&self) -> Option<String> {
        let why = self.unusable.as_ref()?;
        let pid = self.pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
        Some(format!("only waits of {}{pid} are seen, and where locks are given back: {why}.", self.name))
    }
}

/// Processes that a system-wide look could not take in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Skipped {
    /// Gone between being listed and being looked at.
    pub vanished: usize,
    /// Not permitted, or not readable.
    pub unreadable: usize,
}

/// What is to be probed, and for whom.
#[derive(Clone, Debug, Default)]
pub struct Targets {
    /// Files, each once, in the order found.
    pub libraries: Vec<Library>,
    /// Processes looked at, in the order given.
    pub processes: Vec<Process>,
    /// Remarks for the user, each a sentence.
    pub notes: Vec<String>,
    /// What was passed over.
    pub skipped: Skipped,
}

impl Targets {
    /// Whether every process asked for has lock functions that can be probed. Not needed for the futex tier.
    ///
    /// # Errors
    /// The first process that has none, and why.
    pub fn check_full_tier(&self) -> Result<(), TargetError> {
        for process in &self.processes {
            let (Some(why), name) = (&process.unusable, process.name.clone()) else { continue };
            return Err(match process.pid {
                Some(pid) => TargetError::Unusable { pid, name, why: why.clone() },
                None => TargetError::Command { command: name, why: why.to_string() },
            });
        }
        Ok(())
    }

    /// A sentence for each process of which only the futex calls are seen, with the reason.
    pub fn waits_only(&self) -> impl Iterator<Item = String> {
        self.processes.iter().filter_map(Process::waits_only)
    }

    /// Whether there is anything to probe at all: what `--system-wide` needs.
    ///
    /// # Errors
    /// If not one file is usable.
    pub fn check_any(&self) -> Result<(), TargetError> {
        let usable = self.libraries.iter().any(|library| !library.sites.is_empty());
        if usable { Ok(()) } else { Err(TargetError::NoLibraries(self.processes.len())) }
    }

    /// Whom probes in all processes at once would kill: processes under a translator of code that map a file that would be probed.
    pub fn harmed(&self) -> impl Iterator<Item = &Process> {
        let is_probed = |inode| self.libraries.iter().any(|library| library.ino == inode);
        self.processes.iter().filter(move |process| {
            let translated = matches!(process.unusable, Some(Unusable::Translated(_)));
            translated && process.pid.is_some_and(|pid| translated::maps_any(pid, is_probed))
        })
    }
}

/// Processes by pid; a thread's id stands for its process.
///
/// # Errors
/// If one of them does not exist, is no program, or may not be read. That its locks cannot be probed is no error here:
/// see [`Targets::check_full_tier`].
pub fn of_pids(pids: &[u32]) -> Result<Targets, TargetError> {
    Survey::default().of_pids(pids)
}

/// Every program there is but `exclude_pid`, also those in containers.
///
/// # Errors
/// Only if `/proc` itself cannot be read: processes that vanish or may not be read are counted instead.
pub fn system_wide(exclude_pid: u32) -> Result<Targets, TargetError> {
    Ok(Survey::default().of_all(&process::all()?, exclude_pid))
}

/// Every process there is now, kernel threads included; some may be gone when they are looked at.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn all() -> Result<Vec<u32>, TargetError> {
    process::all()
}

/// What translates a process's code, if something does: probes in it would kill it.
#[must_use]
pub(super) fn translator(pid: u32) -> Option<&'static str> {
    translated::translator(pid)
}

/// The verdict on a process that uses both: one usable file is enough, and a reason is better than none found.
fn better(so_far: Verdict, next: Verdict) -> Verdict {
    match (&so_far, &next) {
        (Ok(()), _) | (Err(_), Err(Unusable::NoLibc)) => so_far,
        _ => next,
    }
}

/// Whether a library may have locks of its own compiled in.
fn is_other_library(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(mangled::is_library) || catalogue().describes(path)
}

/// Files looked at so far, each once however many processes use it and whenever it is come across.
#[derive(Default)]
pub struct Survey {
    libraries: Vec<Library>,
    /// How many of these were taken.
    taken: usize,
    /// Position in `libraries`; `None` for a file in which there is nothing to look for.
    known: HashMap<FileId, Option<usize>>,
    /// Time that files have taken so far.
    spent: Duration,
}

impl Survey {
    /// Processes by pid; a thread's id stands for its process. With the files found for the first time.
    ///
    /// # Errors
    /// If one of them does not exist, is no program, or may not be read. That its locks cannot be probed is no error here:
    /// see [`Targets::check_full_tier`].
    pub fn of_pids(&mut self, pids: &[u32]) -> Result<Targets, TargetError> {
        let mut targets = Targets::default();
        for &pid in pids {
            let process = process::resolve(pid)?;
            process::permitted(&process)?;
            if process.pid != pid {
                let (leader, name) = (process.pid, &process.name);
                targets
                    .notes
                    .push(format!("{pid} is a thread of process {leader} ({name}), which is observed as a whole"));
            }
            if !targets.processes.iter().any(|p| p.pid == Some(process.pid)) {
                targets.processes.push(self.look_at(process)?);
            }
        }
        targets.libraries = self.take_new();
        Ok(targets)
    }

    /// The programs among these processes, but `exclude_pid` and this process's own helpers, with the files found for the first time. Those that vanish or may
    /// not be read are counted.
    pub fn of_all(&mut self, pids: &[u32], exclude_pid: u32) -> Targets {
        let mut targets = Targets::default();
        let own = [Some(exclude_pid), guardian::pid(), remover::pid()];
        for &pid in pids.iter().filter(|&&pid| !own.contains(&Some(pid)) && !sandbox::is_own(pid)) {
            match process::resolve(pid).and_then(|process| self.look_at(process)) {
                Ok(process) => targets.processes.push(process),
                Err(TargetError::KernelThread { .. }) => {}
                Err(TargetError::NoSuchProcess { .. } | TargetError::Zombie { .. }) => targets.skipped.vanished += 1,
                Err(_) => targets.skipped.unreadable += 1,
            }
        }
        targets.libraries = self.take_new();
        targets
    }

    /// The libraries found since this was asked last.
    fn take_new(&mut self) -> Vec<Library> {
        let new = self.libraries[self.taken..].to_vec();
        self.taken = self.libraries.len();
        new
    }

    /// Looks for a process's lock functions: in its C library, else in its own executable.
    fn look_at(&mut self, process: process::Process) -> Result<Process, TargetError> {
        let pid = process.pid;
        let proc = Path::new("/proc").join(leader::face(pid).to_string());
        if let Some(translator) = translated::translator(pid) {
            let unusable = Some(Unusable::Translated(translator));
            return Ok(Process { pid: Some(pid), name: process.name, files: Vec::new(), unusable });
        }
        let mut verdict = Err(Unusable::NoLibc);
        let (mut seen, mut files) = (Vec::new(), Vec::new());
        let mappings = process::mappings(&process)?;
        for mapping in mappings.iter().filter(|m| is_c_library(&m.path)) {
            if seen.contains(&(mapping.inode, mapping.path.clone())) {
                continue;
            }
            let link = proc.join("map_files").join(&mapping.range);
            let found = match File::of_process(pid, &mapping.path, &link, mapping.inode) {
                Ok(file) => self.add(&file, &mapping.path, Role::CLibrary, false, Some(pid), &mut files),
                Err(why) => Err(why),
            };
            verdict = better(verdict, found);
            seen.push((mapping.inode, mapping.path.clone()));
        }
        for mapping in mappings.iter().filter(|m| is_other_library(&m.path)) {
            let link = proc.join("map_files").join(&mapping.range);
            if let Ok(file) = File::of_process(pid, &mapping.path, &link, mapping.inode) {
                let _ = self.add(&file, &mapping.path, Role::Library, false, Some(pid), &mut files);
            }
        }
        let own = self.executable(pid, &proc.join("exe"), verdict != Err(Unusable::NoLibc), &mut files);
        verdict = better(verdict, own);
        let unusable = match verdict {
            Err(Unusable::Stubs(version)) => Some(Unusable::NoThreads(version)),
            other => other.err(),
        };
        Ok(Process { pid: Some(pid), name: process.name, files, unusable })
    }

    /// Looks into the executable of a process that has found a C library or not: one that is static has its own lock
    /// functions, and those of Go, and of what is compiled in, are in the executable in any case.
    fn executable(&mut self, pid: u32, link: &Path, has_library: bool, files: &mut Vec<FileKey>) -> Verdict {
        let unreadable = |error: std::io::Error| Unusable::Unreadable(error.to_string());
        let path = proc::link(link).map_err(unreadable)?;
        let file = File::of_process(pid, &path, link, 0)?;
        self.add(&file, &path, Role::Executable, has_library, Some(pid), files)
    }

    /// Takes in a file that a process uses, and says whether it can be probed; if so, it is added to `files`. `has_library` tells of an
    /// executable whether its process has found a C library.
    fn add(
        &mut self,
        file: &File,
        display: &Path,
        role: Role,
        has_library: bool,
        pid: Option<u32>,
        files: &mut Vec<FileKey>,
    ) -> Verdict {
        let is_full = self.libraries.len() >= MAX_LIBRARIES || self.known.len() >= MAX_FILES;
        let index = match self.known.entry(file.id) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(_) if is_full => return Err(Unusable::TooManyFiles),
            Entry::Vacant(_) if self.spent >= PATIENCE => return Err(Unusable::OutOfTime),
            Entry::Vacant(new) => {
                let library = timed(&mut self.spent, || examine(file, display, role, has_library))?;
                *new.insert(library.map(|library| {
                    self.libraries.push(library);
                    self.libraries.len() - 1
                }))
            }
        };
        let Some(library) = index.and_then(|index| self.libraries.get_mut(index)) else {
            return Err(Unusable::NoLibc);
        };
        library.pids.extend(pid.filter(|pid| !library.pids.contains(pid)));
        if library.path.starts_with("/proc") && !file.is_fleeting() {
            library.path.clone_from(&file.path);
        }
        match &library.unusable {
            Some(why) => Err(why.clone()),
            None => {
                let key = (library.dev, library.ino);
                if !files.contains(&key) {
                    files.push(key);
                }
                Ok(())
            }
        }
    }
}

/// Does something, and adds the time that it takes.
fn timed<T>(spent: &mut Duration, work: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let done = work();
    *spent += began.elapsed();
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::elf::{self, ElfError, Found, GlibcVersion};
    use crate::capture::probe_table::{FUNCTIONS, Runtime};
    use crate::capture::prologue::Cost;
    use std::collections::HashSet;

    #[test]
    fn this_process_uses_one_c_library_and_the_locks_of_its_libraries() {
        let pid = std::process::id();
        let targets = of_pids(&[pid, pid]).unwrap();
        targets.check_full_tier().unwrap();
        assert_eq!(targets.processes.len(), 1);
        let [library, own] = targets.libraries.as_slice() else { panic!("{:?}", targets.libraries) };
        assert_eq!(targets.processes[0].files, [library, own].map(|file| (file.dev, file.ino)));
        assert_eq!(own.path, std::env::current_exe().unwrap());
        let compiled =
            |site: &Site| ["std::sync::", "tokio::sync "].iter().any(|of| site.function.symbol.starts_with(of));
        assert!(own.unusable.is_none() && own.sites.iter().all(compiled));
        let functions = FUNCTIONS.iter().filter(|f| f.runtime == Runtime::Glibc).count();
        // Some are probed at more than one place.
        let probed: HashSet<_> = library.sites.iter().map(|site| site.function.symbol).collect();
        assert_eq!((library.pids.as_slice(), probed.len()), (&[pid][..], functions));
        assert!(library.missing.is_empty() && library.unusable.is_none() && !library.path.starts_with("/proc"));
        let image = elf::locate(&std::fs::read(&library.path).unwrap(), FUNCTIONS).unwrap();
        for site in &library.sites {
            let code = image.functions.iter().find_map(|(f, found)| match found {
                Found::Code(code) if f.symbol == site.function.symbol && f.runtime == Runtime::Glibc => Some(code),
                _ => None,
            });
            let code = code.unwrap();
            assert_eq!(site.file_offset, code.file_offset + site.placement.offset);
            assert!(site.placement.offset < code.bytes.len() as u64);
            assert!(site.placement.offset == 0 || site.placement.cost == Cost::Emulated);
        }
    }

    #[test]
    fn threads_stand_for_their_process() {
        let tid = nix::unistd::gettid().as_raw().cast_unsigned();
        let targets = of_pids(&[tid, std::process::id()]).unwrap();
        assert_eq!(targets.processes.len(), 1);
        assert!(targets.notes[0].starts_with(&format!("{tid} is a thread of process {} (", std::process::id())));
    }

    #[test]
    fn the_whole_system_without_one() {
        let pid = std::process::id();
        let all = system_wide(0).unwrap();
        all.check_any().unwrap();
        assert!(all.libraries.iter().any(|library| library.pids.contains(&pid)));
        let others = system_wide(pid).unwrap();
        assert!(others.libraries.iter().all(|library| !library.pids.contains(&pid)));
        let mut files: Vec<_> = all.libraries.iter().map(|library| (library.dev, library.ino)).collect();
        files.sort_unstable();
        files.dedup();
        assert_eq!(files.len(), all.libraries.len());
    }

    #[test]
    fn files_take_no_more_than_their_time_and_room() {
        let pid = std::process::id();
        let why = |mut survey: Survey| {
            let targets = survey.of_pids(&[pid]).unwrap();
            assert!(targets.libraries.is_empty() && survey.known.len() <= MAX_FILES);
            targets.processes[0].unusable.clone()
        };
        assert_eq!(why(Survey { spent: PATIENCE, ..Survey::default() }), Some(Unusable::OutOfTime));
        let own = File::at(Path::new("/proc/self/exe")).unwrap().id;
        let known = (0..MAX_FILES as u64).map(|inode| (own.other(inode), None)).collect();
        assert_eq!(why(Survey { known, ..Survey::default() }), Some(Unusable::TooManyFiles));
        let mut patient = Survey::default();
        patient.of_pids(&[pid]).unwrap();
        assert!(patient.spent > Duration::ZERO);
    }

    #[test]
    fn libpthread_makes_up_for_the_stubs_in_libc() {
        let stubs = || Err(Unusable::Stubs(GlibcVersion(2, 31)));
        assert_eq!(better(stubs(), Ok(())), Ok(()));
        assert_eq!(better(Ok(()), stubs()), Ok(()));
        assert_eq!(better(Err(Unusable::NoLibc), stubs()), stubs());
        assert_eq!(better(stubs(), Err(Unusable::NoLibc)), stubs());
    }

    #[test]
    fn errors_say_what_can_be_done() {
        let targets = Targets {
            processes: vec![Process {
                pid: Some(7),
                name: "caddy".to_owned(),
                files: Vec::new(),
                unusable: Some(Unusable::OldGo("go1.17.3".to_owned())),
            }],
            ..Targets::default()
        };
        assert_eq!(
            targets.check_full_tier().unwrap_err().to_string(),
            "failed to attach to pid 7 (caddy): it was made by a Go before 1.18 (go1.17.3), whose calls lockbpf cannot \
             read; `--futex-only` still shows its waits"
        );
        assert!(targets.check_any().unwrap_err().to_string().contains("none of the 1 processes"));
        assert_eq!(Unusable::Elf(ElfError::NotElf).to_string(), "it is not an ELF file");
    }
}
