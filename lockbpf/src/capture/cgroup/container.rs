//! Containers by their ids: every runtime names a container's cgroup for it, each in a way of its own.

use super::error::CgroupError;
use super::mounts::Mount;
use super::{pids, walk};
use crate::cgroup::id_of;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Digits of an id that are enough, as `docker ps` shows them.
const SHORT: usize = 12;
/// Ids named in a message at most.
const NAMED: usize = 8;

/// Lower case, as runtimes write ids.
fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// The cgroup of the one container whose id begins so, and the hierarchy that it is in.
pub(super) fn find<'a>(given: &str, mounts: &'a [Mount]) -> Result<(&'a Mount, PathBuf), CgroupError> {
    let wanted = given.to_ascii_lowercase();
    if wanted.len() < SHORT || !is_hex(&wanted) {
        return Err(CgroupError::NotAnId(given.to_owned()));
    }
    let (new, old): (Vec<&Mount>, Vec<&Mount>) = mounts.iter().partition(|mount| mount.version2);
    let (Some(&mount), mut searched) = (new.first(), Searched::default()) else { return Err(CgroupError::NotMounted) };
    let found = searched.below(mount);
    if let Some(path) = matching(&wanted, &found)? {
        return Ok((mount, path));
    }
    for mount in old {
        let found = searched.below(mount);
        if let Some(path) = matching(&wanted, &found)? {
            return Err(CgroupError::version1(&path, mount));
        }
    }
    Err(searched.in_vain(wanted))
}

/// The cgroup of the one container of this id; `None` if there is none.
fn matching(wanted: &str, found: &Containers) -> Result<Option<PathBuf>, CgroupError> {
    let fitting: Vec<_> = found.iter().filter(|(id, _)| id.starts_with(wanted)).collect();
    match fitting.as_slice() {
        [] => Ok(None),
        [(_, paths)] => Ok(Some(main_of(paths))),
        several => {
            let candidates = listed(several.iter().map(|(id, _)| id.as_str()));
            Err(CgroupError::Ambiguous { id: wanted.to_owned(), candidates })
        }
    }
}

/// The outermost of several cgroups of one container that has processes.
fn main_of(paths: &[PathBuf]) -> PathBuf {
    let depth = |path: &&PathBuf| path.components().count();
    let populated = paths.iter().filter(|path| !pids(path).is_empty()).min_by_key(depth);
    populated.or_else(|| paths.iter().min_by_key(depth)).cloned().unwrap_or_default()
}

/// Containers by id, with their cgroups.
type Containers = BTreeMap<String, Vec<PathBuf>>;

/// What was looked at.
#[derive(Default)]
struct Searched {
    directories: usize,
    below: Vec<String>,
    ids: Vec<String>,
}

impl Searched {
    fn below(&mut self, mount: &Mount) -> Containers {
        let mut found = Containers::new();
        walk(&mount.point, &mut |dir| {
            self.directories += 1;
            let id = dir.file_name().and_then(|name| id_of(name.to_str()?)).filter(|_| dir != Path::new(&mount.point));
            if let Some(id) = id {
                found.entry(id.to_owned()).or_default().push(dir.to_owned());
            }
        });
        self.below.push(mount.point.display().to_string());
        for id in found.keys().filter(|id| !self.ids.contains(id)).cloned().collect::<Vec<_>>() {
            self.ids.push(id);
        }
        found
    }

    fn in_vain(self, id: String) -> CgroupError {
        let known = match self.ids.len() {
            0 => "no container was found there at all".to_owned(),
            1 => format!("the one container there is {}", listed(self.ids.iter().map(String::as_str))),
            n => format!("the {n} containers there are {}", listed(self.ids.iter().map(String::as_str))),
        };
        CgroupError::NoContainer { id, directories: self.directories, searched: self.below.join(", "), known }
    }
}

