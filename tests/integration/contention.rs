//! Who waits, for how long, and behind whom: known by construction, since the holder holds on until the kernel says that
//! all waiters sleep.

use crate::harness::build::Variant;
use crate::harness::exact::{assert_contended, assert_exact};
use crate::harness::may_observe;
use crate::harness::observer::{observe, observe_as};
use crate::harness::report::Party;

fn functions(parties: &[Party]) -> Vec<&str> {
    parties.iter().filter_map(|party| party.function.as_deref()).collect()
}

#[test]
fn one_waiter_behind_one_holder() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe("hold 20 1 5000");
    assert_exact(&truth, &report);
    assert_contended(&truth, &report);
    let lock = report.named("cache_lock");
    assert_eq!(lock.lock, report.locks[0].lock, "the most harmful lock comes first: {:?}", report.names());
    assert!(lock.hold_ns.max >= 5_000_000.0 && lock.contended_wait_ns.max >= 5_000_000.0, "{lock:?}");
    // Each of the 20 waits lasts at least 5 ms; the histogram behind the median tells that within a factor of two.
    assert!(lock.contended_wait_ns.p50 >= 2_500_000.0, "{lock:?}");
    assert_eq!(lock.waiting_now.count, 0);
}

#[test]
fn eight_waiters_at_a_time() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe("hold 10 8 2000");
    assert_exact(&truth, &report);
    assert_contended(&truth, &report);
    assert_eq!(functions(&report.named("cache_lock").holders).first(), Some(&"slow_holder"));
}

#[test]
fn the_culprit_is_named() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe("culprit 10");
    assert_exact(&truth, &report);
    assert_contended(&truth, &report);
    let lock = report.named("cache_lock");
    assert_eq!(
        lock.name,
        report.locks[0].name,
        "the quiet lock is held longer, but harms nobody: {:?}",
        report.names()
    );
    assert_eq!(functions(&lock.waiters), ["victim_section"]);
    let (slow, quick) = (&lock.holders[0], lock.holders.iter().find(|h| h.function.as_deref() == Some("quick_holder")));
    assert_eq!(slow.function.as_deref(), Some("slow_holder"), "{:?}", lock.holders);
    assert!(slow.wait_ns >= 10.0 * 20_000_000.0, "{slow:?}");
    let quick = quick.unwrap_or_else(|| panic!("the quick holder is missing: {:?}", lock.holders));
    assert!(quick.wait_ns >= 10.0 * 1_000_000.0 && quick.wait_ns < slow.wait_ns, "{quick:?}");
    let told: f64 = lock.holders.iter().map(|holder| holder.wait_ns).sum::<f64>() + lock.unattributed_ns;
    let waited = lock.contended_wait_ns.sum;
    assert!((told - waited).abs() <= 0.01 * waited, "{told} ns of blame for {waited} ns of waiting");
    assert_eq!(report.named("quiet_lock").contended, 0);
}

#[test]
fn the_place_is_named_by_file_and_line() {
    let Some(_turn) = may_observe() else { return };
    let (_, report) = observe("culprit 2");
    let source = include_str!("../workloads/culprit.c");
    let slow = &report.named("cache_lock").holders[0];
    assert!(slow.file.as_deref().is_some_and(|file| file.ends_with("culprit.c")), "{slow:?}");
    let line = slow.line.and_then(|line| source.lines().nth(line as usize - 1)).unwrap_or_default();
    assert_eq!(line.trim(), "ACQUIRE(truth, &section);", "{slow:?}");
    let function = source.lines().take(slow.line.unwrap_or(0) as usize).filter(|line| line.starts_with("NAMED")).last();
    assert_eq!(function, Some("NAMED static void slow_holder(void)"));
}

#[test]
fn short_waits_are_counted_but_not_recorded() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe_as("hold 10 1 2000", Variant::Plain, &["--min-wait", "30s"]);
    assert_exact(&truth, &report);
    assert_contended(&truth, &report);
    let lock = report.named("cache_lock");
    assert!(lock.holders.is_empty(), "no wait was long enough for a record: {:?}", lock.holders);
    let (truth, report) = observe_as("hold 10 1 2000", Variant::Plain, &["--min-wait", "10us"]);
    assert_exact(&truth, &report);
    assert_eq!(functions(&report.named("cache_lock").holders).first(), Some(&"slow_holder"));
}

#[test]
fn waits_behind_a_nested_lock_blame_the_inner_holder() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe("chained 10");
    assert_exact(&truth, &report);
    assert_contended(&truth, &report);
    // All the while, the outer lock's holder waits for the inner one.
    assert_eq!(functions(&report.named("outer_lock").holders).first(), Some(&"root_cause"));
    assert_eq!(functions(&report.named("inner_lock").holders).first(), Some(&"root_cause"));
}

#[test]
fn task_queues_blame_the_long_section() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe("taskqueues 4 400 10 1000 sleep");
    let lock = report.named("patch_lock");
    assert_eq!(lock.acquisitions, truth.lock("patch_lock").acquisitions);
    assert_eq!(lock.lock, report.locks[0].lock, "{:?}", report.names());
    // Threads wait where they take free tasks: longest there, unless one wakes up late. The updates of patches cause that.
    assert!(functions(&lock.waiters).contains(&"allocate_task"), "{lock:?}");
    assert_eq!(functions(&lock.holders).first(), Some(&"update_patch"), "{lock:?}");
    let split = observe("taskqueues 4 400 10 1000 sleep split").1;
    assert!(split.locks.iter().all(|l| l.wait_ns.sum < lock.wait_ns.sum), "{:?}", split.names());
}
