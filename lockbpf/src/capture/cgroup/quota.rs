//! Quotas: by them the kernel keeps all threads of a cgroup off the CPU for a while, but for those of real-time classes.

use super::{Mount, directories_of, mounts};
use std::fs;
use std::path::{Path, PathBuf};

/// Whether a cgroup that a process is in, of either version, sets a quota of CPU time. What a container cannot see of the cgroups around
/// it is not looked at.
pub(in crate::capture) fn has_quota(pid: u32) -> bool {
    let any = |dirs: Vec<PathBuf>, file: &str, is_limit: fn(&str) -> bool| {
        dirs.iter().any(|dir| fs::read_to_string(dir.join(file)).is_ok_and(|text| is_limit(&text)))
    };
    any(directories_of(pid), "cpu.max", is_limit)
        || any(directories_of_version1(pid), "cpu.cfs_quota_us", is_limit_of_version1)
}

fn is_limit(text: &str) -> bool {
    text.split_whitespace().next().is_some_and(|quota| quota != "max")
}

fn is_limit_of_version1(text: &str) -> bool {
    text.trim().parse::<i64>().is_ok_and(|quota_us| quota_us > 0)
}

/// The directory of a process's cgroup for CPU time and those of all above it; none if version 1 does not control that.
fn directories_of_version1(pid: u32) -> Vec<PathBuf> {
    let controls = |controllers: &str| controllers.split(',').any(|controller| controller == "cpu");
    let all = mounts().unwrap_or_default();
    let mount = all.iter().find(|mount| !mount.version2 && controls(&mount.controllers));
    let Some(Mount { point, .. }) = mount else { return Vec::new() };
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let path = text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        fields.next().filter(|controllers| controls(controllers)).and(fields.next())
    });
    let own = path.map(|path| point.join(path.trim_start_matches('/')));
    let above = own.iter().flat_map(|own| own.ancestors());
    above.take_while(|dir| dir.starts_with(point)).map(Path::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_of_both_versions() {
        assert!(is_limit("50000 100000\n") && is_limit_of_version1("50000\n"));
        for none in ["max 100000\n", "", "\n"] {
            assert!(!is_limit(none), "{none:?}");
        }
        for none in ["-1\n", "0\n", "", "max"] {
            assert!(!is_limit_of_version1(none), "{none:?}");
        }
    }

    #[test]
    fn who_is_gone_has_none() {
        assert!(!has_quota(u32::MAX));
    }
}
