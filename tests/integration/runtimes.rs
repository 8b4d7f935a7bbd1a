//! Runtimes whose locks are compiled into programs: Rust's standard library, parking_lot.

use crate::harness::exact::assert_complete;
use crate::harness::may_observe;
use crate::harness::observer::Observer;
use crate::harness::workload::Workload;
use std::path::Path;
use std::process::Command;

#[test]
fn rust_locks() {
    let Some(_turn) = may_observe() else { return };
    let program = Path::new(env!("CARGO_BIN_EXE_lockbpf")).with_file_name("examples").join("rust_locks");
    let mut workload = Workload::launch(Command::new(&program).arg("20"));
    let observer = Observer::of(workload.pid(), &[]);
    workload.go();
    let truth = workload.finish();
    let report = observer.report();
    assert_complete(&report);
    for (name, kind) in [
        ("STD_MUTEX", "mutex (Rust std)"),
        ("STD_RWLOCK", "rwlock (Rust std)"),
        ("PARKING_MUTEX", "mutex (parking_lot)"),
        ("PARKING_RWLOCK", "rwlock (parking_lot)"),
    ] {
        let told: Vec<_> = report.locks.iter().filter(|lock| lock.name.contains(name)).collect();
        let [lock] = told.as_slice() else { panic!("{name} in {:?}", report.names()) };
        assert_eq!((lock.kind.as_str(), lock.contended), (kind, truth.fact(name)), "{lock:?}");
        assert!(lock.contended_wait_ns.sum >= truth.fact(&format!("{name}_ns")) as f64, "{lock:?}");
        // Free ones are taken inline, and releases with nobody waiting are, too.
        assert_eq!((lock.release_unseen, lock.hold_ns.sum), (lock.contended, 0.0), "{lock:?}");
        assert!(
            lock.waiters.iter().all(|w| w.function.as_deref().is_some_and(|f| f.contains("rust_locks"))),
            "{lock:?}"
        );
    }
}
