//! CPython's global interpreter lock: who holds it, for how long, who waits for it. With and without symbols of its functions, which
//! distributions strip.

use crate::harness::exact::assert_complete;
use crate::harness::may_observe;
use crate::harness::observer::{Observer, lockbpf};
use crate::harness::privilege::skipped;
use crate::harness::process::Running;
use crate::harness::report::{Lock, Party, Report};
use crate::harness::workload::{Truth, Workload};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An interpreter.
struct Python {
    program: PathBuf,
    /// Where it is unpacked with all that it needs, if it is not installed.
    tree: Option<PathBuf>,
}

impl Python {
    /// The command that runs a script.
    fn command(&self) -> Command {
        let Some(tree) = &self.tree else { return Command::new(&self.program) };
        let libraries = tree.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH));
        let files = fs::read_dir(&libraries).expect("libraries of the tree's own").flatten();
        let loader = files.map(|file| file.path()).find(|path| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("ld-linux-"))
        });
        let mut command = Command::new(loader.expect("a loader"));
        command.arg("--library-path").arg(&libraries).arg(&self.program).env("PYTHONHOME", tree.join("usr"));
        command
    }

    /// The minor version of a Python 3.
    fn minor(&self) -> u32 {
        let output = self.command().args(["-c", "import sys; print(sys.version_info.minor)"]).output();
        let told = String::from_utf8(output.expect("it runs").stdout).ok();
        told.and_then(|told| told.trim().parse().ok()).expect("a number")
    }
}

/// Those that are installed, and a later one.
fn interpreters() -> Vec<Python> {
    let installed = installed().into_iter().map(|program| Python { program, tree: None });
    installed.chain(later()).collect()
}

/// The one of a later release of Debian that `cargo xtask test` has unpacked.
fn later() -> Option<Python> {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/trees/python3.13");
    let program = tree.join("usr/bin/python3.13");
    if !program.is_file() {
        skipped(&format!("no {}, which `cargo xtask test` unpacks", program.display()));
        return None;
    }
    Some(Python { program, tree: Some(tree) })
}

/// The distribution's interpreter, and another one if that is what is called python3.
fn installed() -> Vec<PathBuf> {
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

fn observe(python: &Python, arguments: &[&str], options: &[&str]) -> (Truth, Report) {
    observe_script("gil.py", python, arguments, options)
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/workloads").join(name)
}

fn observe_script(name: &str, python: &Python, arguments: &[&str], options: &[&str]) -> (Truth, Report) {
    let mut workload = Workload::launch(python.command().arg(script(name)).args(arguments));
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

fn check(python: &Python) {
    // One thread: each call gives the lock back and takes it again.
    let (truth, report) = observe(python, &["0", "3000"], &[]);
    let lock = gil(&report);
    let calls = truth.fact("calls");
    assert!((calls..calls + OWN).contains(&lock.acquisitions), "{calls} calls: {lock:?}");
    assert!(lock.contended <= 4, "nobody wants it but a thread that begins and ends: {lock:?}");
    check_waits(python, &[]);
}

fn check_waits(python: &Python, options: &[&str]) {
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
        println!("{}", python.program.display());
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
    let script = script("gil.py");
    let python = installed().remove(0);
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

fn known_interpreters() -> Vec<Python> {
    let known: Vec<_> = interpreters().into_iter().filter(|python| (11..=14).contains(&python.minor())).collect();
    assert!(!known.is_empty(), "no Python of 3.11 to 3.14");
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
        println!("{}", python.program.display());
        let (_, report) = observe_script(FILE, &python, &["20"], &[]);
        let lock_of = |waiter: &str| {
            let lock = report.locks.iter().find(|l| l.waiters.first().is_some_and(|w| is_in(w, waiter, FILE)));
            lock.unwrap_or_else(|| panic!("nobody waits in {waiter}: {:?}", report.locks))
        };
        let table = lock_of("look_up");
        let holder = table.holders.first().expect("somebody held it");
        assert!(is_in(holder, "refresh", FILE) && holder.share > 0.8, "{:?}", table.holders);
        let text = fs::read_to_string(script(FILE)).expect("the workload is there");
        let line = text.lines().zip(1u32..).find(|(row, _)| row.trim() == "change.acquire()").map(|(_, line)| line);
        assert_eq!(lock_of("ask").waiters.first().and_then(|waiter| waiter.line), line);
    }
}

/// Without probes, too, waits for the interpreter lock are whole, and the places are Python functions.
#[test]
fn python_gil_by_futex_calls() {
    let Some(_turn) = may_observe() else { return };
    for python in known_interpreters() {
        println!("{}", python.program.display());
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

/// Who waits for a queue is idle, who waits for a lock is not, whatever the interpreter makes its locks of.
#[test]
fn python_locks_and_queues() {
    let Some(_turn) = may_observe() else { return };
    const FILE: &str = "python_queue.py";
    for python in known_interpreters() {
        for options in [&[][..], &["--futex-only"], &["--budget", "3%"]] {
            println!("{} {options:?}", python.program.display());
            let (truth, report) = observe_script(FILE, &python, &["100"], options);
            let handled = |lock: &&Lock| lock.waiters.first().is_some_and(|waiter| is_in(waiter, "handle", FILE));
            // The interpreter's own are waited for by whoever runs.
            let own: Vec<_> = report.locks.iter().filter(|lock| !lock.name.starts_with("Python GIL")).collect();
            let of_table: Vec<_> = own.iter().copied().filter(handled).collect();
            let [table] = of_table.as_slice() else { panic!("{:?}", report.locks) };
            let kind = if python.minor() < 13 { "semaphore" } else { "Python lock" };
            assert_eq!(table.kind, kind, "{table:?}");
            let holder = table.holders.first().expect("somebody held it");
            assert!(is_in(holder, "handle", FILE) && holder.share > 0.8, "{:?}", table.holders);
            let (told, measured) = (table.harm_ns, truth.fact("lock_wait_ns") as f64);
            assert!((0.8 * measured..=1.05 * measured).contains(&told), "{told} of {measured}: {table:?}");
            // All threads wait for most of the time, which is some seconds; for locks hardly anybody else does.
            let others: f64 = own.iter().map(|lock| lock.harm_ns).sum::<f64>() - told;
            assert!(others < 0.1 * measured, "{others}: {own:?}");
            assert_eq!(report.culprits.first().map(|culprit| culprit.name.as_str()), Some(table.name.as_str()));
        }
    }
}

/// Threads that wait for locks of Python's own since before the observation, and for ever; another one is idle.
#[test]
fn python_threads_that_are_stuck() {
    let Some(_turn) = may_observe() else { return };
    let Some(python) = later() else { return };
    let workload = Workload::launch(python.command().arg(script("python_stuck.py")));
    let report = Observer::of(workload.pid(), &["--duration", "1s"]).report();
    let mut waiting: Vec<_> = report.locks.iter().filter(|lock| lock.waiting_now.count > 0).collect();
    waiting.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(waiting.iter().all(|lock| lock.kind == "Python lock" && lock.waiting_now.count == 1), "{waiting:?}");
    let names: Vec<_> = waiting.iter().map(|lock| lock.name.split(' ').nth(2)).collect();
    assert_eq!(names, [Some("take_left"), Some("take_right")], "{waiting:?}");
    let idle: Vec<_> = report.futexes.iter().filter(|word| word["waiting_now"].as_u64() > Some(0)).collect();
    assert!(idle.iter().any(|word| word["purpose"] == "condition variable"), "{idle:?}");
}
