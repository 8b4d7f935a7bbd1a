//! Calls of the C library: as many as the workload makes, charged to the outermost one; and threads that are cancelled inside of them.

use crate::harness::build::Variant;
use crate::harness::exact::assert_complete;
use crate::harness::may_observe;
use crate::harness::observer::{Observer, observe_as, run};
use crate::harness::report::{Calls, Functions, Report};
use crate::harness::workload::Workload;

/// What the C library calls for itself, for threads to begin and to end, is less than this.
const FEW: u64 = 64;

fn functions(report: &mut Report) -> Functions {
    assert_complete(report);
    report.functions.take().expect("the report has no calls")
}

/// Asserts that so many calls were made, and a few more if the library makes some by itself, and seen to their ends.
fn assert_called(functions: &Functions, name: &str, calls: u64) {
    let of = functions.of(name);
    let own = if matches!(name, "free" | "pthread_mutex_lock" | "pthread_mutex_unlock") { FEW } else { 0 };
    assert!((calls..=calls + own).contains(&of.calls), "{calls} calls: {of:?}");
    // Nothing is known of a few calls but that they were made: where counting begins, and on a busy machine between switches.
    assert!(of.ended == of.calls && of.uncounted <= 1 + of.calls / 100, "{calls} calls: {of:?}");
    assert!(of.on_cpu_ns > 0.0 && of.time_ns >= of.on_cpu_ns, "{of:?}");
}

fn check(variant: Variant) {
    let (_, mut report) = observe_as("functions 2 300", variant, &["--functions"]);
    let f = functions(&mut report);
    for (name, calls) in [
        ("malloc", 602),
        ("free", 1_202),
        ("calloc", 600),
        ("realloc", 600),
        ("memset", 600),
        ("memcpy", 600),
        ("pthread_mutex_lock", 600),
        ("pthread_mutex_unlock", 600),
        ("write", 600),
        ("fwrite", 600),
        ("fprintf", 600),
        ("open", 2),
        ("close", 2),
        ("pthread_create", 2),
        ("pthread_join", 2),
    ] {
        assert_called(&f, name, calls);
    }
    // Those of fwrite and fprintf are theirs.
    let write = f.of("write");
    assert!((1_200..1_200 + FEW).contains(&write.nested), "{write:?}");
    for category in &f.categories {
        let all: Vec<&Calls> = f.functions.iter().filter(|of| of.category == category.category).collect();
        let sum = |of: fn(&Calls) -> u64| all.iter().map(|calls| of(calls)).sum::<u64>();
        assert_eq!((category.calls, category.nested), (sum(|c| c.calls), sum(|c| c.nested)), "{category:?}");
        let threads = f.threads.iter().filter(|thread| thread.category == category.category);
        assert_eq!(category.calls, threads.map(|thread| thread.calls).sum::<u64>());
    }
    assert!(f.library_share > 0.0 && f.library_share <= 1.0, "{f:?}");
    let shares: f64 = f.categories.iter().map(|category| category.share).sum();
    assert!((shares - f.library_share).abs() < 1e-6 || shares > 1.0, "{f:?}");
}

#[test]
fn library_functions_called_in_known_numbers() {
    let Some(_turn) = may_observe() else { return };
    check(Variant::Plain);
}

#[test]
fn library_functions_of_a_static_program() {
    let Some(_turn) = may_observe() else { return };
    check(Variant::Static);
}

#[test]
fn library_functions_without_uprobe_sessions() {
    let Some(_turn) = may_observe() else { return };
    // Not all of them: a perf event each takes its time to be placed.
    let (truth, mut report) = observe_as("cancelled 4", Variant::Plain, &["--functions", "memory", "--plain-uprobes"]);
    assert_eq!(truth.fact("destroyed"), 12, "one for each thread");
    let f = functions(&mut report);
    let free = f.of("free");
    assert!(free.calls >= 12 && free.ended == free.calls, "{free:?}");
}

/// Locks are told as ever while their functions are seen as calls, too.
#[test]
fn library_functions_leave_locks_as_they_are() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe_as("counter 2 1 500", Variant::Plain, &["--functions", "pthread"]);
    crate::harness::exact::assert_exact(&truth, &report);
}

/// Cancelled threads of a C++ program are unwound through the functions that they are in, and run destructors. The workload itself
/// finds out whether one did not.
#[test]
fn library_functions_let_cancelled_threads_unwind() {
    let Some(_turn) = may_observe() else { return };
    let (truth, mut report) = observe_as("cancelled 4", Variant::Plain, &["--functions"]);
    assert_eq!(truth.fact("destroyed"), 12, "one for each thread");
    let f = functions(&mut report);
    // Cancelled inside, so never ended; what the destructors call is not charged to them.
    for name in ["read", "fread", "pthread_cond_wait"] {
        let of = f.of(name);
        assert_eq!((of.calls - of.ended, of.on_cpu_ns), (4, 0.0), "{of:?}");
    }
    assert!(f.of("free").calls >= 12, "{:?}", f.of("free"));
}

#[test]
fn library_functions_have_their_cost_told_before() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start("functions 1 10");
    let observer = Observer::start(&["--functions", "io,pthread", "--pid", &workload.pid().to_string()]);
    workload.go();
    workload.finish();
    let outcome = observer.outcome();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let (cost, begin) = (outcome.stderr.find("--functions io,pthread: "), outcome.stderr.find("observing "));
    assert!(cost.is_some() && cost < begin && outcome.stderr.contains(" µs more"), "{}", outcome.stderr);
    let table = &outcome.stdout;
    assert!(table.contains("fwrite") && !table.contains("malloc "), "{table}");
}

#[test]
fn library_functions_that_cannot_be_seen() {
    let Some(_turn) = may_observe() else { return };
    run(&["--functions", "cats", "--", "true"]).assert_error(&["cats", "io", "memory", "pthread"]);
    run(&["export", "--functions", "io", "--to", "/nonexistent/t.bin", "--", "true"])
        .assert_error(&["recordings", "--functions"]);
}
