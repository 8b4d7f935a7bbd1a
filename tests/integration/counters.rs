//! Events counted in sections: in known numbers, and each thread's own, whoever else runs on its CPU.

use crate::harness::build::Variant;
use crate::harness::exact::assert_complete;
use crate::harness::may_observe;
use crate::harness::observer::{Outcome, observe_as, run};
use crate::harness::report::{Counters, Report};
use crate::harness::workload::{Truth, Workload};
use std::path::Path;

/// Sections before the counted ones.
const WARM_UP: u64 = 1;

fn observe(line: &str, events: &str) -> (Truth, Counters) {
    let (truth, counters, unread) = observe_beside_others(line, events);
    assert_eq!(unread, 0, "sections are not counted");
    (truth, counters)
}

/// The same, and how many sections were told not to be counted. Kernels of virtual machines have been seen that tell nobody of switches
/// away from the host's agents: who comes to the CPU by one is lost sight of.
fn observe_beside_others(line: &str, events: &str) -> (Truth, Counters, u64) {
    let (truth, mut report) = observe_as(line, Variant::Plain, &["--counters", events]);
    let unread = report.quality.lost.remove("counts_unread").unwrap_or(0);
    assert_complete(&report);
    let counters = report.counters.take().expect("the report has no counted events");
    assert_eq!(counters.totals.sections_uncounted, unread);
    (truth, counters, unread)
}

fn assert_counts(counters: &Counters, function: &str, sections: u64, event: &str, count: u64) {
    let site = counters.of(function);
    assert_eq!((site.sections, site.hold[event]), (sections, count as f64), "{event} in {function}: {site:?}");
}

#[test]
fn page_faults_in_known_numbers() {
    let Some(_turn) = may_observe() else { return };
    let (_, counters) = observe("counted 20 3 5", "page-faults,minor-faults,major-faults,cpu-migrations");
    for event in ["page-faults", "minor-faults"] {
        assert_counts(&counters, "outer_section", 20 + WARM_UP, event, 20 * 8);
        assert_counts(&counters, "inner_section", 20 + WARM_UP, event, 20 * 5);
        assert_counts(&counters, "idle_section", 20 + WARM_UP, event, 0);
    }
    assert_counts(&counters, "outer_section", 20 + WARM_UP, "major-faults", 0);
}

#[test]
fn a_preempted_holders_own() {
    let Some(_turn) = may_observe() else { return };
    const ROUNDS: u64 = 10;
    let (truth, counters, unread) = observe_beside_others("counted 10 3 5 crowd", "page-faults,context-switches");
    let mut missing = 0;
    for (function, each) in [("outer_section", 8), ("inner_section", 5), ("idle_section", 0)] {
        let site = counters.of(function);
        let without = ROUNDS + WARM_UP - site.sections;
        missing += without;
        // One that is not counted may be the first, which has no faults.
        let faults =
            [ROUNDS - without, (ROUNDS - without + WARM_UP).min(ROUNDS)].map(|sections| (each * sections) as f64);
        assert!((faults[0]..=faults[1]).contains(&site.hold["page-faults"]), "{faults:?} in {function}: {site:?}");
    }
    assert!(missing == unread && missing < ROUNDS, "{missing} sections are not counted, {unread} are told");
    let inner = counters.of("inner_section");
    assert!(inner.hold["context-switches"] >= 1.0, "100 ms beside a thread that never sleeps: {inner:?}");
    // 10 ms each of its own, by a clock that may differ from the kernel's by what an interrupt takes, and half as much again of all for the
    // probes and a busy machine; by the wall clock it took the other's time as well.
    let least = 0.99e7 * inner.sections.saturating_sub(WARM_UP).min(ROUNDS) as f64;
    let most = 1.5 * truth.fact("inner_cpu_ns") as f64;
    assert!((least..most).contains(&inner.on_cpu_ns), "{least} to {most} of its own: {inner:?}");
    assert!(inner.preempted_ns > 0.0 && inner.hold_ns > inner.on_cpu_ns + 0.5 * inner.preempted_ns, "{inner:?}");
}

