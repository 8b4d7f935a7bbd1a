//! What `/proc` tells of a process. Read here as bytes: names and paths are the observed user's choice, need not be
//! UTF-8, and must not make lockbpf fail (the procfs crate gives up on such names, and panics on some paths).

use super::error::TargetError;
use crate::leader;
use crate::proc;
use crate::rights;
use crate::untrusted::shown;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// A process that can be observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    /// The process, also where a thread was asked for.
    pub(super) pid: u32,
    /// Name of its main thread.
    pub(super) name: String,
}

/// An executable mapping of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    /// Addresses, as in the names of `/proc/PID/map_files`.
    pub(super) range: String,
    /// Inode number.
    pub(super) inode: u64,
    /// Path as the target sees it, with ` (deleted)` behind it where that is so.
    pub(super) path: PathBuf,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Status {
    name: String,
    tgid: u32,
    uid: u32,
    zombie: bool,
    kernel: bool,
}

/// The process that a pid or tid belongs to, if it is a program.
pub(super) fn resolve(pid: u32) -> Result<Process, TargetError> {
    let status = status(pid)?;
    // A main thread that has ended before others is none.
    if status.zombie && leader::stand_in(pid).is_none() {
        return Err(TargetError::Zombie { pid, name: status.name });
    }
    if status.kernel {
        return Err(TargetError::KernelThread { pid, name: status.name });
    }
    if status.tgid == pid {
        return Ok(Process { pid, name: status.name });
    }
    let leader = self::status(status.tgid)?;
    Ok(Process { pid: status.tgid, name: leader.name })
}

/// An error unless the user may observe it, with rights of their own or as one of the group that has them.
pub(super) fn permitted(process: &Process) -> Result<(), TargetError> {
    if rights::covers(process.pid) {
        return Ok(());
    }
    let (pid, name) = (process.pid, process.name.clone());
    Err(TargetError::NotYours { pid, name, owner: owner(status(pid)?.uid) })
}

