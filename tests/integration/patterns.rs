//! Patterns of waiting that have names, on programs that show them, each beside some that look alike; within the default budget, and without
//! one where that sees the program as it is.

use crate::harness::build::Variant;
use crate::harness::may_observe;
use crate::harness::observer::observe_as;
use crate::harness::report::Report;
use crate::harness::workload::Truth;
use serde_json::Value;

const DEFAULT: &[&str] = &["--budget", "3%"];
const ALL: &[&str] = &["--budget", "off"];
/// Runs at most until one has threads that starve for most of the waiting.
const STARVED_RUNS: usize = 5;

/// The only pattern that is found, at this lock; it stands in the verdict with its cure.
fn the_pattern(line: &str, options: &[&str], name: &str, lock: &str) -> (Truth, Value) {
    let (truth, report) = observe_as(line, Variant::Plain, options);
    (truth, pattern_of(&report, &format!("{line} {options:?}"), name, lock))
}

/// The same, in the report of such a run.
fn pattern_of(report: &Report, run: &str, name: &str, lock: &str) -> Value {
    let [pattern] = &report.patterns[..] else { panic!("{run}: {}", about(report)) };
    assert_eq!((&pattern["pattern"], &pattern["name"]), (&Value::from(name), &Value::from(lock)), "{}", about(report));
    let told = report.verdict.iter().find(|sentence| sentence.to_lowercase().starts_with(&name.replace('-', " ")));
    let told = told.or(report.verdict.iter().find(|sentence| sentence.to_lowercase().starts_with(name)));
    let told = told.unwrap_or_else(|| panic!("not in the verdict: {}", about(report)));
    assert!(told.contains(&format!("`{lock}`")) && told.contains("Usual cure: "), "{told}");
    pattern.clone()
}

/// No pattern is found, although threads wait at least so long, in all, of each second.
fn no_pattern(line: &str, waits: f64) {
    for options in [DEFAULT, ALL] {
        let (_, report) = observe_as(line, Variant::Plain, options);
        assert!(report.patterns.is_empty(), "{line} {options:?}: {}", about(&report));
        let waited = report.totals["harm_ns"].as_f64().unwrap_or_default() / report.quality.duration_ns as f64;
        assert!(waited >= waits, "{line} {options:?}: {waited} s of waiting a second do not look alike");
    }
}

fn about(report: &Report) -> String {
    format!("{:?} {:?}", report.patterns, report.verdict)
}

fn number(pattern: &Value, field: &str) -> f64 {
    pattern[field].as_f64().unwrap_or_else(|| panic!("no {field}: {pattern}"))
}

/// It starves, and those who are told to have got the lock meanwhile are the others.
fn assert_starves(line: &str, lock: &str, options: &[&str]) {
    // Where the others do not get to run for a while, they do not overlap then, and who waits does not starve.
    let most = |(_, pattern): &(Truth, Value)| number(pattern, "share") > 0.5;
    let seen = (0..STARVED_RUNS).map(|_| the_pattern(line, options, "starvation", lock)).find(most);
    let (truth, pattern) = seen.unwrap_or_else(|| panic!("{line}: most of the waiting is no starvation"));
    let [starving] = &pattern["starving"].as_array().expect("who starves")[..] else { panic!("{pattern}") };
    assert_eq!(starving["tid"].as_u64(), Some(truth.fact("victim")), "{pattern}");
    // No more than there were, and so many that it is no chance.
    let others = truth.locks[0].acquisitions - truth.fact("victim_got");
    let overtaken = starving["overtaken"].as_u64().expect("how often");
    assert!((100..=others).contains(&overtaken), "{overtaken} of {others}: {pattern}");
    let favoured = pattern["favoured"].as_array().expect("who got it");
    let is_other = |f: &Value| truth.threads.iter().any(|t| Some(u64::from(t.tid)) == f["tid"].as_u64());
    assert!(!favoured.is_empty() && favoured.iter().all(is_other), "{pattern}");
    assert!(favoured.iter().all(|f| f["tid"] != starving["tid"]), "{pattern}");
}

