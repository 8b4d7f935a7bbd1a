//! `lockbpf access`: what it says of sections whose accesses are known, and that the program under it takes no notice.

use crate::harness::build::Variant;
use crate::harness::may_observe;
use crate::harness::observer::{Outcome, lockbpf, not_ended, run, run_traced};
use crate::harness::process::{Running, eventually};
use crate::harness::workload::{Workload, command};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::Value;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::Duration;

/// Where the workload has its fields in `shared`.
const RIGHT: &str = "shared+0x40";
const COUNTER: &str = "shared+0x80";
const FROM: u64 = 0x640;
const TO: u64 = 0x740;
const NUMBERS: u64 = 0x840;

/// A pass over a running workload, which is then ended and must have computed what it should.
struct Pass {
    outcome: Outcome,
    records: Vec<Value>,
    /// What the workload said last.
    last_words: String,
}

fn end(workload: &mut Workload) -> String {
    workload.running.close_stdin();
    let last_words = workload.running.out.find(|line| line.starts_with("sum ")).expect("it sums up");
    assert!(workload.running.wait().success(), "the target was harmed: {last_words}");
    assert!(last_words.starts_with("sum ok"), "{last_words}");
    last_words
}

fn pass(mode: &str, options: &[&str], meanwhile: impl Fn(&Workload, &mut Running)) -> Pass {
    not_ended(|| pass_once(mode, options, &meanwhile), |pass| &pass.outcome)
}

fn pass_once(mode: &str, options: &[&str], meanwhile: impl FnOnce(&Workload, &mut Running)) -> Pass {
    let mut workload = Workload::start(&format!("accesses {mode} 2"));
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let to = dir.path().join("accesses.jsonl");
    let pid = workload.pid().to_string();
    let mut command = lockbpf();
    command.args(["access", "--pid", &pid, "--timing", "300ms", "--samples", "24", "--to"]).arg(&to).args(options);
    let mut running = Running::start(&mut command);
    meanwhile(&workload, &mut running);
    let (stdout, stderr) = (running.out.rest(), running.err.rest());
    let outcome = Outcome { code: running.wait().code(), stdout, stderr };
    let lines = std::fs::read_to_string(&to).unwrap_or_default();
    let records = lines.lines().map(|line| serde_json::from_str(line).expect("a record is JSON")).collect();
    Pass { outcome, records, last_words: end(&mut workload) }
}

fn followed(mode: &str, options: &[&str]) -> Vec<Value> {
    let pass = pass(mode, options, |_, _| {});
    assert_eq!(pass.outcome.code, Some(0), "{}", pass.outcome.stderr);
    assert!(pass.records.len() >= 24, "{}", pass.outcome.stdout);
    pass.records
}

fn texts<'a>(record: &'a Value, field: &str) -> BTreeSet<&'a str> {
    record[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn in_function(record: &Value, function: &str) -> bool {
    record["site"].as_str().is_some_and(|site| site.starts_with(&format!("{function} ")))
}

#[test]
fn fields_of_disjoint_sections_are_told_exactly() {
    let Some(_turn) = may_observe() else { return };
    let records = followed("disjoint", &[]);
    for (n, record) in records.iter().enumerate() {
        assert_eq!((record["run"].as_u64(), record["seq"].as_u64()), (Some(0), Some(n as u64)));
        assert_eq!(record["lock"], "access_lock");
        let field = if in_function(record, "update_left") { "shared" } else { RIGHT };
        assert!(in_function(record, "update_left") || in_function(record, "update_right"), "{record}");
        assert_eq!((texts(record, "reads"), texts(record, "writes")), ([field].into(), [field].into()), "{record}");
        let letters = record["accesses"].as_str().unwrap_or_default().len();
        assert_eq!(Some(letters), record["at"].as_array().map(Vec::len));
        assert_eq!(Some(letters), record["code"].as_array().map(Vec::len));
    }
    let threads: BTreeSet<&str> = records.iter().filter_map(|record| record["tid"].as_str()).collect();
    assert_eq!(threads.len(), 2, "both threads are followed");
}

#[test]
fn the_place_is_the_caller_of_a_locks_own_method() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start("wrapped");
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let to = dir.path().join("accesses.jsonl");
    let path = to.to_str().expect("a path in UTF-8");
    let pid = workload.pid().to_string();
    let outcome = run_traced(&["access", "--pid", &pid, "--timing", "300ms", "--samples", "24", "--to", path]);
    end(&mut workload);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let lines = std::fs::read_to_string(&to).expect("records");
    let mut seen = BTreeSet::new();
    for line in lines.lines() {
        let record: Value = serde_json::from_str(line).expect("a record is JSON");
        let name = if texts(&record, "writes").contains("puts_made") { "put" } else { "take" };
        assert!(in_function(&record, name), "{record}");
        let method = record["method"].as_str().unwrap_or_default();
        assert!(method.starts_with("StoreLock::acquire "), "{record}");
        seen.insert(name);
    }
    assert_eq!(seen.len(), 2, "{lines}");
}

