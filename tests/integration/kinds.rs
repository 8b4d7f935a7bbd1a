//! Spin locks, semaphores, `pthread_once` and C11's locks.

use crate::harness::build::Variant;
use crate::harness::exact::{assert_complete, assert_lock, assert_semaphore};
use crate::harness::may_observe;
use crate::harness::observer::observe_as;
use crate::harness::report::{Lock, Report};
use crate::harness::workload::Truth;

fn check(variant: Variant, options: &[&str]) {
    let (truth, report) = observe_as("kinds 4 50", variant, options);
    assert_complete(&report);
    let truth_of = |name: &str| truth.locks.iter().find(|lock| lock.symbol.as_deref() == Some(name)).unwrap();
    let told = |name: &str| report.at(truth.pid, &truth_of(name).addr);
    for name in ["spin_lock", "c11_lock"] {
        assert_lock(truth_of(name), told(name));
    }
    for (name, kind) in [("spin_lock", "spin"), ("pool", "semaphore"), ("once", "once"), ("c11_lock", "mutex")] {
        assert_eq!(told(name).kind, kind);
    }
    spin(&truth, told("spin_lock"));
    semaphores(&truth, &report);
    once(&truth, truth_of("once").contended, told("once"));
    // The wrapper's caller, not the wrapper.
    let sites: Vec<_> = told("c11_lock").first_site.iter().collect();
    assert!(sites.iter().all(|site| site.contains("c11_section")), "{sites:?}");
}

fn spin(truth: &Truth, spin: &Lock) {
    assert!(spin.contended_wait_ns.sum >= truth.fact("spin_waits_ns") as f64, "{spin:?}");
    let main: f64 = spin.holders.iter().filter(|h| h.function.as_deref() == Some("main")).map(|h| h.wait_ns).sum();
    assert!(main >= 0.9 * truth.fact("spin_waits_ns") as f64, "main kept the spinner waiting: {spin:?}");
}

fn semaphores(truth: &Truth, report: &Report) {
    for lock in &truth.locks {
        if lock.symbol.as_deref() == Some("queue") {
            // Others give its permits: nobody holds what is waited for.
            let queue = report.semaphore_at(truth.pid, &lock.addr).expect("a semaphore for work");
            assert_semaphore(lock, queue);
            assert_eq!(queue["waits"].as_u64(), Some(lock.contended), "{queue}");
            continue;
        }
        let told = report.at(truth.pid, &lock.addr);
        if told.kind != "semaphore" {
            continue;
        }
        let counts = (told.acquisitions, told.try_failures, told.timeouts, told.errors);
        assert_eq!(counts, (lock.acquisitions, lock.try_failures, lock.timeouts, lock.errors), "{told:?}");
        assert_eq!(told.release_unseen, 0, "{told:?}");
        assert!(told.contended_wait_ns.sum >= lock.wait_min_ns as f64, "{told:?}, {lock:?}");
    }
}

fn once(truth: &Truth, waiters: u64, once: &Lock) {
    assert_eq!((once.acquisitions, once.contended), (waiters + 1, waiters), "{once:?}");
    let ran = truth.fact("once_ns") as f64;
    assert!(once.hold_ns.max >= ran, "{once:?}");
    assert!(once.contended_wait_ns.max >= 0.5 * ran, "{once:?}");
}

#[test]
fn other_kinds() {
    let Some(_turn) = may_observe() else { return };
    check(Variant::Plain, &[]);
}

#[test]
fn other_kinds_by_plain_uprobes() {
    let Some(_turn) = may_observe() else { return };
    check(Variant::Plain, &["--plain-uprobes"]);
}

#[test]
fn other_kinds_of_a_static_program() {
    let Some(_turn) = may_observe() else { return };
    check(Variant::Static, &[]);
}

/// Threads that found the initialiser not yet begun, but were too late, wait for it like others. With musl only who waits is seen.
#[test]
fn initialisers_that_all_threads_want_at_the_same_moment() {
    let Some(_turn) = may_observe() else { return };
    for (variant, runs) in [(Variant::Plain, 1), (Variant::Static, 1), (Variant::Musl, 0), (Variant::MuslStatic, 0)] {
        let (truth, report) = observe_as("once 3 50", variant, &[]);
        assert_complete(&report);
        for lock in &truth.locks {
            let told = report.at(truth.pid, &lock.addr);
            assert_eq!((told.acquisitions, told.contended), (lock.contended + runs, lock.contended), "{told:?}");
        }
    }
}
