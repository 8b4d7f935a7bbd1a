//! Quotas: by them the kernel keeps all threads of a cgroup off the CPU for a while, but for those of real-time classes.

use super::mounts::{Mount, has_cpu, mounts};
use super::path_of;
use std::fs;

/// Where cgroups tell their quotas.
pub(in crate::capture) struct Quotas(Vec<Mount>);

impl Quotas {
    /// Those of all hierarchies that are mounted now.
    pub(in crate::capture) fn new() -> Self {
        Self(mounts().unwrap_or_default())
    }

    /// Whether a cgroup that a process is in, of either version, sets a quota of CPU time. What a container cannot see of the cgroups around
    /// it is not looked at.
    pub(in crate::capture) fn limit(&self, pid: u32) -> bool {
        self.0.iter().any(|mount| {
            let (path, file, is_limit): (_, _, fn(&str) -> bool) = if mount.version2 {
                (path_of(pid), "cpu.max", is_limit)
            } else if mount.is_for_cpu_time() {
                (path_of_version1(pid), "cpu.cfs_quota_us", is_limit_of_version1)
            } else {
                return false;
            };
            let directories = path.map_or_else(Vec::new, |path| mount.directories(&path));
            directories.iter().any(|dir| fs::read_to_string(dir.join(file)).is_ok_and(|text| is_limit(&text)))
        })
    }
}

/// The path of the cgroup by which version 1 controls a process's CPU time.
fn path_of_version1(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        fields.next().filter(|controllers| has_cpu(controllers)).and(fields.next()).map(str::to_owned)
    })
}

fn is_limit(text: &str) -> bool {
    text.split_whitespace().next().is_some_and(|quota| quota != "max")
}

fn is_limit_of_version1(text: &str) -> bool {
    text.trim().parse::<i64>().is_ok_and(|quota_us| quota_us > 0)
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
        assert!(!Quotas::new().limit(u32::MAX));
    }
}
