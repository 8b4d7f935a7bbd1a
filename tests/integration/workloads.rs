//! The workloads alone, unobserved: a truth that contradicted itself would prove nothing.

use crate::harness::build::Variant;
use crate::harness::turn;
use crate::harness::workload::{Truth, Workload, run_alone};
use std::path::Path;

/// What holds for the truth of any workload in which every lock that was acquired was released.
fn assert_consistent(truth: &Truth) {
    for lock in &truth.locks {
        assert!(lock.contended <= lock.acquisitions, "{lock:?}");
        assert!(lock.wait_min_ns <= lock.call_ns, "{lock:?}");
        assert!(lock.hold_ns <= lock.span_ns && lock.call_ns <= lock.span_ns, "{lock:?}");
    }
    let by_lock: u64 = truth.locks.iter().map(|lock| lock.acquisitions).sum();
    let by_thread: u64 = truth.threads.iter().map(|thread| thread.acquisitions).sum();
    assert_eq!(by_lock, by_thread);
}

fn check_alone(line: &str) -> Truth {
    let _turn = turn();
    let truth = run_alone(line);
    assert_consistent(&truth);
    truth
}

#[test]
fn every_workload_compiles() {
    let _turn = turn();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/workloads");
    let mut count = 0;
    for entry in std::fs::read_dir(dir).expect("failed to list the workloads") {
        let path = entry.expect("failed to list the workloads").path();
        if path.extension().is_some_and(|extension| extension == "c") {
            let name = path.file_stem().and_then(|stem| stem.to_str()).expect("a workload has a name");
            let variant = if name == "bare" { Variant::Bare } else { Variant::Plain };
            assert!(crate::harness::build::compile(name, variant).is_file());
            count += 1;
        }
    }
    assert!(count > 10, "{count} workloads");
}

#[test]
fn counter() {
    let truth = check_alone("counter 4 2 1000");
    assert_eq!(truth.lock("cache_lock").acquisitions, 4000);
    assert_eq!(truth.lock("table[0]").acquisitions, 2000);
    assert_eq!(truth.lock("table[1]").acquisitions, 2000);
    assert_eq!(truth.threads.len(), 4);
}

#[test]
fn counter_that_tries_first() {
    let truth = check_alone("counter 4 1 1000 try");
    assert_eq!(truth.lock("cache_lock").acquisitions, 4000);
    assert!(truth.lock("cache_lock").try_failures <= 4000);
}

#[test]
fn hold() {
    let truth = check_alone("hold 4 3 2000");
    let lock = truth.lock("cache_lock");
    assert_eq!((lock.acquisitions, lock.contended), (16, 12));
    assert!(lock.wait_min_ns >= 12 * 2_000_000);
    assert!(lock.hold_ns >= 4 * 2_000_000);
}

#[test]
fn culprit() {
    let truth = check_alone("culprit 3");
    let lock = truth.lock("cache_lock");
    assert_eq!((lock.acquisitions, lock.contended), (12, 6));
    assert!(lock.wait_min_ns >= 3 * 21_000_000);
    assert_eq!(truth.lock("quiet_lock").contended, 0);
}

#[test]
fn callers() {
    for line in ["callers 3", "callers 3 jump"] {
        let truth = check_alone(line);
        let lock = truth.lock("db_mutex");
        assert_eq!((lock.acquisitions, lock.contended), (12, 6));
        assert!(lock.wait_min_ns >= 3 * 21_000_000);
    }
}

#[test]
fn chained() {
    let truth = check_alone("chained 3");
    for symbol in ["inner_lock", "outer_lock"] {
        let lock = truth.lock(symbol);
        assert_eq!((lock.acquisitions, lock.contended), (6, 3));
        assert!(lock.wait_min_ns >= 3 * 2_000_000);
    }
}

#[test]
fn threads() {
    let truth = check_alone("threads 3 7 50");
    assert_eq!(truth.lock("early_lock").acquisitions, 150);
    assert_eq!(truth.lock("late_lock").acquisitions, 350);
    assert_eq!(truth.threads.len(), 10);
}

#[test]
fn nesting() {
    let truth = check_alone("nesting 8 5");
    assert_eq!(truth.locks.len(), 8);
    assert!(truth.locks.iter().all(|lock| lock.acquisitions == 5 && lock.hold_ns >= 5_000_000));
    assert!(truth.locks.is_sorted_by(|outer, inner| outer.hold_ns >= inner.span_ns));
}

#[test]
fn trylock() {
    let truth = check_alone("trylock 100 50");
    let lock = truth.lock("busy_lock");
    assert_eq!((lock.acquisitions, lock.try_failures, lock.contended), (51, 100, 0));
}

#[test]
fn filtered() {
    let truth = check_alone("filtered 50");
    let lock = truth.lock("filtered_lock");
    assert_eq!((lock.acquisitions, lock.try_failures), (151, 50));
}

#[test]
fn timeouts() {
    let truth = check_alone("timeouts 6 4");
    let lock = truth.lock("busy_lock");
    assert_eq!((lock.acquisitions, lock.timeouts, lock.errors), (3, 20, 2));
    assert!(lock.call_ns >= 10 * 1_900_000);
}

#[test]
fn condvar() {
    let truth = check_alone("condvar 5 4 3");
    let lock = truth.lock("queue_lock");
    assert_eq!(lock.contended, 4);
    assert_eq!(lock.acquisitions, 9 + 9 + 3 + truth.fact("cond_waits"));
    assert!(truth.fact("idle_min_ns") >= 9 * 2_000_000);
    assert!(truth.fact("idle_min_ns") < lock.call_ns);
}

