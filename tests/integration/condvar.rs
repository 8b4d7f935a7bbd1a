//! Condition variables: idle waiting is no contention, the re-acquisition afterwards may be, and the hold is closed in
//! between.

use crate::harness::exact::{assert_contended, assert_exact};
use crate::harness::may_observe;
use crate::harness::observer::observe;
use crate::harness::report::entry_for;

#[test]
fn idle_waiting_is_no_contention() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe("condvar 20 0 10");
    assert_exact(&truth, &report);
    assert_contended(&truth, &report);
    let lock = report.named("queue_lock");
    assert_eq!((lock.contended, lock.contended_wait_ns.sum), (0, 0.0), "{lock:?}");
}

#[test]
fn a_contended_reacquisition_is_contention() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe("condvar 10 10 0");
    assert_exact(&truth, &report);
    assert_contended(&truth, &report);
    let lock = report.named("queue_lock");
    assert_eq!(lock.holders.first().and_then(|holder| holder.function.as_deref()), Some("produce"), "{lock:?}");
    assert_eq!(lock.waiters.first().and_then(|waiter| waiter.function.as_deref()), Some("consume"), "{lock:?}");
}

#[test]
fn idle_time_is_neither_waiting_nor_holding() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe("condvar 20 20 10");
    assert_exact(&truth, &report);
    let (lock, wanted) = (report.named("queue_lock"), truth.lock("queue_lock"));
    let busy = (wanted.span_ns - truth.fact("idle_min_ns")) as f64 + 200_000.0;
    assert!(lock.wait_ns.sum + lock.hold_ns.sum <= busy, "idle time was counted: {lock:?} in {busy} ns");
}

#[test]
fn the_condition_variable_is_told_apart_from_its_mutex() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe("condvar 10 5 5");
    let id = format!("{}:{:#x}", truth.pid, truth.fact("cond_addr"));
    assert!(entry_for(&report.conditions, &id).is_some(), "no {id} among {:?}", report.conditions);
    assert!(report.locks.iter().all(|lock| lock.lock != id), "a condition variable is no lock");
}
