//! The flight recorder: what it has kept is what the program did in that time by its own clock, however it is asked for, and whatever happens
//! to lockbpf.

use crate::harness::observer::{Observer, Outcome, not_starved, run};
use crate::harness::process::eventually;
use crate::harness::report::Report;
use crate::harness::workload::Workload;
use crate::harness::{may_observe, may_observe_alone};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A wait by the workload's own clock, ns: it began in the first span and ended in the second.
#[derive(Clone, Copy, Debug)]
struct Logged {
    began: (u64, u64),
    ended: (u64, u64),
}

/// A wait as recorded.
#[derive(Clone, Copy, Debug)]
struct Recorded {
    attempt: u64,
    acquire: u64,
}

/// Ends a workload that logs its waits.
fn logged(workload: &mut Workload) -> Vec<Logged> {
    workload.running.tell("x");
    let mut all = Vec::new();
    let is_last = |line: &str| !line.starts_with("wait ");
    while let Some(line) = workload.running.out.next() {
        if is_last(&line) {
            break;
        }
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [called, all_wait, releasing, returned] = numbers[..] else { panic!("{line}") };
        all.push(Logged { began: (called, all_wait), ended: (releasing, returned) });
    }
    workload.end();
    all
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path is text")
}

fn report(path: &Path) -> Report {
    run(&["report", "--from", text(path), "--format", "json"]).report()
}

