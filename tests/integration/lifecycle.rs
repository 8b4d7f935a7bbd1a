//! Threads and processes come and go, and observations begin in the middle of things.

use crate::harness::build::Variant;
use crate::harness::exact::{assert_complete, assert_exact, assert_lock};
use crate::harness::may_observe;
use crate::harness::observer::{Observer, observe};
use crate::harness::workload::Workload;
use nix::sys::signal::Signal;

#[test]
fn threads_from_before_and_after_the_start() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe("threads 8 40 200");
    assert_exact(&truth, &report);
}

#[test]
fn a_thousand_short_threads() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe("threads 1 1000 5");
    assert_exact(&truth, &report);
    assert!(report.threads.len() > 1000);
    assert!(report.threads.iter().any(|thread| thread.comm == "late"));
}

#[test]
fn a_new_image_has_new_locks() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start_as("execer 300 700", Variant::Fixed);
    let observer = Observer::of(workload.pid(), &[]);
    workload.go();
    let truth = workload.finish();
    let report = observer.report();
    assert_complete(&report);
    let lock = truth.lock("image_lock");
    let mut told: Vec<u64> = report.all_at(truth.pid, &lock.addr).iter().map(|lock| lock.acquisitions).collect();
    told.sort_unstable();
    assert_eq!(told, [300, 700], "one lock for each image");
}

#[test]
fn threads_and_processes_that_exit_holding() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe("exit_holding");
    assert_complete(&report);
    for lock in &truth.locks {
        let told = report.at(truth.pid, &lock.addr);
        assert_eq!((told.acquisitions, told.timeouts), (lock.acquisitions, lock.timeouts), "{told:?}");
    }
    let orphan = report.named("orphan_lock");
    let waited = orphan.timed_out_wait_ns as f64;
    assert!(waited >= truth.fact("waited_ns") as f64 * 0.9, "the time-out was waited for: {orphan:?}");
    assert!(report.quality.edges.get("exit_holding").is_some_and(|&n| n >= 2), "{:?}", report.quality.edges);
}

#[test]
fn locks_held_and_waited_for_at_the_start() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe("midway 100 200");
    assert_complete(&report);
    assert_lock(truth.lock("fresh_lock"), report.named("fresh_lock"));
    let busy = report.named("busy_lock");
    // The holder's and the waiter's section began before the observation: they may count, as what they were seen to be.
    assert!((100..=102).contains(&busy.acquisitions), "{busy:?}");
    let edges = &report.quality.edges;
    assert!(edges.contains_key("held_at_start"), "{edges:?}");
}

#[test]
fn a_wait_from_before_the_start_to_after_the_end() {
    let Some(_turn) = may_observe() else { return };
    let workload = Workload::start("midway 1 1");
    let report = Observer::of(workload.pid(), &["--duration", "500ms"]).report();
    let busy = report.locks.iter().find(|lock| lock.name == "busy_lock").map(|lock| lock.waiting_now.count);
    let futex = report.futexes.iter().find(|futex| futex["name"] == "busy_lock");
    assert!(busy == Some(1) || futex.is_some(), "nobody is told to wait: {report:?}");
}

#[test]
fn a_target_that_is_killed() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start_lingering("counter 4 2 1000");
    let observer = Observer::of(workload.pid(), &[]);
    workload.go();
    let truth = workload.truth();
    workload.running.signal(Signal::SIGKILL);
    workload.running.wait();
    assert_exact(&truth, &observer.report());
}

#[test]
fn a_target_that_exits_at_once() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start("counter 1 1 1");
    let observer = Observer::of(workload.pid(), &["--duration", "50s"]);
    workload.go();
    let truth = workload.finish();
    let report = observer.report();
    assert_exact(&truth, &report);
    assert!(report.quality.duration_ns < 40_000_000_000, "the observation outlived its target");
}
