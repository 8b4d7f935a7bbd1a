//! Focus: what is recorded while everything is counted, and that what is recorded still explains the waiting.

use crate::harness::build::Variant;
use crate::harness::may_observe;
use crate::harness::observer::{observe_as, run};
use crate::harness::report::Report;
use crate::harness::workload::{Truth, Workload};

fn observe_with(line: &str, options: &[&str]) -> (Truth, Report) {
    observe_as(line, Variant::Plain, options)
}

fn culprit(report: &Report) -> Option<&str> {
    report.culprits.first()?.function.as_deref()
}

#[test]
fn one_lock_is_recorded_and_all_are_counted() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe_with("crowd 500 1500 3", &["--lock", "crowd_lock"]);
    assert_eq!(report.names(), ["crowd_lock"]);
    assert_eq!(report.locks[0].acquisitions, truth.lock("crowd_lock").acquisitions);
    assert_eq!(culprit(&report), Some("crowd_section"));
    let of_all: u64 = report.threads.iter().map(|thread| thread.acquisitions).sum();
    // Those of the C library's own locks are among them.
    assert!(of_all >= truth.locks.iter().map(|lock| lock.acquisitions).sum::<u64>(), "{of_all}: {truth:?}");
    assert!(report.quality.unfocused > report.quality.events, "{:?}", report.quality);
}

#[test]
fn one_function_is_recorded_with_the_locks_that_it_takes() {
    let Some(_turn) = may_observe() else { return };
    let (_, report) = observe_with("crowd 500 1500 3", &["--site", "other_section"]);
    let mut names = report.names();
    names.sort_unstable();
    assert_eq!(names, ["other_locks[1]", "other_locks[2]"]);
    assert_eq!(culprit(&report), Some("other_section"));
    assert!(report.quality.unfocused > 0, "{:?}", report.quality);
}

#[test]
fn a_part_of_a_variable_is_a_lock() {
    let Some(_turn) = may_observe() else { return };
    let (_, report) = observe_with("crowd 500 1000 3", &["--lock", "other_locks[2]", "--lock", "crowd_lock"]);
    let mut names = report.names();
    names.sort_unstable();
    assert_eq!(names, ["crowd_lock", "other_locks[2]"]);
    assert!(report.quality.unfocused > 0, "{:?}", report.quality);
}

/// The waiters of the outer lock wait because its holder waits for the inner one, whose holder is therefore recorded, too.
#[test]
fn what_a_focused_lock_depends_on_is_recorded() {
    let Some(_turn) = may_observe() else { return };
    let (_, report) = observe_with("chained 10", &["--lock", "outer_lock"]);
    assert_eq!(report.names(), ["outer_lock"]);
    assert_eq!(culprit(&report), Some("root_cause"), "{:?}", report.culprits);
    assert!(report.culprits[0].share > 0.6, "{:?}", report.culprits);
}

#[test]
fn names_that_are_not_there_are_refused_and_close_ones_told() {
    let Some(_turn) = may_observe() else { return };
    let workload = Workload::start("crowd 100 100");
    let pid = workload.pid().to_string();
    run(&["--pid", &pid, "--lock", "crwd_lock"]).assert_error(&["crwd_lock", "crowd_lock"]);
    run(&["--pid", &pid, "--site", "crowd_sektion"]).assert_error(&["crowd_sektion", "crowd_section"]);
    run(&["--system-wide", "--lock", "x"]).assert_error(&["--lock", "--system-wide"]);
}

#[test]
fn much_contention_is_narrowed_by_itself() {
    let Some(_turn) = may_observe() else { return };
    let line = "crowd 4000 3500 2";
    let (truth, report) = observe_with(line, &[]);
    let narrowed = |report: &Report| report.quality.notes.iter().any(|note| note.contains("most waited-for locks"));
    let first_second = truth.locks.iter().map(|lock| lock.acquisitions).sum::<u64>() * 2 / 7;
    // On a machine too busy for the workload's rate there is nothing to narrow.
    assert!(narrowed(&report) || first_second < 2_500, "{:?}", report.quality);
    let (_, report) = observe_with(line, &["--no-focus"]);
    assert!(!narrowed(&report) && report.quality.unfocused == 0, "{:?}", report.quality);
}
