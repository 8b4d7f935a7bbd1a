//! Nobody is blamed who is not to blame: programs made to have untrue things told of them.

use crate::harness::build::Variant;
use crate::harness::observer::{Observer, Outcome, lockbpf, run};
use crate::harness::process::Running;
use crate::harness::report::Report;
use crate::harness::workload::{Workload, command};
use crate::harness::{may_observe, may_observe_alone};
use serde_json::Value;
use std::time::Duration;

/// The report as it stands, which must be one that can be believed.
fn json(outcome: &Outcome) -> Value {
    let report = answer(outcome);
    Report::parse(&outcome.stdout);
    report
}

/// What a command says in JSON.
fn answer(outcome: &Outcome) -> Value {
    assert!(matches!(outcome.code, Some(0)), "{}", outcome.stderr);
    serde_json::from_str(&outcome.stdout).expect("what it says is JSON")
}

fn list<'a>(of: &'a Value, name: &str) -> &'a [Value] {
    of[name].as_array().map_or(&[], Vec::as_slice)
}

/// Nobody waits for themself, but in a deadlock.
fn assert_nobody_waits_for_themself(report: &Value) {
    for lock in list(report, "locks") {
        for pair in list(lock, "thread_pairs") {
            assert_ne!(pair["waiter"], pair["holder"], "{lock}");
        }
    }
}

/// A thread that parks on a lock that it holds is let go on by another one: that is no deadlock, and what was said of one is
/// taken back.
#[test]
fn who_parks_on_an_own_lock_is_in_no_deadlock() {
    let Some(_turn) = may_observe() else { return };
    for options in [&[][..], &["--futex-only"], &["--budget", "3%"]] {
        let mut workload = Workload::start("blame parked 2 1500");
        let observer = Observer::of(workload.pid(), options);
        workload.go();
        workload.truth();
        observer.interrupt();
        let outcome = observer.outcome();
        let report = json(&outcome);
        assert!(list(&report, "deadlocks").is_empty(), "{}", report["deadlocks"]);
        assert!(!report["verdict"].to_string().contains("never go on"), "{}", report["verdict"]);
        assert!(!outcome.stderr.contains("lockbpf: deadlock"), "{}", outcome.stderr);
        let told = outcome.stderr.contains("waits for itself");
        assert!(told == outcome.stderr.contains(" waited for itself ended after "), "{}", outcome.stderr);
    }
}

/// Two looks at the same place in the same wait are not one wait if the thread has gone on in between.
#[test]
fn who_went_on_does_not_wait_now() {
    let Some(_turn) = may_observe() else { return };
    for options in [&[][..], &["--futex-only"], &["--budget", "3%"]] {
        let mut workload = Workload::start("blame relay 4");
        workload.go();
        std::thread::sleep(Duration::from_millis(300));
        let reports: Vec<Value> = (0..3)
            .map(|_| {
                let options = [options, &["--duration", "1s"]].concat();
                json(&Observer::of(workload.pid(), &options).outcome())
            })
            .collect();
        workload.go();
        let longest = workload.finish().fact("longest_ns");
        for report in reports {
            for lock in list(&report, "locks") {
                let told = lock["waiting_now"]["longest_ns"].as_u64().unwrap_or_default();
                assert!(told <= longest, "{told} > {longest}: {}", lock["waiting_now"]);
            }
            assert_nobody_waits_for_themself(&report);
        }
    }
}

/// An owner word that names no thread of the process blames nobody.
#[test]
fn forged_owners_are_not_believed() {
    let Some(_turn) = may_observe() else { return };
    // One thread of the machine, this test's own process, and none at all.
    let stranger = std::process::id().to_string();
    for number in ["1", stranger.as_str(), "-1"] {
        for options in [&[][..], &["--futex-only"], &["--budget", "3%"]] {
            let mut workload = Workload::start(&format!("blame forged 100 {number}"));
            let observer = Observer::of(workload.pid(), options);
            workload.go();
            workload.finish();
            let outcome = observer.outcome();
            let report = json(&outcome);
            let unsigned = number.parse::<i64>().expect("a number") as u32;
            for lock in list(&report, "locks") {
                for holder in list(lock, "holders") {
                    assert_ne!(holder["tid"], Value::from(unsigned), "{number} {options:?}: {holder}");
                }
                for pair in list(lock, "thread_pairs") {
                    assert_ne!(pair["holder"], Value::from(unsigned), "{number} {options:?}: {pair}");
                }
            }
            let verdict = report["verdict"].to_string();
            for name in [format!("thread {unsigned} "), format!("tid {unsigned} "), format!("tid {unsigned}.")] {
                assert!(!verdict.contains(&name), "{number} {options:?}: {verdict}");
            }
            if options.is_empty() {
                let named = |lock: &&Value| lock["name"] == "forged_lock" && lock["word_names"] == unsigned;
                assert!(list(&report, "locks").iter().any(|lock| named(&lock)), "what its word says is told: {report}");
            }
            assert!(!outcome.stdout.contains("goroutine"), "{}", outcome.stdout);
            assert_nobody_waits_for_themself(&report);
        }
    }
}

