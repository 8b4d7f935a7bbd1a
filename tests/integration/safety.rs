//! The target is never harmed: not by the probes, not by the death of the observer, not afterwards.

use crate::harness::build::Variant;
use crate::harness::exact::{assert_complete, assert_exact, assert_lock};
use crate::harness::may_observe_alone;
use crate::harness::observer::{Observer, observe, observe_as};
use crate::harness::process::eventually;
use crate::harness::text::{any_loaded, modified_bytes, programs_of};
use crate::harness::workload::Workload;
use nix::sys::signal::Signal;

/// Median speed of the `speed` workload over its next intervals, lock/unlock pairs per second.
fn speed(workload: &mut Workload) -> u64 {
    let mut next = || workload.running.out.next().and_then(|line| line.parse().ok()).expect("speed prints numbers");
    let mut speeds: Vec<u64> = (0..11).map(|_| next()).collect();
    speeds.sort_unstable();
    speeds[speeds.len() / 2]
}

/// Speeds that were measured up to now, thrown away.
fn forget_speeds(workload: &mut Workload) {
    let begin = std::time::Instant::now();
    while begin.elapsed() < std::time::Duration::from_millis(300) {
        workload.running.out.next();
    }
}

#[test]
fn full_speed_after_the_observer_was_killed() {
    let Some(_turn) = may_observe_alone() else { return };
    let mut workload = Workload::start("speed 50");
    let before = speed(&mut workload);
    assert_eq!(modified_bytes(workload.pid()), 0, "the target is untouched at first");
    let mut observer = Observer::of(workload.pid(), &[]);
    let programs = programs_of(observer.running.pid());
    assert!(!programs.is_empty() && any_loaded(&programs));
    assert!(modified_bytes(workload.pid()) > 0, "there are probes in the target");
    forget_speeds(&mut workload);
    observer.running.signal(Signal::SIGKILL);
    observer.running.wait();
    eventually("probes are gone", || modified_bytes(workload.pid()) == 0);
    eventually("programs are gone", || !any_loaded(&programs));
    forget_speeds(&mut workload);
    let after = speed(&mut workload);
    // A probe that was left behind would cost a factor of a hundred.
    assert!(after * 2 >= before, "{before} pairs per second before, {after} after");
    assert!(workload.running.is_alive());
}

/// In a thread that is killed the kernel neither removes breakpoints nor undoes one that is being placed.
#[test]
fn killed_in_the_middle_of_a_window_s_end_or_beginning_it_leaves_nothing() {
    let Some(_turn) = may_observe_alone() else { return };
    let mut workload = Workload::start("speed 50");
    let pid = workload.pid();
    for round in 0..12 {
        let mut observer = Observer::of(pid, &["--budget", "3%"]);
        // Half of them when breakpoints begin to go, half of them when they begin to come.
        let mut before = modified_bytes(pid);
        loop {
            let now = modified_bytes(pid);
            if if round % 2 == 0 { now < before } else { now > before } {
                break;
            }
            before = now;
        }
        observer.running.signal(Signal::SIGKILL);
        observer.running.wait();
        eventually("breakpoints are gone", || modified_bytes(pid) == 0);
    }
    assert!(workload.running.is_alive());
}

#[test]
fn nothing_is_left_after_a_clean_end() {
    let Some(_turn) = may_observe_alone() else { return };
    let mut workload = Workload::start("speed 50");
    let observer = Observer::of(workload.pid(), &[]);
    let programs = programs_of(observer.running.pid());
    assert!(modified_bytes(workload.pid()) > 0, "there are probes in the target");
    forget_speeds(&mut workload);
    observer.interrupt();
    let report = observer.report();
    assert_complete(&report);
    assert!(report.named("tight_lock").acquisitions > 0);
    eventually("probes are gone", || modified_bytes(workload.pid()) == 0);
    eventually("programs are gone", || !any_loaded(&programs));
    assert!(workload.running.is_alive());
}

#[test]
fn futex_only_touches_no_code() {
    let Some(_turn) = may_observe_alone() else { return };
    let mut workload = Workload::start_lingering("hold 20 1 5000");
    let observer = Observer::of(workload.pid(), &["--futex-only"]);
    assert_eq!(modified_bytes(workload.pid()), 0, "no uprobe without pthread probes");
    workload.go();
    let truth = workload.truth();
    observer.interrupt();
    let outcome = observer.outcome();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let lock = truth.lock("cache_lock");
    let id = format!("{}:{}", truth.pid, lock.addr);
    let report: serde_json::Value = serde_json::from_str(&outcome.stdout).expect("the report is JSON");
    let entries = ["locks", "futexes"].into_iter().filter_map(|array| report[array].as_array()).flatten();
    let entry = entries.into_iter().find(|entry| entry["lock"] == *id);
    let entry = entry.unwrap_or_else(|| panic!("the futex word {id} is not told: {}", outcome.stdout));
    assert_eq!(entry["name"], "cache_lock");
    let wait = entry["wait_ns"]["sum"].as_f64().unwrap_or_default();
    // All but the moment of falling asleep and waking is waiting that the kernel sees.
    assert!(wait >= lock.wait_min_ns as f64 * 0.99 && wait <= lock.call_ns as f64, "{entry}");
}

#[test]
fn children_of_a_target_are_unharmed_and_unobserved() {
    let Some(_turn) = may_observe_alone() else { return };
    let (truth, report) = observe("forker 8 500");
    assert_complete(&report);
    assert_lock(truth.lock("shared_name"), report.named("shared_name"));
    assert!(report.locks.iter().all(|lock| lock.pid == truth.pid), "a child was observed");
}

#[test]
fn cancellation_finds_its_way_out_of_a_condition_variable() {
    let Some(_turn) = may_observe_alone() else { return };
    for variant in [Variant::Plain, Variant::Exceptions] {
        let (truth, report) = observe_as("cancel 10", variant, &[]);
        assert_eq!(truth.fact("cleaned_up"), 10);
        let told = report.at(truth.pid, &truth.lock("guard_lock").addr).acquisitions;
        // The re-acquisition of a cancelled wait is inside the unwinder: it may be seen or not.
        assert!((10..=20).contains(&told), "{told} acquisitions");
        assert!(report.quality.lost.values().all(|&n| n == 0), "lost: {:?}", report.quality.lost);
    }
}

#[test]
fn observers_come_and_go() {
    let Some(_turn) = may_observe_alone() else { return };
    let mut workload = Workload::start("speed 50");
    for _ in 0..3 {
        let observer = Observer::of(workload.pid(), &["--duration", "200ms"]);
        assert!(observer.report().named("tight_lock").acquisitions > 0);
    }
    eventually("probes are gone", || modified_bytes(workload.pid()) == 0);
    workload.running.close_stdin();
    assert!(workload.running.wait().success(), "the target is unharmed");
}

#[test]
fn a_target_may_hold_more_locks_than_are_tracked() {
    let Some(_turn) = may_observe_alone() else { return };
    let (truth, report) = observe("nesting 20 3");
    let told: u64 = truth.locks.iter().map(|lock| report.acquisitions_at(truth.pid, &lock.addr)).sum();
    let made: u64 = truth.locks.iter().map(|lock| lock.acquisitions).sum();
    let lost: u64 = report.quality.lost.values().sum();
    assert_eq!(told, made, "each acquisition counts, also of locks that gave way to others");
    assert_eq!(lost, 4 * 3, "16 locks are tracked, 20 were held: {:?}", report.quality.lost);
    let (truth, report) = observe("nesting 16 3");
    assert_exact(&truth, &report);
}
