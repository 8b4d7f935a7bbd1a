//! Cgroups of the tests' own, or the proof that there can be none.

use super::privilege::skipped;
use std::fs;
use std::path::{Path, PathBuf};

/// A cgroup of version 2; gone when dropped, once its processes are.
pub(crate) struct Cgroup {
    /// Its directory.
    pub(crate) dir: PathBuf,
}

impl Cgroup {
    /// Makes one of this name below the root; `None`, with the proof printed, where that cannot be done.
    pub(crate) fn make(name: &str) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("failed to read /proc/self/mountinfo");
        let mounted = mounts.lines().find(|line| line.contains(" - cgroup2 "));
        let Some(root) = mounted.and_then(|line| line.split(' ').nth(4)) else {
            skipped("/proc/self/mountinfo has no mount of cgroup2");
            return None;
        };
        let dir = Path::new(root).join(name);
        match fs::create_dir(&dir) {
            Ok(()) => Some(Self { dir }),
            Err(error) => {
                skipped(&format!("failed to make {}: {error}", dir.display()));
                None
            }
        }
    }

    /// One below this.
    pub(crate) fn below(&self, name: &str) -> Self {
        let dir = self.dir.join(name);
        fs::create_dir(&dir).expect("failed to make a cgroup");
        Self { dir }
    }

    /// Moves a process into it.
    pub(crate) fn take_in(&self, pid: u32) {
        fs::write(self.dir.join("cgroup.procs"), pid.to_string()).expect("failed to move a process into a cgroup");
    }
}

/// A cgroup of either version that may limit CPU time; gone when dropped, once its processes are.
pub(crate) struct Quota {
    cgroup: Cgroup,
    /// The file that sets the limit.
    file: PathBuf,
}

impl Quota {
    /// Makes one of this name, as yet without a limit; `None`, with the proof printed, where that cannot be done.
    pub(crate) fn make(name: &str) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("failed to read /proc/self/mountinfo");
        let controls = |line: &&str| {
            let options = line.split_once(" - cgroup ").and_then(|(_, rest)| rest.split(' ').nth(1));
            options.is_some_and(|options| options.split(',').any(|option| option == "cpu"))
        };
        let Some(root) = mounts.lines().find(controls).and_then(|line| line.split(' ').nth(4)) else {
            let cgroup = Cgroup::make(name)?;
            let file = cgroup.dir.join("cpu.max");
            let control = cgroup.dir.with_file_name("cgroup.subtree_control");
            // It may be on already; whether it is shows in the file.
            let allowed = fs::write(control, "+cpu");
            if !file.exists() {
                skipped(&format!("no cgroup controls CPU time: {allowed:?}"));
                return None;
            }
            return Some(Self { cgroup, file });
        };
        let dir = Path::new(root).join(name);
        if let Err(error) = fs::create_dir(&dir) {
            skipped(&format!("failed to make {}: {error}", dir.display()));
            return None;
        }
        // Some kernels grant real-time classes by cgroup.
        let real_time = dir.join("cpu.rt_runtime_us");
        if real_time.exists() {
            fs::write(real_time, "10000").expect("failed to grant real-time classes");
        }
        let file = dir.join("cpu.cfs_quota_us");
        Some(Self { cgroup: Cgroup { dir }, file })
    }

    /// Its directory.
    pub(crate) fn cgroup(&self) -> &Cgroup {
        &self.cgroup
    }

    /// Limits it to so much of each 100 ms, or ends the limit.
    pub(crate) fn set(&self, us: Option<u32>) {
        let none = if self.file.ends_with("cpu.max") { "max" } else { "-1" };
        let limit = us.map_or_else(|| none.to_owned(), |us| us.to_string());
        fs::write(&self.file, limit).expect("failed to limit CPU time");
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A process that was killed may take a moment to be gone.
        for _ in 0..100 {
            if fs::remove_dir(&self.dir).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
