//! Programs with musl instead of glibc: their locks have another layout, and their functions call one another.

use crate::harness::build::Variant;
use crate::harness::exact::{assert_complete, assert_contended, assert_exact, assert_lock, assert_locks};
use crate::harness::may_observe;
use crate::harness::observer::observe_as;

/// Workloads of which every lock and thread is told exactly, as with glibc.
const EXACT: [&str; 5] = ["counter 4 2 2000", "nesting 3 200", "trylock 200", "rwlock 4 50", "timeouts"];

fn exact(variant: Variant, options: &[&str]) {
    for workload in EXACT {
        let (truth, report) = observe_as(workload, variant, options);
        assert_exact(&truth, &report);
    }
    // In this one a stranger unlocks, which is impossible, and said to be.
    let (truth, report) = observe_as("mutex_types 50", variant, options);
    assert_locks(&truth, truth.pid, &report);
    assert_contended(&truth, &report);
}

fn kinds(variant: Variant) {
    let (truth, report) = observe_as("kinds 4 50", variant, &[]);
    assert_complete(&report);
    for lock in &truth.locks {
        if lock.symbol.as_deref() == Some("queue") {
            // Others give its permits.
            let queue = report.semaphore_at(truth.pid, &lock.addr).expect("a semaphore for work");
            let counts = ["permits", "timeouts", "errors"].map(|count| queue[count].as_u64());
            assert_eq!(counts, [lock.acquisitions, lock.timeouts, lock.errors].map(Some), "{queue}");
            continue;
        }
        let told = report.at(truth.pid, &lock.addr);
        match lock.symbol.as_deref() {
            // Initialisers that nobody waits for leave no trace.
            Some("once") => assert_eq!((told.acquisitions, told.contended), (lock.contended, lock.contended)),
            Some("spin_lock" | "c11_lock") => assert_lock(lock, told),
            _ => {
                let counts = (told.acquisitions, told.try_failures, told.timeouts, told.errors);
                assert_eq!(counts, (lock.acquisitions, lock.try_failures, lock.timeouts, lock.errors), "{told:?}");
            }
        }
    }
}

#[test]
fn a_dynamic_program_with_musl() {
    let Some(_turn) = may_observe() else { return };
    exact(Variant::Musl, &[]);
}

#[test]
fn a_dynamic_program_with_musl_by_plain_uprobes() {
    let Some(_turn) = may_observe() else { return };
    exact(Variant::Musl, &["--plain-uprobes"]);
}

#[test]
fn a_static_program_with_musl() {
    let Some(_turn) = may_observe() else { return };
    exact(Variant::MuslStatic, &[]);
}

#[test]
fn other_kinds_with_musl() {
    let Some(_turn) = may_observe() else { return };
    kinds(Variant::Musl);
    kinds(Variant::MuslStatic);
}
