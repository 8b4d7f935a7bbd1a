//! CPUs that a program may use.

use super::args::{Plan, Target};
use crate::trace::Header;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the hierarchy of cgroups is, of which `cpu.max` tells the quotas.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Those that the whole of lockbpf may use, quotas included.
pub(super) fn own() -> u32 {
    std::thread::available_parallelism().map_or(1, usize::from) as u32
}

/// Those that the program of a recording could use, if that is known, else as lockbpf itself.
pub(super) fn of_recording(header: &Header) -> u32 {
    header.capture.as_ref().map(|capture| capture.cpus).filter(|&cpus| cpus > 0).unwrap_or_else(own)
}

/// Those that the target of a plan may use: the first of its processes, or a command as lockbpf itself.
pub(super) fn of_target(plan: &Plan) -> u32 {
    let first = match &plan.target {
        Target::Pids(pids) => pids.first().copied(),
        _ => None,
    };
    first.and_then(of_process).unwrap_or_else(own)
}

fn of_process(pid: u32) -> Option<u32> {
    let set = sched_getaffinity(Pid::from_raw(i32::try_from(pid).ok()?)).ok()?;
    let allowed = (0..CpuSet::count()).filter(|&cpu| set.is_set(cpu) == Ok(true)).count() as u32;
    let quota = cgroup(&fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default())
        .and_then(|path| quota(path.ancestors().filter_map(|dir| fs::read_to_string(dir.join("cpu.max")).ok())));
    Some(allowed.min(quota.unwrap_or(allowed))).filter(|&allowed| allowed > 0)
}

/// The directory of the cgroup that a `/proc/PID/cgroup` names; `None` if there is none of the second version.
fn cgroup(text: &str) -> Option<PathBuf> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(Path::new(CGROUPS).join(path))
}

/// Whole CPUs that the tightest of several `cpu.max` leaves, at least one; `None` where none of them sets a limit.
fn quota(limits: impl Iterator<Item = String>) -> Option<u32> {
    let cpus = |text: String| {
        let mut words = text.split_whitespace().map(str::parse::<u32>);
        let (Some(Ok(quota)), Some(Ok(period))) = (words.next(), words.next()) else { return None };
        Some(quota.checked_div(period)?.max(1))
    };
    limits.filter_map(cpus).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_of_cgroups_count() {
        let limits = |texts: &[&str]| quota(texts.iter().map(|&text| text.to_owned()));
        assert_eq!(limits(&["max 100000\n", "250000 100000\n", "400000 100000\n"]), Some(2));
        assert_eq!(limits(&["50000 100000\n"]), Some(1));
        assert_eq!(limits(&["max 100000\n", "", "1 0"]), None);
        assert_eq!(cgroup("1:cpu:/a\n0::/app/one\n"), Some(PathBuf::from("/sys/fs/cgroup/app/one")));
        assert_eq!(cgroup("1:cpu:/a\n"), None);
    }

    #[test]
    fn a_process_has_cpus() {
        let own_pid = std::process::id();
        assert!(of_process(own_pid).unwrap() >= own());
        assert_eq!(of_process(u32::MAX), None);
    }
}
