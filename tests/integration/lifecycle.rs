//! Threads and processes come and go, and observations begin in the middle of things.

use crate::harness::build::Variant;
use crate::harness::exact::{assert_complete, assert_exact, assert_lock};
use crate::harness::observer::{Observer, observe, observe_as};
use crate::harness::report::{Lock, Report};
use crate::harness::workload::{Truth, Workload};
use crate::harness::{may_observe, may_observe_alone};
use nix::sys::signal::Signal;
use std::time::Duration;

#[test]
fn threads_from_before_and_after_the_start() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe("threads 8 40 200");
    assert_exact(&truth, &report);
}

#[test]
fn a_thousand_short_threads() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe("threads 1 1000 5");
    assert_exact(&truth, &report);
    assert!(report.threads.len() > 1000);
    assert!(report.threads.iter().any(|thread| thread.comm == "late"));
}

#[test]
fn a_new_image_has_new_locks() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start_as("execer 300 700", Variant::Fixed);
    let observer = Observer::of(workload.pid(), &[]);
    workload.go();
    let truth = workload.finish();
    let report = observer.report();
    assert_complete(&report);
    let lock = truth.lock("image_lock");
    let mut told: Vec<u64> = report.all_at(truth.pid, &lock.addr).iter().map(|lock| lock.acquisitions).collect();
    told.sort_unstable();
    assert_eq!(told, [300, 700], "one lock for each image");
}

#[test]
fn threads_and_processes_that_exit_holding() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe("exit_holding");
    assert_complete(&report);
    for lock in &truth.locks {
        let told = report.at(truth.pid, &lock.addr);
        assert_eq!((told.acquisitions, told.timeouts), (lock.acquisitions, lock.timeouts), "{told:?}");
    }
    let orphan = report.named("orphan_lock");
    let waited = orphan.timed_out_wait_ns as f64;
    assert!(waited >= truth.fact("waited_ns") as f64 * 0.9, "the time-out was waited for: {orphan:?}");
    assert!(report.quality.edges.get("exit_holding").is_some_and(|&n| n >= 2), "{:?}", report.quality.edges);
}

#[test]
fn locks_held_and_waited_for_at_the_start() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe("midway 100 200");
    assert_complete(&report);
    assert_lock(truth.lock("fresh_lock"), report.named("fresh_lock"));
    let busy = report.named("busy_lock");
    // The holder's and the waiter's section began before the observation: they may count, as what they were seen to be.
    assert!((100..=102).contains(&busy.acquisitions), "{busy:?}");
    let edges = &report.quality.edges;
    assert!(edges.contains_key("held_at_start"), "{edges:?}");
}

#[test]
fn a_wait_from_before_the_start_to_after_the_end() {
    let Some(_turn) = may_observe() else { return };
    let workload = Workload::start("midway 1 1");
    let report = Observer::of(workload.pid(), &["--duration", "500ms"]).report();
    let busy = report.locks.iter().find(|lock| lock.name == "busy_lock").map(|lock| lock.waiting_now.count);
    let futex = report.futexes.iter().find(|futex| futex["name"] == "busy_lock");
    assert!(busy == Some(1) || futex.is_some(), "nobody is told to wait: {report:?}");
}

#[test]
fn waits_from_before_the_start_that_end() {
    let Some(_turn) = may_observe() else { return };
    for options in [&["--budget", "3%"][..], &["--futex-only"], &[]] {
        let mut workload = Workload::start("lasting 3");
        workload.go();
        workload.running.out.find(|line| line == "held").expect("they wait");
        let observer = Observer::of(workload.pid(), options);
        std::thread::sleep(Duration::from_millis(600));
        workload.running.tell("x");
        let truth = workload.finish();
        let report = observer.report();
        let (most, least) = (report.quality.duration_ns as f64, 600e6);
        for (symbol, waiters) in [("outer_lock", 3), ("inner_lock", 1)] {
            let lock = report.at(truth.pid, &truth.lock(symbol).addr);
            let harm = lock.harm_ns / f64::from(waiters);
            assert!(harm >= least && harm <= most * 1.001, "{options:?}: {harm} of {least} to {most} ns: {lock:?}");
        }
        let culprit = &report.culprits[0];
        assert_eq!(culprit.function.as_deref(), Some("inner_holder"), "{options:?}: {culprit:?}");
        assert!(culprit.share_of_all > 0.9, "{options:?}: {culprit:?}");
        assert_eq!(report.quality.edges.get("waiting_at_start"), Some(&7), "{options:?}: {:?}", report.quality.edges);
    }
}

#[test]
fn waits_for_locks_that_are_still_held_at_the_end() {
    let Some(_turn) = may_observe() else { return };
    for options in [&["--budget", "3%"][..], &["--futex-only"], &["--all-events"], &[]] {
        let mut workload = Workload::start("keeping 800");
        let observer = Observer::of(workload.pid(), options);
        workload.go();
        workload.running.out.find(|line| line == "kept").expect("they have the locks");
        observer.interrupt();
        let report = observer.report();
        workload.running.tell("x");
        let truth = workload.finish();
        for (symbol, fact) in [("mutex_lock", "mutex_waited_ns"), ("rw_lock", "rw_waited_ns")] {
            // Futex calls tell the word inside of it.
            let lock = report.locks.iter().find(|lock| lock.name.starts_with(symbol)).expect("it is told");
            let share = lock.harm_ns / truth.fact(fact) as f64;
            assert!((0.9..1.01).contains(&share), "{options:?}: {share} of the waiting for {symbol}: {lock:?}");
        }
        let share: f64 = report
            .culprits
            .iter()
            .filter(|c| c.is("slow_mutex_holder") || c.is("slow_writer"))
            .map(|c| c.share_of_all)
            .sum();
        assert!(share > 0.9, "{options:?}: {:?}", report.culprits);
    }
}

