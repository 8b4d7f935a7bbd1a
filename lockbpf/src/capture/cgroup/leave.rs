//! Leaving cgroups, for who must not be stopped, slowed down or ended along with all that is in one.

use super::mounts::{Mount, mounts};
use std::io;
use std::path::PathBuf;

/// Hierarchies of version 1 that may hold a process up, or by which a service manager ends all of a service.
const HOLDING: [&str; 3] = ["freezer", "cpu", "name=systemd"];

/// Moves this process to the root of each hierarchy that could hold it up. Returns where that failed, and why.
pub(in crate::capture) fn leave_all() -> Vec<(PathBuf, io::Error)> {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let all = mounts().unwrap_or_default();
    let leave = |mount: &&Mount| {
        // 0: whoever writes it.
        let failed = std::fs::write(mount.point.join("cgroup.procs"), "0").err()?;
        Some((mount.point.clone(), failed))
    };
    all.iter().filter(|mount| holds(mount) && !is_at_root(mount, &own)).filter_map(|mount| leave(&mount)).collect()
}

fn holds(mount: &Mount) -> bool {
    mount.version2 || mount.controllers.split(',').any(|controller| HOLDING.contains(&controller))
}

/// Whether a process with this `/proc/PID/cgroup` is in the root of a hierarchy.
fn is_at_root(mount: &Mount, own: &str) -> bool {
    let line = own.lines().find_map(|line| {
        let (number, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let same = if mount.version2 { number == "0" } else { controllers == mount.controllers };
        same.then_some(path)
    });
    line.is_none_or(|path| path == "/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_holds_up_is_left() {
        let mount =
            |version2, controllers: &str| Mount { point: "/x".into(), version2, controllers: controllers.to_owned() };
        let own = "6:freezer:/a\n4:memory:/b\n1:cpu,cpuacct:/\n0::/user.slice/x.scope\n";
        let left = |mount: &Mount| holds(mount) && !is_at_root(mount, own);
        assert!(left(&mount(true, "nsdelegate")) && left(&mount(false, "freezer")));
        assert!(!left(&mount(false, "memory")) && !left(&mount(false, "cpu,cpuacct")));
        assert!(!left(&mount(false, "name=systemd")), "it is in none");
    }
}
