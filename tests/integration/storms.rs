//! Programs that are hard to observe because of how much there is of something: the observation ends with its report, in bounded memory, and
//! what it could not tell apart or keep is counted. `cargo xtask bench hostile` does the same with more of each.

use super::hostile::Trap;
use crate::harness::may_observe;
use crate::harness::observer::Observer;
use crate::harness::process::children;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Memory that lockbpf and the processes that read for it may take, bytes.
const MEMORY: u64 = 300 << 20;

/// A storm that has not begun.
struct Storm {
    program: Child,
    go: ChildStdin,
    told: BufReader<ChildStdout>,
    _trap: Trap,
}

impl Storm {
    fn prepare(kind: &str, number: u32) -> Self {
        let trap = Trap::of(include_str!("../../xtask/src/bench/hostile/storm.c"), &["-O1", "-g", "-ldl"]);
        let mut command = Command::new(&trap.program);
        command.args([kind, &number.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = command.spawn().expect("failed to start a program");
        let (go, told) = (program.stdin.take().expect("a pipe"), program.stdout.take().expect("a pipe"));
        let mut storm = Self { program, go, told: BufReader::new(told), _trap: trap };
        assert_eq!(storm.line(), "ready\n");
        storm
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.told.read_line(&mut line).expect("it tells");
        line
    }

    /// Observes it from before it begins until it has ended, which it has to do as it does by itself; its report.
    fn observed(mut self, options: &[&str]) -> Value {
        let pid = self.program.id().to_string();
        let observer = Observer::start(&[&["--pid", &pid, "--format", "json"], options].concat());
        self.go.write_all(b"\n").expect("it waits");
        let most = watched(observer.running.pid());
        let outcome = observer.outcome();
        assert!(self.program.wait().expect("it ends").success(), "it was harmed");
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        let most = most.join().expect("it was looked at");
        assert!(most > 1 << 20 && most <= MEMORY, "{} MiB", most >> 20);
        serde_json::from_str(&outcome.stdout).expect("the report is JSON")
    }
}

/// The most memory that lockbpf and those that read for it have, looked at until it ends, bytes.
fn watched(lockbpf: u32) -> JoinHandle<u64> {
    let resident = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).map_or(0, |kib| kib << 10)
    };
    thread::spawn(move || {
        let mut most = 0;
        loop {
            let own = resident(lockbpf);
            if own == 0 {
                return most;
            }
            let readers = children(lockbpf, "reader").into_iter().map(|pid| resident(pid.unsigned_abs()));
            most = most.max(own + readers.sum::<u64>());
            thread::sleep(Duration::from_millis(20));
        }
    })
}

impl Drop for Storm {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
        // The program removes its perf map at its end, which it may not have come to.
        let _ = fs::remove_file(format!("/tmp/perf-{}.map", self.program.id()));
    }
}

/// Operations of a report, of locks that have a row and of those that had no room for one.
fn acquisitions(report: &Value) -> u64 {
    let locks = report["locks"].as_array().into_iter().flatten();
    locks.filter_map(|lock| lock["acquisitions"].as_u64()).sum()
}

#[test]
fn a_crowd_of_threads() {
    let Some(_turn) = may_observe() else { return };
    let report = Storm::prepare("crowd", 5_000).observed(&[]);
    // All of them, and the one that has begun them.
    assert_eq!(report["threads"].as_array().map(Vec::len), Some(5_001), "{}", report["quality"]);
}

#[test]
fn threads_that_come_and_go() {
    let Some(_turn) = may_observe() else { return };
    Storm::prepare("threads", 10_000).observed(&["--budget", "3%"]);
}

#[test]
fn processes_that_come_and_go() {
    let Some(_turn) = may_observe() else { return };
    Storm::prepare("processes", 1_000).observed(&["--follow-forks", "--budget", "3%"]);
}

#[test]
fn millions_of_futex_words() {
    let Some(_turn) = may_observe() else { return };
    Storm::prepare("words", 2_000_000).observed(&["--futex-only"]);
}

#[test]
fn a_million_locks() {
    let Some(_turn) = may_observe() else { return };
    let report = Storm::prepare("locks", 1_000_000).observed(&[]);
    // The loader's and the allocator's are there, too.
    let told = acquisitions(&report);
    assert!((1_000_000..1_001_000).contains(&told), "{told} acquisitions");
}

#[test]
fn a_program_that_replaces_its_code_and_its_namespaces() {
    let Some(_turn) = may_observe() else { return };
    Storm::prepare("restless", 300).observed(&["--budget", "3%"]);
}

/// A perf map grows to 139 MiB, more than lockbpf reads in that time. Functions that it listed first have names.
#[test]
fn a_perf_map_that_grows() {
    let Some(_turn) = may_observe() else { return };
    let report = Storm::prepare("map", 139).observed(&[]);
    let text = report.to_string();
    assert!(text.contains("made_function"), "{}", report["locks"]);
}
