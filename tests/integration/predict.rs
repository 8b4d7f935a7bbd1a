//! Predictions from models.

use crate::harness::observer::{Outcome, run};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

fn write(dir: &Path, model: &Value) -> String {
    let path = dir.join("model.json");
    fs::write(&path, model.to_string()).expect("failed to write a model");
    path.to_str().expect("a path in UTF-8").to_owned()
}

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().expect("failed to make a directory")
}

fn json(outcome: &Outcome) -> Value {
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    serde_json::from_str(&outcome.stdout).expect("the prediction is JSON")
}

fn repairman() -> Value {
    json!({"model": "mutex", "threads": [1, 2], "locks": [{"name": "L", "hold_ns": 1000}], "routing": [[1]], "local_ns": [[1000]]})
}

#[test]
fn a_model_with_a_known_solution() {
    let dir = dir();
    let model = write(dir.path(), &repairman());
    let prediction = json(&run(&["predict", "--model", &model, "--format", "json"]));
    assert_eq!(prediction["schema"], "lockbpf.prediction/1");
    let [one, two] = &prediction["points"].as_array().expect("points")[..] else { panic!("{prediction}") };
    let near = |value: &Value, to: f64| value.as_f64().is_some_and(|v| (v - to).abs() < 1e-9 * to.max(1.0));
    assert!(near(&one["locks"][0]["wait_ns"], 0.0), "{one}");
    let lock = &two["locks"][0];
    assert!(near(&two["throughput_per_ns"], 0.0008) && near(&two["contention_fraction"], 0.2), "{two}");
    assert!(near(&lock["wait_ns"], 500.0) && near(&lock["queue"], 1.2) && near(&lock["utilisation"], 0.8), "{lock}");
    assert!(!prediction["assumptions"].as_array().expect("assumptions").is_empty());
}

#[test]
fn other_threads_and_other_locks() {
    let dir = dir();
    let mut model = repairman();
    model["lock_overhead_ns"] = json!(172);
    model["delegation_overhead_ns"] = json!([172, 200, 300]);
    let path = write(dir.path(), &model);
    let table = run(&["predict", "--model", &path, "--threads", "1..16", "--with", "qd-wait"]);
    assert_eq!(table.code, Some(0), "{}", table.stderr);
    for text in ["Threads", "exactly", "Wait for `L` in µs, by threads:", "Assumptions:", "one helper"] {
        assert!(table.stdout.contains(text), "{text}: {}", table.stdout);
    }
    let at = |with: &str| {
        let prediction =
            json(&run(&["predict", "--model", &path, "--threads", "8", "--with", with, "--format", "json"]));
        prediction["points"][0]["throughput_per_ns"].as_f64().expect("throughput")
    };
    let mutex = json(&run(&["predict", "--model", &path, "--threads", "8", "--format", "json"]));
    let mutex = mutex["points"][0]["throughput_per_ns"].as_f64().expect("throughput");
    assert!(at("sharded:4") > 2.0 * mutex && at("rwlock:100%") > 2.0 * mutex && at("sharded:1") == mutex);
    // What was solved can be solved again.
    let emitted = dir.path().join("emitted.json");
    let emitted = emitted.to_str().expect("a path in UTF-8");
    let first = run(&["predict", "--model", &path, "--with", "sharded:4", "--emit-model", emitted]);
    assert_eq!(run(&["predict", "--model", emitted]).stdout, first.stdout);
}

#[test]
fn what_means_nothing_is_refused() {
    let dir = dir();
    for (field, value, named) in [
        ("locks", json!([]), "`locks`"),
        ("locks", json!([{"name": "L", "hold_ns": -1}]), "`locks[0].hold_ns`"),
        ("locks", json!([{"name": "L", "hold_ns": "long"}]), "`locks[0].hold_ns`"),
        ("locks", json!([{"name": "L"}]), "`locks[0].hold_ns`"),
        ("routing", json!([[0.9]]), "`routing[0]`"),
        ("routing", json!("x"), "`routing`"),
        ("threads", json!([0]), "`threads[0]`"),
        ("threads", json!([-1]), "`threads[0]`"),
        ("model", json!("spin"), "`model`"),
        ("model", json!("qd-wait"), "`lock_overhead_ns`"),
        ("solver", json!("guess"), "`solver`"),
    ] {
        let mut model = repairman();
        model[field] = value;
        let path = write(dir.path(), &model);
        run(&["predict", "--model", &path]).assert_error(&[named, "model.json"]);
    }
    let mut model = repairman();
    model.as_object_mut().expect("an object").remove("routing");
    let path = write(dir.path(), &model);
    run(&["predict", "--model", &path]).assert_error(&["missing field `routing`"]);
    fs::write(&path, "{\"threads\":").expect("failed to write a model");
    run(&["predict", "--model", &path]).assert_error(&["line 1"]);
    run(&["predict", "--model", "/no/such/model.json"]).assert_error(&["/no/such/model.json"]);
    let path = write(dir.path(), &repairman());
    run(&["predict", "--model", &path, "--with", "mutex", "--lock", "M"]).assert_error(&["`M`", "it has L"]);
    for arguments in [&["--threads", "4..1"][..], &["--with", "magic"], &["--with", "sharded:0"], &["--lock", "L"]] {
        run(&[&["predict", "--model", &path], arguments].concat()).assert_error(&["--help"]);
    }
}
