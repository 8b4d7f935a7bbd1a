//! Two recordings of one workload, of which one was changed in a known way.

use crate::examples::example;
use crate::harness::build::Variant;
use crate::harness::may_observe;
use crate::harness::observer::{lockbpf, run, run_command};
use crate::harness::process::Running;
use crate::harness::workload::{Workload, command};
use serde_json::Value;
use std::path::Path;

/// Records a workload from before its work until its exit.
fn record(line: &str, to: &Path) {
    let mut workload = Workload::launch(&mut command(line, Variant::Plain));
    let to = to.to_str().expect("a path in UTF-8");
    let mut recorder = Running::start(lockbpf().args(["export", "--pid", &workload.pid().to_string(), "--to", to]));
    assert!(recorder.err.find(|line| line.starts_with("observing ")).is_some(), "{}", recorder.err.rest());
    workload.go();
    workload.finish();
    let status = recorder.wait();
    assert!(status.success(), "{}", recorder.err.rest());
}

fn entry<'a>(entries: &'a Value, field: &str, name: &str) -> &'a Value {
    let found =
        entries.as_array().expect("entries").iter().find(|e| e[field].as_str().is_some_and(|s| s.starts_with(name)));
    found.unwrap_or_else(|| panic!("no {name} in {entries}"))
}