/// The contended sections of the workload's lock in a recording.
fn recorded(path: &Path, dir: &Path) -> Vec<Recorded> {
    let lines = dir.join("lines.jsonl");
    let done = run(&["export", "--from", text(path), "--to", text(&lines)]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let steps: Vec<Value> = std::fs::read_to_string(&lines)
        .expect("lines")
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line is JSON"))
        .collect();
    let lock = steps.iter().find(|step| step["name"] == "logged_lock").expect("the lock is named")["lock"].clone();
    let of_lock = |step: &&Value| step["lock"] == lock;
    let mut all = Vec::new();
    for (at, step) in steps.iter().enumerate().filter(|(_, step)| of_lock(step) && step["contended"] == true) {
        let later = steps.get(at..).into_iter().flatten();
        let got = later.filter(of_lock).find(|other| other["op"] == "acquire" && other["tid"] == step["tid"]);
        let time = |step: &Value| step["t"].as_u64().expect("a time");
        if let Some(got) = got {
            all.push(Recorded { attempt: time(step), acquire: time(got) });
        }
    }
    all
}

/// A recording tells all waits of a stretch, as long as they were, and its report their sum. Returns how many there were before.
fn assert_agrees(path: &Path, dir: &Path, logged: &[Logged]) -> usize {
    let recorded = recorded(path, dir);
    let report = report(path);
    assert!(recorded.len() > 8, "{} waits are recorded", recorded.len());
    let of = |wait: &Recorded| {
        let found = logged.iter().position(|l| l.ended.0 <= wait.acquire && wait.acquire <= l.ended.1);
        found.unwrap_or_else(|| panic!("{wait:?} is none of the workload's: {logged:?}"))
    };
    let numbers: Vec<usize> = recorded.iter().map(of).collect();
    let first = numbers[0];
    // One after the other: nothing in between is missing.
    assert_eq!(numbers, (first..first + recorded.len()).collect::<Vec<_>>());
    // The first may have begun before the stretch.
    for (wait, number) in recorded.iter().zip(&numbers).skip(1) {
        let Logged { began, .. } = logged[*number];
        assert!(began.0 <= wait.attempt && wait.attempt <= began.1, "{wait:?} is not {:?}", logged[*number]);
    }
    let lock = report.named("logged_lock");
    // Sums and events are read one after the other at either end, between which a busy machine may let time pass.
    let off = 2 + recorded.len() / 8;
    let apart = lock.contended.abs_diff(recorded.len() as u64);
    assert!(apart <= off as u64, "{} summed, {} recorded", lock.contended, recorded.len());
    let at_most = |from: usize, to: usize| -> u64 {
        logged[from.min(logged.len())..to.min(logged.len())].iter().map(|l| l.ended.1 - l.began.0).sum()
    };
    let at_least = |from: usize, to: usize| -> u64 { logged[from..to].iter().map(|l| l.ended.0 - l.began.1).sum() };
    let last = first + recorded.len();
    // The first may be told in part.
    let (low, high) = (at_least(first + 1 + off, last - off), at_most(first.saturating_sub(off), last + off));
    let waited = lock.contended_wait_ns.sum;
    assert!(low as f64 <= waited && waited <= high as f64, "{waited} is not in {low}..={high}");
    // By its bucket at most, where it is not known.
    let longest = logged.iter().map(|l| l.ended.1 - l.began.0).max().unwrap_or(0);
    assert!(lock.contended_wait_ns.max <= 2.0 * longest as f64);
    first
}

/// The path that lockbpf names when a recording is complete.
fn dumped(observer: &mut Observer) -> PathBuf {
    let line = observer.running.err.find(|line| line.contains("lockbpf report --from "));
    let line = line.expect("lockbpf ended without a recording");
    PathBuf::from(line.rsplit(' ').next().expect("a path"))
}

fn note(report: &Report, part: &str) -> bool {
    report.quality.notes.iter().any(|note| note.contains(part))
}

/// Lets the program work until the flight recorder has dropped what it did first.
fn work_for_longer_than(keep: Duration) {
    let until = Instant::now() + keep * 2;
    eventually("time has passed", || Instant::now() >= until);
}

const KEEP: Duration = Duration::from_secs(2);

#[test]
fn what_is_kept_is_the_end_by_the_programs_own_clock() {
    let Some(_turn) = may_observe() else { return };
    let once = || {
        let dir = tempfile::tempdir().expect("a directory");
        let mut workload = Workload::start("logged 10000");
        let to = dir.path().join("kept-{time}.bin");
        let options = ["--keep", "2s", "--dump-to", text(&to)];
        let mut observer = Observer::of(workload.pid(), &options);
        workload.go();
        work_for_longer_than(KEEP);
        observer.running.signal(Signal::SIGUSR1);
        let by_signal = dumped(&mut observer);
        let asked = dir.path().join("asked.bin");
        let pid = observer.running.pid().to_string();
        let outcome = run(&["dump", "--of", &pid, "--to", text(&asked)]);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        (dir, by_signal, asked, logged(&mut workload), observer.report())
    };
    let (dir, by_signal, asked, logged, whole) = not_starved(once, |(.., whole)| whole);
    let notes = ["SIGUSR1 asked for it", "`lockbpf dump` asked for it"];
    for (path, asked) in [&by_signal, &asked].into_iter().zip(notes) {
        assert_eq!(std::fs::metadata(path).expect("it is there").mode() & 0o777, 0o600);
        let before = assert_agrees(path, dir.path(), &logged);
        let report = report(path);
        assert!(before > 0, "nothing was dropped");
        assert!(note(&report, "A flight recorder's last ") && note(&report, " events, were dropped."));
        assert!(note(&report, asked), "{:?}", report.quality.notes);
        // At least what was asked for, and a sixteenth more.
        let lasted = Duration::from_nanos(report.quality.duration_ns);
        assert!(lasted >= KEEP && report.quality.duration_ns < whole.quality.duration_ns, "{lasted:?}");
        assert!(!report.quality.incomplete, "{:?}", report.quality);
        assert_eq!(report.culprits[0].function.as_deref(), Some("logged_holder"));
    }
    // The observation itself is told as it always is.
    assert_eq!(whole.named("logged_lock").contended, logged.len() as u64);
    assert!(!note(&whole, "flight recorder"));
}

#[test]
fn what_is_on_disk_outlives_a_kill() {
    let Some(_turn) = may_observe() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let ring = dir.path().join("ring");
    let mut workload = Workload::start("logged 10000");
    let mut observer = Observer::of(workload.pid(), &["--keep", "2s", "--keep-dir", text(&ring)]);
    workload.go();
    work_for_longer_than(KEEP);
    // While it runs, too.
    let running = report(&ring);
    assert!(running.named("logged_lock").contended > 2);
    observer.running.signal(Signal::SIGKILL);
    observer.running.wait();
    let logged = logged(&mut workload);
    let before = assert_agrees(&ring, dir.path(), &logged);
    assert!(before > 0, "nothing was dropped");
    let killed = report(&ring);
    assert!(killed.quality.incomplete && note(&killed, "breaks off"), "{:?}", killed.quality.notes);
    let file = dir.path().join("killed.bin");
    let outcome = run(&["dump", "--from", text(&ring), "--to", text(&file)]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_eq!(report(&file).named("logged_lock").contended, killed.named("logged_lock").contended);
    for entry in std::fs::read_dir(&ring).expect("a directory") {
        let about = entry.expect("an entry").metadata().expect("it is there");
        assert_eq!(about.mode() & 0o777, 0o600);
    }
    assert_eq!(std::fs::metadata(&ring).expect("it is there").mode() & 0o777, 0o700);
    // What it has left is not lost to the next one.
    let mut workload = Workload::start("logged 10000");
    let observer = Observer::of(workload.pid(), &["--keep", "2s", "--keep-dir", text(&ring)]);
    workload.go();
    crate::flight::logged(&mut workload);
    observer.report();
    assert_eq!(report(&ring.join("before")).named("logged_lock").contended, killed.named("logged_lock").contended);
}

#[test]
fn an_alert_causes_a_recording_of_what_led_to_it() {
    let Some(_turn) = may_observe() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let mut workload = Workload::start("lasting 2");
    let options = ["--wait-over", "150ms", "--keep", "1m", "--dump-on", "wait", "--dump-to", text(dir.path())];
    let mut observer = Observer::of(workload.pid(), &options);
    workload.go();
    let path = dumped(&mut observer);
    workload.running.tell("x");
    workload.finish();
    let outcome = observer.outcome();
    outcome.report();
    assert!(path.starts_with(dir.path()) && text(&path).ends_with("-wait.bin"), "{path:?}");
    let report = report(&path);
    assert!(note(&report, "made after this alert: wait over 150 ms in "), "{:?}", report.quality.notes);
    // They still waited.
    let waiting = &report.named("outer_lock").waiting_now;
    assert_eq!((waiting.count, waiting.places[0].function.as_deref()), (2, Some("lasting_waiter")));
    assert!(waiting.longest_ns >= 2_000_000_000, "{waiting:?}");
    // The same waits were told again meanwhile, which causes no second one within a minute.
    let files = std::fs::read_dir(dir.path()).expect("a directory").count();
    assert_eq!(files, 1, "{}", outcome.stderr);
}

#[test]
fn a_full_ring_keeps_less_and_says_so() {
    // Events of one look come on top of the one MiB before they are counted.
    const MOST: u64 = 2 << 20;
    let Some(_turn) = may_observe_alone() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let ring = dir.path().join("ring");
    let mut workload = Workload::start("counter 2 1 1000000000");
    let options =
        ["--keep", "1h", "--keep-size", "1M", "--keep-dir", text(&ring), "--all-events", "--dump-to", text(dir.path())];
    let mut observer = Observer::of(workload.pid(), &options);
    workload.go();
    let told = observer.running.err.find(|line| line.contains("of the 3600 s wanted: 1 MiB are full"));
    assert!(told.is_some(), "it is not told");
    for _ in 0..20 {
        let sizes = std::fs::read_dir(&ring).expect("a directory").filter_map(|entry| entry.ok()?.metadata().ok());
        let size: u64 = sizes.map(|about| about.len()).sum();
        assert!(size <= MOST, "{size} bytes");
        std::thread::sleep(Duration::from_millis(50));
    }
    observer.running.signal(Signal::SIGUSR1);
    let path = dumped(&mut observer);
    drop(workload);
    let outcome = observer.outcome();
    let report = report(&path);
    assert!(note(&report, "less than the 3600 s wanted, since 1 MiB are full"), "{:?}", report.quality.notes);
    let size = std::fs::metadata(&path).expect("it is there").len();
    assert!(size <= MOST, "{size} bytes");
    outcome.report();
}

#[test]
fn what_cannot_be_is_said() {
    let Some(_turn) = may_observe() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let to = dir.path().join("x.bin");
    let refused = |outcome: Outcome, parts: &[&str]| outcome.assert_error(parts);
    refused(run(&["--pid", "1", "--keep", "1m", "--dump-on", "wait"]), &["--dump-on", "--wait-over"]);
    refused(run(&["--pid", "1", "--keep", "1m", "--dump-to", text(&to)]), &["--dump-to", "{time}"]);
    refused(run(&["--pid", "1", "--keep-size", "1M"]), &["--keep"]);
    refused(run(&["--pid", "1", "--keep", "1m", "--keep-size", "1K"]), &["less than 1M"]);
    refused(run(&["dump", "--of", "1", "--to", text(&to)]), &["process 1", "--keep"]);
    refused(run(&["dump", "--from", text(dir.path()), "--to", text(&to)]), &["--keep-dir"]);
    assert!(!to.exists());
    // A signal that nobody can serve ends nothing.
    let mut workload = Workload::start("hold 2 1 1000");
    let mut observer = Observer::of(workload.pid(), &[]);
    observer.running.signal(Signal::SIGUSR1);
    assert!(observer.running.err.find(|line| line.contains("there is none without --keep")).is_some());
    workload.go();
    workload.finish();
    observer.report();
}
