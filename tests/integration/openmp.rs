//! OpenMP's locks by the description that lockbpf brings along: critical sections and locks that the program counts itself.

use crate::harness::build::{Variant, compile};
use crate::harness::exact::assert_complete;
use crate::harness::may_observe;
use crate::harness::observer::Observer;
use crate::harness::report::{Lock, Report};
use crate::harness::workload::{LockTruth, Truth, Workload};
use std::path::Path;
use std::process::Command;

fn observed(program: &Path, options: &[&str]) -> (Truth, Report) {
    let mut workload = Workload::launch(Command::new(program).args(["20", "500"]));
    let observer = Observer::of(workload.pid(), &[&["--locks", "openmp"], options].concat());
    workload.go();
    let truth = workload.finish();
    (truth, observer.report())
}

/// The lock of this kind whose section has a name, or the other one.
fn of_kind<'a>(report: &'a Report, kind: &str, is_named: bool) -> &'a Lock {
    let found: Vec<_> =
        report.locks.iter().filter(|lock| lock.kind == kind && lock.name.contains("tally") == is_named).collect();
    let [lock] = found[..] else { panic!("{} locks ({kind}), not one: {:?}", found.len(), report.locks) };
    lock
}

fn assert_told(truth: &LockTruth, told: &Lock) {
    let counts = (told.acquisitions, told.contended, told.try_failures, told.timeouts, told.errors);
    assert_eq!(counts, (truth.acquisitions, truth.contended, truth.try_failures, 0, 0), "{told:?}, {truth:?}");
    let waited = told.contended_wait_ns.sum;
    assert!(waited >= truth.wait_min_ns as f64 && waited <= truth.call_ns as f64, "{told:?}, {truth:?}");
    assert!(told.hold_ns.sum >= truth.wait_min_ns as f64, "{told:?}, {truth:?}");
}

/// Whoever held it is to blame for all waiting that exists by construction.
fn assert_blamed(truth: &LockTruth, told: &Lock) {
    let is_holder = |function: &Option<String>| function.as_deref() == Some("slow_holder");
    let blamed: f64 = told.holders.iter().filter(|h| is_holder(&h.function)).map(|h| h.wait_ns).sum();
    assert!(blamed >= 0.9 * truth.wait_min_ns as f64, "{told:?}, {truth:?}");
}

#[test]
fn openmp_of_gcc() {
    let Some(_turn) = may_observe() else { return };
    let program = compile("openmp", Variant::Plain);
    for options in [&[][..], &["--plain-uprobes"], &["--placement", "entry"]] {
        let (truth, report) = observed(&program, options);
        assert_complete(&report);
        for (symbol, told) in [
            ("tally", of_kind(&report, "omp critical", true)),
            ("unnamed", of_kind(&report, "omp critical", false)),
            ("own_lock", report.at(truth.pid, &truth.lock("own_lock").addr)),
            ("own_nest", report.at(truth.pid, &truth.lock("own_nest").addr)),
        ] {
            assert_told(truth.lock(symbol), told);
            assert_blamed(truth.lock(symbol), told);
        }
        let atomic = of_kind(&report, "omp atomic", false);
        assert_eq!((atomic.acquisitions, atomic.contended), (truth.lock("atomic").acquisitions, 0), "{atomic:?}");
        for (symbol, kind) in [("own_lock", "omp lock"), ("own_nest", "omp nest lock")] {
            let told = report.at(truth.pid, &truth.lock(symbol).addr);
            assert!(told.kind == kind && told.name.starts_with(symbol), "{told:?}");
        }
        assert_eq!(of_kind(&report, "omp critical", false).name, "omp critical without a name");
    }
}

/// libomp's waiters do not sleep, and tell nobody whom they wait for.
#[test]
fn openmp_of_llvm() {
    let Some(_turn) = may_observe() else { return };
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let program = dir.path().join("openmp");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/workloads/openmp.c");
    let mut clang = Command::new("clang");
    clang.args(["-O2", "-g", "-pthread", "-fopenmp", "-o"]).arg(&program).arg(&source);
    let compiled = clang.output().expect("failed to start clang");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let (truth, report) = observed(&program, &[]);
    assert_complete(&report);
    assert_told(truth.lock("tally"), of_kind(&report, "omp critical", true));
    assert_told(truth.lock("unnamed"), of_kind(&report, "omp critical", false));
    assert!(report.locks.iter().all(|lock| lock.kind != "omp lock"), "{:?}", report.locks);
}
