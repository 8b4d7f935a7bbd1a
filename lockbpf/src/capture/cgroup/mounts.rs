//! Where cgroup hierarchies are mounted.

use super::error::CgroupError;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

const MOUNTS: &str = "/proc/self/mountinfo";

/// A mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// Where.
    pub(super) point: PathBuf,
    /// Whether it is of version 2.
    pub(super) version2: bool,
    /// What it controls, for version 1.
    pub(super) controllers: String,
}

impl Mount {
    /// The directory of a path in it, and those of all above that, innermost first.
    pub(super) fn directories(&self, path: &str) -> Vec<PathBuf> {
        let own = self.point.join(path.trim_start_matches('/'));
        own.ancestors().take_while(|dir| dir.starts_with(&self.point)).map(Path::to_owned).collect()
    }

    /// Whether it is of version 1, and for CPU time.
    pub(super) fn is_for_cpu_time(&self) -> bool {
        !self.version2 && has_cpu(&self.controllers)
    }
}

/// Whether `cpu` is among controllers, as mounts and `/proc/PID/cgroup` list them.
pub(super) fn has_cpu(controllers: &str) -> bool {
    controllers.split(',').any(|one| one == "cpu")
}

/// The mounted hierarchies, in the order of their mounting.
pub(super) fn mounts() -> Result<Vec<Mount>, CgroupError> {
    let text = std::fs::read(MOUNTS).map_err(|source| CgroupError::Unreadable { path: MOUNTS.into(), source })?;
    Ok(parse(&text))
}

fn parse(text: &[u8]) -> Vec<Mount> {
    text.split(|&b| b == b'\n').filter_map(parse_line).collect()
}

/// `36 35 0:30 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw`
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&b| b == b' ');
    let point = fields.nth(4)?;
    // Optional fields end with a dash.
    fields.find(|&field| field == b"-")?;
    let version2 = match fields.next()? {
        b"cgroup2" => true,
        b"cgroup" => false,
        _ => return None,
    };
    let options = String::from_utf8_lossy(fields.nth(1).unwrap_or_default()).into_owned();
    let flags = ["rw", "ro", "xattr", "clone_children", "noprefix"];
    let wanted = |option: &&str| !flags.contains(option) && !option.starts_with("release_agent=");
    let controllers = options.split(',').filter(wanted).collect::<Vec<_>>().join(",");
    Some(Mount { point: PathBuf::from(OsString::from_vec(unescape(point))), version2, controllers })
}

/// The kernel writes spaces and the like in paths as `\040`.
fn unescape(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            out.push(byte);
            rest = &after[3..];
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
    fn mounts_of_all_sorts() {
        let text = b"22 28 0:20 / /sys rw shared:7 - sysfs sysfs rw\n\
            29 22 0:26 / /sys/fs/cgroup/unified rw,nosuid shared:9 master:1 - cgroup2 cgroup2 rw,nsdelegate\n\
            30 22 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
            31 22 0:28 / /odd\\040place rw - cgroup none rw,xattr,release_agent=/x,name=systemd\n\
            nonsense\n";
        let mount = |point: &str, version2, controllers: &str| Mount {
            point: point.into(),
            version2,
            controllers: controllers.to_owned(),
        };
        assert_eq!(
            parse(text),
            [
                mount("/sys/fs/cgroup/unified", true, "nsdelegate"),
                mount("/sys/fs/cgroup/cpu,cpuacct", false, "cpu,cpuacct"),
                mount("/odd place", false, "name=systemd"),
            ]
        );
    }

    proptest! {
        #[test]
        fn noise_never_panics(text: Vec<u8>) {
            parse(&text);
        }
    }
}
