//! C++'s standard library: its locks are the C library's, in objects of its own. And abseil, whose locks are its own.

use crate::harness::build::Variant;
use crate::harness::exact::assert_complete;
use crate::harness::may_observe;
use crate::harness::observer::observe_as;
use crate::harness::report::entry_for;

fn check(variant: Variant) {
    let (truth, report) = observe_as("cpp 4 100", variant, &[]);
    assert_complete(&report);
    for (name, kind) in [
        ("plain", "mutex"),
        ("nested", "mutex"),
        ("table", "rwlock"),
        ("timed", "mutex"),
        ("queue_lock", "mutex"),
        ("once", "once"),
    ] {
        let (lock, told) = (truth.lock(name), report.at(truth.pid, &truth.lock(name).addr));
        assert!(told.name == name || told.name.starts_with(&format!("{name}.")), "{told:?}");
        assert_eq!(told.kind, kind, "{told:?}");
        let counts = (told.acquisitions, told.try_failures, told.timeouts, told.errors);
        assert_eq!(counts, (lock.acquisitions, lock.try_failures, lock.timeouts, lock.errors), "{told:?}");
        assert_eq!(told.mutex_type.as_deref() == Some("recursive"), name == "nested", "{told:?}");
    }
    let once = report.named("once");
    assert_eq!(once.contended, truth.lock("once").contended, "{once:?}");
    assert!(once.hold_ns.max >= truth.fact("once_ns") as f64, "{once:?}");
    // Waiting for a condition is none for its lock.
    let queue = report.at(truth.pid, &truth.lock("queue_lock").addr);
    assert!(queue.wait_ns.sum + queue.hold_ns.sum < truth.fact("idle_ns") as f64, "{queue:?}");
    let idle: u64 =
        report.conditions.iter().filter_map(|c| entry_for(std::slice::from_ref(c), c["condition"].as_str()?)).count()
            as u64;
    assert_eq!(idle, 1, "one condition variable: {:?}", report.conditions);
}

#[test]
fn cpp_locks() {
    let Some(_turn) = may_observe() else { return };
    check(Variant::Plain);
}

#[test]
fn cpp_locks_of_a_static_program() {
    let Some(_turn) = may_observe() else { return };
    check(Variant::Static);
}

#[test]
fn cpp_abseil() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe_as("abseil 20", Variant::Plain, &[]);
    assert_complete(&report);
    let lock = report.named("account_lock");
    assert_eq!((lock.kind.as_str(), lock.contended), ("mutex (abseil)", truth.fact("account_lock")), "{lock:?}");
    assert!(lock.contended_wait_ns.sum >= truth.fact("account_lock_ns") as f64, "{lock:?}");
    // Free ones are taken by its own instructions, and releases with nobody waiting are, too.
    assert_eq!((lock.release_unseen, lock.hold_ns.sum), (lock.contended, 0.0), "{lock:?}");
}
