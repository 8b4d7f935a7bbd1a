//! CPython's global interpreter lock: who holds it, for how long, who waits for it. With and without symbols of its functions, which
//! distributions strip.

use crate::harness::exact::assert_complete;
use crate::harness::may_observe;
use crate::harness::observer::{Observer, lockbpf};
use crate::harness::process::Running;
use crate::harness::report::{Lock, Party, Report};
use crate::harness::workload::{Truth, Workload};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The distribution's interpreter, and another one if that is what is called python3.
fn interpreters() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let others = std::env::split_paths(&path).map(|dir| dir.join("python3"));
    let mut found: Vec<_> = [PathBuf::from("/usr/bin/python3")]
        .into_iter()
        .chain(others)
        .filter_map(|python| {
            // What is found may be a script that only finds another.
            let output = Command::new(python).args(["-c", "import sys; print(sys.executable)"]).output().ok()?;
            Path::new(String::from_utf8(output.stdout).ok()?.trim()).canonicalize().ok()
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

fn observe(python: &Path, arguments: &[&str], options: &[&str]) -> (Truth, Report) {
    observe_script("gil.py", python, arguments, options)
}

fn observe_script(script: &str, python: &Path, arguments: &[&str], options: &[&str]) -> (Truth, Report) {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/workloads");
    let mut workload = Workload::launch(Command::new(python).arg(scripts.join(script)).args(arguments));
    let observer = Observer::of(workload.pid(), options);
    workload.go();
    let truth = workload.finish();
    let report = observer.report();
    assert_complete(&report);
    (truth, report)
}

/// What the program does with the lock on its own account, at its beginning and end.
const OWN: u64 = 20;

fn gil(report: &Report) -> &Lock {
    let gil = report.named("Python GIL");
    assert_eq!((gil.kind.as_str(), gil.release_unseen), ("gil", 0), "{gil:?}");
    gil
}

fn check(python: &Path) {
    // One thread: each call gives the lock back and takes it again.
    let (truth, report) = observe(python, &["0", "3000"], &[]);
    let lock = gil(&report);
    let calls = truth.fact("calls");
    assert!((calls..calls + OWN).contains(&lock.acquisitions), "{calls} calls: {lock:?}");
    assert!(lock.contended <= 4, "nobody wants it but a thread that begins and ends: {lock:?}");
    check_waits(python, &[]);
}

fn check_waits(python: &Path, options: &[&str]) {
    let (truth, report) = observe(python, &["20", "0"], options);
    let lock = gil(&report);
    let waits = truth.fact("waits");
    assert!((waits..2 * waits + OWN).contains(&lock.contended), "{lock:?}");
    let (held, waited) = (truth.fact("held_ns") as f64, truth.fact("waited_ns") as f64);
    assert!(lock.hold_ns.sum >= held && lock.hold_ns.max >= held / waits as f64, "held for {held} ns: {lock:?}");
    assert!(lock.contended_wait_ns.sum >= 0.8 * waited, "waited for {waited} ns: {lock:?}");
    // That is the holder's doing, who slept meanwhile.
    let blamed: f64 = lock.holders.iter().map(|holder| holder.wait_ns).sum();
    let unattributed = lock.unattributed_ns;
    assert!(
        blamed >= 0.8 * waited && unattributed <= 0.1 * waited,
        "{blamed} and {unattributed} of {waited}: {lock:?}"
    );
    let culprit = report.culprits.first().expect("somebody is to blame");
    assert_eq!(culprit.name, "Python GIL", "{culprit:?}");
    let main = report.thread(truth.pid);
    assert!(main.held_union_ns as f64 >= held, "the main thread held it: {main:?}");
}

#[test]
fn python_gil() {
    let Some(_turn) = may_observe() else { return };
    let interpreters = interpreters();
    assert!(!interpreters.is_empty(), "no python3");
    for python in interpreters {
        println!("{}", python.display());
        check(&python);
    }
}

#[test]
fn python_gil_by_plain_uprobes() {
    let Some(_turn) = may_observe() else { return };
    check_waits(&interpreters()[0], &["--plain-uprobes"]);
}

/// An interpreter that begins after the observation does.
#[test]
fn python_gil_of_a_command() {
    let Some(_turn) = may_observe() else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/workloads/gil.py");
    let python = interpreters().remove(0);
    let program = [python.to_str().unwrap(), script.to_str().unwrap(), "20", "0"];
    let mut running = Running::start(lockbpf().args(["--format", "json", "--"]).args(program));
    assert!(running.out.find(|line| line == "ready").is_some(), "{}", running.err.rest());
    // Where the lock is, is found out once the interpreter has begun.
    std::thread::sleep(std::time::Duration::from_secs(1));
    running.tell("g");
    let truth = running.out.find(|line| Truth::parse(line).is_some()).and_then(|line| Truth::parse(&line));
    let truth = truth.expect("the program tells its truth");
    running.close_stdin();
    let printed = running.out.rest();
    assert!(running.wait().success());
    let begin = printed.find("\n{\n").expect("a report in JSON") + 1;
    let report = Report::parse(&printed[begin..]);
    let lock = gil(&report);
    // Under the budget, holds may be estimates.
    assert!(
        lock.contended >= truth.fact("waits") && lock.hold_ns.sum >= 0.9 * truth.fact("held_ns") as f64,
        "{lock:?}"
    );
}

/// The minor version of a Python 3.
fn minor(python: &Path) -> u32 {
    let output = Command::new(python).args(["-c", "import sys; print(sys.version_info.minor)"]).output();
    String::from_utf8(output.expect("it runs").stdout).ok().and_then(|told| told.trim().parse().ok()).expect("a number")
}

fn known_interpreters() -> Vec<PathBuf> {
    let known: Vec<_> = interpreters().into_iter().filter(|python| (11..=13).contains(&minor(python))).collect();
    assert!(!known.is_empty(), "no Python of 3.11 to 3.13");
    known
}

fn is_in(party: &Party, function: &str, file: &str) -> bool {
    party.function.as_deref() == Some(function) && party.file.as_deref().is_some_and(|path| path.ends_with(file))
}

/// The places of a lock of Python's are Python functions and lines, also where it is asked for in the module `threading`.
#[test]
fn python_functions_are_the_places() {
    let Some(_turn) = may_observe() else { return };
    const FILE: &str = "python_functions.py";
    for python in known_interpreters() {
        println!("{}", python.display());
        let (_, report) = observe_script(FILE, &python, &["20"], &[]);
        let lock_of = |waiter: &str| {
            let lock = report.locks.iter().find(|l| l.waiters.first().is_some_and(|w| is_in(w, waiter, FILE)));
            lock.unwrap_or_else(|| panic!("nobody waits in {waiter}: {:?}", report.locks))
        };
        let table = lock_of("look_up");
        let holder = table.holders.first().expect("somebody held it");
        assert!(is_in(holder, "refresh", FILE) && holder.share > 0.8, "{:?}", table.holders);
        let script = std::fs::read_to_string(
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/workloads/python_functions.py"),
        );
        let script = script.expect("the workload is there");
        let line = script.lines().zip(1u32..).find(|(row, _)| row.trim() == "change.acquire()").map(|(_, line)| line);
        assert_eq!(lock_of("ask").waiters.first().and_then(|waiter| waiter.line), line);
    }
}

/// Without probes, too, waits for the interpreter lock are whole, and the places are Python functions.
#[test]
fn python_gil_by_futex_calls() {
    let Some(_turn) = may_observe() else { return };
    for python in known_interpreters() {
        println!("{}", python.display());
        let (truth, report) = observe(&python, &["20", "0"], &["--futex-only"]);
        let lock = report.named("Python GIL");
        let waited = truth.fact("waited_ns") as f64;
        assert!(lock.contended_wait_ns.sum >= 0.8 * waited, "waited for {waited} ns: {lock:?}");
        assert!(lock.contended_wait_ns.max >= 10e6, "each for 15 ms: {lock:?}");
        let (waiter, holder) = (lock.waiters.first(), lock.holders.first());
        assert!(waiter.is_some_and(|waiter| is_in(waiter, "wait", "gil.py")), "{:?}", lock.waiters);
        assert!(
            holder.is_some_and(|holder| is_in(holder, "<module>", "gil.py") && holder.share > 0.8),
            "{:?}",
            lock.holders
        );
    }
}
