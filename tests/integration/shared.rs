//! Locks that processes share: one lock, whoever takes it.

use crate::harness::exact::assert_complete;
use crate::harness::may_observe;
use crate::harness::observer::Observer;
use crate::harness::workload::Workload;
use std::fs;

#[test]
fn two_processes_share_one_lock() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start("pshared 50");
    let pid = workload.pid();
    let children =
        fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("failed to look for the child");
    let child = children.split_whitespace().next().expect("the workload has forked").to_owned();
    let observer = Observer::of(pid, &["--pid", &child]);
    workload.go();
    let truth = workload.finish();
    let report = observer.report();
    assert_complete(&report);
    assert_eq!(truth.fact("child").to_string(), child);
    let [mutex, gate] = truth.locks.as_slice() else { panic!("{truth:?}") };
    for (lock, kind) in [(mutex, "mutex"), (gate, "semaphore")] {
        let told: Vec<_> = report.locks.iter().filter(|l| l.kind == kind && l.acquisitions >= 50).collect();
        let [told] = told.as_slice() else { panic!("one {kind} in {:?}", report.names()) };
        assert_eq!(told.acquisitions, lock.acquisitions, "{told:?}");
        assert!(told.contended >= lock.contended, "{told:?}");
        assert!(told.contended_wait_ns.sum >= lock.wait_min_ns as f64, "{told:?}");
    }
    // The child waited for the parent, across processes.
    let mutex = report.locks.iter().find(|l| l.kind == "mutex" && l.acquisitions >= 50).expect("the mutex");
    let main: f64 = mutex.holders.iter().filter(|h| h.function.as_deref() == Some("main")).map(|h| h.wait_ns).sum();
    assert!(main >= 0.9 * truth.fact("waited_ns") as f64, "{mutex:?}");
}

/// Forked workers take turns with one mutex: most of their time is waiting for it, whoever of them is looked at when.
fn workers_wait_for_one_lock(options: &[&str]) {
    let mut workload = Workload::start("prefork 4 300 3000");
    let pid = workload.pid();
    let children =
        fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("failed to look for the workers");
    let others: Vec<&str> = children.split_whitespace().flat_map(|child| ["--pid", child]).collect();
    let observer = Observer::of(pid, &[&others[..], options].concat());
    workload.go();
    let truth = workload.finish();
    let report = observer.report();
    let waited = truth.fact("waited_ns") as f64;
    let lock = report.locks.iter().max_by(|a, b| a.wait_ns.sum.total_cmp(&b.wait_ns.sum)).expect("there is a lock");
    let told = lock.wait_ns.sum;
    // What a call takes without a sleep is no waiting, and what the machine's other work takes none that the kernel sees.
    assert!((0.7 * waited..=1.05 * waited).contains(&told), "{told} of {waited}: {lock:?}");
    lock.stated_acquisitions().assert_near(truth.fact("acquisitions") as f64, 0.1, "acquisitions");
    assert!(report.verdict.iter().all(|sentence| !sentence.contains("No lock holds")), "{:?}", report.verdict);
}

/// One of four workers is observed. Mostly another one holds the lock that it waits for, so the verdict advises to observe the others, too.
#[test]
fn holders_of_other_processes_that_share_a_lock() {
    let Some(_turn) = may_observe() else { return };
    // On a busy machine the first windows come late.
    for (options, operations) in [(&[][..], 9000), (&["--futex-only"], 3000)] {
        let mut workload = Workload::start(&format!("prefork 4 {operations} 2000"));
        let pid = workload.pid();
        let children =
            fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("failed to look for the workers");
        let observed = children.split_whitespace().next().and_then(|child| child.parse().ok()).expect("a worker");
        let observer = Observer::of(observed, options);
        workload.go();
        let truth = workload.finish();
        let verdict = observer.report().verdict.join(" ");
        let known = ["its word names thread ", "an observation of the process of thread "];
        let after = known.iter().find_map(|words| verdict.split_once(words)).unwrap_or_else(|| panic!("{verdict}")).1;
        let named: String = after.chars().take_while(char::is_ascii_digit).collect();
        assert_eq!(truth.fact(&format!("worker.{named}")), 1, "{verdict}");
        assert!(!named.contains(&observed.to_string()), "{verdict}");
    }
}

#[test]
fn forked_workers_wait_for_one_lock() {
    let Some(_turn) = may_observe() else { return };
    workers_wait_for_one_lock(&[]);
}

#[test]
fn forked_workers_wait_for_one_lock_within_a_budget() {
    let Some(_turn) = may_observe() else { return };
    workers_wait_for_one_lock(&["--budget", "0.5%"]);
}
