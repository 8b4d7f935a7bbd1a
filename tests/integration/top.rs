//! `lockbpf top` on a terminal, as a person uses it.

use crate::harness::may_observe;
use crate::harness::observer::run;
use crate::harness::tmux::Pane;
use crate::harness::workload::Workload;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::path::Path;

/// A holder that sleeps under `cache_lock` again and again while two wait: in the main thread.
const WORKLOAD: &str = "hold 1000000 2 30000";

fn top(options: &str) -> String {
    format!("'{}' top {options}", env!("CARGO_BIN_EXE_lockbpf"))
}

/// Types a command between two looks at the terminal's settings.
fn start(pane: &Pane, dir: &Path, command: &str) {
    let dir = dir.display();
    pane.line(&format!("cd '{dir}'; clear; stty -a > before; {command}; stty -a > after; echo over-$?"));
}

/// Waits for the end, after which the terminal has to be as it was.
fn assert_restored(pane: &Pane, dir: &Path) -> String {
    let text = pane.wait_for("end", |text| text.contains("over-0"));
    let settings = |name: &str| std::fs::read_to_string(dir.join(name)).expect("settings were written");
    assert_eq!(settings("before"), settings("after"));
    assert!(!text.contains("q quit"), "the screen is still there: {text}");
    text
}

/// Has a key pressed until the screen is as it should be: keys pressed while it is being opened are lost.
fn press(pane: &Pane, key: &str, what: &str, is_there: impl Fn(&str) -> bool) -> String {
    pane.keys(&[key]);
    pane.wait_for(what, is_there)
}

#[test]
fn in_tmux_holder_and_waiters_are_seen_and_keys_work() {
    let Some(_turn) = may_observe() else { return };
    let Some(pane) = Pane::open(100, 30) else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let mut workload = Workload::start(WORKLOAD);
    workload.go();
    let pid = workload.pid();
    start(&pane, dir.path(), &top(&format!("--pid {pid}")));
    let text = pane.wait_for("lock", |text| text.contains("> cache_lock") && text.contains("slow_holder"));
    assert!(text.contains("LIVE") && text.contains("holds hold back"), "{text}");
    // The main thread holds it nearly always, asleep.
    let closely = press(&pane, "Enter", "holder", |text| {
        text.contains(&format!("Holder   thread {pid} (hold): asleep in clock_nanosleep"))
            && text.contains("Waiting  2 now")
    });
    assert!(closely.contains("patient_waiter (hold.c:"), "{closely}");
    press(&pane, "Escape", "list", |text| text.contains("> cache_lock"));
    press(&pane, "2", "culprits", |text| text.contains("[2 Culprits]") && text.contains("> slow_holder (hold.c:"));
    press(&pane, "3", "threads", |text| text.contains("[3 Threads]") && text.contains(&format!("({pid})")));
    press(&pane, "4", "processes", |text| text.contains("[4 Processes]") && text.contains(&format!("> hold ({pid})")));
    press(&pane, "?", "help", |text| text.contains("Ctrl-Z"));
    press(&pane, "Escape", "list", |text| text.contains("[4 Processes]"));
    press(&pane, "1", "locks", |text| text.contains("[1 Locks]"));
    pane.keys(&["/", "n", "o", "n", "e", "Enter"]);
    pane.wait_for("filter", |text| text.contains("only \"none\"") && text.contains("Nothing has that"));
    press(&pane, "Escape", "all", |text| text.contains("> cache_lock"));
    press(&pane, "Space", "pause", |text| text.contains("PAUSED"));
    press(&pane, "Left", "an earlier snapshot", |text| text.contains("PAUSED, ") || text.contains("oldest"));
    press(&pane, "e", "file", |text| text.contains("written to "));
    let written = std::fs::read_dir(dir.path()).expect("a directory").flatten().map(|entry| entry.path());
    let json = written.filter(|path| path.extension().is_some_and(|suffix| suffix == "json")).last().expect("a file");
    let export: Value = serde_json::from_slice(&std::fs::read(json).expect("a file")).expect("JSON");
    assert_eq!((&export["schema"], &export["rows"][0]["name"]), (&"lockbpf.top/1".into(), &"cache_lock".into()));
    pane.keys(&["q"]);
    let text = assert_restored(&pane, dir.path());
    assert!(text.contains("slow_holder"), "the summary is told: {text}");
    assert!(workload.running.is_alive());
}

#[test]
fn in_tmux_signals_end_it_and_the_terminal_is_as_before() {
    let Some(_turn) = may_observe() else { return };
    let Some(pane) = Pane::open(80, 24) else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let mut workload = Workload::start(WORKLOAD);
    workload.go();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        start(&pane, dir.path(), &top(&format!("--pid {} --report", workload.pid())));
        pane.wait_for("lock", |text| text.contains("> cache_lock"));
        let lockbpf = pane.child("lockbpf").cast_signed();
        kill(Pid::from_raw(lockbpf), signal).expect("it is there");
        let text = assert_restored(&pane, dir.path());
        assert!(text.contains("Quality:"), "the report is told: {text}");
    }
}

#[test]
fn in_tmux_it_is_stopped_and_goes_on() {
    let Some(_turn) = may_observe() else { return };
    let Some(pane) = Pane::open(80, 24) else { return };
    let mut workload = Workload::start(WORKLOAD);
    workload.go();
    pane.line(&format!("set -m; clear; {}", top(&format!("--pid {}", workload.pid()))));
    pane.wait_for("lock", |text| text.contains("> cache_lock"));
    pane.keys(&["C-z"]);
    pane.wait_for("shell", |text| text.contains("topped") && !text.contains("q quit"));
    pane.line("fg");
    pane.wait_for("screen", |text| text.contains("> cache_lock") && text.contains("q quit"));
    pane.keys(&["q"]);
    pane.wait_for("summary", |text| text.contains("slow_holder") && !text.contains("q quit"));
}

#[test]
fn in_tmux_a_command_writes_to_a_file_and_its_end_is_the_end() {
    let Some(_turn) = may_observe() else { return };
    let Some(pane) = Pane::open(80, 24) else { return };
    let dir = tempfile::tempdir().expect("a directory");
    start(&pane, dir.path(), &top("-- sh -c 'echo noise; sleep 3; echo more'"));
    pane.wait_for("screen", |text| text.contains("lockbpf top"));
    let text = assert_restored(&pane, dir.path());
    let path = text.split_once("has written is in ").map(|(_, rest)| rest.lines().take(2).collect::<String>());
    let path = path.and_then(|path| Some(path.split_once(".out")?.0.to_owned() + ".out")).expect("the file is told");
    assert_eq!(std::fs::read_to_string(&path).expect("the file is there"), "noise\nmore\n");
    std::fs::remove_file(path).expect("the file can be removed");
}

#[test]
fn without_a_terminal_it_says_what_else_there_is() {
    let outcome = run(&["top", "--pid", "1"]);
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.stderr.contains("terminal") && outcome.stderr.contains("--every 1s"), "{}", outcome.stderr);
}
