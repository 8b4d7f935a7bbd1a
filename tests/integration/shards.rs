//! Many locks of which none is waited for noticeably: the shards of a table.

use crate::harness::may_observe;
use crate::harness::observer::{Observer, not_starved};
use crate::harness::workload::Workload;

#[test]
fn shards_have_one_culprit_within_the_budget() {
    let Some(_turn) = may_observe() else { return };
    let observed = || {
        let mut workload = Workload::start("shards 5000");
        let pid = workload.pid().to_string();
        let observer = Observer::start(&["--pid", &pid, "--format", "json", "--budget", "3%"]);
        workload.go();
        (workload.finish(), observer.report())
    };
    let (truth, report) = not_starved(observed, |(_, report)| report);
    let shards: Vec<_> = report.locks.iter().filter(|lock| lock.name.starts_with("shards[")).collect();
    let waited: f64 = shards.iter().map(|lock| lock.harm_ns).sum();
    let share = waited / truth.fact("waited_ns") as f64;
    assert!(shards.len() >= 390 && (0.9..1.02).contains(&share), "{share} of {truth:?}");
    // The budget lets lockbpf record few of the waits for each shard.
    let [first, ..] = report.culprits.as_slice() else { panic!("{:?}", report.verdict) };
    assert!(first.is("update") && first.locks >= 390 && first.share_of_all > 0.9, "{first:?}");
    let verdict = report.verdict.join(" ");
    assert!(verdict.contains("of all waiting is caused by `update` holding `shards["), "{verdict}");
    assert!(verdict.contains(" other") && verdict.contains("Most waited for is `shards["), "{verdict}");
}
