//! Counts are exact: as many acquisitions, failed tries, time-outs and errors as the workload made, and nothing lost.

use crate::harness::build::Variant;
use crate::harness::exact::{assert_complete, assert_contended, assert_exact, assert_lock};
use crate::harness::may_observe;
use crate::harness::observer::{Observer, observe, observe_as};
use crate::harness::workload::Workload;

#[test]
fn four_threads_on_four_locks() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe("counter 4 3 5000");
    assert_exact(&truth, &report);
    assert_eq!(report.named("table[1]").pid, truth.pid);
    assert!(report.locks.iter().all(|lock| lock.comm == "counter"));
}

#[test]
fn sixty_four_threads() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe("counter 64 16 500");
    assert_exact(&truth, &report);
    assert!(report.threads.len() >= 64);
}

#[test]
fn tries_before_locking() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe("counter 4 2 5000 try");
    assert_exact(&truth, &report);
    for lock in &truth.locks {
        let told = report.at(truth.pid, &lock.addr);
        assert!(told.contended <= lock.try_failures, "only failed tries can be contended: {told:?}");
    }
}

#[test]
fn failed_tries() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe("trylock 1000 500");
    assert_exact(&truth, &report);
    assert_contended(&truth, &report);
}

/// Watched returns may be system calls of the kernel's own (x86-64, from 6.11), which no filter knows.
#[test]
fn a_process_that_filters_its_system_calls() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe("filtered 500");
    assert_exact(&truth, &report);
    assert_contended(&truth, &report);
}

#[test]
fn timeouts_and_malformed_deadlines() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe("timeouts 20 10");
    assert_exact(&truth, &report);
}

#[test]
fn eight_locks_deep() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe("nesting 8 20");
    assert_exact(&truth, &report);
    assert_contended(&truth, &report);
    let thread = report.thread(truth.pid);
    assert!(thread.held_union_ns + 20_000 >= truth.fact("union_ns"), "{thread:?}");
    assert!(thread.held_sum_ns + 160_000 >= truth.locks.iter().map(|lock| lock.hold_ns).sum(), "{thread:?}");
    // No other lock is held for long, so the union is little more than the outermost lock's.
    let others: f64 = report.locks.iter().filter(|lock| !lock.name.starts_with("level")).map(|l| l.hold_ns.sum).sum();
    assert!(thread.held_union_ns as f64 <= truth.fact("union_max_ns") as f64 + others + 20_000.0, "{thread:?}");
}

#[test]
fn hand_over_hand() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe("handover 20");
    assert_exact(&truth, &report);
    let thread = report.thread(truth.pid);
    assert!(thread.held_union_ns + 20_000 >= truth.fact("union_ns"), "{thread:?}");
    assert!(thread.held_union_ns < thread.held_sum_ns, "two locks are held at a time: {thread:?}");
}

#[test]
fn every_type_of_mutex() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe("mutex_types 100");
    for lock in &truth.locks {
        assert_lock(lock, report.at(truth.pid, &lock.addr));
    }
    assert_contended(&truth, &report);
    assert!(report.quality.lost.values().all(|&n| n == 0), "lost: {:?}", report.quality.lost);
    for (name, wanted) in [("recursive_lock", "recursive"), ("errorcheck_lock", "error"), ("adaptive_lock", "adaptive")]
    {
        let told = report.named(name).mutex_type.as_deref().unwrap_or_default();
        assert!(told.contains(wanted), "{name} is told to be {told:?}");
    }
}

#[test]
fn locks_on_heap_and_stack() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe("heap 5 200");
    assert_exact(&truth, &report);
    let mut names = report.names();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), report.locks.len(), "two locks share a name: {:?}", report.names());
}

#[test]
fn a_stripped_program() {
    let Some(_turn) = may_observe() else { return };
    let (mut truth, report) = observe_as("counter 4 2 1000", Variant::Stripped, &[]);
    truth.locks.iter_mut().for_each(|lock| lock.symbol = None);
    assert_exact(&truth, &report);
    assert!(!report.names().contains(&"cache_lock"), "a name that is not in the file: {:?}", report.names());
}

#[test]
fn a_program_at_a_fixed_address() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe_as("counter 2 2 1000", Variant::Fixed, &[]);
    assert_exact(&truth, &report);
}

#[test]
fn a_static_program_with_symbols() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe_as("counter 4 2 1000", Variant::Static, &[]);
    assert_exact(&truth, &report);
}

#[test]
fn every_event_recorded() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe_as("counter 4 2 1000", Variant::Plain, &["--all-events"]);
    assert_exact(&truth, &report);
    let made: u64 = truth.locks.iter().map(|lock| lock.acquisitions).sum();
    assert!(report.quality.events >= made, "{} events of {made} sections", report.quality.events);
}

#[test]
fn two_observers_of_one_target() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start("counter 4 2 2000");
    let observers = [Observer::of(workload.pid(), &[]), Observer::of(workload.pid(), &[])];
    workload.go();
    let truth = workload.finish();
    for observer in observers {
        assert_exact(&truth, &observer.report());
    }
}

#[test]
fn two_targets_of_one_observer() {
    let Some(_turn) = may_observe() else { return };
    let mut workloads = ["counter 2 1 1000", "counter 3 2 700", "counter 2 2 100"].map(Workload::start);
    let pids: Vec<String> = workloads.iter().map(|workload| workload.pid().to_string()).collect();
    let observer = Observer::start(&["--pid", &pids[0], "--pid", &pids[1], "--format", "json"]);
    workloads.iter_mut().for_each(Workload::go);
    let truths = workloads.each_mut().map(Workload::finish);
    let report = observer.report();
    assert_complete(&report);
    for truth in &truths[..2] {
        crate::harness::exact::assert_locks(truth, truth.pid, &report);
    }
    assert!(report.locks.iter().all(|lock| lock.pid != truths[2].pid), "a process that is no target was observed");
}
