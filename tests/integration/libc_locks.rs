//! Locks that are known by who sleeps there: the C library's own, of a FILE and of malloc's arena, and folly's.

use crate::harness::build::Variant;
use crate::harness::exact::assert_complete;
use crate::harness::may_observe;
use crate::harness::observer::Observer;
use crate::harness::report::Lock;
use crate::harness::workload::{Workload, command};

#[test]
fn locks_of_the_c_library() {
    let Some(_turn) = may_observe() else { return };
    let mut command = command("libc_locks 20", Variant::Plain);
    command.env("MALLOC_ARENA_MAX", "1").env("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0");
    // The C library's own frames are not found by frame pointers.
    let mut workload = Workload::launch(&mut command);
    let observer = Observer::of(workload.pid(), &["--unwind", "dwarf"]);
    workload.go();
    let truth = workload.finish();
    let report = observer.report();
    assert_complete(&report);
    let of = |kind: &str| report.locks.iter().filter(|lock| lock.kind == kind).collect::<Vec<_>>();
    let [stdio] = of("stdio lock")[..] else { panic!("{:?}", report.locks) };
    assert!(stdio.inferred && stdio.contended == 20 && stdio.name.starts_with("stdio lock"), "{stdio:?}");
    assert!(stdio.wait_ns.sum >= truth.fact("stdio_waits_ns") as f64, "{stdio:?}");
    let [arena] = of("malloc arena")[..] else { panic!("{:?}", report.locks) };
    assert!(arena.contended > 0 && arena.name.starts_with("malloc arena"), "{arena:?}");
}

/// An imitation: Debian 12 has no folly. What tells the lock is the name of the function, which is the same.
#[test]
fn cpp_locks_of_folly() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::launch(&mut command("folly 20", Variant::Plain));
    let observer = Observer::of(workload.pid(), &[]);
    workload.go();
    let truth = workload.finish();
    let report = observer.report();
    assert_complete(&report);
    let told = |lock: &&Lock| lock.kind == "folly::SharedMutex";
    let [lock] = report.locks.iter().filter(told).collect::<Vec<_>>()[..] else { panic!("{:?}", report.locks) };
    assert!(lock.name.contains("table_lock") && lock.contended == truth.fact("slept"), "{lock:?}");
    assert!(lock.wait_ns.sum >= truth.fact("slept_ns") as f64, "{lock:?}");
}
