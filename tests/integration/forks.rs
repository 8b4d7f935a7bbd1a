//! Processes that observed ones start.

use crate::harness::build::Variant;
use crate::harness::exact::assert_locks;
use crate::harness::observer::{Observer, observe_as};
use crate::harness::report::{Lock, Report};
use crate::harness::workload::{Truth, Workload};
use crate::harness::{may_observe, may_observe_alone};

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

/// What a pair of lock operations takes in a child that is not observed, from 100 ms after its fork on, is what it takes in one that
/// was forked before the observation. On breakpoints it would be a hundred times that. Returns how many children were told of.
fn assert_let_be(how: &str, options: &[&str]) -> u64 {
    let (truth, report) = observe_as(&format!("forked {how}"), Variant::Plain, options);
    let [bare, child, first] = ["bare_ps", "child_ps", "first_ps"].map(|fact| truth.fact(fact));
    println!("{how} {options:?}: {bare} ps a pair bare, {child} in a child, {first} in its first 100 ms");
    // Beside other work, the same loop takes up to twice its time.
    assert!(child < bare * 4, "{how}: {child} ps a pair, bare {bare}");
    let taken = report.quality.perturbation.expect("a live observation tells what it took");
    println!("{} children, at most {} ns", taken.children, taken.children_cost_at_most_ns);
    // The report tells at least what the child paid in its first 100 ms. The same loop may take twice its time by itself.
    let paid = truth.fact("first_cpu_ns") as f64 * (1.0 - (bare.max(child) * 2) as f64 / first as f64);
    let told = taken.children_cost_at_most_ns as f64;
    assert!(told >= 0.8 * paid, "{told} ns told, {paid} paid");
    taken.children
}

#[test]
fn children_of_an_idle_parent_run_at_their_own_speed() {
    let Some(_turn) = may_observe_alone() else { return };
    assert_eq!(assert_let_be("fork", &["--budget", "3%"]), 1);
    assert_eq!(assert_let_be("fork", &["--budget", "off"]), 1);
    assert_eq!(assert_let_be("threads", &["--budget", "3%"]), 1);
}

#[test]
fn children_of_any_fork_run_at_their_own_speed() {
    let Some(_turn) = may_observe_alone() else { return };
    for how in ["clone", "vfork", "spawn"] {
        assert_eq!(assert_let_be(how, &["--budget", "3%"]), 1, "{how}");
    }
    assert_eq!(assert_let_be("grand", &["--budget", "3%"]), 2);
}

#[test]
fn many_children_at_once_run_at_their_own_speed() {
    let Some(_turn) = may_observe_alone() else { return };
    assert_eq!(assert_let_be("crowd", &["--budget", "3%"]), 32);
}

#[test]
fn children_of_a_parent_with_more_probes_run_at_their_own_speed() {
    let Some(_turn) = may_observe_alone() else { return };
    assert_eq!(assert_let_be("fork", &["--budget", "3%", "--functions", "io"]), 1);
}

#[test]
fn children_of_a_parent_in_windows_run_at_their_own_speed() {
    let Some(_turn) = may_observe_alone() else { return };
    assert_eq!(assert_let_be("busy", &["--budget", "3%"]), 1);
    assert_eq!(assert_let_be("busy", &["--budget", "off"]), 1);
}

#[test]
fn children_run_at_their_own_speed_by_plain_uprobes() {
    let Some(_turn) = may_observe_alone() else { return };
    assert_eq!(assert_let_be("fork", &["--budget", "3%", "--plain-uprobes"]), 1);
    // Links of another observation would keep the breakpoints where they are.
    let other = Workload::start("forked fork");
    let observer = Observer::of(other.pid(), &["--budget", "off", "--duration", "60s"]);
    assert_eq!(assert_let_be("fork", &["--budget", "3%", "--plain-uprobes"]), 1);
    observer.interrupt();
    observer.report();
}

#[test]
fn children_that_are_followed_have_a_budget_of_their_own() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe_as("forked fork 3000", Variant::Plain, &["--follow-forks", "--budget", "3%"]);
    let [bare, child] = ["bare_ps", "child_ps"].map(|fact| truth.fact(fact));
    println!("{bare} ps a pair bare, {child} in a child that is observed within 3 %");
    assert!(child < bare * 3 / 2, "{child} ps a pair, bare {bare}");
    assert!(!children(&truth, &report).is_empty());
}
