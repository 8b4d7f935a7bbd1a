//! Signal handlers that use locks in the middle of other calls on locks.

use crate::harness::build::Variant;
use crate::harness::exact::assert_exact;
use crate::harness::may_observe;
use crate::harness::observer::observe_as;
use crate::harness::report::{Report, entry_for};
use crate::harness::workload::Truth;

const ROUNDS: u64 = 20;
/// Each is waited for once in each round.
const LOCKS: [&str; 8] =
    ["plain_lock", "timed_lock", "robust_lock", "table_lock", "clock_lock", "heir_lock", "read_lock", "late_lock"];

fn check(flags: &str, variant: Variant, options: &[&str]) {
    let (truth, report) = observe_as(&format!("signals {ROUNDS} {flags}"), variant, options);
    assert!(truth.fact("handled") > 100, "{} signals", truth.fact("handled"));
    assert_exact(&truth, &report);
    for name in LOCKS {
        // The main thread takes each lock again when nobody has it.
        assert_eq!(report.named(name).contended, ROUNDS, "{:?}", report.named(name));
    }
    assert_idle(&truth, &report);
}

/// What a thread slept for a condition is no contention, whatever interrupts it.
fn assert_idle(truth: &Truth, report: &Report) {
    for (name, address) in [("cond_lock", "cond_addr"), ("timed_cond_lock", "timed_cond_addr")] {
        let lock = report.named(name);
        let busy = (truth.lock(name).span_ns - truth.fact("idle_min_ns")) as f64 + 200_000.0;
        assert!(lock.wait_ns.sum + lock.hold_ns.sum <= busy, "idle time was counted: {lock:?} in {busy} ns");
        let condition = format!("{}:{:#x}", truth.pid, truth.fact(address));
        let told = entry_for(&report.conditions, &condition).expect("the condition is told");
        assert_eq!(told["waits"].as_u64(), Some(ROUNDS), "{told}");
        assert!(told["idle_ns"]["sum"].as_f64() >= Some(truth.fact("idle_min_ns") as f64), "{told}");
    }
}

#[test]
fn handlers_that_post_semaphores() {
    let Some(_turn) = may_observe() else { return };
    check("", Variant::Plain, &[]);
}

#[test]
fn handlers_after_which_calls_go_on() {
    let Some(_turn) = may_observe() else { return };
    check("r", Variant::Plain, &[]);
}

#[test]
fn handlers_that_lock_mutexes() {
    let Some(_turn) = may_observe() else { return };
    check("rl", Variant::Plain, &[]);
}

/// A static program: if the C library's file is observed in another process, too, the kernel watches calls to their return that lockbpf
/// does not want to be, and then kills the program.
#[test]
fn handlers_on_stacks_of_their_own() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe_as(&format!("signals {ROUNDS} la"), Variant::Static, &[]);
    assert!(truth.fact("handled") > 100, "{} signals", truth.fact("handled"));
    // Calls there are not watched to their return: who got a lock is said by the lock.
    assert_exact(&truth, &report);
    assert_idle(&truth, &report);
}

/// A thread waits for one lock at a time, in the middle of another attempt, too.
#[test]
fn handlers_that_begin_before_the_wait_does() {
    let Some(_turn) = may_observe() else { return };
    for (flags, variant) in [("", Variant::Plain), ("n", Variant::Plain), ("n", Variant::Static), ("n", Variant::Musl)]
    {
        let (truth, report) = observe_as(&format!("interrupted 1000 {flags}"), variant, &[]);
        assert!(report.named("handler_lock").contended > 0, "{:?}", report.named("handler_lock"));
        assert_exact(&truth, &report);
    }
}

#[test]
fn handlers_by_plain_uprobes() {
    let Some(_turn) = may_observe() else { return };
    check("l", Variant::Plain, &["--plain-uprobes"]);
}

#[test]
fn handlers_in_musl() {
    let Some(_turn) = may_observe() else { return };
    check("l", Variant::Musl, &[]);
}
