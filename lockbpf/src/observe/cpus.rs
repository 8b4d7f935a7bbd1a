//! CPUs that a program may use.

use super::request::Target;
use crate::capture::cgroup::Quotas;
use crate::trace::Header;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

/// Those that the whole of lockbpf may use, quotas included.
pub(crate) fn own() -> u32 {
    std::thread::available_parallelism().map_or(1, usize::from) as u32
}

/// Those that the program of a recording could use, if that is known, else as lockbpf itself.
pub(crate) fn of_recording(header: &Header) -> u32 {
    header.capture.as_ref().map(|capture| capture.cpus).filter(|&cpus| cpus > 0).unwrap_or_else(own)
}

/// Those that a target may use: the first of its processes, or a command as lockbpf itself.
pub(crate) fn of_target(target: &Target) -> u32 {
    let first = match target {
        Target::Pids(pids) => pids.first().copied(),
        _ => None,
    };
    first.and_then(of_process).unwrap_or_else(own)
}

fn of_process(pid: u32) -> Option<u32> {
    let set = sched_getaffinity(Pid::from_raw(i32::try_from(pid).ok()?)).ok()?;
    let allowed = (0..CpuSet::count()).filter(|&cpu| set.is_set(cpu) == Ok(true)).count() as u32;
    // Whole ones, at least one.
    let quota = Quotas::new().cpus(pid).map(|cpus| cpus.max(1.0) as u32);
    Some(allowed.min(quota.unwrap_or(allowed))).filter(|&allowed| allowed > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_cpus() {
        let own_pid = std::process::id();
        assert!(of_process(own_pid).unwrap() >= own());
        assert_eq!(of_process(u32::MAX), None);
    }
}
