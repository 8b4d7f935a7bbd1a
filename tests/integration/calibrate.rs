//! Calibration of locks: what is measured is kept, and predictions use it.

use crate::harness::observer::{Outcome, lockbpf, run_command};
use crate::harness::turn_alone;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

fn run_in(state: &Path, arguments: &[&str]) -> Outcome {
    run_command(lockbpf().env("XDG_STATE_HOME", state).args(arguments))
}

#[test]
fn what_is_measured_is_kept_and_used() {
    let _turn = turn_alone();
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let state = dir.path().join("state");
    let model = dir.path().join("model.json");
    let text = json!({"threads": [2], "locks": [{"name": "L", "hold_ns": 100}], "routing": [[1]], "local_ns": [[100]]});
    fs::write(&model, text.to_string()).expect("failed to write a model");
    let model = model.to_str().expect("a path in UTF-8");
    for lock in ["mcs", "ticket", "spin", "qd-wait", "qd"] {
        let predict = ["predict", "--model", model, "--with", lock, "--format", "json"];
        run_in(&state, &predict).assert_error(&["lockbpf calibrate"]);
    }
    let outcome = run_in(&state, &["calibrate", "--runs", "3", "--max-load", "100%", "--format", "json"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let measured: Value = serde_json::from_str(&outcome.stdout).expect("the calibration is JSON");
    assert_eq!((&measured["schema"], &measured["runs"]), (&json!("lockbpf.calibration/4"), &json!(3)));
    let cpus = measured["cpus"].as_u64().expect("a number") as usize;
    for table in ["mutex", "mcs", "ticket", "spin", "qd_delegation"] {
        let rows = measured[table].as_array().expect("a table");
        assert_eq!(rows.len(), cpus, "{table}");
        for row in rows {
            let [low, median, high] =
                ["low_ns", "median_ns", "high_ns"].map(|field| row[field].as_f64().expect("a time"));
            assert!(0.0 < low && low <= median && median <= high, "{table}: {row}");
        }
    }
    for lock in ["mcs", "ticket", "spin", "qd-wait", "qd", "mutex"] {
        let outcome =
            run_in(&state, &["predict", "--model", model, "--with", lock, "--format", "json", "--emit-model", "-"]);
        assert_eq!(outcome.code, Some(0), "{lock}: {}", outcome.stderr);
        let emitted: Value = serde_json::from_str(&outcome.stdout).expect("the model is JSON");
        match lock {
            "qd" => assert_eq!(emitted["detached_overhead_ns"], measured["qd_detached"]["median_ns"]),
            "qd-wait" => assert_eq!(emitted["lock_overhead_ns"], measured["qd_lock_overhead"]["median_ns"]),
            lock => assert_eq!(emitted["locks"][0]["overhead_ns"][0], measured[lock][0]["median_ns"]),
        }
        assert_eq!(run_in(&state, &["predict", "--model", model, "--with", lock]).code, Some(0));
    }
    // A calibration that cannot be read is an error, not a guess.
    let kept = fs::read_dir(state.join("lockbpf")).expect("it is kept").next().expect("a file").expect("a file").path();
    fs::write(&kept, "{}").expect("failed to spoil it");
    run_in(&state, &["predict", "--model", model, "--with", "mcs"]).assert_error(&["calibration-", "missing field"]);
}

/// A recording is predicted from with what is measured for it, once; where others work, it says so and goes on without.
#[test]
fn a_prediction_has_measured_what_it_needs() {
    let _turn = turn_alone();
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/goldens/recordings/queues.bin");
    let predict = |when: &str| {
        let outcome = run_in(dir.path(), &["predict", "--from", recording, "--calibrate", when, "--format", "json"]);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        let lacks = outcome.stdout.contains("has not been measured");
        (lacks, outcome.stdout.contains("of the CPUs now"), outcome.stderr.contains("measures first"))
    };
    assert_eq!(predict("never"), (true, false, false));
    match predict("auto") {
        (true, true, false) => println!("others work beside"),
        told => {
            assert_eq!(told, (false, false, true));
            assert_eq!(predict("auto"), (false, false, false), "it is kept");
            assert_eq!(predict("never"), (false, false, false), "what is known is used");
        }
    }
}

#[test]
fn a_busy_machine_is_not_measured() {
    let _turn = turn_alone();
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let stop = std::sync::atomic::AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        let burn = || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        (0..cpus).for_each(|_| drop(scope.spawn(burn)));
        let outcome = run_in(dir.path(), &["calibrate", "--runs", "3"]);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        outcome
    });
    outcome.assert_error(&["other programs use", "--max-load"]);
    assert!(!dir.path().join("lockbpf").exists());
}
