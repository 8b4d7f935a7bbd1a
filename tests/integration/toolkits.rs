//! Locks of toolkits and interpreters, of which the fast paths are compiled into programs, and whose libraries are stripped: GLib's, Qt's, Ruby's.
//! They are known by the functions in which their waiters sleep.

use crate::harness::build::Variant;
use crate::harness::exact::assert_complete;
use crate::harness::may_observe;
use crate::harness::observer::{Observer, observe_as};
use crate::harness::report::Lock;
use crate::harness::workload::{Truth, Workload};
use std::path::Path;
use std::process::Command;

fn check(lock: &Lock, name: &str, [take, give_back]: [&str; 2], truth: &Truth) {
    assert_eq!((lock.contended, lock.inferred), (truth.fact(name), true), "{lock:?}");
    assert!(lock.contended_wait_ns.sum >= truth.fact(&format!("{name}_ns")) as f64, "{lock:?}");
    // Not a function of the library's.
    assert!(lock.waiters.iter().all(|waiter| waiter.function.as_deref() == Some(take)), "{:?}", lock.waiters);
    let holder = &lock.holders[0];
    assert!(holder.function.as_deref() == Some(give_back) && holder.share > 0.9, "{:?}", lock.holders);
}

#[test]
fn toolkits_mutexes() {
    let Some(_turn) = may_observe() else { return };
    for options in [&[][..], &["--futex-only"]] {
        let (truth, report) = observe_as("toolkits 20", Variant::Plain, options);
        assert_complete(&report);
        check(report.named("glib_lock"), "glib_lock", ["take_glib", "give_back_glib"], &truth);
        let qt = report.named("qt_lock");
        check(qt, "qt_lock", ["take_qt", "give_back_qt"], &truth);
        assert_eq!(qt.kind, "mutex");
    }
}

#[test]
fn toolkits_of_ruby_park_their_threads() {
    let Some(_turn) = may_observe() else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/workloads/contended.rb");
    let mut workload = Workload::launch(Command::new("ruby").arg(script).arg("100"));
    let observer = Observer::of(workload.pid(), &[]);
    workload.go();
    let truth = workload.finish();
    let verdict = observer.report().verdict.join(" ");
    // Threads waited for the lock, in condition variables of their own, in which Ruby's threads sleep for anything.
    assert!(truth.fact("waited_ns") >= 1_000_000_000);
    assert!(
        verdict.contains("Cannot tell whether a lock holds ruby back") && !verdict.contains("No lock"),
        "{verdict}"
    );
    assert!(verdict.contains("where a runtime or library parks them"), "{verdict}");
}

#[test]
fn locks_made_of_conditions_acquit_nobody() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe_as("conditioned 400", Variant::Plain, &[]);
    assert_complete(&report);
    let verdict = report.verdict.join(" ");
    assert!(verdict.contains("Cannot tell whether a lock holds conditioned back"), "{verdict}");
    // The reader waits in a method of a lock.
    let parked = report.conditions.iter().filter(|condition| condition["purpose"] == "parking");
    let parked: f64 = parked.filter_map(|condition| condition["idle_ns"]["sum"].as_f64()).sum();
    assert!(parked >= truth.fact("waited_ns") as f64, "{parked} of {} ns", truth.fact("waited_ns"));
}