#[test]
fn nested_holds_count_once_and_twice() {
    let Some(_turn) = may_observe() else { return };
    let (_, counters) = observe("counted 20 3 5", "page-faults");
    assert_eq!(counters.unit, if has_pmu() { "cycles" } else { "ns" });
    let clock = if has_pmu() { "cycles" } else { "task-clock" };
    let held = |function: &str| counters.of(function).hold[clock];
    let sum: f64 = counters.sites.iter().map(|site| site.hold[clock]).sum();
    let totals = &counters.totals;
    assert_eq!((totals.threads, totals.sections), (1, counters.sites.iter().map(|site| site.sections).sum()));
    assert!((totals.held_sum - sum).abs() < 1.0, "{totals:?}: {sum}");
    assert!((totals.held_union - (sum - held("inner_section"))).abs() < 1.0, "{totals:?}");
    assert!(held("inner_section") < held("outer_section") && totals.held_union < totals.execution, "{totals:?}");
}

#[test]
fn a_recording_has_the_same_counts() {
    let Some(_turn) = may_observe() else { return };
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let file = dir.path().join("t.bin");
    let file = file.to_str().expect("a path in UTF-8");
    let mut workload = Workload::start("counted 20 3 5");
    let pid = workload.pid().to_string();
    let options = ["export", "--to", file, "--counters", "page-faults", "--pid", &pid];
    let observer = crate::harness::observer::Observer::start(&options);
    workload.go();
    workload.finish();
    let outcome = observer.outcome();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let report = |file: &str| -> Report { run(&["report", "--from", file, "--format", "json"]).report() };
    let counters = report(file).counters.expect("the recording has no counted events");
    assert_counts(&counters, "outer_section", 20 + WARM_UP, "page-faults", 20 * 8);
    assert_counts(&counters, "inner_section", 20 + WARM_UP, "page-faults", 20 * 5);
    let copy = dir.path().join("copy.bin");
    let copy = copy.to_str().expect("a path in UTF-8");
    let copied = run(&["export", "--from", file, "--to", copy]);
    assert_eq!(copied.code, Some(0), "{}", copied.stderr);
    let again = report(copy).counters.expect("the copy has no counted events");
    assert_eq!((again.totals, &again.sites), (counters.totals, &counters.sites));
    // Two runs that are the same have the same means.
    let both = run(&["report", "--from", file, copy, "--format", "json"]).report();
    let both = both.counters.expect("two recordings have no counted events");
    assert_counts(&both, "outer_section", 20 + WARM_UP, "page-faults", 20 * 8);
    assert_counts(&both, "inner_section", 20 + WARM_UP, "page-faults", 20 * 5);
}

#[test]
fn the_usual_events_by_what_the_machine_has() {
    let Some(_turn) = may_observe() else { return };
    let (_, report) = observe_as("counter 2 1 500", Variant::Plain, &["--counters"]);
    let counters = report.counters.as_ref().expect("the report has no counted events");
    let said = report.quality.notes.iter().any(|note| note.contains("no PMU"));
    assert_eq!((counters.unit.as_str(), said), if has_pmu() { ("cycles", false) } else { ("ns", true) });
}

#[test]
fn events_that_cannot_be_counted() {
    let Some(_turn) = may_observe() else { return };
    let of = |events: &str| -> Outcome { run(&["--counters", events, "--", "true"]) };
    of("page-faults,cats").assert_error(&["cats", "cache-misses", "page-faults"]);
    of("task-clock:u").assert_error(&["task-clock", "modifier"]);
    if !has_pmu() {
        of("page-faults,cache-misses").assert_error(&["no PMU", "cache-misses", "page-faults", "task-clock"]);
    }
}

/// Whether the processor counts events here, as far as the kernel's list of sources tells.
fn has_pmu() -> bool {
    ["cpu", "cpu_core", "armv8_pmuv3", "armv8_pmuv3_0"]
        .iter()
        .any(|name| Path::new("/sys/bus/event_source/devices").join(name).is_dir())
}
