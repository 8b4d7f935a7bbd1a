//! Alerts: waits and holds are told while they last. The workload goes on only when it is told to, after the alert was read.

use crate::harness::build::Variant;
use crate::harness::may_observe;
use crate::harness::observer::{Observer, observe_as, run};
use crate::harness::process::eventually;
use crate::harness::workload::Workload;
use serde_json::Value;
use std::path::Path;

const BUDGETS: [&[&str]; 3] = [&["--budget", "3%"], &["--budget", "off"], &["--futex-only"]];

/// A workload in which everybody waits by now, and its observer, who was there before.
fn held(line: &str, options: &[&str]) -> (Workload, Observer) {
    let mut workload = Workload::start(line);
    let observer = Observer::of(workload.pid(), options);
    workload.go();
    wait_until_held(&mut workload);
    (workload, observer)
}

fn wait_until_held(workload: &mut Workload) {
    assert!(workload.running.out.find(|line| line == "held").is_some(), "it does not hold");
}

/// The next alert with all of this; the workload holds still.
fn alert(observer: &mut Observer, parts: &[&str]) -> String {
    let found =
        observer.running.err.find(|line| line.starts_with("lockbpf: ") && parts.iter().all(|part| line.contains(part)));
    found.unwrap_or_else(|| panic!("lockbpf ended without an alert of {parts:?}"))
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The functions on a stack.
fn functions(stack: &Value) -> Vec<&str> {
    stack.as_array().expect("a stack").iter().filter_map(|frame| frame["function"].as_str()).collect()
}

#[test]
fn a_wait_is_told_while_it_lasts() {
    let Some(_turn) = may_observe() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    for (number, budget) in BUDGETS.into_iter().enumerate() {
        let file = dir.path().join(format!("{number}.jsonl"));
        let options = [budget, &["--wait-over", "150ms", "--alerts", file.to_str().expect("text")]].concat();
        let (mut workload, mut observer) = held("lasting 3", &options);
        // The lines are read while the locks are held: nobody has told the holder to go on.
        let outer = alert(&mut observer, &["wait over 150 ms", " for outer_lock in lasting_waiter (lasting.c:"]);
        for part in [
            "; held by thread ",
            "waiting for a lock itself in outer_holder (lasting.c:",
            " in turn waits for inner_lock, held by thread ",
        ] {
            assert!(outer.contains(part), "{budget:?}: no {part:?}: {outer}");
        }
        assert!(outer.contains("asleep in read in read_under_lock (lasting.c:"), "{budget:?}: {outer}");
        let inner = alert(&mut observer, &[" for inner_lock in outer_holder (lasting.c:"]);
        assert!(inner.contains("asleep in read in read_under_lock (lasting.c:"), "{budget:?}: {inner}");
        eventually("alerts in the file", || lines(&file).len() >= 2);
        let told = lines(&file);
        let of = |name: &str| told.iter().find(|alert| alert["lock"]["name"] == name).expect("an alert of the lock");
        assert_eq!(
            (&of("outer_lock")["schema"], &of("outer_lock")["kind"]),
            (&"lockbpf.alert/1".into(), &"wait".into())
        );
        assert_eq!(of("outer_lock")["pid"], workload.pid());
        assert!(of("outer_lock")["waiter"]["waited_ns"].as_u64() >= Some(150_000_000), "{}", of("outer_lock"));
        assert_eq!(functions(&of("outer_lock")["waiter"]["stack"]).first(), Some(&"lasting_waiter"));
        assert!(functions(&of("inner_lock")["holder"]["stack"]).contains(&"inner_holder"), "{}", of("inner_lock"));
        workload.running.tell("x");
        workload.finish();
        let outcome = observer.outcome();
        outcome.report();
        let ends = format!("lockbpf: alerts: {} told", lines(&file).len());
        assert!(outcome.stderr.contains(&ends), "no {ends:?}: {}", outcome.stderr);
        // Who is idle waits for no lock.
        let idle = ["idle_thread", "idle_worker"];
        assert!(idle.iter().all(|name| !outcome.stderr.contains(name)), "{budget:?}: {}", outcome.stderr);
    }
}

/// Where every lock operation is seen, it is known since when, and where the holder got it.
#[test]
fn the_holder_is_known_with_its_place() {
    let Some(_turn) = may_observe() else { return };
    let options = ["--budget", "off", "--wait-over", "150ms"];
    let (mut workload, mut observer) = held("lasting 1", &options);
    let inner = alert(&mut observer, &[" for inner_lock in outer_holder (lasting.c:"]);
    assert!(inner.contains(", taken in inner_holder (lasting.c:"), "{inner}");
    workload.running.tell("x");
    workload.finish();
    observer.report();
}

#[test]
fn a_hold_is_told_while_it_lasts() {
    let Some(_turn) = may_observe() else { return };
    for budget in [&["--budget", "off"][..], &["--futex-only"]] {
        let options = [budget, &["--hold-over", "150ms"]].concat();
        let (mut workload, mut observer) = held("lasting 2", &options);
        let inner = alert(&mut observer, &["hold over 150 ms", " holds inner_lock for "]);
        assert!(inner.contains("asleep in read in read_under_lock (lasting.c:"), "{budget:?}: {inner}");
        assert!(
            inner.contains("; 1 thread waits: thread ") && inner.contains(" in outer_holder"),
            "{budget:?}: {inner}"
        );
        let outer = alert(&mut observer, &[" holds outer_lock for "]);
        assert!(outer.contains("; 2 threads wait, longest thread "), "{budget:?}: {outer}");
        workload.running.tell("x");
        workload.finish();
        observer.report();
    }
}

#[test]
fn waits_from_before_the_observation_are_told() {
    let Some(_turn) = may_observe() else { return };
    for budget in BUDGETS {
        let mut workload = Workload::start("lasting 1");
        workload.go();
        wait_until_held(&mut workload);
        let mut observer = Observer::of(workload.pid(), &[budget, &["--wait-over", "100ms"]].concat());
        let outer = alert(&mut observer, &["has waited at least ", " for outer_lock in lasting_waiter (lasting.c:"]);
        assert!(outer.contains(" in turn waits for inner_lock, held by thread "), "{budget:?}: {outer}");
        workload.running.tell("x");
        workload.finish();
        observer.report();
    }
}

#[test]
fn shorter_waits_are_not_told() {
    let Some(_turn) = may_observe() else { return };
    for budget in BUDGETS {
        let options = [budget, &["--wait-over", "1h", "--hold-over", "1h"]].concat();
        let mut workload = Workload::start("hold 20 2 20000");
        let observer = Observer::of(workload.pid(), &options);
        workload.go();
        let truth = workload.finish();
        // All calls together have taken less.
        assert!(truth.lock("cache_lock").call_ns < 3_600_000_000_000);
        let outcome = observer.outcome();
        assert!(outcome.stderr.contains("lockbpf: alerts: 0 told\n"), "{budget:?}: {}", outcome.stderr);
    }
}

#[test]
fn what_is_left_out_is_counted() {
    let Some(_turn) = may_observe() else { return };
    let (mut workload, mut observer) = held("lasting 8", &["--wait-over", "300ms"]);
    alert(&mut observer, &[" for outer_lock "]);
    // Longer than it may take until the same waits are told again.
    alert(&mut observer, &[" for outer_lock ", " more alerts of this lock left out before)"]);
    workload.running.tell("x");
    workload.finish();
    let outcome = observer.outcome();
    let told = outcome.stderr.lines().filter(|line| line.starts_with("lockbpf: wait over ")).count();
    let end = outcome.stderr.lines().find(|line| line.starts_with("lockbpf: alerts: ")).expect("a sum");
    let numbers: Vec<usize> = end.split([' ', ':']).filter_map(|word| word.parse().ok()).collect();
    // One wait for the inner lock and eight for the outer one have come to the threshold at least.
    assert!(matches!(numbers[..], [sum, left_out] if sum == told && sum + left_out >= 9), "{told} told: {end}");
}

#[test]
fn only_what_is_asked_for_is_told() {
    let Some(_turn) = may_observe() else { return };
    for chosen in [["--lock", "inner_lock"], ["--site", "outer_holder"]] {
        let (mut workload, mut observer) = held("lasting 2", &[&chosen[..], &["--wait-over", "100ms"]].concat());
        alert(&mut observer, &[" for inner_lock in outer_holder "]);
        // When it is told again, the others were over the threshold long ago.
        alert(&mut observer, &[" for inner_lock in outer_holder "]);
        workload.running.tell("x");
        workload.finish();
        let outcome = observer.outcome();
        assert!(!outcome.stderr.contains(" for outer_lock"), "{chosen:?}: {}", outcome.stderr);
    }
}

#[test]
fn a_command_gets_the_alert() {
    let Some(_turn) = may_observe() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let got = dir.path().join("got");
    let command = format!("cat >> '{}'", got.display());
    let (mut workload, observer) = held("lasting 1", &["--wait-over", "100ms", "--on-alert", &command]);
    eventually("the command has run", || lines(&got).iter().any(|alert| alert["schema"] == "lockbpf.alert/1"));
    workload.running.tell("x");
    workload.finish();
    observer.report();
    let (mut workload, observer) = held("lasting 1", &["--wait-over", "100ms", "--on-alert", "exit 3"]);
    workload.running.tell("x");
    workload.finish();
    let outcome = observer.outcome();
    let failed = outcome.stderr.contains("; the command for alerts ended with exit status 3");
    assert!(failed || outcome.stderr.contains("alerts: 0 told"), "{}", outcome.stderr);
}

#[test]
fn alerts_cost_no_count() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe_as("hold 20 2 2000", Variant::Plain, &["--wait-over", "1ms", "--hold-over", "1ms"]);
    let lock = report.named("cache_lock");
    assert_eq!(lock.acquisitions, truth.lock("cache_lock").acquisitions);
}

#[test]
fn outlets_without_alerts_are_refused() {
    let own = std::process::id().to_string();
    run(&["--pid", &own, "--alerts", "/tmp/x", "--duration", "1ms"]).assert_error(&["--wait-over or --hold-over"]);
    run(&["--pid", &own, "--wait-over", "0s"]).assert_error(&["1ms"]);
    run(&["--pid", &own, "--wait-over", "1s", "--alerts", "/nonexistent/x"]).assert_error(&["/nonexistent/x"]);
    let to_stdout = ["export", "--pid", &own, "--to", "-", "--as", "bin", "--wait-over", "1s", "--alerts", "-"];
    run(&to_stdout).assert_error(&["name a file for --alerts"]);
}
