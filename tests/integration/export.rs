//! Recording and converting: what is in a file is what was observed, also if the recorder is killed.

use crate::harness::may_observe;
use crate::harness::observer::{Observer, lockbpf, run};
use crate::harness::workload::{LockTruth, Truth, Workload};
use lockbpf::event::{Event, Via};
use lockbpf::names::Names;
use lockbpf::trace::{Closing, Ended, Reader};
use nix::sys::signal::Signal;
use std::fs::{self, File};
use std::path::Path;

/// A directory for one test.
fn dir() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// Everything in a trace.
fn read(path: &Path) -> (Vec<Event>, Closing) {
    let file = File::open(path).expect("the trace is there");
    let mut reader = Reader::new(file).expect("it is a trace");
    let events = reader.by_ref().collect::<Result<_, _>>().expect("it is readable");
    (events, reader.into_closing().expect("it is readable"))
}

/// Acquisitions of a lock in the sums of a trace.
fn acquisitions(closing: &mut Closing, symbol: &str) -> u64 {
    let Closing { harvest, names, .. } = closing;
    // What the kernel saw of the same word are waits, not acquisitions.
    let of_lock = harvest.sums.iter().filter(|k| k.via != Via::Futex);
    of_lock.filter(|k| names.global(k.lock).as_deref() == Some(symbol)).map(|k| k.sums.acquisitions).sum()
}

/// Records a workload with further options.
fn record(line: &str, to: &Path, options: &[&str]) -> (Truth, crate::harness::observer::Outcome) {
    let mut workload = Workload::start(line);
    let pid = workload.pid().to_string();
    let to = to.to_str().expect("a path of ours");
    let observer = Observer::start(&[&["export", "--pid", &pid, "--to", to], options].concat());
    workload.go();
    let truth = workload.finish();
    (truth, observer.outcome())
}

#[test]
fn a_trace_holds_exact_sums_every_event_and_names() {
    let Some(_turn) = may_observe() else { return };
    let dir = dir();
    for (name, options) in [("plain.bin", &["--all-events"][..]), ("short.trace", &["--all-events", "--zstd"])] {
        let path = dir.path().join(name);
        let (truth, outcome) = record("counter 4 2 1000", &path, options);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), ""), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("bytes an event"), "{}", outcome.stderr);
        let (events, mut closing) = read(&path);
        assert_eq!(closing.ended, Ended::Clean);
        assert!(!closing.harvest.quality.incomplete(), "{:?}", closing.harvest.quality);
        for lock in &truth.locks {
            let symbol = lock.symbol.as_deref().expect("the workload's locks are global");
            assert_eq!(acquisitions(&mut closing, symbol), lock.acquisitions, "{symbol}");
            let addr = u64::from_str_radix(lock.addr.trim_start_matches("0x"), 16).expect("an address");
            let sections = events.iter().filter(|e| matches!(e, Event::Section(s) if s.lock.addr == addr)).count();
            assert_eq!(sections as u64, lock.acquisitions, "{symbol}");
        }
        let site = events.iter().find_map(|e| if let Event::Section(s) = e { Some(s.site) } else { None });
        let site = site.expect("there are sections");
        assert!(closing.names.function(site).is_some());
        assert!(closing.modules.iter().flat_map(|m| &m.modules).any(|m| m.build_id.is_some()));
        let capture = closing.header.capture.expect("it was captured");
        assert!(capture.all_events && capture.probes.iter().any(|p| p.function == "pthread_mutex_lock"));
        assert!(closing.header.kernel.starts_with(|c: char| c.is_ascii_digit()), "{}", closing.header.kernel);
        assert!(closing.header.wall_ns.is_some() && closing.header.clock == "CLOCK_MONOTONIC");
    }
}

#[test]
fn a_killed_recorder_loses_a_second_at_most() {
    let Some(_turn) = may_observe() else { return };
    let dir = dir();
    let path = dir.path().join("killed.bin");
    // Stays alive after its work: everything has happened more than a second before the recorder is killed.
    let mut workload = Workload::start_lingering("counter 4 2 2000");
    let pid = workload.pid().to_string();
    let to = path.to_str().expect("a path of ours");
    let observer = Observer::start(&["export", "--pid", &pid, "--to", to, "--all-events"]);
    workload.go();
    let truth = workload.truth();
    let made: u64 = truth.locks.iter().map(|lock| lock.acquisitions).sum();
    let all_there = || {
        let Ok(file) = File::open(&path) else { return false };
        let closing = Reader::new(file).and_then(Reader::into_closing);
        closing.is_ok_and(|mut closing| {
            let told = |lock: &LockTruth| lock.symbol.as_deref().map(|symbol| acquisitions(&mut closing, symbol));
            let told: u64 = truth.locks.iter().filter_map(told).sum();
            told == made && closing.events >= made
        })
    };
    crate::harness::process::eventually("sums, names and events in the file of a recorder that goes on", all_there);
    observer.running.signal(Signal::SIGKILL);
    assert_eq!(observer.outcome().code, None);
    let (events, mut closing) = read(&path);
    assert!(matches!(closing.ended, Ended::Torn { .. }));
    assert!(closing.harvest.quality.incomplete() && !closing.harvest.quality.notes.is_empty());
    for lock in &truth.locks {
        assert_eq!(acquisitions(&mut closing, lock.symbol.as_deref().unwrap_or_default()), lock.acquisitions);
    }
    assert!(events.len() as u64 >= made);
    // What is left can be converted, and that it is not all is told.
    let lines = dir.path().join("killed.jsonl");
    let outcome = run(&["export", "--from", to, "--to", lines.to_str().expect("a path of ours"), "--strict"]);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("breaks off"), "{}", outcome.stderr);
    assert!(fs::read_to_string(&lines).expect("lines").lines().count() as u64 >= 3 * made);
}

