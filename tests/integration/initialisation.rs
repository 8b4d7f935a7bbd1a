//! What the first thread that wants it initialises while others wait: C++'s variables in functions, Rust's cells. Nothing of it is probed: the
//! waiters are known by the functions in which they sleep, who initialises by its wake.

use crate::harness::build::Variant;
use crate::harness::exact::assert_complete;
use crate::harness::may_observe;
use crate::harness::observer::observe_as;
use crate::harness::report::{Party, Report};
use crate::harness::workload::Truth;

/// Each was waited for once, in `function`, where another thread initialised it.
fn check(truth: &Truth, report: &Report, function: &str) {
    assert_complete(report);
    let told: Vec<_> = report.locks.iter().filter(|lock| lock.kind == "once" && lock.contended > 0).collect();
    assert_eq!(told.iter().map(|lock| lock.contended).sum::<u64>(), truth.fact("waits"), "{told:?}");
    let waited: f64 = told.iter().map(|lock| lock.contended_wait_ns.sum).sum();
    assert!(waited >= truth.fact("waited_ns") as f64, "{waited} ns of {truth:?}");
    let here = |party: &Party| party.function.as_deref().is_some_and(|name| name.contains(function));
    for lock in told {
        assert!(lock.inferred && lock.waiters.iter().all(here), "{lock:?}");
        let [holder] = lock.holders.as_slice() else { panic!("{lock:?}") };
        assert!(here(holder) && holder.share > 0.99, "{lock:?}");
    }
    let verdict = report.verdict.join(" ");
    assert!(verdict.contains("all waiting is caused by") && !verdict.contains("Cannot tell"), "{verdict}");
}

#[test]
fn initialisation_of_variables_in_functions() {
    let Some(_turn) = may_observe() else { return };
    for options in [&[][..], &["--futex-only"]] {
        let (truth, report) = observe_as("initialised", Variant::Plain, options);
        check(&truth, &report, "settings<");
        assert!(report.locks.iter().any(|lock| lock.name.starts_with("guard variable for ")), "{:?}", report.names());
    }
}

#[test]
fn initialisation_of_rusts_cells() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe_as("lazy", Variant::Plain, &[]);
    check(&truth, &report, "settings");
    // Twenty of them are one culprit.
    assert!(report.culprits[0].locks == 20 && report.culprits[0].share_of_all > 0.9, "{:?}", report.culprits);
}
