//! Go programs: contended acquisitions as the program counts them, stripped or not, and a web server that must not notice.

use crate::harness::go::compile_go;
use crate::harness::may_observe;
use crate::harness::observer::Observer;
use crate::harness::process::{PATIENCE, Running, eventually};
use crate::harness::report::Report;
use crate::harness::text::{has_program, modified_bytes};
use crate::harness::workload::{Truth, Workload};
use nix::sys::signal::Signal;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn observe(program: &Path, options: &[&str]) -> (Truth, Report) {
    let mut workload = Workload::launch(Command::new(program).arg("20"));
    let observer = Observer::of(workload.pid(), options);
    workload.go();
    let truth = workload.finish();
    (truth, observer.report())
}

/// Acquisitions at sites of this function, whose lines must be known, by their lock's kind. All that are seen are contended.
fn contended(report: &Report, kind: &str, function: &str) -> u64 {
    let of_kind = |lock: &serde_json::Value| report.locks.iter().any(|l| lock == &l.lock && l.kind == kind);
    let sites = report.sites.iter().filter(|site| of_kind(&site["lock"]));
    sites
        .filter(|site| {
            site["symbol"].as_str().is_some_and(|symbol| symbol.starts_with(&format!("{function} (main.go:")))
        })
        .map(|site| site["instances"].as_u64().expect("a site tells its acquisitions"))
        .sum()
}

/// What Go's own profile counts is who really slept: some are woken before they do.
fn check(truth: &Truth, report: &Report) {
    let told = |kind, function| contended(report, kind, function);
    let update = told("mutex (Go)", "main.(*store).update");
    let read = told("rwlock (Go)", "main.(*store).read");
    let write = told("rwlock (Go)", "main.(*store).write");
    assert_eq!((update, read, write), (truth.fact("update"), truth.fact("read"), truth.fact("write")), "{report:?}");
    for (seen, slept) in [(update, "profile_update"), (read, "profile_read")] {
        assert!(truth.fact(slept) <= seen && truth.fact(slept) * 10 >= seen * 9, "{slept}: {}", truth.fact(slept));
    }
    let all: u64 = report.locks.iter().filter(|l| l.kind == "rwlock (Go)").map(|l| l.contended).sum();
    assert_eq!(all, read + write + truth.fact("read_between"), "free locks are seen by nobody: {report:?}");
    assert!(report.quality.lost.values().all(|&n| n == 0), "lost: {:?}", report.quality.lost);
    assert!(report.quality.impossible.values().all(|&n| n == 0), "impossible: {:?}", report.quality.impossible);
}

#[test]
fn go_locks() {
    let Some(_turn) = may_observe() else { return };
    let Some(program) = compile_go("go_locks", false) else { return };
    let (truth, report) = observe(&program, &[]);
    check(&truth, &report);
    assert!(report.locks.iter().any(|lock| lock.name.starts_with("main.shared")), "{:?}", report.names());
}

#[test]
fn go_locks_of_a_stripped_program() {
    let Some(_turn) = may_observe() else { return };
    let Some(program) = compile_go("go_locks", true) else { return };
    let (truth, report) = observe(&program, &[]);
    check(&truth, &report);
}

#[test]
fn go_locks_by_plain_uprobes() {
    let Some(_turn) = may_observe() else { return };
    let Some(program) = compile_go("go_locks", false) else { return };
    let (truth, report) = observe(&program, &["--plain-uprobes"]);
    check(&truth, &report);
}

/// A shell has no goroutines: the eBPF program for them is loaded once the shell has started a program that has.
#[test]
fn a_go_program_that_an_observed_process_starts() {
    let Some(_turn) = may_observe() else { return };
    let Some(program) = compile_go("go_locks", false) else { return };
    let script = format!("read go; {} 20; :", program.display());
    let mut shell = Running::start(Command::new("sh").args(["-c", &script]));
    let observer = Observer::of(shell.pid(), &["--follow-forks"]);
    let has = |name| has_program(observer.running.pid(), name);
    assert!(has("entries") && !has("go_lock"));
    shell.tell("\n");
    shell.out.find(|line| line == "ready").expect("the program did not get ready");
    eventually("the program for goroutines is loaded", || has("go_lock"));
    shell.tell("g");
    let truth = shell.out.find(|line| Truth::parse(line).is_some()).expect("the program ended without its truth");
    let truth = Truth::parse(&truth).expect("the line was found for being the truth");
    shell.close_stdin();
    shell.wait();
    let report = observer.report();
    let told = contended(&report, "mutex (Go)", "main.(*store).update");
    assert!((1..=truth.fact("update")).contains(&told), "{told} of {truth:?}");
}

