//! What quotas of CPU time do to observed processes while they are observed.

use super::quota::{Group, Quotas, Stops};
use crate::quality::Throttled;
use crate::untrusted::shown;
use std::collections::HashMap;

/// Cgroups that are looked at; a process is in a few, most of which it shares with others.
const MAX_GROUPS: usize = 4_096;
/// A report names at most this many processes of a cgroup.
const MAX_PIDS: usize = 256;

/// The cgroups of observed processes that have quotas.
pub struct Throttling {
    quotas: Quotas,
    groups: HashMap<Group, Option<Bounded>>,
}

/// One that had a quota when it was first seen.
struct Bounded {
    before: Stops,
    pids: Vec<u32>,
}

impl Throttling {
    /// Begins with these processes: what their quotas do from now on counts.
    #[must_use]
    pub fn of(pids: &[u32]) -> Self {
        let mut throttling = Self { quotas: Quotas::new(), groups: HashMap::new() };
        pids.iter().for_each(|&pid| throttling.meet(pid));
        throttling
    }

    /// One more process is observed from now on.
    pub fn meet(&mut self, pid: u32) {
        for group in self.quotas.groups(pid) {
            if self.groups.len() >= MAX_GROUPS && !self.groups.contains_key(&group) {
                continue;
            }
            let bounded = self.groups.entry(group).or_insert_with_key(|group| {
                let before = group.cpus().and_then(|_| group.stops())?;
                Some(Bounded { before, pids: Vec::new() })
            });
            if let Some(bounded) = bounded
                && bounded.pids.len() < MAX_PIDS
                && !bounded.pids.contains(&pid)
            {
                bounded.pids.push(pid);
            }
        }
    }

    /// That some of these processes are in a cgroup with a quota now that was not looked at since they were met.
    #[must_use]
    pub fn note(&self, pids: impl IntoIterator<Item = u32>) -> Option<String> {
        let is_watched = |group: &Group| self.groups.get(group).is_some_and(Option::is_some);
        let escaped = |pid: &u32| {
            let groups = self.quotas.groups(*pid);
            groups.iter().any(|group| !is_watched(group) && group.cpus().is_some())
        };
        let (number, s) = match pids.into_iter().filter(escaped).count() {
            0 => return None,
            1 => (1, ""),
            n => (n, "es"),
        };
        Some(format!(
            "whether a CPU quota stopped {number} process{s} is not known: the quota was set or the cgroup changed meanwhile, the process came while \
             lockbpf had no CPU time left, or there are more than {MAX_GROUPS} cgroups."
        ))
    }

    /// The cgroups whose quotas were used up since then, the longest stopped first. One that is gone by now tells nothing.
    #[must_use]
    pub fn found(self) -> Vec<Throttled> {
        let found = |(group, bounded): (Group, Option<Bounded>)| {
            let Bounded { before, pids } = bounded?;
            let (cpus, now) = (group.cpus()?, group.stops()?);
            let [periods, throttled_periods] = [0, 1].map(|i| now.periods[i].saturating_sub(before.periods[i]));
            (throttled_periods > 0).then(|| Throttled {
                cgroup: shown(&group.path).into_owned(),
                pids,
                millicpus: (cpus * 1e3) as u64,
                periods,
                throttled_periods,
                throttled_ns: now.ns.saturating_sub(before.ns),
            })
        };
        let mut all: Vec<Throttled> = self.groups.into_iter().filter_map(found).collect();
        all.sort_by(|a, b| b.throttled_ns.cmp(&a.throttled_ns).then_with(|| a.cgroup.cmp(&b.cgroup)));
        all
    }
}
