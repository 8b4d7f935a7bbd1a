//! Processes that observed ones start.

use crate::harness::build::Variant;
use crate::harness::exact::assert_locks;
use crate::harness::may_observe;
use crate::harness::observer::observe_as;
use crate::harness::report::{Lock, Report};
use crate::harness::workload::Truth;

/// The children work only once their probes are in place.
const WORKLOAD: &str = "forker 4 300 300";
const CHILDREN: usize = 5;

fn children<'a>(truth: &Truth, report: &'a Report) -> Vec<&'a Lock> {
    report.locks.iter().filter(|lock| lock.name == "shared_name" && lock.pid != truth.pid).collect()
}

fn check(workload: &str, options: &[&str]) {
    let (truth, report) = observe_as(workload, Variant::Plain, options);
    assert_locks(&truth, truth.pid, &report);
    let counts: Vec<u64> = children(&truth, &report).iter().map(|lock| lock.acquisitions).collect();
    assert_eq!(counts, [600; CHILDREN], "{:?}", report.quality.notes);
}

#[test]
fn children_are_followed() {
    let Some(_turn) = may_observe() else { return };
    check(WORKLOAD, &["--follow-forks"]);
}

#[test]
fn children_are_followed_by_plain_uprobes() {
    let Some(_turn) = may_observe() else { return };
    check("forker 4 300 500", &["--follow-forks", "--plain-uprobes"]);
}

#[test]
fn children_are_followed_within_a_budget() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe_as(WORKLOAD, Variant::Plain, &["--follow-forks", "--budget", "50%"]);
    let children = children(&truth, &report);
    assert_eq!(children.len(), CHILDREN, "{:?}", report.quality.notes);
    for child in children {
        child.stated_acquisitions().assert_near(600.0, 0.0, "acquisitions of a child");
    }
}

#[test]
fn children_are_let_be_unless_asked_for() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe_as(WORKLOAD, Variant::Plain, &[]);
    assert!(children(&truth, &report).is_empty());
}
