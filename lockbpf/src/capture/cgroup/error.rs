//! Why there is no such cgroup.

use super::mounts::Mount;
use super::pids;
use std::io;
use std::path::{Path, PathBuf};

/// Processes named in a message at most.
const NAMED: usize = 20;
/// What programs cannot do.
const ONLY_VERSION_2: &str = "the kernel tells eBPF programs only of cgroups of version 2";

/// Why a cgroup or a container cannot be observed.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// No hierarchy of version 2.
    #[error(
        "no cgroup hierarchy of version 2 is mounted, and {}: mount it with `mount -t cgroup2 none DIR`, or observe processes \
         with --pid",
        ONLY_VERSION_2
    )]
    NotMounted,
    /// No directory of this name.
    #[error("failed to find cgroup {given}: neither that path nor {below} is a cgroup of version 2", given = .given.display(), below = .below.display())]
    NoPath {
        /// As given.
        given: PathBuf,
        /// Where it was looked for.
        below: PathBuf,
    },
    /// No directory of this number.
    #[error("failed to find cgroup {id}: no directory below {mount} has this inode number", mount = .mount.display())]
    NoNumber {
        /// As given.
        id: u64,
        /// Where it was looked for.
        mount: PathBuf,
    },
    /// A cgroup of version 1.
    #[error("{path} is a cgroup of version 1 ({controllers}), and {}; {members}", ONLY_VERSION_2, path = .path.display())]
    Version1 {
        /// Its directory.
        path: PathBuf,
        /// The controllers of its hierarchy.
        controllers: String,
        /// What can be done instead.
        members: String,
    },
    /// Not a container's id.
    #[error("{0:?} is no container id: the first 12 or more hexadecimal digits of one are expected, e.g. 3f4e1c9d2ab0")]
    NotAnId(String),
    /// No container of this id.
    #[error(
        "failed to find container {id}: none of the {directories} cgroups below {searched} is named for it; {known}"
    )]
    NoContainer {
        /// As given.
        id: String,
        /// How many cgroups were looked at.
        directories: usize,
        /// Below which directories.
        searched: String,
        /// Which containers there are, in words.
        known: String,
    },
    /// Several containers.
    #[error("more than one container has an id that begins with {id}: {candidates}; give more of its digits")]
    Ambiguous {
        /// As given.
        id: String,
        /// Their ids.
        candidates: String,
    },
    /// A directory that cannot be read.
    #[error("failed to read {path}: {source}", path = .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
}

impl CgroupError {
    pub(super) fn version1(path: &Path, mount: &Mount) -> Self {
        let pids = pids(path);
        let options: Vec<String> = pids.iter().take(NAMED).map(|pid| format!("--pid {pid}")).collect();
        let rest = pids.len().saturating_sub(NAMED);
        let members = match (options.is_empty(), rest) {
            (true, _) => "no process is in it now".to_owned(),
            (false, 0) => format!("its processes now: {} (--follow-forks takes in what they start)", options.join(" ")),
            (false, _) => format!("its processes now: {} and {rest} more", options.join(" ")),
        };
        Self::Version1 { path: path.to_owned(), controllers: mount.controllers.clone(), members }
    }
}
