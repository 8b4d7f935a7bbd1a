//! Quotas: by them the kernel keeps all threads of a cgroup off the CPU for a while, but for those of real-time classes.

use super::mounts::{Mount, has_cpu, mounts};
use super::path_of;
use crate::proc;
use std::fs;
use std::path::{Path, PathBuf};

/// Where cgroups tell their quotas.
pub struct Quotas(Vec<Mount>);

/// A cgroup of either version, by which CPU time may be bounded.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Group {
    /// Its directory.
    pub(super) dir: PathBuf,
    /// Its path in the hierarchy.
    pub(super) path: String,
    version2: bool,
}

/// What a quota has done since there is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stops {
    /// Periods in which threads were ready to run, and those of them in which the quota was used up.
    pub(super) periods: [u64; 2],
    /// For how long threads were kept off, summed over CPUs.
    pub(super) ns: u64,
}

impl Group {
    /// CPUs that it may use; `None` for all.
    pub(super) fn cpus(&self) -> Option<f64> {
        if self.version2 { cpus(&self.dir) } else { cpus_of_version1(&self.dir) }
    }

    /// What its quota has done; `None` where that is not told.
    pub(super) fn stops(&self) -> Option<Stops> {
        stops(&fs::read_to_string(self.dir.join("cpu.stat")).ok()?)
    }
}

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
        self.groups(pid).iter().filter_map(Group::cpus).min_by(f64::total_cmp)
    }

    /// The cgroups that a process is in and by which its CPU time may be bounded, in each hierarchy innermost first.
    pub(super) fn groups(&self, pid: u32) -> Vec<Group> {
        let of = |mount: &Mount| {
            let path = if mount.version2 {
                path_of(pid)
            } else if mount.is_for_cpu_time() {
                path_of_version1(pid)
            } else {
                None
            };
            let directories = path.map(|path| mount.directories(&path)).unwrap_or_default();
            let group = |dir: PathBuf| {
                let below = dir.strip_prefix(&mount.point).unwrap_or(&dir);
                Group { path: format!("/{}", below.display()), version2: mount.version2, dir }
            };
            directories.into_iter().map(group).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(of).collect()
    }
}

impl Default for Quotas {
    fn default() -> Self {
        Self::new()
    }
}

/// The path of the cgroup by which version 1 controls a process's CPU time.
fn path_of_version1(pid: u32) -> Option<String> {
    let text = proc::text(format!("/proc/{pid}/cgroup")).ok()?;
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

/// From a `cpu.stat` of either version.
fn stops(text: &str) -> Option<Stops> {
    let number =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok());
    let ns = number("throttled_time").or_else(|| number("throttled_usec").map(|us: u64| us.saturating_mul(1_000)));
    Some(Stops { periods: [number("nr_periods")?, number("nr_throttled")?], ns: ns? })
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
    fn what_quotas_did_in_both_versions() {
        let told = Some(Stops { periods: [98, 83], ns: 4_200_000 });
        let version2 = "usage_usec 9\nnr_periods 98\nnr_throttled 83\nthrottled_usec 4200\nnr_bursts 0\n";
        assert_eq!(stops(version2), told);
        assert_eq!(stops("nr_periods 98\nnr_throttled 83\nthrottled_time 4200000\n"), told);
        assert_eq!(stops("usage_usec 9\nuser_usec 8\n"), None);
        assert_eq!(stops("nr_periods 98\nnr_throttled x\nthrottled_time 1\n"), None);
    }

    #[test]
    fn who_is_gone_has_none() {
        assert_eq!(Quotas::new().cpus(u32::MAX), None);
    }
}
