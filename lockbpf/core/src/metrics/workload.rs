//! Whose locks they are, by what outlives a process: its name, and the container, pod or unit that it is in.

use super::labels;
use crate::cgroup;

/// Processes that do the same thing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Workload {
    /// The name of the process.
    pub comm: String,
    /// The id of its container; empty outside of one.
    pub container_id: String,
    /// The uid of its Kubernetes pod; empty outside of one.
    pub pod_uid: String,
    /// The systemd service that it belongs to; empty where it belongs to none.
    pub unit: String,
}

impl Workload {
    /// That of a process of this name; `cgroups` is what `/proc/PID/cgroup` says of it, empty if that is not known.
    #[must_use]
    pub fn new(comm: &str, cgroups: &str) -> Self {
        let path = cgroup::path(cgroups);
        Self {
            comm: labels::value(comm),
            container_id: cgroup::container_id(path).unwrap_or_default().to_owned(),
            pod_uid: cgroup::pod_uid(path).unwrap_or_default(),
            unit: labels::value(cgroup::unit(path).unwrap_or_default()),
        }
    }

    /// All those for which there is no room.
    pub(super) fn other() -> Self {
        Self { comm: "other".to_owned(), ..Self::default() }
    }

    /// Its labels; those that are empty are left out.
    pub fn labels(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let labels = [
            ("comm", self.comm.as_str()),
            ("container_id", self.container_id.as_str()),
            ("pod_uid", self.pod_uid.as_str()),
            ("unit", self.unit.as_str()),
        ];
        labels.into_iter().filter(|(_, value)| !value.is_empty())
    }
}
