//! Read-write locks: readers and writers, waits for either, calls that fail.

use crate::harness::build::Variant;
use crate::harness::exact::assert_exact;
use crate::harness::may_observe;
use crate::harness::observer::observe_as;
use crate::harness::report::Report;
use crate::harness::workload::Truth;

fn check(variant: Variant, options: &[&str]) -> (Truth, Report) {
    let (truth, report) = observe_as("rwlock 4 50", variant, options);
    assert_exact(&truth, &report);
    for lock in &truth.locks {
        let told = report.at(truth.pid, &lock.addr);
        assert_eq!((told.kind.as_str(), told.mutex_type.as_deref()), ("rwlock", None), "{told:?}");
        // Nobody was kept waiting for the table on purpose, but some may have been.
        if lock.symbol.as_deref() != Some("table_lock") {
            assert_eq!(told.contended, lock.contended, "{told:?}, {lock:?}");
        }
    }
    // Its words are no futexes of their own.
    assert!(
        report.futexes.iter().all(|futex| !futex["name"].as_str().is_some_and(|name| name.contains("config_lock")))
    );
    (truth, report)
}

#[test]
fn readers_and_writers() {
    let Some(_turn) = may_observe() else { return };
    check(Variant::Plain, &[]);
}

#[test]
fn readers_and_writers_by_plain_uprobes() {
    let Some(_turn) = may_observe() else { return };
    check(Variant::Plain, &["--plain-uprobes"]);
}

#[test]
fn readers_and_writers_of_a_static_program() {
    let Some(_turn) = may_observe() else { return };
    check(Variant::Static, &[]);
}

#[test]
fn readers_share_the_blame() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = check(Variant::Plain, &[]);
    let config = report.named("config_lock");
    let blamed = |function: &str| -> f64 {
        config.holders.iter().filter(|h| h.function.as_deref() == Some(function)).map(|h| h.wait_ns).sum()
    };
    // The writer waits ROUNDS times for one reader, and ROUNDS times for two.
    let (main, second) = (blamed("contended"), blamed("second"));
    let waited = (truth.fact("reader_waits_ns") + truth.fact("writer_waits_ns")) as f64;
    assert!(main + second > 0.9 * waited, "{main} and {second} of {waited}: {config:?}");
    let two = truth.fact("writer_waits_ns") as f64 / 2.0;
    // Each of the two has a part of it; how much is up to the scheduler on a busy machine.
    let first = main - truth.fact("reader_waits_ns") as f64;
    assert!(second > 0.3 * two && first > 0.3 * two, "two readers: {first} and {second} of {two}: {config:?}");
}