#[test]
fn a_target_that_is_killed() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start_lingering("counter 4 2 1000");
    let observer = Observer::of(workload.pid(), &[]);
    workload.go();
    let truth = workload.truth();
    workload.running.signal(Signal::SIGKILL);
    workload.running.wait();
    assert_exact(&truth, &observer.report());
}

#[test]
fn a_target_that_exits_at_once() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start("counter 1 1 1");
    let observer = Observer::of(workload.pid(), &["--duration", "50s"]);
    workload.go();
    let truth = workload.finish();
    let report = observer.report();
    assert_exact(&truth, &report);
    assert!(report.quality.duration_ns < 40_000_000_000, "the observation outlived its target");
}

/// `shared_lock` of `leaders`, once for each image.
fn shared_locks<'a>(truth: &Truth, report: &'a Report) -> Vec<&'a Lock> {
    let mut locks: Vec<_> = report.locks.iter().filter(|l| l.pid == truth.pid && l.name == "shared_lock").collect();
    locks.sort_by_key(|lock| lock.acquisitions);
    locks
}

/// How observations are made where the main thread matters.
const WAYS: [&[&str]; 2] = [&[], &["--plain-uprobes"]];

#[test]
fn a_main_thread_that_has_ended_before() {
    let Some(_turn) = may_observe() else { return };
    for options in WAYS {
        let (truth, report) = observe_as("leaders before 300", Variant::Plain, options);
        assert_complete(&report);
        assert_lock(truth.lock("shared_lock"), report.named("shared_lock"));
    }
}

#[test]
fn a_main_thread_that_ends() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe("leaders during 600");
    assert_complete(&report);
    assert_lock(truth.lock("shared_lock"), report.named("shared_lock"));
}

#[test]
fn main_threads_that_end_one_after_the_other() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe("leaders chain 2000");
    let (told, wanted) = (report.named("shared_lock").acquisitions, truth.lock("shared_lock").acquisitions);
    println!("{told} of {wanted} acquisitions: {:?}", report.quality.unobserved);
    assert!(told >= wanted / 4 && told <= wanted, "{told} of {wanted} acquisitions");
    assert!(told == wanted || report.quality.incomplete, "what is missing is told");
}

#[test]
fn a_main_thread_that_ends_by_plain_uprobes() {
    let Some(_turn) = may_observe_alone() else { return };
    let (truth, report) = observe_as("leaders during 3000", Variant::Plain, &["--plain-uprobes"]);
    let (told, wanted) = (report.named("shared_lock").acquisitions, truth.lock("shared_lock").acquisitions);
    println!("{told} of {wanted} acquisitions");
    // Until its probes are tied to another thread, nothing is seen.
    assert!(told >= wanted / 2 && told <= wanted, "{told} of {wanted} acquisitions");
    assert!(told == wanted || !report.quality.unobserved.is_empty(), "what is missing is told");
}

#[test]
fn a_main_thread_that_has_ended_within_a_budget() {
    let Some(_turn) = may_observe() else { return };
    for how in ["before", "during"] {
        let (truth, report) = observe_as(&format!("leaders {how} 3000 1"), Variant::Plain, &["--budget", "8%"]);
        let wanted = truth.lock("shared_lock").acquisitions as f64;
        report.named("shared_lock").stated_acquisitions().assert_near(wanted, 0.25, how);
    }
}

#[test]
fn another_thread_replaces_the_program() {
    let Some(_turn) = may_observe() else { return };
    for how in ["exec", "leader"] {
        for options in WAYS {
            let (truth, report) = observe_as(&format!("leaders {how} 300 1500"), Variant::Plain, options);
            assert_complete(&report);
            let told: Vec<u64> = shared_locks(&truth, &report).iter().map(|lock| lock.acquisitions).collect();
            assert_eq!(told, [15_000; 2], "{how} {options:?}: {:?}", report.quality.notes);
        }
    }
}

#[test]
fn what_is_not_seen_is_told() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe("leaders blinded 800");
    let before = truth.fact("replaced_after");
    let (told, quality) = (report.named("shared_lock").acquisitions, &report.quality);
    assert_eq!(told, before, "another copy of the code is not probed");
    assert!(quality.incomplete && quality.observed_share < 0.9, "{quality:?}");
    let [gap] = quality.unobserved.as_slice() else { panic!("{quality:?}") };
    assert_eq!((gap.pid, gap.to_ns), (truth.pid, None));
    assert!(gap.from_ns < quality.duration_ns / 2, "{quality:?}");
    assert!(report.verdict[0].contains("NOT OBSERVED"), "{:?}", report.verdict);
}

#[test]
fn who_is_seen_is_not_told_to_be_unseen() {
    let Some(_turn) = may_observe() else { return };
    for workload in ["counter 4 2 20000", "rwlock", "condvar"] {
        let (_, report) = observe(workload);
        assert!(report.quality.unobserved.is_empty(), "{workload}: {:?}", report.quality.unobserved);
    }
}

#[test]
fn threads_that_others_name() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe_as("leaders renamed 400", Variant::Plain, &["--comm", "wanted"]);
    let lock = truth.lock("shared_lock");
    let (before, after) = (truth.fact("before"), truth.fact("after"));
    let told = report.named("shared_lock").acquisitions;
    assert!(before > 0 && before < lock.acquisitions, "it was named while it worked");
    // While it got its name it went on.
    let named = (lock.acquisitions - after)..=(lock.acquisitions - before);
    assert!(named.contains(&told), "{told} acquisitions, not {named:?}");
}
