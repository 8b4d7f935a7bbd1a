//! What is told of an observation while it goes on.

use crate::harness::exact::{assert_contended, assert_exact};
use crate::harness::may_observe;
use crate::harness::observer::Observer;
use crate::harness::workload::Workload;

#[test]
fn what_was_found_so_far_is_told_meanwhile_and_the_end_is_as_ever() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start("hold 200 1 15000");
    let observer = Observer::of(workload.pid(), &["--every", "300ms"]);
    workload.go();
    let truth = workload.finish();
    let outcome = observer.outcome();
    let looks: Vec<&str> = outcome.stderr.split("\nafter ").skip(1).collect();
    assert!(looks.len() >= 2, "{}", outcome.stderr);
    let last = looks.last().copied().unwrap_or_default();
    assert!(last.contains("slow_holder") && last.contains("cache_lock"), "{}", outcome.stderr);
    let report = outcome.report();
    assert_exact(&truth, &report);
    assert_contended(&truth, &report);
}