#[test]
fn ctrl_c_ends_a_recording_cleanly() {
    let Some(_turn) = may_observe() else { return };
    let dir = dir();
    let path = dir.path().join("ended.bin");
    let workload = Workload::start("counter 1 1 10");
    let to = path.to_str().expect("a path of ours");
    let observer = Observer::start(&["export", "--pid", &workload.pid().to_string(), "--to", to]);
    observer.interrupt();
    let outcome = observer.outcome();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_eq!(read(&path).1.ended, Ended::Clean);
}

#[test]
fn event_lines_of_a_recording_survive_a_trace() {
    let Some(_turn) = may_observe() else { return };
    let dir = dir();
    let path = |name: &str| dir.path().join(name).to_str().expect("a path of ours").to_owned();
    record("culprit 5", Path::new(&path("a.bin")), &[]);
    for (from, to) in [("a.bin", "a.jsonl"), ("a.jsonl", "b.bin"), ("b.bin", "b.jsonl"), ("a.bin", "c.trace")] {
        let outcome = run(&["export", "--from", &path(from), "--to", &path(to), "--zstd"]);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), ""), "{from} to {to}: {}", outcome.stderr);
    }
    let [a, b] = ["a.jsonl", "b.jsonl"].map(|name| fs::read_to_string(path(name)).expect("lines"));
    assert!(a.lines().count() > 20, "{a}");
    assert_eq!(a, b);
    let (events, closing) = read(Path::new(&path("a.bin")));
    let (again, closed) = read(Path::new(&path("c.trace")));
    assert_eq!((events, closing.header, closing.modules), (again, closed.header, closed.modules));
    assert_eq!(closing.harvest.sums.len(), closed.harvest.sums.len());
}

#[test]
fn event_lines_become_a_trace_and_the_same_lines_again() {
    let dir = dir();
    let path = |name: &str| dir.path().join(name).to_str().expect("a path of ours").to_owned();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/event_lines");
    for name in ["figure-4a", "figure-4b-nested", "figure-2-barrier", "decimals", "failures", "large-thread-numbers"] {
        let from = corpus.join(name).with_extension("jsonl");
        // What lockbpf writes differs from what it reads in form: the first step brings it into that form.
        let steps = [(from.to_str().expect("a path of ours"), path("a.jsonl")), (&path("a.jsonl"), path("a.bin"))];
        for (from, to) in steps.into_iter().chain([(path("a.bin").as_str(), path("b.jsonl"))]) {
            let outcome = run(&["export", "--from", from, "--to", &to]);
            assert_eq!(outcome.code, Some(0), "{from} to {to}: {}", outcome.stderr);
        }
        let [a, b] = ["a.jsonl", "b.jsonl"].map(|name| fs::read_to_string(path(name)).expect("lines"));
        assert_eq!(a, b, "{name}");
        assert!(!a.is_empty());
    }
}

#[test]
fn what_cannot_be_read_or_written_is_named() {
    let dir = dir();
    let path = |name: &str| dir.path().join(name).to_str().expect("a path of ours").to_owned();
    let good = path("good.jsonl");
    fs::write(&good, "{\"t\":1,\"tid\":1,\"op\":\"exit\"}\n").expect("a file");
    let convert = |from: &str, to: &str| run(&["export", "--from", from, "--to", to]);
    convert(&good, &path("good")).assert_error(&["good", "--as"]);
    convert(&good, &good).assert_error(&["good.jsonl", "replaced"]);
    convert(&path("missing.bin"), &path("x.jsonl")).assert_error(&["missing.bin", "No such file"]);
    convert(&good, "/nonexistent/x.bin").assert_error(&["/nonexistent/x.bin", "No such file"]);
    fs::write(path("bad.jsonl"), "{\"t\":1,\"tid\":1,\"op\":\"exit\"}\nnonsense\n").expect("a file");
    convert(&path("bad.jsonl"), &path("x.bin")).assert_error(&["bad.jsonl", "line 2"]);
    fs::write(path("later.bin"), b"\x89LBT\r\n\x1a\n\x02\0\0\0\x01\x02\x03\x04").expect("a file");
    convert(&path("later.bin"), &path("x.jsonl")).assert_error(&["later.bin", "damaged"]);
    assert!(!Path::new(&path("x.bin")).exists() && !Path::new(&path("x.jsonl")).exists(), "a failure leaves no file");
    assert_eq!(fs::read_dir(dir.path()).expect("the directory").count(), 3, "no temporary file stays");
}

#[test]
fn standard_streams_serve_as_files() {
    let mut command = lockbpf();
    command.args(["export", "--from", "-", "--to", "-", "--as", "jsonl"]);
    let mut running = crate::harness::process::Running::start(&mut command);
    running.tell("{\"t\":1.5,\"tid\":\"a\",\"op\":\"exit\"}\n");
    running.close_stdin();
    assert_eq!(running.out.rest(), "{\"t\":1.5,\"tid\":\"a\",\"op\":\"exit\"}\n");
    assert!(running.wait().success());
}