#[test]
fn longer_holds_are_called_out() {
    let Some(_turn) = may_observe() else { return };
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let (before, after) = (dir.path().join("before.bin"), dir.path().join("after.bin"));
    record("hold 20 1 5000", &before);
    record("hold 20 1 50000", &after);
    let files = [before, after].map(|path| path.to_str().expect("a path in UTF-8").to_owned());
    let outcome = run(&["diff", &files[0], &files[1], "--format", "json"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let diff: Value = serde_json::from_str(&outcome.stdout).expect("the comparison is JSON");
    assert_eq!(diff["schema"], "lockbpf.diff/1");
    // 20 long holds, and 20 short ones of the waiter: the mean is a bit over a half of 50 ms instead of 5 ms.
    let lock = entry(&diff["locks"], "name", "cache_lock");
    let hold = &lock["mean_hold_ns"];
    assert_eq!(hold["called_out"], true, "{lock}");
    assert!(hold["ratio"].as_f64() > Some(1.5), "{lock}");
    assert_eq!(lock["presence"], "both");
    let site = entry(&diff["sites"], "symbol", "slow_holder");
    assert!(site["mean_hold_ns"]["ratio"].as_f64() > Some(1.5), "{site}");
    let text = run(&["diff", &files[0], &files[1]]).stdout;
    assert!(text.contains("`cache_lock`"), "{text}");
    // The same twice: nothing to call out.
    let same = run(&["diff", &files[0], &files[0]]).stdout;
    assert!(same.contains("Nothing changed that exceeds the thresholds."), "{same}");
}

#[test]
fn a_torn_recording_is_reported_in_part() {
    let Some(_turn) = may_observe() else { return };
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let whole = dir.path().join("whole.bin");
    record("counter 2 1 2000", &whole);
    let bytes = std::fs::read(&whole).expect("failed to read a recording");
    let torn = dir.path().join("torn.bin");
    std::fs::write(&torn, &bytes[..bytes.len() * 2 / 3]).expect("failed to write a recording");
    let [whole, torn] = [&whole, &torn].map(|path| path.to_str().expect("a path in UTF-8"));
    for (file, strict) in [(whole, 0), (torn, 1)] {
        let lenient = run(&["report", "--from", file, "--format", "json"]);
        assert_eq!(lenient.code, Some(0), "{}", lenient.stderr);
        let report: Value = serde_json::from_str(&lenient.stdout).expect("the report is JSON");
        assert_eq!(report["quality"]["incomplete"], strict == 1, "{}", report["quality"]);
        assert_eq!(run(&["report", "--from", file, "--strict"]).code, Some(strict));
    }
}

#[test]
fn event_lines_compare_too() {
    let (a, b) = (example("figure_4a.jsonl"), example("figure_4b.jsonl"));
    let outcome =
        run_command(lockbpf().args(["diff".as_ref(), a.as_os_str(), b.as_os_str()]).args(["--format", "json"]));
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let diff: Value = serde_json::from_str(&outcome.stdout).expect("the comparison is JSON");
    // 12 of 26 ns and 2 of 10 ns.
    let wait = &entry(&diff["locks"], "name", "L1")["wait_ns_per_s"];
    let close = |value: &Value, to: f64| value.as_f64().is_some_and(|v| (v - to).abs() < 1.0);
    assert!(close(&wait["a"], 12e9 / 26.0) && close(&wait["b"], 2e9 / 10.0), "{wait}");
    assert_eq!(entry(&diff["locks"], "name", "L3")["presence"], "new");
    assert_eq!(entry(&diff["sites"], "symbol", "CS6")["presence"], "vanished");
    assert_eq!(diff["overall"]["static_locks"]["b"], 3.0);
}

/// Event lines of a thread that waits for another's section of so many ns, a thousand times.
fn sections(hold_ns: u64) -> String {
    let mut lines = String::new();
    for round in 0..1_000 {
        let t = round * 2_000_000;
        let mut line = |at: u64, tid: u32, op: &str, rest: &str| {
            lines += &format!("{{\"t\":{},\"tid\":{tid},\"op\":\"{op}\",\"lock\":\"L\"{rest}}}\n", t + at);
        };
        line(0, 1, "attempt", ",\"site\":\"holder\"");
        line(0, 1, "acquire", "");
        line(1, 2, "attempt", ",\"site\":\"waiter\"");
        line(hold_ns, 1, "release", "");
        line(hold_ns, 2, "acquire", "");
        line(hold_ns + 10, 2, "release", "");
    }
    lines
}

#[test]
fn the_gate_has_an_exit_status_of_its_own() {
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let files = [("a.jsonl", 100_000), ("b.jsonl", 150_000)].map(|(name, hold_ns)| {
        let path = dir.path().join(name);
        std::fs::write(&path, sections(hold_ns)).expect("failed to write event lines");
        path.to_str().expect("a path in UTF-8").to_owned()
    });
    let gate = |options: &[&str]| run(&[&["diff", &files[0], &files[1]], options].concat());
    for (options, code, says) in [
        (&["--fail-if", "wait > +20%"][..], 3, "FAILED: wait > +20%"),
        (&["--fail-if", "wait > +60 %", "--fail-if", "hold[L] > +60%"], 0, "passed: hold[L] > +60%"),
        (&["--fail-if", "wait > +60%", "--fail-if", "hold > +20%", "--format", "json"], 3, "\"outcome\": \"failed\""),
        (&["--fail-if", "hold[L] > 60us and wait > +20%"], 3, "FAILED: hold[L] > 60us and wait > +20%"),
        (&["--fail-if", "hold[L] > 90us and wait > +20%"], 0, "passed"),
        (&["--fail-if", "wait[M] > +1%"], 0, "INCONCLUSIVE"),
        (&["--fail-if", "wait[M] > +1%", "--fail-if-inconclusive"], 3, "INCONCLUSIVE"),
        (&["--fail-if", "wait > +20%", "--format", "markdown"], 3, "❌"),
        (&["--fail-if", "wait > +20%", "--format", "github"], 3, "::error title="),
    ] {
        let outcome = gate(options);
        assert_eq!(outcome.code, Some(code), "{options:?}: {}", outcome.stderr);
        assert!(outcome.stdout.contains(says), "{options:?}: {}", outcome.stdout);
    }
    gate(&["--fail-if", "waits > +20%"]).assert_error(&["waits", "contended"]);
    gate(&["--fail-if", "wait > 20%"]).assert_error(&["wait > +20%"]);
}
