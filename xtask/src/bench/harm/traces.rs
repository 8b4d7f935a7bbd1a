//! What an observer may leave on the machine: eBPF programs and links, mounts, files, processes. Other observers may be at
//! work at the same time: what belongs to a process that lives is theirs.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use anyhow::{Context as _, Result};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Variable in the environment of all that is started by one run of the benchmark.
pub(super) const MARK: &str = "LOCKBPF_BENCH_HARM";

/// What there was before.
pub(super) struct Before<'a> {
    objects: Objects,
    leaks: &'a Leaks,
    mounts: BTreeSet<String>,
    /// Where the observer's temporary files would be.
    files: PathBuf,
    mark: String,
}

/// What is left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Left {
    /// eBPF programs and links.
    pub(super) objects: usize,
    /// Mounts.
    pub(super) mounts: Vec<String>,
    /// Files.
    pub(super) files: Vec<String>,
    /// Processes.
    pub(super) processes: Vec<i32>,
}

/// What was told to be left once, by whoever works side by side.
#[derive(Default)]
pub(super) struct Leaks(Mutex<Objects>);

/// eBPF programs and links by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Objects {
    programs: BTreeSet<u32>,
    links: BTreeSet<u32>,
}

impl<'a> Before<'a> {
    /// Looks; `files` is a directory for temporary files, `mark` the value of [`MARK`].
    ///
    /// # Errors
    /// It is not permitted.
    pub(super) fn look(files: &Path, mark: &str, leaks: &'a Leaks) -> Result<Self> {
        let (objects, files, mark) = (Objects::loaded()?, files.to_owned(), mark.to_owned());
        Ok(Self { objects, leaks, mounts: mounts()?, files, mark })
    }

    /// What is there beyond that. Of eBPF objects those are, and remain, `suspects` that are there whenever it is looked: others are killed side by
    /// side, and what is theirs comes and goes.
    ///
    /// # Errors
    /// It is not permitted.
    pub(super) fn left(&self, suspects: &mut Option<Objects>) -> Result<Left> {
        let processes = self.processes();
        // Before they are listed: what is loaded later by others is theirs.
        let loaded = Objects::loaded()?;
        let owned = Objects::owned_by_others(&processes);
        let still = Objects::loaded()?;
        let left = loaded.common(&still).without(&self.objects).without(&owned).without(&self.leaks.known());
        let suspected = suspects.take().map_or_else(|| left.clone(), |suspects| suspects.common(&left));
        let objects = suspected.programs.len() + suspected.links.len();
        *suspects = Some(suspected);
        let mounts = mounts()?.difference(&self.mounts).cloned().collect();
        let files = fs::read_dir(&self.files).context("failed to list the temporary files")?.flatten();
        let files = files.map(|file| file.path().display().to_string()).collect();
        Ok(Left { objects, mounts, files, processes })
    }

    /// These are told to be left: by nobody else any more.
    pub(super) fn told(&self, left: Objects) {
        let mut known = self.leaks.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.programs.extend(left.programs);
        known.links.extend(left.links);
    }

    /// Processes that the benchmark's observers have started.
    pub(super) fn processes(&self) -> Vec<i32> {
        let mark = format!("{MARK}={}", self.mark);
        let own = Pid::this().as_raw();
        let marked = |pid: &i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            *pid != own && environment.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes())
        };
        pids().into_iter().filter(marked).collect()
    }
}

impl Leaks {
    fn known(&self) -> Objects {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Before<'_> {
    /// Kills them.
    pub(super) fn kill_processes(&self) {
        for pid in self.processes() {
            // One that has ended meanwhile need not be killed.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

impl Left {
    /// Whether there is nothing.
    pub(super) fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl Objects {
    fn loaded() -> Result<Self> {
        // One that goes away while they are listed is none.
        let programs = aya::programs::loaded_programs().filter_map(Result::ok).map(|program| program.id());
        let links = aya::programs::loaded_links().filter_map(Result::ok).map(|link| link.id());
        Ok(Self { programs: programs.collect(), links: links.collect() })
    }

    /// Those that are among others, too.
    fn common(&self, others: &Self) -> Self {
        Self { programs: &self.programs & &others.programs, links: &self.links & &others.links }
    }

    /// Those that are not among others.
    fn without(&self, others: &Self) -> Self {
        Self { programs: &self.programs - &others.programs, links: &self.links - &others.links }
    }

    /// Those of processes that live, but for these.
    fn owned_by_others(without: &[i32]) -> Self {
        let mut owned = Self::default();
        for pid in pids().into_iter().filter(|pid| !without.contains(pid)) {
            for entry in fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten() {
                let info = fs::read_to_string(entry.path()).unwrap_or_default();
                owned.programs.extend(number(&info, "prog_id:"));
                owned.links.extend(number(&info, "link_id:"));
            }
        }
        owned
    }
}

fn number(fdinfo: &str, field: &str) -> Option<u32> {
    fdinfo.lines().find_map(|line| line.strip_prefix(field)?.trim().parse().ok())
}

/// Mount points with their file systems.
fn mounts() -> Result<BTreeSet<String>> {
    let text = fs::read_to_string("/proc/self/mountinfo").context("failed to read /proc/self/mountinfo")?;
    Ok(text.lines().filter_map(mount).collect())
}

fn mount(line: &str) -> Option<String> {
    let (place, kind) = line.split_once(" - ")?;
    Some(format!("{} on {}", kind.split(' ').next()?, place.split(' ').nth(4)?))
}

fn pids() -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read() {
        let link = "link_type:\tuprobe_multi\nlink_id:\t11\nprog_id:\t9\n";
        assert_eq!(
            (number(link, "link_id:"), number(link, "prog_id:"), number(link, "map_id:")),
            (Some(11), Some(9), None)
        );
        let line = "31 25 0:27 / /sys/kernel/tracing rw,nosuid shared:9 - tracefs tracefs rw";
        assert_eq!(mount(line).as_deref(), Some("tracefs on /sys/kernel/tracing"));
        assert_eq!(mount(""), None);
    }

    #[test]
    fn what_is_left_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let mark = format!("test-{}", Pid::this());
        let (leaks, mounts) = (Leaks::default(), mounts().unwrap());
        let before = Before { objects: Objects::default(), leaks: &leaks, mounts, files: dir.path().to_owned(), mark };
        assert_eq!(before.processes(), [0; 0]);
        let mut child = std::process::Command::new("sleep").arg("60").env(MARK, &before.mark).spawn().unwrap();
        while before.processes().is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(before.processes(), [child.id().cast_signed()]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(before.processes(), [0; 0]);
    }
}