/// What a goroutine does while others wait for it, in whichever threads it goes on: who is to blame, where, and doing what.
fn reason(how: &str, options: &[&str], asleep_in: &str) {
    let Some(_turn) = may_observe() else { return };
    let Some(program) = compile_go("go_holders", false) else { return };
    let mut workload = Workload::launch(Command::new(program).args([how, "300"]));
    let observer = Observer::of(workload.pid(), options);
    workload.go();
    let truth = workload.finish();
    let report = observer.report();
    let first = report.verdict.first().expect("a report without a verdict");
    for part in ["main.(*ledger).audit", "asleep in", asleep_in] {
        assert!(first.contains(part), "no {part}: {first}");
    }
    let culprit = report.culprits.first().expect("somebody is to blame");
    let causes = culprit.causes.as_ref().unwrap_or_else(|| panic!("no causes: {culprit:?}"));
    let (asleep, all) = (causes.get("sleeping").copied().unwrap_or_default(), causes.values().sum::<f64>());
    assert!(asleep > 0.7 * all, "{causes:?}");
    let [waited, slept] = ["waited_ns", "slept_ns"].map(|fact| truth.fact(fact) as f64);
    let lock = report.locks.first().expect("a lock");
    match &lock.wait_estimate {
        // Three goroutines wait for the one that sleeps, and not longer than it does.
        None => {
            assert!(asleep <= 3.0 * slept, "{causes:?}, slept {slept} ns");
            assert!((0.8..1.25).contains(&(lock.wait_ns.sum / waited)), "{:?}, waited {waited} ns", lock.wait_ns);
        }
        // A 95 % interval, with room for the twentieth run.
        Some(told) => assert!(told.low / 2.0 <= waited && waited <= told.high * 2.0, "{told:?}, waited {waited} ns"),
    }
}

#[test]
fn go_holder_that_parks() {
    reason("park", &[], "time.Sleep");
}

#[test]
fn go_holder_that_parks_within_a_budget() {
    reason("park", &["--budget", "3%"], "time.Sleep");
}

#[test]
fn go_holder_in_a_system_call() {
    reason("call", &[], "syscall.Nanosleep");
}

#[test]
fn go_holder_in_a_system_call_within_a_budget() {
    reason("call", &["--budget", "3%"], "syscall.Nanosleep");
}

/// One connection to the server that is kept open.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: &str) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(stream)))
    }

    fn get(&mut self, path: &str) -> u64 {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        self.0.get_mut().write_all(request.as_bytes()).expect("failed to send to the server");
        let mut length = 0;
        for n in 0.. {
            let mut line = String::new();
            self.0.read_line(&mut line).expect("failed to receive from the server");
            assert!(n > 0 || line.starts_with("HTTP/1.1 200"), "the server answers {line:?}");
            if let Some(value) = line.strip_prefix("Content-Length: ") {
                length = value.trim().parse().expect("a length is a number");
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).expect("failed to receive from the server");
        String::from_utf8_lossy(&body).trim().parse().expect("the server answers with a number")
    }
}

/// Requests a second over this time.
fn speed(asked: &AtomicU64, time: Duration) -> f64 {
    let (begin, before) = (Instant::now(), asked.load(Ordering::Relaxed));
    std::thread::sleep(time);
    (asked.load(Ordering::Relaxed) - before) as f64 / begin.elapsed().as_secs_f64()
}

/// Ends the load, also if a check fails.
struct Load<'a>(&'a AtomicBool);

impl Drop for Load<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn go_server_under_load() {
    let Some(_turn) = may_observe() else { return };
    let Some(program) = compile_go("go_server", true) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").expect("failed to bind to the loopback interface");
    let address = listener.local_addr().expect("a bound socket has an address").to_string();
    drop(listener);
    let mut server = Workload::launch(Command::new(program).arg(&address));
    let (asked, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let load = || {
        let mut client = Client::connect(&address).expect("failed to connect to the server");
        while !over.load(Ordering::Relaxed) {
            client.get("/work");
            asked.fetch_add(1, Ordering::Relaxed);
        }
    };
    let part = Duration::from_millis(1_000);
    let report = std::thread::scope(|scope| {
        let _load = Load(&over);
        (0..8).for_each(|_| drop(scope.spawn(load)));
        let before = speed(&asked, part);
        let observer = Observer::of(server.pid(), &[]);
        assert!(modified_bytes(server.pid()) > 0, "there are probes in the server");
        let during = speed(&asked, part);
        observer.interrupt();
        let report = observer.report();
        // Another observer, killed in the middle.
        let mut killed = Observer::of(server.pid(), &[]);
        speed(&asked, part / 4);
        killed.running.signal(Signal::SIGKILL);
        killed.running.wait();
        eventually("probes are gone", || modified_bytes(server.pid()) == 0);
        let after = speed(&asked, part);
        println!("requests a second: {before:.0} before, {during:.0} while observed, {after:.0} after");
        assert!(during > 0.0 && after > 0.0);
        report
    });
    assert!(server.running.is_alive());
    let mut client = Client::connect(&address).expect("failed to connect to the server");
    assert_eq!(client.get("/count"), asked.load(Ordering::Relaxed), "the server served what was asked");
    assert!(contended(&report, "mutex (Go)", "main.(*counter).work") > 0, "{report:?}");
    server.running.close_stdin();
    assert!(server.running.wait().success());
}
