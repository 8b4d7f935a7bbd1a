//! Recordings that cannot be read, or only in part: an error that names the file and the line, never a guess.

use crate::examples::example;
use crate::harness::observer::{lockbpf, run};
use crate::harness::privilege::installed;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

const GOOD: &str = r#"{"t":1,"tid":1,"op":"attempt","lock":"L","site":"S"}
{"t":2,"tid":1,"op":"acquire","lock":"L"}
{"t":3,"tid":1,"op":"release","lock":"L"}
"#;

/// Event lines that are good up to a last one, as a file of this name.
fn file(dir: &Path, name: &str, content: impl AsRef<[u8]>) -> String {
    let path = dir.join(name);
    fs::write(&path, content).expect("failed to write a recording");
    path.to_str().expect("a path in UTF-8").to_owned()
}

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().expect("failed to make a directory")
}

#[test]
fn a_bad_line_is_named() {
    let dir = dir();
    for (line, complaint) in [
        (r#"{"t":4,"tid":1,"op":"foo","lock":"L"}"#, r#"unknown op "foo""#),
        (r#"{"t":4,"op":"attempt","lock":"L","site":"S"}"#, "tid"),
        (r#"{"tid":1,"op":"attempt","lock":"L","site":"S"}"#, "`t`"),
        (r#"{"t":4,"tid":1,"lock":"L","site":"S"}"#, "op"),
        (r#"{"t":4,"tid":1,"op":"release"}"#, "lock"),
        (r#"{"t":-4,"tid":1,"op":"release","lock":"L"}"#, "negative"),
        (r#"{"t":4,"tid":1,"op":"release","lock":"#, "json"),
        ("[]", "line 4"),
        ("not json", "line 4"),
    ] {
        let file = file(dir.path(), "trace.jsonl", format!("{GOOD}{line}\n{GOOD}"));
        run(&["report", "--from", &file]).assert_error(&["failed to read", "trace.jsonl: line 4: ", complaint]);
    }
}

#[test]
fn the_message_is_one_line() {
    let dir = dir();
    let bad = r#"{"t":9,"tid":1,"op":"foo","lock":"L"}"#;
    let file = file(dir.path(), "trace.jsonl", format!("{GOOD}{}{bad}\n", GOOD.replace("\"t\":", "\"t\":1")));
    let outcome = run(&["report", "--from", &file]);
    let message = format!("lockbpf: failed to read {file}: line 7: unknown op \"foo\"");
    assert!(outcome.stderr.starts_with(&message) && outcome.stderr.lines().count() == 1, "{}", outcome.stderr);
}

#[test]
fn what_is_no_recording_is_refused() {
    let dir = dir();
    let path = dir.path().to_str().expect("a path in UTF-8");
    run(&["report", "--from", path]).assert_error(&[path, "directory"]);
    run(&["report", "--from", "/no/such/trace.bin"]).assert_error(&["/no/such/trace.bin", "no such file"]);
    let garbage: Vec<u8> = (0..4_096_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let garbage = file(dir.path(), "garbage.bin", garbage);
    run(&["report", "--from", &garbage]).assert_error(&[&garbage]);
    // One bad recording of several spoils the whole.
    let good = file(dir.path(), "good.jsonl", GOOD);
    run(&["report", "--from", &good, &garbage]).assert_error(&[&garbage]);
    run(&["diff", &good, "/no/such/trace.bin"]).assert_error(&["/no/such/trace.bin"]);
}

#[test]
fn bad_usage_is_refused() {
    let dir = dir();
    let good = file(dir.path(), "good.jsonl", GOOD);
    for (arguments, named) in [
        (&["report"][..], "--from"),
        (&["report", "--from"], "--from"),
        (&["report", "--from", &good, "--format", "dot"], "--graph"),
        (&["report", "--from", &good, "--format", "papyrus"], "papyrus"),
        (&["report", "--from", &good, "--barrier-cost", "free"], "free"),
        (&["diff", &good], "diff"),
        (&["diff", &good, &good, "--factor", "0.5"], "0.5"),
    ] {
        run(arguments).assert_error(&[named]);
    }
}

#[test]
fn stdin_is_read() {
    let dir = dir();
    let good = file(dir.path(), "good.jsonl", GOOD);
    let output = lockbpf()
        .args(["report", "--from", "-", "--format", "json"])
        .stdin(File::open(good).expect("failed to open a recording"))
        .output()
        .expect("failed to run lockbpf");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("the report is JSON");
    assert_eq!(report["locks"][0]["lock"], "L");
    assert_eq!(report["locks"][0]["hold_ns"]["sum"], 1);
}

#[test]
fn the_kind_is_known_by_the_content() {
    let dir = dir();
    let misnamed = file(dir.path(), "trace.bin", GOOD);
    assert_eq!(run(&["report", "--from", &misnamed]).code, Some(0));
}

#[test]
fn a_reader_that_has_seen_enough() {
    let file = example("figure_4a.jsonl");
    // A pipe whose reading end is closed before anything is written.
    let mut head = Command::new("true").stdin(Stdio::piped()).spawn().expect("failed to run true");
    let pipe = head.stdin.take().expect("stdin is piped");
    head.wait().expect("failed to wait for true");
    let output = lockbpf()
        .args(["report", "--from", file.to_str().expect("a path in UTF-8"), "--format", "json", "--graph"])
        .stdout(pipe)
        .output()
        .expect("failed to run lockbpf");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""));
}

#[test]
fn dot_is_understood_by_graphviz() {
    let file = example("figure_4a.jsonl");
    let outcome = run(&["report", "--from", file.to_str().expect("a path in UTF-8"), "--graph", "--format", "dot"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("digraph"), "{}", outcome.stdout);
    let Some(dot) = installed("dot") else { return };
    let dir = dir();
    let source = self::file(dir.path(), "graph.dot", &outcome.stdout);
    let drawn = Command::new(dot).args(["-Tplain", &source]).output().expect("failed to run dot");
    let (plain, stderr) = (String::from_utf8_lossy(&drawn.stdout), String::from_utf8_lossy(&drawn.stderr));
    assert!(drawn.status.success() && stderr.is_empty(), "{stderr}");
    let count = |what: &str| plain.lines().filter(|line| line.starts_with(what)).count();
    assert_eq!((count("node "), count("edge ")), (7, 9), "{plain}");
}

#[test]
fn filters_restrict_the_report() {
    let file = example("figure_4a.jsonl");
    let file = file.to_str().expect("a path in UTF-8");
    let locks = |options: &[&str]| {
        let outcome = run(&[&["report", "--from", file, "--format", "json"], options].concat());
        let report: serde_json::Value = serde_json::from_str(&outcome.stdout).expect("the report is JSON");
        let entries = report["locks"].as_array().expect("locks").clone();
        entries.iter().map(|l| l["lock"].as_str().expect("a lock").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(locks(&["--lock", "L2"]), ["L2"]);
    assert_eq!(locks(&["--site", "CS3"]), ["L1"]);
    assert_eq!(locks(&["--top", "1"]).len(), 1);
    assert_eq!(locks(&[]).len(), 2);
}