fn listed<'a>(ids: impl Iterator<Item = &'a str>) -> String {
    let ids: Vec<&str> = ids.collect();
    let rest = ids.len().saturating_sub(NAMED);
    let named = ids.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    if rest == 0 { named } else { format!("{named} and {rest} more") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const A: &str = "3f4e1c9d2ab07788990011223344556677889900aabbccddeeff001122334455";
    const B: &str = "3f4e1c9d2ab0ffffffffffffffffffffffffffffffffffffffffffffffffffff";
    const C: &str = "90fc6a9b204ffee8ad122e2c0d68fd1f90fc6a9b204ffee8ad122e2c0d68fd1f";

    #[test]
    fn names_of_many_runtimes() {
        for name in [
            // Docker with systemd, rootless too; with cgroupfs, ECS, containerd with cgroupfs in Kubernetes.
            format!("docker-{A}.scope"),
            A.to_owned(),
            // containerd with systemd in Kubernetes, and where runc was given a systemd path without systemd.
            format!("cri-containerd-{A}.scope"),
            format!("kubepods-besteffort-pod1e6aa8e2_3b0d_4e0c_9f5a_0d1c2b3a4f5e.slice:cri-containerd:{A}"),
            format!("system.slice:docker:{A}"),
            format!("nerdctl-{A}.scope"),
            // CRI-O with systemd and with cgroupfs.
            format!("crio-{A}.scope"),
            format!("crio-{A}"),
            // Podman with systemd, with cgroupfs, with split cgroups.
            format!("libpod-{A}.scope"),
            format!("libpod-{A}"),
            format!("libpod-payload-{A}"),
        ] {
            assert_eq!(id_of(&name), Some(A), "{name}");
        }
        assert_eq!(id_of("90fc6a9b204ffee8ad122e2c0d68fd1f"), Some("90fc6a9b204ffee8ad122e2c0d68fd1f"));
    }

    #[test]
    fn names_of_what_is_no_container() {
        for name in [
            format!("libpod-conmon-{A}.scope"),
            format!("crio-conmon-{A}.scope"),
            format!("docker-{A}.slice"),
            format!("docker-{}.scope", &A[1..]),
            format!("docker-{}.scope", A.to_uppercase()),
            "kubepods-burstable-pod1e6aa8e2_3b0d_4e0c_9f5a_0d1c2b3a4f5e.slice".to_owned(),
            // A static pod's uid has no dashes.
            "podf0e1d2c3b4a5968778695a4b3c2d1e0f".to_owned(),
            "kubepods-burstable-podf0e1d2c3b4a5968778695a4b3c2d1e0f.slice".to_owned(),
            "session-3.scope".to_owned(),
            "init.scope".to_owned(),
            "user@1000.service".to_owned(),
            "docker".to_owned(),
            "container".to_owned(),
            String::new(),
        ] {
            assert_eq!(id_of(&name), None, "{name}");
        }
    }

    fn tree(dirs: &[String]) -> (tempfile::TempDir, Mount) {
        let root = tempfile::tempdir().unwrap();
        dirs.iter().for_each(|dir| fs::create_dir_all(root.path().join(dir)).unwrap());
        let mount = Mount { point: root.path().to_owned(), version2: true, controllers: String::new() };
        (root, mount)
    }

    fn found(given: &str, mounts: &[Mount]) -> Result<PathBuf, String> {
        let found = find(given, mounts).map_err(|error| error.to_string());
        found.map(|(mount, path)| path.strip_prefix(&mount.point).unwrap().to_owned())
    }

    #[test]
    fn containers_by_their_first_digits() {
        let (_root, mount) = tree(&[
            format!("system.slice/docker-{A}.scope/init"),
            format!("machine.slice/libpod-conmon-{C}.scope"),
            format!("machine.slice/libpod-{C}.scope/container"),
        ]);
        let mounts = [mount];
        assert_eq!(found(&A[..12], &mounts), Ok(format!("system.slice/docker-{A}.scope").into()));
        assert_eq!(found(&C.to_uppercase()[..20], &mounts), Ok(format!("machine.slice/libpod-{C}.scope").into()));
        assert_eq!(found(C, &mounts), Ok(format!("machine.slice/libpod-{C}.scope").into()));
    }

    #[test]
    fn what_is_not_one_container_is_told() {
        let (_root, mount) = tree(&[format!("docker/{A}"), format!("docker/{A}/docker/{B}")]);
        let mounts = [mount];
        let error = found(&A[..12], &mounts).unwrap_err();
        assert!(error.contains(&format!("{A}, {B}")), "{error}");
        assert!(found(&A[..13], &mounts).is_ok(), "a container in a container has a cgroup of its own");
        let error = found(&C[..12], &mounts).unwrap_err();
        let searched = format!("none of the 5 cgroups below {}", mounts[0].point.display());
        assert!(error.contains(&searched) && error.contains("the 2 containers there are"), "{error}");
        for given in ["3f4e1c9d2ab", "3f4e1c9d2abx", "", "my-container"] {
            assert!(found(given, &mounts).unwrap_err().contains("is no container id"), "{given}");
        }
        assert!(found(A, &[]).unwrap_err().contains("version 2 is mounted"));
    }

    #[test]
    fn a_container_of_version_1_only() {
        let (_new, new) = tree(&["system.slice".to_owned()]);
        let (_old, old) = tree(&[format!("docker/{A}")]);
        let old = Mount { version2: false, controllers: "memory".to_owned(), ..old };
        fs::write(old.point.join("docker").join(A).join("cgroup.procs"), format!("{}\n", std::process::id())).unwrap();
        let error = found(&A[..12], &[old, new]).unwrap_err();
        let pid = format!("--pid {}", std::process::id());
        assert!(error.contains("version 1 (memory)") && error.contains(&pid), "{error}");
    }
}
