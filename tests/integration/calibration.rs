//! What observing costs, measured on a child of lockbpf's own: plausible, confirmed by another measurement, and nothing left.

use crate::harness::may_observe;
use crate::harness::observer::{Observer, lockbpf, run};
use crate::harness::process::{Running, eventually};
use crate::harness::workload::Workload;
use nix::sys::signal::Signal;
use serde_json::Value;

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
    let Some(_turn) = may_observe() else { return };
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
    let Some(_turn) = may_observe() else { return };
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

#[test]
fn the_child_dies_with_its_parent() {
    let Some(_turn) = may_observe() else { return };
    let mut doctor = Running::start(lockbpf().args(["doctor", "--pid", &std::process::id().to_string()]));
    eventually("calibration begins", || children() > 0);
    doctor.signal(Signal::SIGKILL);
    doctor.wait();
    eventually("the child is gone", || children() == 0);
}
