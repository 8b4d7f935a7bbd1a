//! Locks of programs' own that a file describes (`--locks`): counted by the program itself, and contended by design.

use crate::harness::build::{Variant, compile};
use crate::harness::exact::assert_complete;
use crate::harness::may_observe;
use crate::harness::observer::{Observer, lockbpf, run};
use crate::harness::report::Report;
use crate::harness::workload::{Truth, Workload};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The locks of `tests/workloads/own_locks.h`.
const OWN: &str = r#"format = "lockbpf.locks/1"
[[lock]]
kind = "latch"
files = ["described*", "libown.so"]
taken = { at = "lock+4" }
name = { text = "*(lock+8)" }
function = [
    { symbol = "latch_get", does = "acquire", lock = "*(arg0+8)" },
    { symbol = "latch_try", does = "try", lock = "*(arg0+8)", fails = "false" },
    { symbol = "latch_put", does = "release", lock = "*(arg0+8)" },
]
[[lock]]
kind = "spinner"
sort = "spin"
files = ["described*", "libown.so"]
taken = { at = "lock", size = 1 }
name = { number = "lock+1", size = 1, names = ["", "first"] }
function = [
    { symbol = "spin_get", does = "acquire", lock = "arg1" },
    { symbol = "spin_p?t", does = "release", lock = "arg1" },
]
[[lock]]
kind = "table lock"
sort = "rwlock"
files = ["described*", "libown.so"]
taken = { at = "lock", mask = 0x1ffffff, shared_mask = 0x1000000, waiters_mask = 0x40000000 }
function = [
    { symbol = "table_get", does = "acquire", shared = "arg1 == 1" },
    { symbol = "table_put", does = "release" },
]
"#;

/// A file with this text.
fn described(dir: &TempDir, text: &str) -> String {
    let file = dir.path().join("locks.toml");
    fs::write(&file, text).expect("failed to write a description");
    file.display().to_string()
}

fn observed(command: &mut Command, locks: &str, options: &[&str]) -> (Truth, Report) {
    let mut workload = Workload::launch(command);
    let observer = Observer::of(workload.pid(), &[&["--locks", locks], options].concat());
    workload.go();
    let truth = workload.finish();
    (truth, observer.report())
}

fn assert_told(truth: &Truth, report: &Report) {
    for (symbol, kind, name) in [
        ("own_latch", "latch", Some("orders")),
        ("own_spin", "spinner", Some("first")),
        ("own_table", "table lock", None),
    ] {
        let lock = truth.lock(symbol);
        let told = report.at(truth.pid, &lock.addr);
        assert_eq!(told.kind, kind, "{told:?}");
        assert!(name.is_none_or(|name| told.name == name), "{told:?}");
        assert_eq!(
            (told.acquisitions, told.contended, told.try_failures, told.timeouts, told.errors),
            (lock.acquisitions, lock.contended, lock.try_failures, 0, 0),
            "{told:?}"
        );
        let waited = told.contended_wait_ns.sum;
        assert!(waited >= lock.wait_min_ns as f64, "{told:?}, {lock:?}");
        // Whoever held it is to blame.
        let blamed: f64 = told
            .holders
            .iter()
            .filter(|h| h.function.as_deref() == Some("contend") || h.function.as_deref() == Some("get"))
            .map(|h| h.wait_ns)
            .sum();
        assert!(blamed >= 0.9 * lock.wait_min_ns as f64, "{told:?}");
        assert!(told.hold_ns.sum >= lock.wait_min_ns as f64, "{told:?}");
    }
}

fn program() -> Command {
    let mut command = Command::new(compile("described", Variant::Plain));
    command.args(["20", "500"]);
    command
}

#[test]
fn described_locks() {
    let Some(_turn) = may_observe() else { return };
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let locks = described(&dir, OWN);
    for options in [&[][..], &["--plain-uprobes"]] {
        let (truth, report) = observed(&mut program(), &locks, options);
        assert_complete(&report);
        assert_told(&truth, &report);
    }
}

