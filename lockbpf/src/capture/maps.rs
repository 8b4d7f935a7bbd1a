//! All mappings of a process.

use crate::proc;
use std::io;
use std::ops::Range;

/// A line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Where it lies.
    pub range: Range<u64>,
    /// Whether it is code.
    pub executable: bool,
    /// Where it begins in its file.
    pub offset: u64,
    /// Inode of the file; 0 without one.
    pub inode: u64,
    /// Path, or a name in brackets.
    pub path: String,
}

/// The mappings of a process.
///
/// # Errors
/// When it is gone or may not be read.
pub fn read(pid: u32) -> io::Result<Vec<Mapping>> {
    let text = proc::read(format!("/proc/{}/maps", crate::leader::face(pid)))?;
    Ok(String::from_utf8_lossy(&text).lines().filter_map(parse).collect())
}

fn parse(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let offset = hex(fields.next()?)?;
    let inode = fields.nth(1)?.parse().ok()?;
    let path = fields.next().unwrap_or_default().trim_start().to_owned();
    let range = hex(start)?..hex(end)?;
    (range.start < range.end).then(|| Mapping {
        range,
        executable: permissions.as_bytes().get(2) == Some(&b'x'),
        offset,
        inode,
        path,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_every_shape() {
        let code = parse("7f00-7f08 r-xp 00028000 fe:00 1234                       /lib/my libs/libc.so.6").unwrap();
        assert_eq!((code.range, code.executable, code.offset, code.inode), (0x7f00..0x7f08, true, 0x28000, 1234));
        assert_eq!(code.path, "/lib/my libs/libc.so.6");
        assert_eq!(parse("7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0          [stack]").unwrap().path, "[stack]");
        assert_eq!(parse("7f0c-7f0d rwxp 00000000 00:00 0 ").unwrap().path, "");
        assert_eq!(parse("7f0d-7f0c rwxp 00000000 00:00 0 "), None);
        assert_eq!(parse("nonsense"), None);
        assert!(read(std::process::id()).unwrap().iter().any(|m| m.path == "[stack]"));
    }
}