/// Threads that wait for a lock from before the observation to beyond its end make no call that is seen. The functions in which they sleep tell
/// whether it is for a lock, even if that does not say who holds it, or for a condition.
#[test]
fn who_sleeps_all_the_time_is_not_overlooked() {
    let Some(_turn) = may_observe() else { return };
    for (line, kind, name, wanted) in [
        ("blame hidden 1", "locks", "forged_lock", "2 threads wait for it now"),
        ("blame idle", "futexes", "idle_condition", "only waited for conditions"),
    ] {
        let mut workload = Workload::start(line);
        workload.go();
        std::thread::sleep(Duration::from_millis(300));
        for options in [&[][..], &["--futex-only"], &["--budget", "3%"]] {
            let options = [options, &["--duration", "1s"]].concat();
            let report = json(&Observer::of(workload.pid(), &options).outcome());
            let is_named = |entry: &&Value| entry["name"].as_str().is_some_and(|told| told.contains(name));
            let asleep: Vec<_> = list(&report, kind).iter().filter(is_named).collect();
            let now = |entry: &Value| entry["waiting_now"].as_u64().or(entry["waiting_now"]["count"].as_u64());
            let waiting: u64 = asleep.iter().filter_map(|entry| now(entry)).sum();
            assert_eq!(waiting, 2, "{line} {options:?}: {} {}", report["locks"], report["futexes"]);
            let verdict = report["verdict"].to_string();
            assert!(verdict.contains(wanted) && !verdict.contains("Cannot tell"), "{line} {options:?}: {verdict}");
            assert!(!verdict.contains("nothing waited") && !verdict.contains("is idle,"), "{verdict}");
        }
        workload.go();
        workload.finish();
    }
}

/// Behind a lock that is none of the C library's there is what it guards, and no owner.
#[test]
fn what_stands_beside_a_lock_is_no_owner() {
    let Some(_turn) = may_observe() else { return };
    for options in [&[][..], &["--futex-only"], &["--budget", "3%"]] {
        let mut workload = Workload::start("blame beside 100");
        let observer = Observer::of(workload.pid(), options);
        workload.go();
        let truth = workload.finish();
        let report = json(&observer.outcome());
        let tid = Value::from(truth.fact("main_tid"));
        for lock in list(&report, "locks") {
            assert!(list(lock, "holders").iter().all(|holder| holder["tid"] != tid), "{lock}");
        }
        for word in list(&report, "futexes") {
            assert!(list(word, "owners").is_empty(), "{word}");
        }
        assert!(!report["verdict"].to_string().contains("(mutex, inferred)"), "{}", report["verdict"]);
    }
}

/// The first thread waits for another one's end and calls exit: that is where the program ends, whatever the others did last.
#[test]
fn the_end_of_a_program_is_the_thread_that_ends_it() {
    let Some(_turn) = may_observe_alone() else { return };
    let dir = tempfile::tempdir().expect("failed to make a directory");
    for suffix in ["bin", "jsonl"] {
        let to = dir.path().join(format!("ender.{suffix}"));
        let to = to.to_str().expect("a path in UTF-8");
        let mut workload = Workload::launch(&mut command("blame ender 200", Variant::Plain));
        let arguments = ["export", "--all-events", "--pid", &workload.pid().to_string(), "--to", to];
        let mut recorder = Running::start(lockbpf().args(arguments));
        assert!(recorder.err.find(|line| line.starts_with("observing ")).is_some(), "{}", recorder.err.rest());
        workload.go();
        let truth = workload.finish();
        assert!(recorder.wait().success(), "{}", recorder.err.rest());
        let report = json(&run(&["report", "--from", to, "--format", "json"]));
        let path = &report["critical_path"];
        assert_eq!((&path["ended"], &path["last_thread"]), (&Value::from(true), &Value::from(truth.pid)), "{path}");
        assert_eq!(path["locks"][0]["name"], "hot_lock", "{path}");
        assert_nobody_waits_for_themself(&report);
        // The sections are 300 of at least 1,300 µs a round.
        let gain = |answer: &Value| answer["gain"].as_f64().expect("a gain");
        let asked = answer(&run(&["what-if", "--from", to, "--remove", "hot_lock", "--format", "json"]));
        assert!(gain(&asked["answers"][0]) > 0.4, "{suffix}: {}", asked["answers"][0]);
        let best = answer(&run(&["what-if", "--from", to, "--auto", "--format", "json"]));
        assert!(gain(&best["answers"][0]) > 0.4, "{suffix}: {}", best["answers"][0]);
    }
}

/// What is observed in full at a great part of its CPU time is said to be so before anything that follows from its figures.
#[test]
fn what_observing_in_full_costs_is_said_at_the_head() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start("steady 0 2 0");
    let observer = Observer::of(workload.pid(), &["--budget", "off"]);
    workload.go();
    workload.finish();
    let report = observer.report();
    let head =
        report.verdict.iter().take(2).any(|said| said.starts_with("Observed at ") && said.contains("of its CPU time"));
    assert!(head, "{:?} {:?}", report.verdict, report.quality.perturbation);
}