#[test]
fn nested_sections_are_told_by_themselves_and_signals_arrive() {
    let Some(_turn) = may_observe() else { return };
    let sent = Cell::new(0);
    let pass = pass("nested", &[], |workload, running| {
        sent.set(0);
        running.err.find(|line| line.starts_with("following ")).expect("it begins");
        for _ in 0..500 {
            let value = libc::sigval { sival_ptr: std::ptr::null_mut() };
            // SAFETY: a signal for a child that has a handler for it; real-time signals are queued, and none is lost.
            let queued = unsafe { libc::sigqueue(workload.pid() as i32, libc::SIGRTMIN() + 1, value) };
            sent.set(sent.get() + i32::from(queued == 0));
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    assert_eq!(pass.outcome.code, Some(0), "{}", pass.outcome.stderr);
    assert_eq!(
        pass.last_words.split_whitespace().last(),
        Some(sent.get().to_string().as_str()),
        "each signal arrives once"
    );
    let inner: Vec<&Value> = pass.records.iter().filter(|r| r["lock"] == "inner_lock" && r["cut"] != true).collect();
    let outer: Vec<&Value> = pass.records.iter().filter(|r| r["lock"] == "access_lock" && r["cut"] != true).collect();
    assert!(!inner.is_empty() && !outer.is_empty(), "{}", pass.outcome.stdout);
    for record in inner {
        assert_eq!(
            (texts(record, "reads"), texts(record, "writes")),
            (["shared"].into(), ["shared"].into()),
            "{record}"
        );
    }
    for record in outer {
        assert_eq!(texts(record, "writes"), ["shared", COUNTER].into(), "what is inside is part of it: {record}");
    }
}

#[test]
fn copies_are_told_by_whatever_instructions() {
    let Some(_turn) = may_observe() else { return };
    let offsets = |record: &Value, field: &str| -> BTreeSet<u64> {
        // The C library also reads thresholds of its own.
        let hex = |name: &'_ str| name.strip_prefix("shared+0x").map(str::to_owned);
        let names = texts(record, field).into_iter().filter_map(hex);
        names.map(|hex| u64::from_str_radix(&hex, 16).expect("an offset")).collect()
    };
    for record in followed("copy", &[]) {
        let (reads, writes) = (offsets(&record, "reads"), offsets(&record, "writes"));
        assert!(writes.first() == Some(&TO) && writes.iter().all(|at| (TO..TO + 256).contains(at)), "{record}");
        assert!(reads.first() == Some(&FROM) && reads.last().is_some_and(|&at| at >= NUMBERS + 192), "{record}");
        assert!(reads.contains(&TO) && reads.contains(&NUMBERS), "strlen reads what was copied: {record}");
        assert!(reads.iter().all(|at| (FROM..NUMBERS + 256).contains(at)), "{record}");
    }
}

#[test]
fn readers_and_system_calls() {
    let Some(_turn) = may_observe() else { return };
    let records = followed("readwrite", &[]);
    for record in &records {
        let (reads, mode) = if in_function(record, "shared_read") { (true, "shared") } else { (false, "exclusive") };
        assert_eq!(record["mode"], mode, "{record}");
        assert_eq!(texts(record, "writes").is_empty(), reads, "{record}");
        assert_eq!(texts(record, "reads"), ["shared", COUNTER].into(), "{record}");
    }
    for record in followed("file", &[]) {
        assert!(texts(&record, "opaque").iter().all(|call| call.starts_with("write fd=")), "{record}");
        assert!(texts(&record, "reads").contains("shared+0x740"), "the buffer is read: {record}");
        assert_eq!(texts(&record, "writes"), [COUNTER].into(), "{record}");
    }
}

/// 22 of the 64 numbers are divisible by three. The compiler may put the loop's own branch at the end of each of the two ways.
#[test]
fn branches_are_told_with_both_sides() {
    let Some(_turn) = may_observe() else { return };
    for record in followed("branchy", &[]) {
        let (mut sides, mut all) = (Vec::new(), 0);
        for branch in record["branches"].as_array().into_iter().flatten() {
            let [taken, not] = ["taken", "not_taken"].map(|side| branch[side].as_u64().expect("a number"));
            assert!(branch["at"].as_str().is_some_and(|at| at.starts_with("accesses+0x")), "{branch}");
            // Not that of a check whether a lock function has failed.
            if branch["code"].as_str().is_some_and(|code| code.starts_with("branches (accesses.c:")) {
                sides.push((taken.min(not), taken.max(not)));
                all += taken + not;
            }
        }
        assert!(sides.contains(&(22, 42)) && all == 2 * 64, "{record}");
    }
}

#[test]
fn long_sections_are_cut_and_said_to_be() {
    let Some(_turn) = may_observe() else { return };
    let pass = pass("prefix", &["--instructions", "100", "--strict", "--all-accesses"], |_, _| {});
    assert_eq!(pass.outcome.code, Some(1), "{}", pass.outcome.stderr);
    for record in &pass.records {
        assert_eq!((&record["cut"], record["instructions"].as_u64()), (&Value::Bool(true), Some(100)), "{record}");
        assert!(!texts(record, "writes").contains(COUNTER), "that comes last: {record}");
    }
    assert!(pass.outcome.stdout.contains("24 more instructions than are followed"), "{}", pass.outcome.stdout);
}

/// The CPUs that each thread of a process may run on.
fn affinities(pid: u32) -> Vec<CpuSet> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
    let tids = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
    tids.map(|tid| sched_getaffinity(Pid::from_raw(tid)).expect("it runs")).collect()
}

fn is_traced(pid: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
    let statuses = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
    let traced = |status: String| !status.lines().any(|line| line.trim_end() == "TracerPid:\t0");
    statuses.into_iter().any(traced)
}

#[test]
fn a_target_survives_the_death_of_its_profiler() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start("accesses nested 3");
    let pid = workload.pid();
    let before = affinities(pid);
    for round in 0..2 {
        let arguments =
            ["access", "--pid", &pid.to_string(), "--timing", "200ms", "--samples", "1000000", "--budget", "60%"];
        let mut running = Running::start(lockbpf().args(arguments));
        running.err.find(|line| line.starts_with("following ")).expect("it begins");
        eventually("a thread is traced", || is_traced(pid));
        std::thread::sleep(Duration::from_millis(40 + 37 * round));
        running.signal(Signal::SIGKILL);
        running.wait();
        eventually("nobody is traced", || !is_traced(pid));
        eventually("all may run where they might before", || affinities(pid) == before);
        assert!(workload.running.is_alive());
    }
    end(&mut workload);
}

/// Performance events that a thread has open.
fn events_of(pid: u32, tid: &str) -> usize {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task/{tid}/fd")).into_iter().flatten().flatten();
    entries
        .filter_map(|fd| std::fs::read_link(fd.path()).ok())
        .filter(|to| to.ends_with("anon_inode:[perf_event]"))
        .count()
}

/// Whoever kills lockbpf ends its threads one by one. A breakpoint that another thread held open would outlive the tracing.
#[test]
fn breakpoints_end_with_the_thread_that_traces() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start("accesses nested 3");
    let pid = workload.pid().to_string();
    let arguments = ["access", "--pid", &pid, "--timing", "200ms", "--samples", "1000000", "--budget", "60%"];
    let mut running = Running::start(lockbpf().args(arguments));
    running.err.find(|line| line.starts_with("following ")).expect("it begins");
    let observer = running.pid();
    let mut held = Vec::new();
    eventually("a thread holds breakpoints", || {
        let tasks = std::fs::read_dir(format!("/proc/{observer}/task")).expect("it runs").flatten();
        let tids: Vec<String> = tasks.filter_map(|task| task.file_name().into_string().ok()).collect();
        held = tids.into_iter().map(|tid| (events_of(observer, &tid), tid)).filter(|(events, _)| *events > 0).collect();
        !held.is_empty()
    });
    assert!(held.len() == 1 && held[0].1 != observer.to_string(), "{held:?}");
    running.signal(Signal::SIGINT);
    running.wait();
    end(&mut workload);
}

