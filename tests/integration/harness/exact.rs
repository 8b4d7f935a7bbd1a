//! A report against the truth: counts exactly, times between bounds that hold however busy the machine is.

use super::report::{Lock, Report};
use super::workload::{LockTruth, Truth};
use serde_json::Value;

/// The kernel's clock for eBPF and the one that programs read agree to less than this at any moment, ns.
const CLOCK_SLACK_NS: u64 = 1_000;

/// Demands that nothing was lost, impossible or left unprobed. (Late events depend on how long the scheduler keeps a
/// thread off its CPU inside a probe; they are analysed all the same.)
pub(crate) fn assert_complete(report: &Report) {
    let quality = &report.quality;
    assert!(quality.lost.values().all(|&n| n == 0), "lost: {:?}", quality.lost);
    assert!(quality.impossible.values().all(|&n| n == 0), "impossible: {:?}", quality.impossible);
    assert!(quality.failed_probes.is_empty(), "failed probes: {:?}", quality.failed_probes);
}

/// Demands a complete report in which every lock and thread of the workload is told truly.
pub(crate) fn assert_exact(truth: &Truth, report: &Report) {
    assert_complete(report);
    assert_locks(truth, truth.pid, report);
    assert_threads(truth, report);
}

/// Demands that every lock of the workload, whose pid in the initial namespace is given, is told truly.
pub(crate) fn assert_locks(truth: &Truth, pid: u32, report: &Report) {
    for lock in &truth.locks {
        match report.semaphore_at(pid, &lock.addr) {
            Some(semaphore) => assert_semaphore(lock, semaphore),
            None => assert_lock(lock, report.at(pid, &lock.addr)),
        }
    }
}

/// Demands that a semaphore whose permits stand for work is told truly.
pub(crate) fn assert_semaphore(truth: &LockTruth, semaphore: &Value) {
    let told = ["permits", "timeouts", "errors"].map(|count| semaphore[count].as_u64());
    assert_eq!(told, [truth.acquisitions, truth.timeouts, truth.errors].map(Some), "{semaphore}, {truth:?}");
    let idle = semaphore["idle_ns"]["sum"].as_f64().expect("idle time");
    let slack = ((truth.acquisitions + truth.timeouts + truth.errors) * CLOCK_SLACK_NS) as f64;
    let all = truth.wait_min_ns as f64 - slack..=truth.call_ns as f64 + slack;
    assert!(all.contains(&idle), "idle for {idle} ns, not {all:?}: {semaphore}");
    if let Some(symbol) = &truth.symbol {
        assert_eq!(&semaphore["name"], symbol.as_str());
    }
}

/// Demands that one lock is told truly.
pub(crate) fn assert_lock(truth: &LockTruth, lock: &Lock) {
    let told = (lock.acquisitions, lock.try_failures, lock.timeouts, lock.errors);
    let wanted = (truth.acquisitions, truth.try_failures, truth.timeouts, truth.errors);
    assert_eq!(told, wanted, "(acquisitions, try failures, timeouts, errors) of {truth:?}");
    if let Some(symbol) = &truth.symbol {
        assert_eq!(&lock.name, symbol);
    }
    let operations = truth.acquisitions + truth.try_failures + truth.timeouts + truth.errors;
    let slack = (operations * CLOCK_SLACK_NS) as f64;
    let (wait, hold) = (lock.wait_ns.sum, lock.hold_ns.sum);
    assert!(wait <= truth.call_ns as f64 + slack, "waits longer than its calls: {lock:?}, {truth:?}");
    assert!(wait + hold <= truth.span_ns as f64 + slack, "waits and holds for too long: {lock:?}, {truth:?}");
    assert!(hold + slack >= truth.hold_ns as f64, "holds too short: {lock:?}, {truth:?}");
    let contended_wait = lock.contended_wait_ns.sum;
    assert!(contended_wait + slack >= truth.wait_min_ns as f64, "waits too short: {lock:?}, {truth:?}");
}

/// Demands that the acquisitions of every thread of the workload are told exactly, but for locks that the C library
/// takes on its own account.
fn assert_threads(truth: &Truth, report: &Report) {
    let known: u64 = truth.locks.iter().map(|lock| report.acquisitions_at(truth.pid, &lock.addr)).sum();
    let others = report.acquisitions() - known;
    for thread in &truth.threads {
        let told = report.thread(thread.tid).acquisitions;
        assert!(
            (thread.acquisitions..=thread.acquisitions + others).contains(&told),
            "thread {} made {} acquisitions (and {others} or fewer inside the C library), not {told}",
            thread.tid,
            thread.acquisitions
        );
    }
    let by_thread: u64 = report.threads.iter().map(|thread| thread.acquisitions).sum();
    assert_eq!(by_thread, report.acquisitions(), "threads and locks tell different sums");
}

/// Demands that contention, too, is as it was made.
pub(crate) fn assert_contended(truth: &Truth, report: &Report) {
    for lock in &truth.locks {
        assert_eq!(report.at(truth.pid, &lock.addr).contended, lock.contended, "contended of {lock:?}");
    }
}
