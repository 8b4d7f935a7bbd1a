//! The file behind a mapping: a path by which this process can reach it, and an identity by which it is probed once.

use crate::capture::unusable::Unusable;
use crate::leader;
use crate::proc;
use crate::rights;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Identity of a file. Containers that share a layer show one file through several overlays, each with a device number
/// of its own; a probe goes to the file below. So for overlays the device does not count, but the times do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileId {
    device: Option<u64>,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

#[cfg(test)]
impl FileId {
    /// That of another file of the same size and times.
    pub(super) fn other(self, n: u64) -> Self {
        Self { inode: u64::MAX - n, ..self }
    }
}

/// A file that can be opened.
#[derive(Clone, Debug)]
pub(super) struct File {
    /// By which this process reaches it.
    pub(super) path: PathBuf,
    /// Device number.
    pub(super) dev: u64,
    /// Inode number.
    pub(super) ino: u64,
    /// What makes it one file.
    pub(super) id: FileId,
    /// Whether the user named it, or a program that runs as the user: it is opened with the user's rights.
    pub(super) named: bool,
}

impl File {
    /// The file at a path that the user names.
    pub(super) fn at(path: &Path) -> Result<Self, Unusable> {
        let metadata = fs::metadata(path).map_err(|error| Unusable::Unreadable(error.to_string()))?;
        Ok(Self { named: true, ..Self::new(path.to_owned(), &metadata) })
    }

    /// The file that a process has mapped from `path` (as that process sees it). `link` is the kernel's own link to it,
    /// below `/proc`: it names the right file always, but may need a capability, and lasts only as long as the mapping.
    /// `inode` is the number by which a file found at the path is recognised where the link cannot be followed.
    pub(super) fn of_process(pid: u32, path: &Path, link: &Path, inode: u64) -> Result<Self, Unusable> {
        let truth = proc::about(link).ok();
        let inside = Path::new("/proc")
            .join(leader::face(pid).to_string())
            .join("root")
            .join(path.strip_prefix("/").unwrap_or(path));
        for candidate in [path.to_owned(), inside] {
            let Ok(metadata) = proc::about(&candidate) else { continue };
            let same = match &truth {
                Some(truth) => (metadata.dev(), metadata.ino()) == (truth.dev(), truth.ino()),
                None => metadata.ino() == inode,
            };
            if same {
                return Ok(Self::new(candidate, &metadata));
            }
        }
        truth.map(|metadata| Self::new(link.to_owned(), &metadata)).ok_or(Unusable::Replaced)
    }

    fn new(path: PathBuf, metadata: &Metadata) -> Self {
        let overlay = rights::reach(|| nix::sys::statfs::statfs(&path))
            .is_ok_and(|fs| fs.filesystem_type() == nix::sys::statfs::OVERLAYFS_SUPER_MAGIC);
        let id = FileId {
            device: (!overlay).then(|| metadata.dev()),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        };
        Self { path, dev: metadata.dev(), ino: metadata.ino(), id, named: false }
    }

    /// Whether the path depends on a process that may exit.
    pub(super) fn is_fleeting(&self) -> bool {
        self.path.starts_with("/proc")
    }
}

/// Whether a file of this name is a C library, or the part of one that has the lock functions.
pub(super) fn is_c_library(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    let name = name.strip_suffix(" (deleted)").unwrap_or(name);
    let numbered = |prefix| name.strip_prefix(prefix).is_some_and(|rest: &str| rest.ends_with(".so"));
    matches!(name, "libc.so.6" | "libpthread.so.0" | "libc.so")
        || numbered("libc-2.")
        || numbered("libpthread-2.")
        || name.starts_with("ld-musl-")
        || name.starts_with("libc.musl-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_libraries_by_name() {
        for name in [
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/usr/lib/libc-2.31.so",
            "/usr/lib/libpthread-2.31.so (deleted)",
            "/lib/ld-musl-x86_64.so.1",
        ] {
            assert!(is_c_library(Path::new(name)), "{name}");
        }
        for name in ["/lib/libcrypt.so.1", "/lib/libc-client.so", "/", "/lib/ld-linux-x86-64.so.2", "/libc.so.6/x"] {
            assert!(!is_c_library(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn a_replaced_file_is_not_mistaken_for_the_mapped_one() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("libc.so.6"), dir.path().join("link"));
        fs::write(&path, "new").unwrap();
        let inode = fs::metadata(&path).unwrap().ino();
        let pid = std::process::id();

        let found = File::of_process(pid, &path, &link, inode).unwrap();
        assert_eq!((found.path, found.ino), (path.clone(), inode));
        assert_eq!(File::of_process(pid, &path, &link, inode + 1).unwrap_err(), Unusable::Replaced);

        fs::write(&link, "old").unwrap();
        assert_eq!(File::of_process(pid, &path, &link, inode).unwrap().path, link, "the kernel's link is right");
    }

    #[test]
    fn one_file_under_two_names_is_one() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b, other) = (dir.path().join("a"), dir.path().join("b"), dir.path().join("c"));
        fs::write(&a, "x").unwrap();
        fs::hard_link(&a, &b).unwrap();
        fs::write(&other, "x").unwrap();
        assert_eq!(File::at(&a).unwrap().id, File::at(&b).unwrap().id);
        assert_ne!(File::at(&a).unwrap().id, File::at(&other).unwrap().id);
    }
}
