//! Targets that a quota of CPU time stops, whatever locks they hold.

use crate::harness::cgroup::Quota;
use crate::harness::may_observe;
use crate::harness::observer::Observer;
use crate::harness::report::Report;
use crate::harness::workload::Workload;
use std::fs;

/// Threads compute for a millisecond under one lock.
const WORKLOAD: &str = "taskqueues 4 400 10 1000";

/// Periods in which the quota was used up so far.
fn used_up(quota: &Quota) -> u64 {
    let stat = fs::read_to_string(quota.cgroup().dir.join("cpu.stat")).expect("failed to read what a quota did");
    let count = stat.lines().find_map(|line| line.strip_prefix("nr_throttled ")).expect("it is counted");
    count.parse().expect("a number")
}

/// The report, and the least and the most periods in which the quota may have been used up meanwhile.
fn observe_within(us: u32) -> Option<(Report, [u64; 2])> {
    let quota = Quota::make(&format!("lockbpf-throttled-{us}-{}", std::process::id()))?;
    let mut workload = Workload::start(WORKLOAD);
    quota.cgroup().take_in(workload.pid());
    quota.set(Some(us));
    let first = used_up(&quota);
    let observer = Observer::of(workload.pid(), &[]);
    let begun = used_up(&quota);
    workload.go();
    workload.truth();
    let least = used_up(&quota) - begun;
    workload.end();
    let report = observer.report();
    Some((report, [least, used_up(&quota) - first]))
}

#[test]
fn a_quota_that_is_used_up_is_told() {
    let Some(_turn) = may_observe() else { return };
    let Some((report, [least, most])) = observe_within(20_000) else { return };
    let [group] = report.quality.throttled.as_slice() else { panic!("{:?}", report.quality.throttled) };
    assert!(least > 0 && (least..=most).contains(&group.throttled_periods), "{least} to {most}: {group:?}");
    assert!(group.cgroup.contains("lockbpf-throttled-20000"), "{group:?}");
    assert_eq!((group.quota_cpus, group.comms.as_slice()), (0.2, &["taskqueues".to_owned()][..]), "{group:?}");
    let said = report.verdict.iter().find(|said| said.contains("(0.2 CPUs) was used up in "));
    assert!(said.is_some_and(|said| said.contains("`taskqueues`")), "{:?}", report.verdict);
}

#[test]
fn a_quota_that_is_not_used_up_is_not_told() {
    let Some(_turn) = may_observe() else { return };
    let Some((report, [_, most])) = observe_within(800_000) else { return };
    assert_eq!((report.quality.throttled.len(), most), (0, 0), "{:?}", report.quality.throttled);
}

#[test]
fn a_quota_that_is_set_meanwhile_is_not_said_to_be_watched() {
    let Some(_turn) = may_observe() else { return };
    let Some(quota) = Quota::make(&format!("lockbpf-throttled-late-{}", std::process::id())) else { return };
    let mut workload = Workload::start_lingering(WORKLOAD);
    quota.cgroup().take_in(workload.pid());
    let observer = Observer::of(workload.pid(), &[]);
    quota.set(Some(20_000));
    workload.go();
    workload.truth();
    observer.interrupt();
    let report = observer.report();
    workload.end();
    let told = |note: &String| note.contains("whether a CPU quota stopped 1 process is not known");
    assert!(report.quality.throttled.is_empty() && report.quality.notes.iter().any(told), "{:?}", report.quality);
}
