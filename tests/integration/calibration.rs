//! What observing costs, measured on a child of lockbpf's own: plausible, confirmed by another measurement, and nothing left.

use crate::harness::may_observe_alone;
use crate::harness::observer::{Observer, lockbpf, run, run_command};
use crate::harness::process::{Running, eventually};
use crate::harness::workload::Workload;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Processes on which lockbpf calibrates.
fn children() -> usize {
    let all = std::fs::read_dir("/proc").expect("failed to list the processes");
    let command = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("cmdline")).ok();
    let commands = all.filter_map(|entry| command(entry.ok()?));
    commands.filter(|line| line.split(|&b| b == 0).any(|word| word == b"calibrate-target")).count()
}

/// What the doctor says of probing.
fn probing() -> Value {
    let outcome = run(&["doctor", "--pid", &std::process::id().to_string(), "--format", "json"]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let doctor: Value = serde_json::from_str(&outcome.stdout).expect("the doctor's findings are JSON");
    doctor["probing"].clone()
}

fn cost(probing: &Value, name: &str) -> f64 {
    probing["costs"][name].as_f64().unwrap_or_else(|| panic!("no {name} in {probing}"))
}

/// ns a pair of the `speed` workload, in the interval that other programs disturbed least.
fn pair_ns(workload: &mut Workload) -> f64 {
    let mut next = || workload.running.out.next().and_then(|line| line.parse::<f64>().ok()).expect("numbers");
    // Those that were printed before are thrown away.
    let begin = std::time::Instant::now();
    while begin.elapsed() < std::time::Duration::from_millis(100) {
        next();
    }
    1e9 / (0..30).map(|_| next()).fold(1.0, f64::max)
}

#[test]
fn costs_are_plausible_and_nothing_is_left() {
    let Some(_turn) = may_observe_alone() else { return };
    let probing = probing();
    assert_eq!(probing["measured"], true, "{probing}");
    assert!(probing["mechanism"].is_string(), "{probing}");
    let (bare, hit) = (cost(&probing, "bare_pair_ns"), cost(&probing, "hit_ns"));
    assert!(bare > 1.0 && bare < 1_000.0, "{probing}");
    assert!(hit > 50.0 && hit < 50_000.0 && hit > bare, "{probing}");
    let bias = cost(&probing, "hold_bias_ns");
    assert!(bias > 0.0 && bias <= 2.0 * hit, "a hold lies within its pair: {probing}");
    for name in ["record_ns", "futex_ns", "switch_ns"] {
        let ns = cost(&probing, name);
        assert!((0.0..50_000.0).contains(&ns), "{name} of {probing}");
    }
    assert!((0.0..1.0).contains(&cost(&probing, "spread")), "{probing}");
    assert_eq!(children(), 0, "the child is gone");
}

#[test]
fn another_measurement_agrees_within_a_factor_of_two() {
    let Some(_turn) = may_observe_alone() else { return };
    let mut workload = Workload::start("speed 10");
    // The machine may change its pace between the two.
    let attempts: Vec<(f64, f64)> = (0..4)
        .map(|_| {
            let probing = probing();
            let calibrated = cost(&probing, "bare_pair_ns") + 2.0 * cost(&probing, "hit_ns");
            let observer = Observer::of(workload.pid(), &["--budget", "off"]);
            let measured = pair_ns(&mut workload);
            observer.interrupt();
            observer.report();
            (calibrated, measured)
        })
        .collect();
    let agree = |&(a, b): &(f64, f64)| a < 2.0 * b && b < 2.0 * a;
    assert!(attempts.iter().any(agree), "ns of an observed pair, calibrated and measured: {attempts:?}");
}

/// Observes a workload under a budget with what is kept in this directory: the remarks, and what was logged.
fn governed(cache: &Path) -> (Vec<String>, String) {
    let workload = Workload::start("speed 3");
    let mut command = lockbpf();
    command.args(["--pid", &workload.pid().to_string(), "--budget", "3%", "--duration", "300ms", "--format", "json"]);
    let log = "lockbpf::capture::calibrate=debug,lockbpf::observe::prepare=info";
    let outcome = run_command(command.env("XDG_CACHE_HOME", cache).env("LOCKBPF_LOG", log));
    (outcome.report().quality.notes, outcome.stderr)
}

/// The line that calibration logs.
const CALIBRATED: &str = "calibration: alone";

#[test]
fn what_was_measured_before_is_not_measured_again() {
    let Some(_turn) = may_observe_alone() else { return };
    let cache = tempfile::tempdir().expect("failed to make a directory");
    let (_, first) = governed(cache.path());
    assert!(first.contains(CALIBRATED), "{first}");
    let (notes, second) = governed(cache.path());
    assert!(!second.contains(CALIBRATED) && second.contains("costs.json"), "{second}");
    assert!(!notes.iter().any(|note| note.contains("costs.json")), "{notes:?}");
    // Other probes cost otherwise.
    let outcome = run_command(
        lockbpf()
            .args([
                "--pid",
                &std::process::id().to_string(),
                "--budget",
                "3%",
                "--duration",
                "100ms",
                "--plain-uprobes",
            ])
            .env("XDG_CACHE_HOME", cache.path())
            .env("LOCKBPF_LOG", "lockbpf::capture::calibrate=debug"),
    );
    assert!(outcome.stderr.contains(CALIBRATED), "{}", outcome.stderr);
}

#[test]
fn damaged_and_foreign_figures_are_told_and_measured_anew() {
    let Some(_turn) = may_observe_alone() else { return };
    let cache = tempfile::tempdir().expect("failed to make a directory");
    let file = cache.path().join("lockbpf").join("costs.json");
    std::fs::create_dir(file.parent().expect("a directory")).expect("failed to make a directory");
    std::fs::write(&file, "{\"schema\": \"lockbpf.costs/1\", \"entries\": [{}]}").expect("failed to write");
    let told = |(notes, log): (Vec<String>, String), why: &str| {
        let note = notes.iter().find(|note| note.contains("costs.json"));
        assert!(note.is_some_and(|note| note.contains(why)), "{why}: {notes:?}");
        assert!(log.contains(CALIBRATED), "{log}");
    };
    told(governed(cache.path()), "damaged");
    let (notes, log) = governed(cache.path());
    assert!(!notes.iter().any(|note| note.contains("costs.json")) && !log.contains(CALIBRATED), "replaced: {log}");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).expect("failed to change the mode");
    told(governed(cache.path()), "other users may write");
}

#[test]
fn the_doctor_keeps_what_it_measures() {
    let Some(_turn) = may_observe_alone() else { return };
    let cache = tempfile::tempdir().expect("failed to make a directory");
    let doctor = || {
        let pid = std::process::id().to_string();
        let outcome = run_command(lockbpf().args(["doctor", "--pid", &pid]).env("XDG_CACHE_HOME", cache.path()));
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        outcome.stdout
    };
    let first = doctor();
    assert!(first.contains("costs.json") && first.contains("there was none before"), "{first}");
    let second = doctor();
    assert!(second.contains("the measurement there was ") && second.contains(" old."), "{second}");
    let (_, log) = governed(cache.path());
    assert!(!log.contains(CALIBRATED), "{log}");
}

#[test]
fn the_child_dies_with_its_parent() {
    let Some(_turn) = may_observe_alone() else { return };
    let mut doctor = Running::start(lockbpf().args(["doctor", "--pid", &std::process::id().to_string()]));
    eventually("calibration begins", || children() > 0);
    doctor.signal(Signal::SIGKILL);
    doctor.wait();
    eventually("the child is gone", || children() == 0);
}
