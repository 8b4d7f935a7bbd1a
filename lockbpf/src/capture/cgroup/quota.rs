//! Quotas: by them the kernel keeps all threads of a cgroup off the CPU for a while, but for those of real-time classes.

use super::mounts::{Mount, has_cpu, mounts};
use super::path_of;
use std::fs;
use std::path::Path;

/// Where cgroups tell their quotas.
pub struct Quotas(Vec<Mount>);

impl Quotas {
    /// Those of all hierarchies that are mounted now.
    #[must_use]
    pub fn new() -> Self {
        Self(mounts().unwrap_or_default())
    }

    /// As many CPUs as the tightest quota leaves to a process, of the cgroups of either version that it is in; `None` where none of them
    /// sets one. What a container cannot see of the cgroups around it is not looked at.
    #[must_use]
    pub fn cpus(&self, pid: u32) -> Option<f64> {
        let tightest = |mount: &Mount| {
            let (path, cpus): (_, fn(&Path) -> Option<f64>) = if mount.version2 {
                (path_of(pid), cpus)
            } else if mount.is_for_cpu_time() {
                (path_of_version1(pid), cpus_of_version1)
            } else {
                return None;
            };
            mount.directories(&path?).iter().filter_map(|dir| cpus(dir)).min_by(f64::total_cmp)
        };
        self.0.iter().filter_map(tightest).min_by(f64::total_cmp)
    }
}

impl Default for Quotas {
    fn default() -> Self {
        Self::new()
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

fn cpus(dir: &Path) -> Option<f64> {
    let text = fs::read_to_string(dir.join("cpu.max")).ok()?;
    let (quota, period) = text.split_once(' ')?;
    ratio(quota, period)
}

fn cpus_of_version1(dir: &Path) -> Option<f64> {
    let read = |file: &str| fs::read_to_string(dir.join(file)).ok();
    ratio(&read("cpu.cfs_quota_us")?, &read("cpu.cfs_period_us")?)
}

/// Time that may be used in each period over the period; `None` for what stands for no limit.
fn ratio(quota: &str, period: &str) -> Option<f64> {
    let number = |text: &str| text.trim().parse::<u32>().ok().filter(|&us| us > 0).map(f64::from);
    Some(number(quota)? / number(period)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_of_both_versions() {
        let dir = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| fs::write(dir.path().join(file), text).unwrap();
        for (text, left) in [
            ("50000 100000\n", Some(0.5)),
            ("250000 100000\n", Some(2.5)),
            ("max 100000\n", None),
            ("", None),
            ("1 0", None),
        ] {
            write("cpu.max", text);
            assert_eq!(cpus(dir.path()), left, "{text:?}");
        }
        write("cpu.cfs_period_us", "100000\n");
        for (text, left) in [("50000\n", Some(0.5)), ("-1\n", None), ("0\n", None), ("max", None)] {
            write("cpu.cfs_quota_us", text);
            assert_eq!(cpus_of_version1(dir.path()), left, "{text:?}");
        }
    }

    #[test]
    fn who_is_gone_has_none() {
        assert_eq!(Quotas::new().cpus(u32::MAX), None);
    }
}
