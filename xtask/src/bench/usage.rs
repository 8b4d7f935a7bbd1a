//! What a running process uses: CPU time, memory, kernel memory of its eBPF maps, run time of its eBPF programs; and what files use.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use anyhow::{Context as _, Result};
use nix::{
    time::{clock_getcpuclockid, clock_gettime},
    unistd::Pid,
};

/// CPU time that all threads of a process have used, user and system, to the nanosecond.
///
/// # Errors
/// There is no such process.
pub(super) fn cpu_time(pid: Pid) -> Result<Duration> {
    let clock = clock_getcpuclockid(pid).with_context(|| format!("failed to find the CPU clock of process {pid}"))?;
    let time = clock_gettime(clock).with_context(|| format!("failed to read the CPU clock of process {pid}"))?;
    Ok(time.into())
}

/// The children of a process, whichever of its threads has started them.
pub(super) fn children(pid: Pid) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
    lists.flat_map(|list| pids(&list)).collect()
}

fn pids(list: &str) -> Vec<Pid> {
    list.split_whitespace().filter_map(|word| word.parse().ok()).map(Pid::from_raw).collect()
}

/// The most memory that a process has had resident, bytes.
///
/// # Errors
/// There is no such process.
pub(super) fn peak_rss(pid: Pid) -> Result<u64> {
    status(pid, "VmHWM")
}

/// The same, without the eBPF maps that it has mapped: these are [counted](Objects::map_bytes) by themselves, and a ring buffer is mapped twice,
/// one after the other. Without any that are mapped, it is the memory that is resident now: the most may be of a time when some were.
///
/// # Errors
/// There is no such process.
pub(super) fn rss_beside_maps(pid: Pid) -> Result<u64> {
    let path = format!("/proc/{pid}/maps");
    match mapped_maps(&fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))?) {
        0 => status(pid, "VmRSS"),
        mapped => Ok(peak_rss(pid)?.saturating_sub(mapped)),
    }
}

/// Bytes of eBPF maps in a list of mappings. They are resident as long as they are mapped.
fn mapped_maps(mappings: &str) -> u64 {
    let bytes = |line: &str| {
        let (start, end) = line.split_whitespace().next()?.split_once('-')?;
        let at = |text| u64::from_str_radix(text, 16).ok();
        at(end)?.checked_sub(at(start)?)
    };
    mappings.lines().filter(|line| line.ends_with("anon_inode:bpf-map")).filter_map(bytes).sum()
}

/// A number of kilobytes that the kernel tells of a process, bytes.
fn status(pid: Pid, name: &str) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))?;
    field(&status, name).map(|kilobytes| kilobytes * 1024).with_context(|| format!("{path} has no {name}"))
}

/// The memory that a process has resident, bytes: of what it shares with others its part.
///
/// # Errors
/// There is no such process, or the kernel does not tell.
pub(super) fn own_share(pid: Pid) -> Result<u64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let sums = fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))?;
    field(&sums, "Pss").map(|kilobytes| kilobytes * 1024).with_context(|| format!("{path} has no Pss"))
}

/// The eBPF objects that a process has open.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Objects {
    /// Kernel memory of each map by its number, bytes.
    maps: BTreeMap<u64, u64>,
    /// Run time in ns and runs of each program by its number. The kernel counts while its statistics are on.
    programs: BTreeMap<u64, (u64, u64)>,
}

impl Objects {
    /// The objects of a process.
    ///
    /// # Errors
    /// There is no such process.
    pub(super) fn of(pid: Pid) -> Result<Self> {
        let dir = format!("/proc/{pid}/fdinfo");
        let mut objects = Self::default();
        for entry in fs::read_dir(&dir).with_context(|| format!("failed to read {dir}"))?.flatten() {
            // A descriptor may be closed in the meantime.
            objects.add(&fs::read_to_string(entry.path()).unwrap_or_default());
        }
        Ok(objects)
    }

