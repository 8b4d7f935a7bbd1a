//! The command line: what is observed, for how long, and what comes out.

use crate::harness::build::{Variant, compile};
use crate::harness::exact::{assert_complete, assert_exact};
use crate::harness::may_observe;
use crate::harness::observer::{Observer, lockbpf, observe_as, run, run_command};
use crate::harness::process::Running;
use crate::harness::report::{Lock, Report};
use crate::harness::workload::{Truth, Workload};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

#[test]
fn a_duration_ends_the_observation_but_not_the_target() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start_lingering("counter 4 2 1000");
    let observer = Observer::of(workload.pid(), &["--duration", "1s"]);
    workload.go();
    let truth = workload.truth();
    let report = observer.report();
    assert_exact(&truth, &report);
    assert!((1_000_000_000..20_000_000_000).contains(&report.quality.duration_ns), "{}", report.quality.duration_ns);
    assert!(workload.running.is_alive());
}

#[test]
fn an_interrupt_ends_the_observation_with_its_report() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start_lingering("counter 4 2 1000");
    let observer = Observer::of(workload.pid(), &[]);
    workload.go();
    let truth = workload.truth();
    observer.interrupt();
    assert_exact(&truth, &observer.report());
    assert!(workload.running.is_alive());
}

#[test]
fn a_command_is_started_and_observed_from_its_first_instruction() {
    let Some(_turn) = may_observe() else { return };
    let program = compile("counter", Variant::Plain);
    let mut command = lockbpf();
    command.args(["--format", "json", "--"]).arg(program).args(["4", "2", "1000"]);
    let mut running = Running::start(&mut command);
    running.tell("g");
    let (stdout, stderr) = (running.out.rest(), running.err.rest());
    assert_eq!(running.wait().code(), Some(0), "{stderr}");
    // The command shares stdout with the report: its lines go before.
    let is_own = |line: &&str| *line == "ready" || Truth::parse(line).is_some();
    let truth = stdout.lines().find_map(Truth::parse).expect("the command runs as it would alone");
    let report = stdout.lines().filter(|line| !is_own(line)).flat_map(|line| [line, "\n"]).collect::<String>();
    assert_exact(&truth, &Report::parse(&report));
}

#[test]
fn the_table_tells_the_story() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start("culprit 5");
    let observer = Observer::start(&["--pid", &workload.pid().to_string()]);
    workload.go();
    workload.finish();
    let outcome = observer.outcome();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    for word in ["cache_lock", "slow_holder", "victim_section"] {
        assert!(outcome.stdout.contains(word), "no {word} in:\n{}", outcome.stdout);
    }
    assert!(outcome.stdout.find("slow_holder") < outcome.stdout.find("quick_holder"), "{}", outcome.stdout);
}

#[test]
fn the_top_of_the_table() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start("culprit 2");
    let observer = Observer::start(&["--pid", &workload.pid().to_string(), "--top", "1"]);
    workload.go();
    workload.finish();
    let outcome = observer.outcome();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("cache_lock") && !outcome.stdout.contains("quiet_lock"), "{}", outcome.stdout);
}

#[test]
fn one_thread_only() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start("threads 3 2 100");
    let pid = workload.pid();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("failed to list the threads of a workload");
    let tids = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let tid = tids.filter(|&tid| tid != pid).min().expect("there are three threads besides the first");
    let observer = Observer::of(pid, &["--tid", &tid.to_string()]);
    workload.go();
    let truth = workload.finish();
    let report = observer.report();
    assert_complete(&report);
    assert_eq!(report.at(pid, &truth.lock("early_lock").addr).acquisitions, 100);
    assert_eq!(report.acquisitions_at(pid, &truth.lock("late_lock").addr), 0);
    assert!(report.threads.iter().all(|thread| thread.tid == tid), "{:?}", report.threads);
}

#[test]
fn threads_of_one_name_only() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe_as("threads 3 4 100", Variant::Plain, &["--comm", "late"]);
    assert_complete(&report);
    assert_eq!(report.at(truth.pid, &truth.lock("late_lock").addr).acquisitions, 400);
    assert_eq!(report.acquisitions_at(truth.pid, &truth.lock("early_lock").addr), 0);
}

#[test]
fn strictness_tells_complete_from_incomplete() {
    let Some(_turn) = may_observe() else { return };
    for (line, code) in [("nesting 8 2", 0), ("nesting 20 2", 1)] {
        let mut workload = Workload::start(line);
        let observer = Observer::of(workload.pid(), &["--strict"]);
        workload.go();
        workload.finish();
        let outcome = observer.outcome();
        assert_eq!(outcome.code, Some(code), "{line}: {}", outcome.stderr);
        let report = Report::parse(&outcome.stdout);
        assert_eq!(report.quality.lost.values().any(|&n| n > 0), code == 1, "{:?}", report.quality.lost);
    }
}