#[test]
fn mutex_types() {
    let truth = check_alone("mutex_types 10");
    assert_eq!(truth.lock("recursive_lock").acquisitions, 10);
    assert_eq!(truth.lock("errorcheck_lock").errors, 10);
    assert_eq!(truth.lock("inherit_lock").contended, 1);
    assert_eq!(truth.lock("robust_lock").acquisitions, 12);
}

#[test]
fn handover() {
    let truth = check_alone("handover 3");
    assert!(truth.locks.iter().all(|lock| lock.acquisitions == 3 && lock.hold_ns >= 3_000_000));
    assert!(truth.fact("union_ns") <= truth.fact("union_max_ns"));
}

#[test]
fn forker() {
    assert_eq!(check_alone("forker 2 100").lock("shared_name").acquisitions, 201);
}

#[test]
fn execer() {
    let truth = check_alone("execer 30 70");
    assert_eq!((truth.fact("first"), truth.lock("image_lock").acquisitions), (30, 70));
}

#[test]
fn exit_holding() {
    let _turn = turn();
    let truth = run_alone("exit_holding");
    assert_eq!((truth.lock("orphan_lock").timeouts, truth.lock("orphan_lock").hold_ns), (1, 0));
}

#[test]
fn midway() {
    assert_eq!(check_alone("midway 10 20").lock("busy_lock").acquisitions, 10);
}

#[test]
fn heap() {
    let truth = check_alone("heap 3 20");
    assert!(truth.locks.iter().all(|lock| lock.symbol.is_none() && lock.acquisitions == 20));
    assert_eq!(truth.locks.len(), 4);
}

#[test]
fn cancel() {
    let _turn = turn();
    for variant in [Variant::Plain, Variant::Exceptions] {
        let mut workload = Workload::start_as("cancel 5", variant);
        workload.go();
        assert_eq!(workload.finish().fact("cleaned_up"), 5);
    }
}

#[test]
fn stuck() {
    let _turn = turn();
    for (line, locks) in [("stuck hang 3", 1), ("stuck deadlock", 2)] {
        let mut workload = Workload::start(line);
        workload.go();
        assert_eq!(workload.truth().locks.len(), locks);
        assert!(workload.running.is_alive());
    }
}

#[test]
fn speed() {
    let _turn = turn();
    let mut workload = Workload::start("speed 10");
    let pairs: u64 = workload.running.out.next().and_then(|line| line.parse().ok()).expect("speed prints numbers");
    assert!(pairs > 0);
    workload.running.close_stdin();
    assert!(workload.running.wait().success());
}

#[test]
fn task_queues() {
    let truth = check_alone("taskqueues 4 500 10 10");
    assert_eq!((truth.fact("tasks"), truth.fact("updates")), (500, 500));
    assert_eq!(truth.lock("patch_lock").acquisitions, 3 * 500);
    let split = check_alone("taskqueues 4 500 10 10 sleep split");
    assert_eq!(split.lock("patch_lock").acquisitions, 0);
    assert_eq!(split.lock("free_lock").acquisitions, 2 * 500);
    let patches = split.locks.iter().filter(|l| l.symbol.as_deref().is_some_and(|s| s.starts_with("patch_locks")));
    assert_eq!(patches.map(|l| l.acquisitions).sum::<u64>(), 500);
}

#[test]
fn rwhot() {
    let truth = check_alone("rwhot 4 1");
    assert!(truth.lock("table_lock").acquisitions > 1_000 && truth.fact("waits") > 0, "{truth:?}");
}

#[test]
fn steady() {
    let truth = check_alone("steady 5000 1 20000");
    let lock = truth.lock("steady_lock");
    assert_eq!((lock.acquisitions, lock.contended), (truth.fact("holds"), 0));
    assert!(lock.acquisitions > 0 && lock.acquisitions <= 5001, "{lock:?}");
    assert!(truth.fact("hold_mean_ns") >= 20_000 && truth.fact("hold_p99_ns") >= 19_000);
}

#[test]
fn rates() {
    let truth = check_alone("rates 2 50");
    let (busy, shared) = (truth.lock("busy_lock"), truth.lock("shared_lock"));
    assert_eq!(busy.acquisitions, truth.fact("burst_acquisitions") + truth.fact("calm_acquisitions"));
    assert_eq!((truth.fact("bursts"), busy.contended), (2, 0));
    assert!((10..=20).contains(&shared.contended) && shared.acquisitions > 2 * shared.contended, "{shared:?}");
    assert!(truth.fact("hold_mean_ns") >= 350 && truth.fact("hold_p99_ns") >= 550);
    // Per second of burst and per second of calm.
    let (bursts, calm) = (truth.fact("burst_acquisitions") * 20, truth.fact("calm_acquisitions") * 20 / 19);
    assert!(bursts > 100 * calm, "{bursts} against {calm}");
}

#[test]
fn periodic() {
    for (line, least_ns) in [("periodic 100 5 busy", 500_000_000), ("periodic 100 5 sleep 20", 500_000_000)] {
        let truth = check_alone(line);
        let lock = truth.lock("phase_lock");
        assert_eq!(lock.acquisitions, truth.fact("holds"));
        assert!(lock.acquisitions > 0 && lock.acquisitions <= 5 * 1001, "{lock:?}");
        assert!(truth.fact("duration_ns") >= least_ns);
        assert!(truth.fact("hold_mean_ns") >= 4_900);
    }
}

#[test]
fn herd() {
    let truth = check_alone("herd 4 1 100");
    let made = truth.facts_about("of_");
    assert_eq!(made.len(), 4);
    for (pid, acquisitions) in made {
        assert_eq!(acquisitions == 100, u64::from(pid) != truth.fact("hot"), "{pid}: {acquisitions}");
    }
}

#[test]
fn ticker() {
    assert_eq!(check_alone("ticker 500 1").lock("ticking_lock").acquisitions, 500);
}
