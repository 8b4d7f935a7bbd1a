//! Quotas of CPU time that were used up: whoever holds a lock then keeps it, though ready to run.

use super::phrase::FUNCTION;
use super::schema::{Ns, QualityEntry, Report, ThrottledEntry};
use super::text::{clip, counted, listed, percent, share};
use crate::observation::Observation;
use crate::quality::Throttled;
use std::collections::BTreeSet;

/// Part of its periods from which on a quota is worth a sentence.
const OFTEN: f64 = 0.1;
/// Part of the observed time, of one CPU, likewise.
const LONG: f64 = 0.02;
/// Programs named.
const NAMED: usize = 3;

/// The entry.
pub(super) fn entry(group: &Throttled, observation: &Observation) -> ThrottledEntry {
    let seen = observation.processes.values().filter(|seen| group.pids.contains(&seen.pid));
    let comms: BTreeSet<&String> = seen.map(|seen| &seen.comm).collect();
    ThrottledEntry {
        cgroup: group.cgroup.clone(),
        pids: group.pids.clone(),
        comms: comms.into_iter().cloned().collect(),
        quota_cpus: group.millicpus as f64 / 1e3,
        periods: group.periods,
        throttled_periods: group.throttled_periods.min(group.periods),
        throttled_ns: Ns::new(group.throttled_ns),
    }
}

/// The same cgroups in several runs, added up.
pub(super) fn together<'a>(runs: impl Iterator<Item = &'a QualityEntry>) -> Vec<ThrottledEntry> {
    let mut all: Vec<ThrottledEntry> = Vec::new();
    for group in runs.flat_map(|run| &run.throttled) {
        match all.iter_mut().find(|known| known.cgroup == group.cgroup && known.quota_cpus == group.quota_cpus) {
            Some(known) => {
                add_new(&mut known.pids, &group.pids);
                add_new(&mut known.comms, &group.comms);
                known.periods = known.periods.saturating_add(group.periods);
                known.throttled_periods = known.throttled_periods.saturating_add(group.throttled_periods);
                known.throttled_ns += group.throttled_ns;
            }
            None => all.push(group.clone()),
        }
    }
    all
}

fn add_new<T: Clone + PartialEq>(known: &mut Vec<T>, more: &[T]) {
    for one in more {
        if !known.contains(one) {
            known.push(one.clone());
        }
    }
}

/// The quota that kept observed processes waiting most, if it did so often.
pub(super) fn sentence(report: &Report) -> Option<String> {
    let duration = report.quality.duration_ns;
    let is_told = |group: &&ThrottledEntry| {
        share(group.throttled_periods, group.periods) >= OFTEN && group.throttled_ns.share_of(duration) >= LONG
    };
    let group = report.quality.throttled.iter().filter(is_told).max_by_key(|group| group.throttled_ns)?;
    let names: Vec<String> = group.comms.iter().map(|name| format!("`{}`", clip(name, FUNCTION))).collect();
    let who = if names.is_empty() {
        format!("pid {}", group.pids.first().copied().unwrap_or_default())
    } else {
        listed(&names, NAMED)
    };
    let (stopped, periods) = (group.throttled_periods, counted(group.periods, "period"));
    let (quota, cgroup, time) = (group.quota_cpus, clip(&group.cgroup, FUNCTION), group.throttled_ns);
    let waited = match behind_ready(report) {
        Some(part) => format!(
            " Of the waiting whose cause is known, {} was for holders that were ready to run and did not: a used-up quota does that, as \
             other work on the CPUs does.",
            percent(part)
        ),
        None => String::new(),
    };
    Some(format!(
        "The CPU quota of cgroup {cgroup} ({quota} CPUs) was used up in {stopped} of {periods}, and stopped {who} for {time}, summed over \
         CPUs: who holds a lock then keeps it.{waited} Usual cure: a larger quota (`cpu.max`), or fewer threads that run at a time."
    ))
}

/// The part of the waiting with a known cause that was for holders that were ready to run.
fn behind_ready(report: &Report) -> Option<f64> {
    let causes = || report.locks.iter().filter_map(|lock| lock.causes.as_ref());
    let ready: f64 = causes().map(|c| c.runnable.as_f64()).sum();
    let known: f64 = causes()
        .flat_map(|c| [c.running, c.runnable, c.blocked, c.sleeping, c.lock, c.kernel_lock, c.handoff])
        .map(Ns::as_f64)
        .sum();
    (known > 0.0).then(|| ready / known)
}
