//! The whole system: every process that locks, those that start later too, and not lockbpf itself.

use crate::harness::exact::assert_locks;
use crate::harness::may_observe_alone;
use crate::harness::observer::Observer;
use crate::harness::workload::Workload;
use std::time::Duration;

#[test]
fn processes_old_and_new_but_not_itself() {
    let Some(_turn) = may_observe_alone() else { return };
    let mut old = ["counter 3 2 1000", "counter 2 4 700"].map(Workload::start);
    let observer = Observer::start(&["--system-wide", "--format", "json"]);
    let mut new = Workload::start("counter 2 1 300");
    old.iter_mut().for_each(Workload::go);
    // What names need is read while a process lives: one that is gone within milliseconds keeps its numbers only.
    std::thread::sleep(Duration::from_secs(1));
    new.go();
    let truths: Vec<_> = old.iter_mut().chain([&mut new]).map(Workload::truth).collect();
    std::thread::sleep(Duration::from_secs(1));
    old.iter_mut().chain([&mut new]).for_each(Workload::end);
    let own_pid = observer.running.pid();
    observer.interrupt();
    let report = observer.report();
    for truth in &truths {
        assert_locks(truth, truth.pid, &report);
    }
    assert!(report.locks.iter().all(|lock| lock.pid != own_pid), "lockbpf observed itself");
}

#[test]
fn filters_by_name_of_the_thread() {
    let Some(_turn) = may_observe_alone() else { return };
    let mut workload = Workload::start("threads 2 5 100");
    let observer = Observer::start(&["--system-wide", "--comm", "late", "--format", "json"]);
    workload.go();
    let truth = workload.finish();
    observer.interrupt();
    let report = observer.report();
    assert_eq!(report.at(truth.pid, &truth.lock("late_lock").addr).acquisitions, 500);
    assert_eq!(report.acquisitions_at(truth.pid, &truth.lock("early_lock").addr), 0);
}