#[test]
fn a_thread_that_is_overtaken_by_one_that_asks_again_at_once_starves() {
    let Some(_turn) = may_observe() else { return };
    assert_starves("starved barging 2", "hall_lock", DEFAULT);
    assert_starves("starved barging 2", "hall_lock", ALL);
}

#[test]
fn a_writer_that_is_overtaken_by_readers_that_overlap_starves() {
    let Some(_turn) = may_observe() else { return };
    assert_starves("starved writer 2", "board_lock", DEFAULT);
    assert_starves("starved writer 2", "board_lock", ALL);
}

#[test]
fn threads_that_wait_equally_long_do_not_starve() {
    let Some(_turn) = may_observe() else { return };
    no_pattern("starved equal 2", 1.0);
}

#[test]
fn a_thread_that_seldom_asks_does_not_starve() {
    let Some(_turn) = may_observe() else { return };
    no_pattern("starved rare 2", 0.05);
}

#[test]
fn threads_that_are_woken_for_nothing_are_a_thundering_herd() {
    let Some(_turn) = may_observe() else { return };
    for options in [DEFAULT, ALL] {
        let (truth, pattern) = the_pattern("broadcast herd 8 2", options, "thundering-herd", "jobs_there");
        assert!(number(&pattern, "woken") >= 3.0 * number(&pattern, "wakes"), "{pattern}");
        let (returns, in_vain) = (number(&pattern, "returns"), number(&pattern, "in_vain"));
        assert!(in_vain <= truth.fact("in_vain") as f64 && returns <= truth.fact("woken") as f64 + 8.0, "{pattern}");
        assert!(in_vain >= 0.5 * returns, "{pattern}");
    }
}

#[test]
fn threads_that_are_woken_and_all_have_work_are_no_herd() {
    let Some(_turn) = may_observe() else { return };
    no_pattern("broadcast work 8 2", 0.0);
}

/// Runs on a busy machine until there is a convoy: where whoever has the lock waits for a CPU, that is what keeps the others waiting.
const CONVOYS: usize = 5;

/// Without a budget observing takes half of the CPU time of such a program: then nothing is said of it.
#[test]
fn a_queue_that_is_handed_on_for_ever_is_a_convoy() {
    let Some(_turn) = may_observe() else { return };
    let line = "convoy convoy 6 3";
    let holders_wait = |report: &Report| {
        let says = |what| report.verdict.iter().any(|said| said.contains(what));
        report.patterns.is_empty()
            && (says("its holder was preempted") || says("of that while waiting for another lock"))
    };
    let mut runs = (0..CONVOYS).map(|_| observe_as(line, Variant::Plain, DEFAULT).1);
    let report = runs.find(|report| !holders_wait(report)).expect("a run in which who has the lock does not wait");
    let pattern = pattern_of(&report, line, "convoy", "queue_lock");
    assert_eq!(pattern["threads"], 6, "{pattern}");
    assert!((3.0..=6.0).contains(&number(&pattern, "queue")), "{pattern}");
}

#[test]
fn a_queue_for_a_long_section_is_no_convoy() {
    let Some(_turn) = may_observe() else { return };
    no_pattern("convoy long 6 2", 3.0);
}

#[test]
fn a_queue_that_dissolves_is_no_convoy() {
    let Some(_turn) = may_observe() else { return };
    no_pattern("convoy apart 6 2", 0.0);
}

#[test]
fn rounds_that_each_wait_for_another_thread_are_lock_step() {
    let Some(_turn) = may_observe() else { return };
    for options in [DEFAULT, ALL] {
        let (_, pattern) = the_pattern("lockstep step 4 100", options, "lock-step", "meeting");
        assert_eq!((&pattern["threads"], &pattern["arrivals"]), (&Value::from(4), &Value::from(400)), "{pattern}");
        assert!(number(&pattern, "least_share") > 0.2, "{pattern}");
    }
}

#[test]
fn even_rounds_are_no_lock_step() {
    let Some(_turn) = may_observe() else { return };
    no_pattern("lockstep even 4 100", 0.0);
}

#[test]
fn one_thread_that_is_always_late_is_no_lock_step() {
    let Some(_turn) = may_observe() else { return };
    no_pattern("lockstep late 4 100", 1.5);
}
