//! Models of programs of which no section was recorded: from sums of transitions, in traces and live.

use crate::harness::build::Variant;
use crate::harness::may_observe;
use crate::harness::observer::{Outcome, lockbpf, run};
use crate::harness::process::Running;
use crate::harness::workload::{Truth, Workload, command};
use serde_json::Value;
use std::path::Path;

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().expect("failed to make a directory")
}

fn json(outcome: &Outcome) -> Value {
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    serde_json::from_str(&outcome.stdout).expect("JSON")
}

/// Records a workload from before its work until its exit.
fn record(line: &str, to: &Path, options: &[&str]) -> (Truth, String) {
    let mut workload = Workload::launch(&mut command(line, Variant::Plain));
    let to = to.to_str().expect("a path in UTF-8").to_owned();
    let arguments = ["export", "--pid", &workload.pid().to_string(), "--to", &to];
    let mut recorder = Running::start(lockbpf().args(arguments).args(options));
    assert!(recorder.err.find(|line| line.starts_with("observing ")).is_some(), "{}", recorder.err.rest());
    workload.go();
    let truth = workload.finish();
    assert!(recorder.wait().success(), "{}", recorder.err.rest());
    (truth, to)
}

fn model(file: &str, options: &[&str]) -> Value {
    json(&run(&[&["predict", "--from", file, "--emit-model", "-"], options].concat()))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// r, z or another matrix by the names of locks.
fn cell(model: &Value, matrix: &str, from: &str, to: &str) -> f64 {
    let at = |name: &str| {
        let of = list(&model["locks"]).iter().position(|lock| lock["name"] == name);
        of.unwrap_or_else(|| panic!("no {name} in {model}"))
    };
    model[matrix][at(from)][at(to)].as_f64().expect("a number")
}

/// How long a lock is held in a model, ns.
fn hold(model: &Value, lock: &Value) -> f64 {
    let of = list(&model["locks"]).iter().find(|of| of["name"] == *lock);
    of.and_then(|of| of["hold_ns"].as_f64()).unwrap_or_else(|| panic!("no {lock} in {model}"))
}

#[test]
fn sums_give_the_same_model_as_all_events() {
    let Some(_turn) = may_observe() else { return };
    let dir = dir();
    let (_, file) = record("taskqueues 4 300 50 10 sleep", &dir.path().join("tasks.bin"), &["--all-events"]);
    let [events, sums] = ["events", "sums"].map(|by| model(&file, &["--by", by]));
    assert_eq!(events["threads"], sums["threads"]);
    let names: Vec<&str> = list(&events["locks"]).iter().filter_map(|lock| lock["name"].as_str()).collect();
    assert!(names.contains(&"patch_lock") && names.len() >= 3, "{events}");
    assert_eq!(names.len(), list(&sums["locks"]).len());
    for from in &names {
        for to in &names {
            let [a, b] = [&events, &sums].map(|model| cell(model, "routing", from, to));
            assert!((a - b).abs() < 1e-9, "{from} → {to}: {a} and {b}");
            // What the events take for a wait for another thread's exit is time of its own here.
            let [x, y] = [&events, &sums].map(|model| cell(model, "local_ns", from, to));
            assert!(a < 0.05 || (x - y).abs() <= 0.05 * x + 50e3, "{from} → {to}: {x} and {y} ns");
        }
    }
    for lock in list(&events["locks"]) {
        let same = list(&sums["locks"]).iter().find(|same| same["name"] == lock["name"]).expect("the lock");
        // With more threads than CPUs, waits for CPUs are taken out of all times by a factor that follows from times between sections, too. What
        // probes cost is taken off afterwards, of which sums know more: some hits inside of sections are no steps. Of short sections little is
        // left by then. So each has to lie within what the other one says that it may be.
        let held = |model: &Value| hold(model, &lock["name"]);
        for (one, other) in [(&events, &sums), (&sums, &events)] {
            let bounds = list(&other["bounds"]).iter().map(held);
            let (least, most) =
                bounds.fold((f64::INFINITY, 0.0_f64), |(least, most), ns| (least.min(ns), most.max(ns)));
            let ns = held(one);
            let close = 0.03 * ns + 1.0;
            assert!(least - close <= ns && ns <= most + close, "hold_ns of {}: {ns}, {least} to {most}", lock["name"]);
        }
        // Deviations, not coefficients of variation: these are divided by what is left when the probes' cost is taken off, of which 50 ns may be half.
        let [a, b] = [lock, same].map(|lock| {
            let of = |field| lock[field].as_f64().unwrap_or_default();
            of("hold_cv") * of("hold_ns")
        });
        assert!((a - b).abs() <= 0.03 * a, "deviation of {}: {a} and {b} ns", lock["name"]);
    }
    let shares = |model: &Value| list(&model["classes"]).iter().map(|class| class["share"].clone()).collect::<Vec<_>>();
    assert_eq!(shares(&events), shares(&sums));
}

#[test]
fn no_section_need_be_recorded() {
    let Some(_turn) = may_observe() else { return };
    let dir = dir();
    let (_, file) = record("counter 2 1 2000", &dir.path().join("counter.bin"), &["--budget", "off"]);
    let made = model(&file, &["--threads", "1..4"]);
    for (from, to) in [("cache_lock", "table[0]"), ("table[0]", "cache_lock")] {
        assert!(cell(&made, "routing", from, to) > 0.999, "{made}");
    }
    let (truth, file) = record("rwlock 4 100", &dir.path().join("rwlock.bin"), &["--budget", "off"]);
    let made = model(&file, &["--only", "table_lock"]);
    let read = made["locks"][0]["read_share"].as_f64().expect("a share of reads");
    let (reads, writes) = (truth.fact("reads") as f64, truth.fact("writes") as f64);
    assert!((read - reads / (reads + writes)).abs() < 0.01, "{read}: {reads} reads, {writes} writes");
}

#[test]
fn a_running_program_is_predicted() {
    let Some(_turn) = may_observe() else { return };
    for budget in ["off", "0.5%"] {
        // Ended when it is dropped.
        let mut workload = Workload::launch(&mut command("counter 1 1 1000000000", Variant::Plain));
        let pid = workload.pid().to_string();
        workload.go();
        let asked = [
            "predict",
            "--pid",
            &pid,
            "--duration",
            "2s",
            "--budget",
            budget,
            "--only",
            "cache_lock",
            "--only",
            "table",
        ];
        let prediction = json(&run(&[&asked[..], &["--threads", "1,2,8", "--format", "json"]].concat()));
        let points = list(&prediction["points"]);
        assert_eq!(points.len(), 3, "{prediction}");
        let wait =
            |point: &Value| list(&point["locks"]).iter().filter_map(|lock| lock["wait_ns"].as_f64()).sum::<f64>();
        assert!(
            wait(&points[0]) == 0.0 && wait(&points[1]) > 0.0 && wait(&points[2]) > wait(&points[1]),
            "{prediction}"
        );
        let windows = prediction["violations"].to_string().contains("in windows");
        assert_eq!(windows, budget != "off", "{prediction}");
    }
}

#[test]
fn what_is_missing_for_a_model_is_said() {
    let Some(_turn) = may_observe() else { return };
    let dir = dir();
    let (_, file) = record("counter 2 1 2000", &dir.path().join("waits.bin"), &["--futex-only"]);
    run(&["predict", "--from", &file]).assert_error(&["--futex-only"]);
    let (_, lines) = record("counter 2 1 2000", &dir.path().join("lines.jsonl"), &["--budget", "off"]);
    run(&["predict", "--from", &lines, "--by", "sums"]).assert_error(&["--by sums"]);
    run(&["predict", "--model", &file, "--pid", "1"]).assert_error(&["--model", "--pid"]);
    run(&["predict", "--model", &file, "--duration", "1s"]).assert_error(&["--duration"]);
}
