//! What the path of a process's control group tells: its container, its pod, its unit. Every runtime and cgroup driver has ways of its own.

/// Digits of a container's id: nearly all runtimes'; some systems'.
const DIGITS: [usize; 2] = [64, 32];

/// The path in what `/proc/PID/cgroup` says: that of version 2, else of systemd's own hierarchy; empty if neither is there.
#[must_use]
pub fn path(text: &str) -> &str {
    let of = |mark: &str| text.lines().find_map(|line| line.split_once(':')?.1.strip_prefix(mark));
    // Where both versions are mounted, that of version 2 is the root for all.
    of(":").filter(|path| *path != "/").or_else(|| of("name=systemd:")).or_else(|| of(":")).unwrap_or_default()
}

/// The container's id in the name of a cgroup's directory, if there is one: `docker-ID.scope`, `cri-containerd-ID.scope`,
/// `crio-ID`, `libpod-ID.scope`, `kubepods-….slice:cri-containerd:ID`, or the id alone (below `/docker/`, `/kubepods/…/pod…/`,
/// `/ecs/…/`).
#[must_use]
pub fn id_of(name: &str) -> Option<&str> {
    let name = name.strip_suffix(".scope").unwrap_or(name);
    let begin = name.rfind(['-', ':']).map_or(0, |at| at + 1);
    let (prefix, id) = name.split_at(begin);
    // The process that looks after a container has a cgroup of its own beside it.
    let monitor = prefix.trim_end_matches('-').ends_with("conmon");
    // Lower case, as runtimes write ids.
    let is_hex = id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    (DIGITS.contains(&id.len()) && is_hex && !monitor).then_some(id)
}

/// The id of the innermost container on a path.
#[must_use]
pub fn container_id(path: &str) -> Option<&str> {
    path.rsplit('/').find_map(id_of)
}

/// The uid of the Kubernetes pod on a path: `kubepods-burstable-podUID.slice` (with `_` for `-`), or `podUID` below `kubepods`.
#[must_use]
pub fn pod_uid(path: &str) -> Option<String> {
    if !path.contains("kubepods") {
        return None;
    }
    path.split(['/', ':']).find_map(|name| {
        let name = name.strip_suffix(".slice").unwrap_or(name);
        let uid = name.strip_prefix("pod").or_else(|| name.rsplit_once("-pod").map(|(_, uid)| uid))?;
        let is_uid = uid.len() >= 32 && uid.bytes().all(|b| b.is_ascii_hexdigit() || matches!(b, b'-' | b'_'));
        is_uid.then(|| uid.replace('_', "-"))
    })
}

/// The innermost systemd service on a path. Scopes, and services that are made for one run (`run-r….service`), are named by numbers, which
/// never come again: they are none.
#[must_use]
pub fn unit(path: &str) -> Option<&str> {
    let service = |name: &&str| name.ends_with(".service") && !name.starts_with("run-");
    path.rsplit('/').find(service)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "3f4e1c9d2ab03f4e1c9d2ab03f4e1c9d2ab03f4e1c9d2ab03f4e1c9d2ab0abcd";
    const UID: &str = "0a1b2c3d-0000-1111-2222-333344445555";

    #[test]
    fn each_driver_and_runtime_is_known() {
        let slice = format!("kubepods-burstable-pod{}", UID.replace('-', "_"));
        for path in [
            format!("/kubepods.slice/kubepods-burstable.slice/{slice}.slice/cri-containerd-{ID}.scope"),
            format!("/kubepods.slice/kubepods-burstable.slice/{slice}.slice/crio-{ID}.scope/container"),
            format!("/kubepods/burstable/pod{UID}/{ID}"),
            format!("/system.slice/{slice}.slice:cri-containerd:{ID}"),
        ] {
            assert_eq!((container_id(&path), pod_uid(&path).as_deref()), (Some(ID), Some(UID)), "{path}");
            assert_eq!(unit(&path), None, "{path}");
        }
        for path in [
            format!("/system.slice/docker-{ID}.scope"),
            format!("/docker/{ID}"),
            format!("/machine.slice/libpod-{ID}.scope/container"),
        ] {
            assert_eq!((container_id(&path), pod_uid(&path)), (Some(ID), None), "{path}");
        }
        let inside = format!("/system.slice/docker-{ID}.scope/system.slice/nginx.service");
        assert_eq!((container_id(&inside), unit(&inside)), (Some(ID), Some("nginx.service")));
    }

    #[test]
    fn units_are_those_that_come_again() {
        for (path, expected) in [
            ("/system.slice/mariadb.service", Some("mariadb.service")),
            ("/user.slice/user-1000.slice/user@1000.service/app.slice/dbus.service", Some("dbus.service")),
            ("/user.slice/user-1000.slice/session-3.scope", None),
            ("/system.slice/run-r1a2b.service", None),
            ("/system.slice/system-getty.slice/getty@tty1.service", Some("getty@tty1.service")),
            ("/", None),
            ("", None),
        ] {
            assert_eq!(unit(path), expected, "{path}");
            assert_eq!((container_id(path), pod_uid(path)), (None, None), "{path}");
        }
    }

    #[test]
    fn the_hierarchy_is_the_one_that_tells() {
        assert_eq!(path("0::/system.slice/a.service\n"), "/system.slice/a.service");
        let both = "12:pids:/x\n1:name=systemd:/system.slice/a.service\n0::/\n";
        assert_eq!(path(both), "/system.slice/a.service");
        assert_eq!(path("0::/\n"), "/");
        for text in ["", "nonsense", "3", "::::"] {
            assert!(path(text).len() <= 2, "{text}");
        }
    }

    #[test]
    fn a_monitor_is_no_container() {
        assert_eq!(id_of(&format!("libpod-conmon-{ID}.scope")), None);
        assert_eq!(id_of(&ID[..40]), None);
        assert_eq!(pod_uid("/kubepods/podx"), None);
    }
}
