//! `/proc/PID/maps`: what a process has mapped where.
//!
//! Parsed here and not by the procfs crate: that one panics on a mapped file named `/SYSV` and drops every mapping when
//! one path is not UTF-8, and the names of mapped files are the observed program's choice.

use crate::proc;
use crate::untrusted::shown_bytes;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Bytes of a maps file that are read: some 300,000 mappings, above the kernel's usual limit of 65,530.
const MAX_BYTES: u64 = 32 << 20;

/// What the kernel appends to the path of a file that has no name any more.
const DELETED: &[u8] = b" (deleted)";

/// One line of `/proc/PID/maps` that is executable; only these tell where a file's image lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    /// First address.
    pub(super) start: u64,
    /// One past the last address.
    pub(super) end: u64,
    /// Offset of `start` in the file.
    pub(super) offset: u64,
    /// Major and minor number of the file's device, as the kernel shows them here.
    pub(super) dev: (u32, u32),
    /// The file's inode number; 0 for memory without a file.
    pub(super) inode: u64,
    /// Path without its deleted mark, or a name in brackets; empty for plain anonymous memory.
    pub(super) path: PathBuf,
    /// Whether the path names nothing, or another file, by now.
    pub(super) deleted: bool,
}

impl Mapping {
    /// Parses one line; `None` if it is malformed or not executable.
    fn parse(line: &[u8]) -> Option<Self> {
        // Fields are separated by one blank; the path, last, is set off by more and may hold blanks itself.
        let mut fields = line.splitn(6, |&b| b == b' ').map(|f| str::from_utf8(f).map_err(|_| f));
        let (start, end) = fields.next()?.ok()?.split_once('-')?;
        let permissions = fields.next()?.ok()?;
        let offset = fields.next()?.ok()?;
        let (major, minor) = fields.next()?.ok()?.split_once(':')?;
        let inode = fields.next()?.ok()?;
        let path = fields.next().map_or(&b""[..], |f| f.map_or_else(|raw| raw, str::as_bytes)).trim_ascii_start();
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let (start, end) = (hex(start)?, hex(end)?);
        if start >= end || permissions.as_bytes().get(2) != Some(&b'x') {
            return None;
        }
        let stripped = path.strip_suffix(DELETED);
        Some(Self {
            start,
            end,
            offset: hex(offset)?,
            dev: (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?),
            inode: inode.parse().ok()?,
            path: PathBuf::from(OsStr::from_bytes(stripped.unwrap_or(path))),
            deleted: stripped.is_some(),
        })
    }

    /// Size in bytes.
    pub(super) fn len(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Last component of the path, for messages and reports.
    pub(super) fn base_name(&self) -> String {
        shown_bytes(self.path.file_name().unwrap_or(self.path.as_os_str()).as_bytes())
    }
}

/// The executable mappings in the text of a maps file; lines that make no sense are passed over.
pub(super) fn parse(text: &[u8]) -> Vec<Mapping> {
    text.split(|&b| b == b'\n').filter_map(Mapping::parse).collect()
}

/// The executable mappings of a process, and a living thread of it whose `/proc` entry still leads to its files.
///
/// # Errors
/// When the process has exited (`NotFound`) or may not be read.
pub(super) fn read(pid: u32) -> io::Result<(u32, Vec<Mapping>)> {
    let text = read_text(pid)?;
    if !text.is_empty() {
        return Ok((pid, parse(&text)));
    }
    // The main thread is gone while others go on: its memory, root and files are shown empty, theirs are not.
    for tid in proc::threads(pid)? {
        match read_text(tid) {
            Ok(text) if !text.is_empty() => return Ok((tid, parse(&text))),
            _ => {}
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "it has exited, or is a kernel thread"))
}

fn read_text(tid: u32) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    proc::open(format!("/proc/{tid}/maps"))?.take(MAX_BYTES).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;

    #[test]
    fn lines_of_every_shape() {
        let text = b"\
00400000-00452000 r-xp 00001000 08:02 173521                             /usr/bin/dbus daemon\n\
7f0000000000-7f0000001000 r--p 00000000 08:02 173522                     /usr/lib/data\n\
7f0000001000-7f0000002000 r-xp 00002000 fd:1a 7                          /tmp/gone (deleted)\n\
7f0000003000-7f0000004000 rwxp 00000000 00:00 0 \n\
7f0000005000-7f0000006000 r-xs 00000000 00:01 9                          /SYSV\n\
7f0000007000-7f0000008000 r-xp 00000000 00:01 9                          /bad\xff\n\
7ffd00000000-7ffd00001000 r-xp 00000000 00:00 0                          [vdso]\n\
garbage\n7f-6f r-xp 0 0:0 0 /reversed\n7f00 r-xp\n";
        let maps = parse(text);
        let names: Vec<_> = maps.iter().map(|m| m.path.as_os_str().as_bytes()).collect();
        assert_eq!(names, [&b"/usr/bin/dbus daemon"[..], b"/tmp/gone", b"", b"/SYSV", b"/bad\xff", b"[vdso]"]);
        assert_eq!((maps[0].start, maps[0].end, maps[0].offset), (0x400000, 0x452000, 0x1000));
        assert_eq!((maps[1].dev, maps[1].inode, maps[1].deleted), ((0xfd, 0x1a), 7, true));
        assert_eq!(maps[0].base_name(), "dbus daemon");
        assert!(!maps[0].deleted);
    }

    #[test]
    fn own_process_and_exited_ones() {
        let (tid, maps) = read(std::process::id()).unwrap();
        assert_eq!(tid, std::process::id());
        assert!(maps.iter().any(|m| m.path == Path::new("[vdso]")));
        assert_eq!(read(u32::MAX).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    proptest! {
        #[test]
        fn no_text_is_a_panic(text in prop::collection::vec(any::<u8>(), 0..200), line in "[0-9a-f]{1,17}-[0-9a-f]{1,17} r.x. [0-9a-f:]{1,9} [0-9:]{1,5} .{0,20}") {
            parse(&text);
            parse(line.as_bytes());
        }
    }
}
