//! Programs that hang: a wait that never ends is what a user most wants to see, and no record of it is ever complete.

use crate::harness::may_observe;
use crate::harness::observer::Observer;
use crate::harness::report::{Lock, Report};
use crate::harness::workload::{Truth, Workload};

/// Observes a workload until it is stuck, and half a second longer.
fn observe_stuck(line: &str) -> (Truth, Report) {
    let mut workload = Workload::start(line);
    let observer = Observer::of(workload.pid(), &[]);
    workload.go();
    let truth = workload.truth();
    std::thread::sleep(std::time::Duration::from_millis(500));
    observer.interrupt();
    (truth, observer.report())
}

fn waiters(lock: &Lock) -> Vec<&str> {
    lock.waiting_now.places.iter().filter_map(|place| place.function.as_deref()).collect()
}

#[test]
fn waits_for_ever_are_reported() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe_stuck("stuck hang 3");
    let lock = report.named("hung_lock");
    assert_eq!(lock.lock, format!("{}:{}", truth.pid, truth.lock("hung_lock").addr));
    assert_eq!(lock.waiting_now.count, 3, "{lock:?}");
    assert!(lock.waiting_now.longest_ns >= 500_000_000, "{lock:?}");
    assert_eq!(waiters(lock), ["hopeless_waiter"]);
    assert_eq!(report.locks[0].name, "hung_lock", "what hangs is the most harmful: {:?}", report.names());
}

#[test]
fn a_deadlock_shows_both_locks() {
    let Some(_turn) = may_observe() else { return };
    let (_, report) = observe_stuck("stuck deadlock");
    for (name, waiter) in [("lock_a", "b_then_a"), ("lock_b", "a_then_b")] {
        let lock = report.named(name);
        assert_eq!(lock.waiting_now.count, 1, "{lock:?}");
        assert_eq!(waiters(lock), [waiter]);
    }
}

#[test]
fn attaching_to_a_program_that_hangs_already() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start("stuck hang 2");
    workload.go();
    let truth = workload.truth();
    let outcome = Observer::of(workload.pid(), &["--duration", "500ms"]).outcome();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let id = format!("{}:{}", truth.pid, truth.lock("hung_lock").addr);
    assert!(outcome.stdout.contains(&id), "the lock that everybody waits for is not told: {}", outcome.stdout);
}