#[test]
fn who_cannot_be_profiled_is_told_why() {
    let Some(_turn) = may_observe() else { return };
    let workload = Workload::start("accesses counter 2");
    let pid = workload.pid().to_string();
    let unknown = run(&["access", "--pid", &pid, "--timing", "200ms", "--lock", "no_such_lock"]);
    unknown.assert_error(&["no_such_lock", "access_lock"]);
    run(&["access", "--pid", &pid, "--budget", "off"]).assert_error(&["bound"]);
    nix::sys::ptrace::seize(Pid::from_raw(workload.pid() as i32), nix::sys::ptrace::Options::empty())
        .expect("failed to trace a workload");
    let outcome = run(&["access", "--pid", &pid]);
    outcome.assert_error(&["traced", &nix::unistd::gettid().to_string()]);
    run(&["access", "--pid", "4194304"]).assert_error(&["4194304"]);
    workload.running.signal(Signal::SIGKILL);
}

#[test]
fn a_running_process_is_advised_on() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::launch(command("accesses disjoint 2", Variant::Plain).env("PAUSE_US", "300"));
    let pid = workload.pid().to_string();
    let dir = tempfile::tempdir().expect("failed to make a directory");
    let kept = dir.path().join("trace.bin").to_str().expect("a path in UTF-8").to_owned();
    let pass = ["advise", "--pid", &pid, "--timing", "1s", "--samples", "24", "--format", "json"];
    run(&[&pass[..], &["--keep", "trace.jsonl"]].concat()).assert_error(&["trace.jsonl"]);
    let told = run_traced(&[&pass[..], &["--keep", &kept]].concat());
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    let advice: Value = serde_json::from_str(&told.stdout).expect("advice is JSON");
    // Each of the two threads has a field of its own.
    let removed: Vec<&str> =
        advice["suggestions"]["remove"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for function in ["update_left ", "update_right "] {
        assert!(removed.iter().any(|site| site.starts_with(function)), "{removed:?}");
    }
    // The recording knows the same sections: its waits are told with them.
    let known = |section: &Value| section["w_c"].is_number() && section["p_conflict"] == 0.0;
    assert!(advice["sections"].as_array().is_some_and(|all| all.len() == 2 && all.iter().all(known)), "{advice}");
    end(&mut workload);
    // What was kept says the same, and holds both.
    let again = run(&["advise", "--from", &kept, "--format", "json"]);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    let again: Value = serde_json::from_str(&again.stdout).expect("advice is JSON");
    for part in ["sampled", "sections", "usydg", "patterns", "suggestions", "occ"] {
        assert_eq!(again[part], advice[part], "{part}");
    }
    let report = run(&["report", "--from", &kept, "--format", "json"]);
    let report: Value = serde_json::from_str(&report.stdout).expect("the report is JSON");
    assert!(report["sites"].as_array().is_some_and(|sites| sites.len() >= 2), "{report}");
}