/// Its executable mappings of files.
pub(super) fn mappings(process: &Process) -> Result<Vec<Mapping>, TargetError> {
    let pid = process.pid;
    match read(leader::face(pid), "maps") {
        Ok(maps) => Ok(parse_maps(&maps)),
        Err(TargetError::Proc { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {
            Err(TargetError::NotPermitted { pid, name: process.name.clone(), owner: owner(status(pid)?.uid) })
        }
        Err(error) => Err(error),
    }
}

/// Every process there is now; some may be gone when they are looked at.
pub(super) fn all() -> Result<Vec<u32>, TargetError> {
    let failed = |source| TargetError::Proc { path: "/proc".to_owned(), source };
    let mut pids = proc::processes().map_err(failed)?;
    pids.sort_unstable();
    Ok(pids)
}

fn owner(uid: u32) -> String {
    match nix::unistd::User::from_uid(uid.into()) {
        Ok(Some(user)) => format!("user {}", user.name),
        _ => format!("user id {uid}"),
    }
}

fn status(pid: u32) -> Result<Status, TargetError> {
    Ok(parse_status(&read(pid, "status")?))
}

fn read(pid: u32, file: &str) -> Result<Vec<u8>, TargetError> {
    let path = format!("/proc/{pid}/{file}");
    proc::read(&path).map_err(|source| match source.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => TargetError::NoSuchProcess { pid },
        _ => TargetError::Proc { path, source },
    })
}

fn parse_status(text: &[u8]) -> Status {
    let text = String::from_utf8_lossy(text);
    let field = |key: &str| text.lines().find_map(|l| l.strip_prefix(key)?.strip_prefix(':')).map(str::trim);
    let number = |key| field(key).and_then(|v| v.split_whitespace().next()?.parse().ok()).unwrap_or_default();
    let zombie = field("State").is_some_and(|s| s.starts_with(['Z', 'X']));
    Status {
        name: shown(field("Name").unwrap_or_default()).into_owned(),
        tgid: number("Tgid"),
        uid: number("Uid"),
        zombie,
        // Newer kernels say so; on older ones only kernel threads have no address space while they live.
        kernel: field("Kthread").map_or(!zombie && field("VmSize").is_none(), |v| v == "1"),
    }
}

/// Text as mappings and as status: each is read, or passed over.
#[cfg(fuzzing)]
pub(super) fn fuzz(text: &[u8]) {
    parse_status(text);
    assert!(parse_maps(text).iter().all(|mapping| mapping.inode != 0 && mapping.path.is_absolute()));
}

fn parse_maps(text: &[u8]) -> Vec<Mapping> {
    text.split(|&b| b == b'\n').filter_map(parse_mapping).collect()
}

/// `7f00-7f08 r-xp 00028000 fe:00 1234    /lib/x86_64-linux-gnu/libc.so.6`
fn parse_mapping(line: &[u8]) -> Option<Mapping> {
    let mut fields = line.splitn(6, |&b| b == b' ');
    let range = std::str::from_utf8(fields.next()?).ok()?;
    let executable = fields.next()?.get(2) == Some(&b'x');
    let inode: u64 = std::str::from_utf8(fields.nth(2)?).ok()?.parse().ok()?;
    let path = fields.next()?.trim_ascii_start();
    (executable && inode != 0 && path.first() == Some(&b'/')).then(|| Mapping {
        range: range.to_owned(),
        inode,
        path: PathBuf::from(OsString::from_vec(unescape(path))),
    })
}

/// The kernel writes a newline in a path as `\012`.
fn unescape(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, after)) = rest.split_first() {
        if let Some(tail) = rest.strip_prefix(br"\012") {
            out.push(b'\n');
            rest = tail;
        } else {
            out.push(first);
            rest = after;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn this_process_and_its_threads() {
        let pid = std::process::id();
        assert_eq!(resolve(pid).unwrap().pid, pid);
        // Rust runs each test in a thread of its own.
        let tid = nix::unistd::gettid().as_raw().cast_unsigned();
        assert_ne!(tid, pid);
        assert_eq!(resolve(tid).unwrap(), resolve(pid).unwrap());
        assert!(all().unwrap().contains(&pid));
        let exe = std::env::current_exe().unwrap();
        assert!(mappings(&resolve(pid).unwrap()).unwrap().iter().any(|m| m.path == exe && m.inode != 0));
    }

    #[test]
    fn what_cannot_be_observed() {
        assert_eq!(resolve(u32::MAX).unwrap_err().to_string(), "failed to attach to pid 4294967295: no such process");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let error = loop {
            match resolve(child.id()) {
                Ok(_) => std::thread::yield_now(),
                Err(error) => break error.to_string(),
            }
        };
        assert_eq!(
            error,
            format!(
                "failed to attach to pid {}: true has exited already (its parent has not collected it)",
                child.id()
            )
        );
        child.wait().unwrap();
    }

    #[test]
    fn status_of_all_sorts() {
        let user = parse_status(b"Name:\tcaf\xe9 x\nState:\tS (sleeping)\nTgid:\t12\nUid:\t33\t33\nVmSize:\t 9 kB\n");
        assert_eq!((user.tgid, user.uid, user.zombie, user.kernel), (12, 33, false, false));
        assert!(parse_status(b"Name:\tkswapd0\nState:\tS (sleeping)\nTgid:\t2\n").kernel);
        assert!(parse_status(b"Name:\tx\nState:\tS\nTgid:\t2\nKthread:\t1\nVmSize:\t 9 kB\n").kernel);
        let dead = parse_status(b"Name:\tx\nState:\tZ (zombie)\nTgid:\t2\n");
        assert!(dead.zombie && !dead.kernel);
    }

    #[test]
    fn mappings_of_all_sorts() {
        let maps = parse_maps(
            b"7f00-7f08 r-xp 00028000 fe:00 1234                       /lib/my libs/libc.so.6 (deleted)\n\
              7f08-7f09 r--p 00028000 fe:00 1234                       /lib/libc.so.6\n\
              7f09-7f0a r-xp 00000000 00:00 0                          [vdso]\n\
              7f0a-7f0b r-xp 00000000 00:01 7                          /SYSV\n\
              7f0b-7f0c r-xp 00000000 00:01 8                          /\xff\\012x\n\
              7f0c-7f0d rwxp 00000000 00:00 0 \n\
              nonsense\n",
        );
        let seen: Vec<_> =
            maps.iter().map(|m| (m.range.as_str(), m.inode, m.path.clone().into_os_string().into_vec())).collect();
        assert_eq!(
            seen,
            [
                ("7f00-7f08", 1234, b"/lib/my libs/libc.so.6 (deleted)".to_vec()),
                ("7f0a-7f0b", 7, b"/SYSV".to_vec()),
                ("7f0b-7f0c", 8, b"/\xff\nx".to_vec()),
            ]
        );
    }

    proptest! {
        #[test]
        fn noise_never_panics(text: Vec<u8>) {
            parse_status(&text);
            parse_maps(&text);
        }
    }
}