/// Acquisitions of the locks that are named after functions like these: the C library takes some locks of its own.
fn acquisitions_in(report: &Report, functions: &[&str]) -> u64 {
    let own = |name: &str| functions.iter().any(|function| name.contains(function));
    report.locks.iter().filter(|lock| own(&lock.name)).map(|lock| lock.acquisitions).sum()
}

#[test]
fn more_locks_than_fit_are_summed_together() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe_as("heap 110000 1", Variant::Plain, &[]);
    assert_complete(&report);
    assert_eq!(acquisitions_in(&report, &["_section"]), truth.fact("acquisitions"), "{:?}", report.totals);
    assert_eq!(report.totals["acquisitions"].as_u64(), Some(report.acquisitions()), "{:?}", report.totals);
    // The C library's come when the program ends.
    let of_heap = |lock: &&Lock| lock.others && lock.name.contains("heap_section");
    let [others] = report.locks.iter().filter(of_heap).collect::<Vec<_>>()[..] else {
        panic!("several sites, or none, of locks together");
    };
    assert!(others.name.starts_with("other locks in heap_section") && others.lock.contains(":others:0x"), "{others:?}");
    assert!(others.acquisitions > truth.fact("acquisitions") / 2, "{others:?}");
    let note = |note: &&String| note.contains("summed together");
    assert!(report.quality.notes.iter().any(|n| note(&n)), "{:?}", report.quality.notes);
    let by_thread: u64 = report.threads.iter().map(|thread| thread.acquisitions).sum();
    assert_eq!(by_thread, report.acquisitions(), "threads and locks tell different sums");
}

/// More than one thread at a time, for locks whose sums nobody's holding orders.
#[test]
fn locks_that_are_summed_together_are_so_by_all_threads() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe_as("crowded 40000 4 1", Variant::Plain, &[]);
    assert_complete(&report);
    assert_eq!(acquisitions_in(&report, &[" in use", " in main"]), truth.fact("acquisitions"), "{:?}", report.totals);
    assert_eq!(report.totals["acquisitions"].as_u64(), Some(report.acquisitions()), "{:?}", report.totals);
    let (told, contended) = (report.totals["contended"].as_u64(), truth.fact("contended_at_least"));
    assert!(told >= Some(contended) && contended > 0, "{:?}", report.totals);
    let wait = report.totals["wait_ns"].as_f64().unwrap_or_default();
    assert!(wait >= truth.fact("wait_min_ns") as f64 && wait <= truth.fact("call_ns") as f64, "{:?}", report.totals);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start("heap 3000 1");
    let mut child = lockbpf()
        .args(["--pid", &workload.pid().to_string(), "--format", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("failed to start lockbpf");
    drop(child.stdout.take());
    let mut stderr = BufReader::new(child.stderr.take().expect("stderr is piped")).lines().map_while(Result::ok);
    assert!(stderr.any(|line| line.starts_with("observing ")), "lockbpf ended before it observed");
    workload.go();
    workload.finish();
    assert_eq!(child.wait().expect("failed to wait for lockbpf").code(), Some(0));
    assert_eq!(stderr.collect::<Vec<_>>(), [] as [&str; 0], "nothing to complain about");
}

#[test]
fn the_demo_shows_a_contended_lock() {
    let Some(_turn) = may_observe() else { return };
    let mut demo = lockbpf();
    let outcome = run_command(demo.env_remove("LOCKBPF_BUDGET").args(["demo", "--duration", "2s", "--format", "json"]));
    let report = outcome.report();
    assert!(!report.has_budget(), "nobody depends on the demo's program");
    assert!(report.locks.len() >= 2, "{:?}", report.names());
    let worst = &report.locks[0];
    assert!(worst.contended > 0 && !worst.waiters.is_empty() && !worst.holders.is_empty(), "{worst:?}");
    assert!(report.quality.lost.values().all(|&n| n == 0), "lost: {:?}", report.quality.lost);
}

#[test]
fn the_doctor_shows_where_probes_go() {
    let Some(_turn) = may_observe() else { return };
    let workload = Workload::start("counter 1 1 1");
    let outcome = run(&["doctor", "--pid", &workload.pid().to_string()]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    for word in ["pthread_mutex_lock", "pthread_mutex_unlock", "libc"] {
        assert!(outcome.stdout.contains(word), "no {word} in:\n{}", outcome.stdout);
    }
    let outcome = run(&["doctor", "--pid", &workload.pid().to_string(), "--format", "json"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let told: serde_json::Value = serde_json::from_str(&outcome.stdout).expect("the doctor's findings are JSON");
    assert!(told["probing"].is_object() && told["probing"]["refused"].is_null(), "{}", told["probing"]);
}

#[test]
fn help_and_version_need_no_rights() {
    for argument in ["--help", "--version"] {
        let outcome = run_command(lockbpf().arg(argument));
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        assert!(outcome.stdout.contains("lockbpf"), "{}", outcome.stdout);
    }
}