/// Figure 1 of PinCS. Two tosses conflict if both are heads, so p_c is 0.5 · 1/4 = 0.125 (the paper's tosses: 0.12), and its
/// conflict probability of 0.187 is that of 1.63 holds to wait for. How many there are is up to the processors: with two of them
/// one thread of three does not even run, and here each sleeps most of the time.
#[test]
fn coins_are_tossed_as_in_pincs() {
    let Some(_turn) = may_observe() else { return };
    // A pause, so that there are fewer sections than an unoptimised lockbpf can record.
    let mut workload = Workload::launch(command("accesses coin 3", Variant::Plain).env("PAUSE_US", "1"));
    let pid = workload.pid().to_string();
    let arguments =
        ["advise", "--pid", &pid, "--timing", "300ms", "--samples", "100", "--budget", "15%", "--format", "json"];
    let told = run_traced(&arguments);
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    let advice: Value = serde_json::from_str(&told.stdout).expect("advice is JSON");
    let section = &advice["sections"][0];
    let number = |of: &Value| of.as_f64().unwrap_or_else(|| panic!("no number: {advice}"));
    let [p_c, w_c, p_conflict] = ["p_c", "w_c", "p_conflict"].map(|field| number(&section[field]));
    println!("p_c {p_c}, w_c {w_c}, conflict {p_conflict}, best case {}", advice["occ"]["best_case_speedup"]);
    // Four standard deviations of a hundred tosses.
    assert!((0.03..0.27).contains(&p_c), "{section}");
    assert!(w_c > 0.0 && (1.0 - (1.0 - p_c).powf(w_c) - p_conflict).abs() < 1e-9, "{section}");
    assert!(number(&advice["occ"]["best_case_speedup"]) > 1.0, "{advice}");
    assert_eq!(texts_of(&section["conflicting"]), ["shared.counter"].into(), "{section}");
    end(&mut workload);
}

/// The readable names of conflicting locations.
fn texts_of(conflicting: &Value) -> BTreeSet<&str> {
    conflicting.as_array().into_iter().flatten().filter_map(|of| of["name"].as_str()).collect()
}
