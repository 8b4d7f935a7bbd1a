//! Points (USDT) of a program that tell what happens to a lock of its own, and its counters of who watches, which the kernel writes.

use crate::harness::build::{Variant, compile};
use crate::harness::exact::assert_complete;
use crate::harness::may_observe;
use crate::harness::observer::{Observer, run};
use crate::harness::process::eventually;
use crate::harness::report::Party;
use crate::harness::workload::{Truth, Workload};
use nix::sys::signal::Signal;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use tempfile::TempDir;

/// The lock of `tests/workloads/points.c`.
const OWN: &str = r#"format = "lockbpf.locks/1"
[[lock]]
kind = "latch"
files = ["points"]
name = { text = "*(lock+8)" }
function = [
    { point = "points:waits", does = "waits", lock = "arg1" },
    { point = "points:taken", does = "acquired", lock = "arg1" },
    { point = "points:missed", does = "failed", lock = "arg1" },
    { point = "points:given", does = "release", lock = "arg1" },
]
"#;

/// A file with this text.
fn described(dir: &TempDir, text: &str) -> String {
    let file = dir.path().join("locks.toml");
    fs::write(&file, text).expect("failed to write a description");
    file.display().to_string()
}

/// The program's counters of who watches, in its memory.
fn counters(pid: u32, truth: &Truth) -> [u16; 4] {
    let memory = File::open(format!("/proc/{pid}/mem")).expect("the program runs");
    ["at_waits", "at_taken", "at_given", "at_missed"].map(|name| {
        let mut bytes = [0; 2];
        memory.read_exact_at(&mut bytes, truth.fact(name)).expect("failed to read a counter");
        u16::from_ne_bytes(bytes)
    })
}

#[test]
fn points_tell_of_a_lock() {
    let Some(_turn) = may_observe() else { return };
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let locks = described(&dir, OWN);
    for options in [&[][..], &["--plain-uprobes"]] {
        let mut workload = Workload::start_lingering("points 20 500");
        let pid = workload.pid();
        let observer = Observer::of(pid, &[&["--locks", &locks], options].concat());
        workload.go();
        let truth = workload.truth();
        assert!(counters(pid, &truth).iter().all(|&counter| counter > 0), "all points are watched");
        observer.interrupt();
        let report = observer.report();
        assert_eq!(counters(pid, &truth), [0; 4], "nobody watches any more");
        workload.end();
        assert_complete(&report);
        let (lock, told) = (truth.lock("own_latch"), report.named("orders"));
        assert_eq!(told.kind, "latch");
        assert_eq!(
            (told.acquisitions, told.contended, told.try_failures, told.timeouts, told.errors),
            (lock.acquisitions, lock.contended, lock.try_failures, 0, 0),
            "{told:?}"
        );
        // What the program does only for whoever watches.
        assert_eq!((truth.fact("watched"), truth.fact("watched_points")), (lock.acquisitions, 4));
        assert!(told.contended_wait_ns.sum >= lock.wait_min_ns as f64, "{told:?}, {lock:?}");
        assert!(told.hold_ns.sum >= lock.wait_min_ns as f64, "{told:?}, {lock:?}");
        // The point is in a function that is inlined into the one to blame.
        let is_holder = |h: &&Party| {
            let names: Vec<_> = h.stack.iter().filter_map(|frame| frame["function"].as_str()).collect();
            names.first() == Some(&"latch_get") && names.contains(&"slow_holder")
        };
        let blamed: f64 = told.holders.iter().filter(is_holder).map(|h| h.wait_ns).sum();
        assert!(blamed >= 0.9 * lock.wait_min_ns as f64, "{told:?}, {lock:?}");
    }
}

#[test]
fn a_killed_observer_watches_no_points() {
    let Some(_turn) = may_observe() else { return };
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let locks = described(&dir, OWN);
    for options in [&[][..], &["--plain-uprobes"]] {
        let mut workload = Workload::start_lingering("points 1 10");
        let pid = workload.pid();
        let mut observer = Observer::of(pid, &[&["--locks", &locks], options].concat());
        workload.go();
        let truth = workload.truth();
        assert!(counters(pid, &truth).iter().all(|&counter| counter > 0), "all points are watched");
        observer.running.signal(Signal::SIGKILL);
        observer.running.wait();
        eventually("nobody watches any more", || counters(pid, &truth) == [0; 4]);
        workload.end();
    }
}

#[test]
fn points_are_checked() {
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let program = compile("points", Variant::Plain);
    let program = program.to_str().unwrap();
    let outcome = run(&["locks", "check", &described(&dir, OWN), program]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    for text in ["points:waits", "points:given", "nop"] {
        assert!(outcome.stdout.contains(text), "{}", outcome.stdout);
    }
    // The first argument is a constant.
    let constant = OWN.replacen("arg1", "arg0", 1);
    let outcome = run(&["locks", "check", &described(&dir, &constant), program]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stdout.contains("points:waits is not found: it passes the lock neither"), "{}", outcome.stdout);
    let other = OWN.replacen("points:given", "points:dropped", 1);
    let outcome = run(&["locks", "check", &described(&dir, &other), program]);
    assert!(outcome.stdout.contains("points:dropped is not found: nothing in the file"), "{}", outcome.stdout);
}
