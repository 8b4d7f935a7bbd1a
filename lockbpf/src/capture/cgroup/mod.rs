//! Cgroups: one found by its path, its number or a container's id, and who is in it.
//!
//! Only version 2 counts: a task is in one cgroup of it, which the kernel tells eBPF programs. Of version 1 there is a
//! hierarchy per controller, and programs cannot ask for it.

mod container;
mod error;
mod leave;
mod mounts;
mod quota;
mod throttling;

pub use error::CgroupError;
pub(super) use leave::leave_all;
pub use quota::Quotas;
pub use throttling::Throttling;

use crate::proc;
use mounts::{Mount, mounts};
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Directories below a cgroup that are looked through: more are a loop or a misuse.
const MAX_DEPTH: usize = 64;

/// A cgroup of version 2, with all below it.
#[derive(Clone, Debug)]
pub struct Cgroup {
    path: PathBuf,
    name: String,
    dir: Arc<File>,
}

impl PartialEq for Cgroup {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for Cgroup {}

impl Cgroup {
    /// By the path of its directory, by its path in the hierarchy as `/proc/PID/cgroup` has it, or by its number (the inode
    /// number of its directory).
    ///
    /// # Errors
    /// If there is none, or only one of version 1.
    pub fn find(given: &str) -> Result<Self, CgroupError> {
        let all = mounts()?;
        match given.parse::<u64>() {
            Ok(id) => Self::by_number(id, version2(&all)?),
            Err(_) => Self::by_path(given, &all),
        }
    }

    /// By a container's id, or the first twelve or more digits of it.
    ///
    /// # Errors
    /// If there is no such container, or more than one, or it has a cgroup of version 1 only.
    pub fn of_container(id: &str) -> Result<Self, CgroupError> {
        let all = mounts()?;
        let (mount, path) = container::find(id, &all)?;
        Self::open(path, mount)
    }

    fn by_number(id: u64, mount: &Mount) -> Result<Self, CgroupError> {
        let mut found = None;
        walk(&mount.point, &mut |dir| {
            if found.is_none() && fs::metadata(dir).is_ok_and(|metadata| metadata.ino() == id) {
                found = Some(dir.to_owned());
            }
        });
        Self::open(found.ok_or(CgroupError::NoNumber { id, mount: mount.point.clone() })?, mount)
    }

    fn by_path(given: &str, all: &[Mount]) -> Result<Self, CgroupError> {
        let mount = version2(all)?;
        let below = mount.point.join(given.trim_start_matches('/'));
        let given = Path::new(given);
        for candidate in [given, below.as_path()] {
            if candidate.is_absolute() && is_version2(candidate) {
                return Self::open(candidate.to_owned(), mount);
            }
        }
        for old in all.iter().filter(|mount| !mount.version2) {
            let below = old.point.join(given.strip_prefix("/").unwrap_or(given));
            for candidate in [given, below.as_path()] {
                if candidate.starts_with(&old.point) && candidate.join("cgroup.procs").is_file() {
                    return Err(CgroupError::version1(candidate, old));
                }
            }
        }
        Err(CgroupError::NoPath { given: given.to_owned(), below })
    }

    fn open(path: PathBuf, mount: &Mount) -> Result<Self, CgroupError> {
        let unreadable = |source| CgroupError::Unreadable { path: path.clone(), source };
        let path = fs::canonicalize(&path).map_err(unreadable)?;
        let dir = File::open(&path).map_err(unreadable)?;
        let below = path.strip_prefix(&mount.point).unwrap_or(&path);
        Ok(Self { name: format!("/{}", below.display()), dir: Arc::new(dir), path })
    }

    /// Its path in the hierarchy.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Who is in it now, or below it: process ids.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        pids(&self.path)
    }

    /// Whether a process is in it now, or below it. `false` if that cannot be told.
    #[must_use]
    pub fn contains(&self, pid: u32) -> bool {
        path_of(pid).is_some_and(|path| Path::new(&path).starts_with(&self.name))
    }

    /// Its directory, by which the kernel knows it.
    pub(super) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

/// The path in the hierarchy of the cgroup that a process is in.
fn path_of(pid: u32) -> Option<String> {
    let text = proc::read(format!("/proc/{pid}/cgroup")).ok()?;
    path_in(&String::from_utf8_lossy(&text)).map(str::to_owned)
}

/// That path in a `/proc/PID/cgroup`; `None` if there is none of version 2.
fn path_in(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::"))
}

fn version2(all: &[Mount]) -> Result<&Mount, CgroupError> {
    all.iter().find(|mount| mount.version2).ok_or(CgroupError::NotMounted)
}

fn is_version2(path: &Path) -> bool {
    path.is_dir() && statfs(path).is_ok_and(|fs| fs.filesystem_type() == CGROUP2_SUPER_MAGIC)
}

/// Processes in a cgroup's directory and below, of either version.
fn pids(path: &Path) -> Vec<u32> {
    let mut found = BTreeSet::new();
    walk(path, &mut |dir| {
        // A cgroup of threads lists no processes.
        let text =
            fs::read_to_string(dir.join("cgroup.procs")).or_else(|_| fs::read_to_string(dir.join("cgroup.threads")));
        let ids = text.unwrap_or_default();
        found.extend(ids.lines().filter_map(|line| process_of(line.trim().parse().ok()?)));
    });
    found.into_iter().collect()
}

/// The process of a thread. A process that this namespace cannot see is listed as 0.
fn process_of(id: u32) -> Option<u32> {
    let status = proc::text(format!("/proc/{id}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok())
}

/// Calls `visit` for a directory and all below it. What vanishes meanwhile is passed over.
fn walk(top: &Path, visit: &mut dyn FnMut(&Path)) {
    let mut open = vec![(top.to_owned(), 0)];
    while let Some((dir, depth)) = open.pop() {
        visit(&dir);
        let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        open.extend(below.filter(|_| depth < MAX_DEPTH).map(|entry| (entry.path(), depth + 1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_process_is() {
        assert_eq!(path_in("1:cpu:/a\n0::/app/one\n"), Some("/app/one"));
        assert_eq!(path_in("1:cpu:/a\n"), None);
        let Ok(all) = mounts() else { return };
        let Ok(mount) = version2(&all) else { return };
        let own = mount.directories(&path_of(std::process::id()).unwrap());
        assert_eq!(own.last(), Some(&mount.point));
        assert!(own.iter().all(|dir| dir.starts_with(&mount.point)), "{own:?}");
        assert_eq!(path_of(u32::MAX), None);
    }

    #[test]
    fn the_root_has_everybody() {
        let Ok(all) = mounts() else { return };
        let Ok(mount) = version2(&all) else { return };
        let root = Cgroup::find("/").unwrap();
        assert_eq!(root.name(), "/");
        assert!(root.pids().contains(&std::process::id()) && root.contains(std::process::id()));
        let id = fs::metadata(&mount.point).unwrap().ino();
        assert_eq!(Cgroup::find(&id.to_string()).unwrap(), root);
        assert_eq!(Cgroup::find(mount.point.to_str().unwrap()).unwrap(), root);
    }

    #[test]
    fn what_is_not_there_is_named_with_where_it_was_looked_for() {
        if mounts().is_ok_and(|all| version2(&all).is_ok()) {
            let error = Cgroup::find("/no/such cgroup").unwrap_err().to_string();
            assert!(error.contains("/no/such cgroup") && error.contains("neither"), "{error}");
            let error = Cgroup::find("18446744073709551615").unwrap_err().to_string();
            assert!(error.contains("18446744073709551615"), "{error}");
        }
    }
}
