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
