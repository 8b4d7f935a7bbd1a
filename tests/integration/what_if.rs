//! What-if on recordings, and models made of them.

use crate::harness::build::Variant;
use crate::harness::may_observe;
use crate::harness::observer::{Outcome, lockbpf, run};
use crate::harness::process::Running;
use crate::harness::workload::{Truth, Workload, command};
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().expect("failed to make a directory")
}

/// Two threads take turns at `hot`, 100 ns each, and one comes by at `cold`.
fn turns(dir: &Path) -> String {
    let mut lines: Vec<(u64, String)> = Vec::new();
    let mut section = |tid: &str, lock: &str, [attempt, acquire, release]: [u64; 3]| {
        let mut line = |t: u64, rest: &str| {
            lines.push((t, format!(r#"{{"t":{t},"tid":"{tid}","lock":"{lock}",{rest}}}"#)));
        };
        line(attempt, &format!(r#""op":"attempt","site":"use_{lock}""#));
        line(acquire, r#""op":"acquire""#);
        line(release, r#""op":"release""#);
    };
    for turn in 0..200_u64 {
        section(["A", "B"][turn as usize % 2], "hot", [(turn * 100).saturating_sub(100), turn * 100, turn * 100 + 100]);
    }
    for turn in 0..20 {
        section("C", "cold", [turn * 900, turn * 900, turn * 900 + 10]);
    }
    lines.sort_by_key(|&(t, _)| t);
    let text = lines.iter().fold(String::new(), |mut text, (_, line)| {
        writeln!(text, "{line}").expect("a String takes everything");
        text
    });
    let path = dir.join("turns.jsonl");
    fs::write(&path, text).expect("failed to write a recording");
    path.to_str().expect("a path in UTF-8").to_owned()
}

fn json(outcome: &Outcome) -> Value {
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    serde_json::from_str(&outcome.stdout).expect("the prediction is JSON")
}

#[test]
fn single_changes_of_event_lines() {
    let dir = dir();
    let file = turns(dir.path());
    let ask = |arguments: &[&str]| {
        let prediction = json(&run(&[&["what-if", "--from", &file, "--format", "json"], arguments].concat()));
        assert_eq!(prediction["schema"], "lockbpf.what-if/1");
        assert_eq!((prediction["observed_ns"].as_f64(), prediction["replayed_ns"].as_f64()), (Some(20e3), Some(20e3)));
        assert!(prediction["assumptions"].as_array().is_some_and(|a| !a.is_empty()));
        prediction["answers"][0].clone()
    };
    let gain = |answer: &Value| answer["gain"].as_f64().expect("a gain");
    let near = |answer: &Value, to: f64| assert!((gain(answer) - to).abs() < 0.02, "{answer}");
    let shorter = ask(&["--shorten", "use_hot=50%"]);
    // What is left is the thread at `cold`, which needs 17,110.
    near(&shorter, 1.0 - 17_110.0 / 20_000.0);
    assert_eq!(
        (&shorter["change"], &shorter["bottleneck"]),
        (&Value::from("`use_hot` shorter by 50 %"), &Value::from("hot"))
    );
    let removed = ask(&["--remove", "hot"]);
    near(&removed, 1.0 - 17_110.0 / 20_000.0);
    assert_eq!((&removed["bottleneck"], removed["wait_ns"].as_f64()), (&Value::Null, Some(0.0)));
    near(&ask(&["--remove", "cold"]), 0.0);
    near(&ask(&["--rwlock", "hot=0%"]), 0.0);
    assert!(gain(&ask(&["--split", "hot=8"])) > 0.1);
    let best = ask(&["--auto"]);
    near(&best, 1.0 - 17_110.0 / 20_000.0);
    let table = run(&["what-if", "--from", &file, "--auto"]);
    assert_eq!(table.code, Some(0), "{}", table.stderr);
    for text in ["Observed: 20.0 µs", "`hot` removed", "`hot` split into 4", "Assumptions:"] {
        assert!(table.stdout.contains(text), "{text}: {}", table.stdout);
    }
}

#[test]
fn a_model_of_event_lines() {
    let dir = dir();
    let file = turns(dir.path());
    let emitted = dir.path().join("model.json");
    let emitted = emitted.to_str().expect("a path in UTF-8");
    let prediction = json(&run(&[
        "predict",
        "--from",
        &file,
        "--only",
        "hot",
        "--threads",
        "1,2",
        "--emit-model",
        emitted,
        "--format",
        "json",
    ]));
    let model: Value = serde_json::from_str(&fs::read_to_string(emitted).expect("a model")).expect("it is JSON");
    assert_eq!((&model["locks"][0]["name"], model["locks"][0]["hold_ns"].as_f64()), (&Value::from("hot"), Some(100.0)));
    assert_eq!((model["routing"].to_string().as_str(), model["local_ns"].to_string().as_str()), ("[[1.0]]", "[[0.0]]"));
    // The threads do nothing else: one has the lock, the other waits.
    let two = &prediction["points"][1];
    assert!((two["locks"][0]["wait_ns"].as_f64().expect("a wait") - 100.0).abs() < 1e-6, "{two}");
    let violations = prediction["violations"].to_string();
    assert!(violations.contains("not exponential"), "{violations}");
    assert_eq!(json(&run(&["predict", "--model", emitted, "--format", "json"])), prediction);
}

#[test]
fn what_cannot_be_predicted_is_refused() {
    let dir = dir();
    let file = turns(dir.path());
    run(&["what-if", "--from", &file, "--remove", "warm"]).assert_error(&["`warm`", "hot"]);
    run(&["what-if", "--from", &file, "--shorten", "hot=120%"]).assert_error(&["120%"]);
    run(&["what-if", "--from", &file, "--rwlock", "hot"]).assert_error(&["share"]);
    run(&["what-if", "--from", &file]).assert_error(&["--shorten"]);
    run(&["predict", "--from", &file, "--only", "warm"]).assert_error(&["no section", "no section"]);
    run(&["predict"]).assert_error(&["--model"]);
    let lonely = dir.path().join("lonely.jsonl");
    fs::write(&lonely, r#"{"t":1,"tid":1,"op":"exit"}"#).expect("failed to write a recording");
    let lonely = lonely.to_str().expect("a path in UTF-8");
    run(&["what-if", "--from", lonely, "--auto"]).assert_error(&["no section"]);
}

/// Records a workload from before its work until its exit; how long it worked, by its own clock.
fn record(line: &str, to: &Path) -> Truth {
    let mut workload = Workload::launch(&mut command(line, Variant::Plain));
    let to = to.to_str().expect("a path in UTF-8");
    let arguments = ["export", "--all-events", "--pid", &workload.pid().to_string(), "--to", to];
    let mut recorder = Running::start(lockbpf().args(arguments));
    assert!(recorder.err.find(|line| line.starts_with("observing ")).is_some(), "{}", recorder.err.rest());
    workload.go();
    let truth = workload.finish();
    assert!(recorder.wait().success(), "{}", recorder.err.rest());
    truth
}

#[test]
fn a_change_that_was_made_gains_what_was_predicted() {
    let Some(_turn) = may_observe() else { return };
    let dir = dir();
    let [before, after] = ["before.bin", "after.bin"].map(|name| dir.path().join(name));
    // The holder sleeps for 20 ms, then for 10.
    record("hold 20 1 20000", &before);
    record("hold 20 1 10000", &after);
    let [before, after] = [before, after].map(|path| path.to_str().expect("a path in UTF-8").to_owned());
    let prediction = json(&run(&["what-if", "--from", &before, "--shorten", "slow_holder=50%", "--format", "json"]));
    let changed = json(&run(&["what-if", "--from", &after, "--remove", "cache_lock", "--format", "json"]));
    let (predicted, was) = (&prediction["answers"][0], changed["observed_ns"].as_f64().expect("a time"));
    let [observed, replayed] = ["observed_ns", "replayed_ns"].map(|f| prediction[f].as_f64().expect("a time"));
    assert!((replayed / observed - 1.0).abs() < 0.1, "{prediction}");
    // 200 of 400 ms are saved; how late sleepers are woken is up to the machine.
    let run_time = predicted["run_time_ns"].as_f64().expect("a time");
    assert!((run_time / was - 1.0).abs() < 0.25, "{run_time} for {was}: {prediction}");
    let gain = predicted["gain"].as_f64().expect("a gain");
    assert!((0.3..0.6).contains(&gain), "{prediction}");
}