    /// Takes note of what one descriptor refers to. Several may refer to the same object.
    fn add(&mut self, fdinfo: &str) {
        if let (Some(id), Some(bytes)) = (field(fdinfo, "map_id"), field(fdinfo, "memlock")) {
            self.maps.insert(id, bytes);
        } else if let (Some(id), Some(time), Some(runs)) =
            (field(fdinfo, "prog_id"), field(fdinfo, "run_time_ns"), field(fdinfo, "run_cnt"))
        {
            self.programs.insert(id, (time, runs));
        }
    }

    /// Kernel memory of the maps, bytes.
    pub(super) fn map_bytes(&self) -> u64 {
        self.maps.values().sum()
    }

    /// Run time in ns and runs of all programs.
    pub(super) fn program_runs(&self) -> (u64, u64) {
        self.programs.values().fold((0, 0), |sum, runs| (sum.0 + runs.0, sum.1 + runs.1))
    }
}

/// The number in a line `NAME: NUMBER …`.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let value = line.strip_prefix(name)?.strip_prefix(':')?;
        value.split_whitespace().next()?.parse().ok()
    })
}

/// Bytes of all files in a folder and those in it.
///
/// # Errors
/// One of them cannot be looked at.
pub(super) fn bytes_below(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir).with_context(|| format!("failed to read {}", dir.display()))? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { bytes_below(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::child::Child;
    use std::process::Command;

    const MAP: &str = "pos:\t0\nmap_type:\t2\nmax_entries:\t1\nmemlock:\t4096\nmap_id:\t7\nfrozen:\t0\n";
    const PROGRAM: &str = "prog_type:\t2\nmemlock:\t20480\nprog_id:\t9\nrun_time_ns:\t1500\nrun_cnt:\t3\n";
    const LINK: &str = "link_type:\tuprobe_multi\nlink_id:\t11\nprog_id:\t9\n";

    #[test]
    fn children_are_found() {
        assert_eq!(pids("12 13 \n"), [Pid::from_raw(12), Pid::from_raw(13)]);
        let child = Child::start(Command::new("sleep").arg("600")).unwrap();
        assert!(children(Pid::this()).contains(&child.pid()));
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        assert_eq!(field("VmHWMx:\t1 kB\nVmHWM:\t  123 kB\n", "VmHWM"), Some(123));
        assert_eq!(field("VmHWM: much", "VmHWM"), None);
        assert_eq!(field("", "VmHWM"), None);
    }

    #[test]
    fn maps_are_told_from_other_mappings() {
        let mappings = "7f00-7f08 rw-s 00000000 00:0e 12 anon_inode:bpf-map\n7f08-7f0c r--s 00000000 00:0e 12   anon_inode:bpf-map\n\
                        7f0c-7f0d r--p 00000000 fe:00 9 /lib/libc.so.6\n";
        assert_eq!((mapped_maps(mappings), mapped_maps("")), (12, 0));
    }

    #[test]
    fn objects_count_once_however_many_descriptors_they_have() {
        let mut objects = Objects::default();
        [MAP, PROGRAM, LINK, MAP, PROGRAM, "pos:\t0\n"].into_iter().for_each(|text| objects.add(text));
        assert_eq!(objects.map_bytes(), 4096);
        assert_eq!(objects.program_runs(), (1500, 3));
    }

    #[test]
    fn ones_own_usage_can_be_read_and_no_ones_not() {
        let own = Pid::this();
        assert!(cpu_time(own).unwrap() > Duration::ZERO);
        assert!(peak_rss(own).unwrap() > 100_000);
        assert!(rss_beside_maps(own).unwrap() > 100_000);
        assert_eq!(Objects::of(own).unwrap(), Objects::default());
        assert!(peak_rss(Pid::from_raw(i32::MAX)).is_err());
    }

    #[test]
    fn files_count_however_deep_they_lie() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::write(dir.path().join("a/b/c"), "12345").unwrap();
        fs::write(dir.path().join("d"), "12").unwrap();
        assert_eq!(bytes_below(dir.path()).unwrap(), 7);
    }
}