/// The program and its library are stripped: of these, only what others may call has a name.
#[test]
fn described_locks_of_a_stripped_library() {
    let Some(_turn) = may_observe() else { return };
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/workloads");
    let cc = |arguments: &[&str]| {
        let status =
            Command::new("cc").args(["-std=gnu11", "-O2", "-s"]).args(arguments).current_dir(dir.path()).status();
        assert!(status.expect("a C compiler").success(), "{arguments:?}");
    };
    let (source, library) = (sources.join("described.c"), sources.join("own_locks.h"));
    cc(&["-shared", "-fPIC", "-o", "libown.so", "-x", "c", library.to_str().unwrap()]);
    let elsewhere = ["-DOWN_LOCKS_ELSEWHERE", "-pthread", "-o", "user", source.to_str().unwrap()];
    cc(&[&elsewhere[..], &["-L.", "-lown", "-Wl,-rpath,$ORIGIN"]].concat());
    let mut command = Command::new(dir.path().join("user"));
    let (truth, report) = observed(command.args(["20", "500"]), &described(&dir, OWN), &[]);
    assert_complete(&report);
    for symbol in ["own_latch", "own_spin", "own_table"] {
        let (lock, told) = (truth.lock(symbol), report.at(truth.pid, &truth.lock(symbol).addr));
        assert_eq!((told.acquisitions, told.contended), (lock.acquisitions, lock.contended), "{told:?}");
    }
}

#[test]
fn described_methods_of_cpp() {
    let Some(_turn) = may_observe() else { return };
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let text = r#"format = "lockbpf.locks/1"
[[lock]]
kind = "db latch"
files = ["described_methods"]
taken = { at = "lock" }
function = [
    { name = "db::Latch<*>::lock", does = "acquire" },
    { name = "db::Latch<*>::unlock", does = "release" },
]
"#;
    let mut workload = Command::new(compile("described_methods", Variant::Plain));
    let (truth, report) = observed(workload.args(["20", "500"]), &described(&dir, text), &[]);
    assert_complete(&report);
    let (lock, told) = (truth.lock("latch"), report.at(truth.pid, &truth.lock("latch").addr));
    assert_eq!((told.acquisitions, told.contended), (lock.acquisitions, lock.contended), "{told:?}");
    assert!(told.kind == "db latch" && told.name.starts_with("latch"), "{told:?}");
}

/// A recording says what the live report says, whatever its format; shared attempts are told as such.
#[test]
fn described_locks_in_recordings() {
    let Some(_turn) = may_observe() else { return };
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let locks = described(&dir, OWN);
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (trace, lines) = (path("t.bin"), path("t.jsonl"));
    let mut workload = Workload::launch(&mut program());
    let pid = workload.pid().to_string();
    let export = ["export", "--pid", &pid, "--to", &trace, "--locks", &locks, "--all-events"];
    let observer = Observer::launch(lockbpf().args(export));
    workload.go();
    let truth = workload.finish();
    assert_eq!(observer.outcome().code, Some(0));
    assert_eq!(run(&["export", "--from", &trace, "--to", &lines]).code, Some(0));
    let of = |file: &str| run(&["report", "--from", file, "--format", "json"]).report();
    let (first, second) = (of(&trace), of(&lines));
    assert_told(&truth, &first);
    for lock in &first.locks {
        let Some(again) = second.locks.iter().find(|l| l.lock == lock.lock) else {
            panic!("no {lock:?} in event lines")
        };
        assert_eq!((&again.kind, &again.name, again.acquisitions), (&lock.kind, &lock.name, lock.acquisitions));
    }
    let text = fs::read_to_string(&lines).expect("failed to read event lines");
    let shared =
        text.lines().filter(|line| line.contains(r#""op":"attempt""#) && line.contains(r#""mode":"shared""#)).count();
    assert_eq!(shared as u64, truth.fact("shared"));
    assert!(text.contains(r#""kind":"rwlock","kind_name":"table lock""#));
}

#[test]
fn descriptions_are_checked() {
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let program = compile("described", Variant::Plain);
    let program = program.to_str().unwrap();
    let good = described(&dir, OWN);
    let outcome = run(&["locks", "check", &good, program]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    for text in ["latch: 3 functions", "latch_get", "spin_put", "watched"] {
        assert!(outcome.stdout.contains(text), "{}", outcome.stdout);
    }
    let lacking = described(&dir, &OWN.replace("\"table_put\"", "\"table_drop\""));
    let outcome = run(&["locks", "check", &lacking, program]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stdout.contains("line 29: table_drop is not found"), "{}", outcome.stdout);
    run(&["locks", "check", &described(&dir, &OWN.replace("\"false\"", "\"maybe\""))])
        .assert_error(&["line 9", "unknown variant `maybe`"]);
    let (good, other) = (described(&dir, OWN), PathBuf::from("/bin/true"));
    assert_eq!(run(&["locks", "check", &good, other.to_str().unwrap()]).code, Some(1));
    let shipped = run(&["locks", "show", "postgresql"]);
    assert!(shipped.stdout.contains("LWLockAcquire"));
    run(&["locks", "show", "nothing"]).assert_error(&["postgresql"]);
}
