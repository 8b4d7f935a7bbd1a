//! The one way in for files that observed programs name: they are opened below the root that the program sees, never through links of
//! `/proc`, and only if they are regular files of a real file system. A FIFO would block, a device would act, and files that a kernel makes up
//! tell of it what only root may know; so what a name leads to is looked at before it is opened.

use crate::rights;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::statfs::{
    BPF_FS_MAGIC, CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC, FsType, NSFS_MAGIC, PROC_SUPER_MAGIC,
    SECURITYFS_MAGIC, SYSFS_MAGIC, TRACEFS_MAGIC, fstatfs,
};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a regular file for reading, by a path below a root directory; links in it lead nowhere else.
///
/// # Errors
/// When there is no such file, it may not be read, or it is not a regular one.
pub(crate) fn open_below(root: &Path, path: &Path) -> io::Result<File> {
    open_in(root, path, OFlag::empty())
}

/// As [`open_below`]; the last component must not be a link.
///
/// # Errors
/// As [`open_below`], and when it is a link.
pub(crate) fn open_below_unlinked(root: &Path, path: &Path) -> io::Result<File> {
    open_in(root, path, OFlag::O_NOFOLLOW)
}

fn open_in(root: &Path, path: &Path, more: OFlag) -> io::Result<File> {
    rights::reach(|| {
        let root = OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(root)?;
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC | more)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        reopen(&File::from(openat2(&root, path, how)?))
    })
}

/// Opens a regular file by a path of lockbpf's own, such as a link of `/proc` that the kernel made for a mapping.
///
/// # Errors
/// As [`open_below`].
pub(crate) fn open_own(path: &Path) -> io::Result<File> {
    rights::reach(|| open_named(path))
}

/// Opens a regular file that the user names, with the user's rights.
///
/// # Errors
/// As [`open_below`].
pub(crate) fn open_named(path: &Path) -> io::Result<File> {
    reopen(&OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path)?)
}

/// File systems whose files the kernel makes up while they are read.
const MADE_UP: [FsType; 9] = [
    PROC_SUPER_MAGIC,
    SYSFS_MAGIC,
    DEBUGFS_MAGIC,
    TRACEFS_MAGIC,
    SECURITYFS_MAGIC,
    CGROUP_SUPER_MAGIC,
    CGROUP2_SUPER_MAGIC,
    BPF_FS_MAGIC,
    NSFS_MAGIC,
];

/// What a descriptor without rights stands for, opened for reading if it is a regular file.
fn reopen(found: &File) -> io::Result<File> {
    let refused = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    if !found.metadata()?.is_file() {
        return refused("not a regular file");
    }
    if MADE_UP.contains(&fstatfs(found)?.filesystem_type()) {
        return refused("a file that the kernel makes up");
    }
    File::open(format!("/proc/self/fd/{}", found.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_lead_nowhere_else_and_pipes_are_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("file"), "own").unwrap();
        symlink("/file", path("absolute")).unwrap();
        symlink("../../../etc/passwd", path("upwards")).unwrap();
        symlink("/proc/self/exe", path("magic")).unwrap();
        nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        // Were the pipe waited for, this test would not end.
        let open = |name: &str| open_below(dir.path(), Path::new(name));
        assert!(open("/file").is_ok() && open("/absolute").is_ok());
        for name in ["upwards", "magic", "fifo", "none"] {
            assert!(open(name).is_err(), "{name}");
        }
        assert!(open_below(Path::new("/"), Path::new("/proc/self/exe")).is_err());
        assert!(open_below(Path::new("/"), Path::new("/dev/null")).is_err());
        // Regular as far as their status tells.
        for name in ["/proc/version", "/proc/kcore", "/proc/kallsyms", "/sys/kernel/notes"] {
            let opened = open_below(Path::new("/"), Path::new(name));
            assert!(opened.is_err() && open_own(Path::new(name)).is_err(), "{name}");
        }
        assert!(fs::metadata("/proc/version").unwrap().is_file(), "else nothing was tested");
        assert!(open_below_unlinked(dir.path(), Path::new("absolute")).is_err());
        assert!(open_below_unlinked(dir.path(), Path::new("file")).is_ok());
        assert!(open_own(Path::new("/proc/self/exe")).is_ok());
        assert!(open_own(&path("fifo")).is_err() && open_own(Path::new("/dev/null")).is_err());
    }
}
