//! `cargo xtask bench advice`: what advice promises, beside what a program gains that follows it. One program for each kind of
//! advice, whose sections sleep: the lock is what holds its threads back, whatever the CPUs.

use std::{
    path::Path,
    process::{Command, ExitCode},
    time::Duration,
};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{build::Lockbpf, child::Child, interrupt, machine::Machine, stats::Spread};
use crate::{cc, process, workspace};

/// The kinds, as the workload and the advice call them; the last one is an estimate and no advice of its own.
const KINDS: [&str; 6] = ["split", "reader-writer", "shorten", "remove", "rare-conflicts", OPTIMISTIC];
const OPTIMISTIC: &str = "optimistic";
const THREADS: &str = "4";
/// How long giving advice may take.
const LIMIT: Duration = Duration::from_secs(180);

/// Arguments of `bench advice`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Runs of each program; the median counts
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Seconds of a run
    #[arg(long, default_value_t = 3)]
    seconds: u64,
}

/// A gain as it is predicted: a share of the run time, and its interval, where there is one.
struct Predicted {
    gain: f64,
    interval: Option<(f64, f64)>,
}

/// Compares and prints.
///
/// # Errors
/// lockbpf or the program fails, advice is missing, or there are no rights to observe.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    Machine::look_as_root()?;
    interrupt::watch()?;
    let lockbpf = Lockbpf::build()?;
    let dir = tempfile::tempdir().context("failed to create a temporary directory")?;
    let program = dir.path().join("gains");
    cc::compile(&workspace::root().join("tests/workloads/gains.c"), &program, &["-std=gnu11", "-g"])?;
    println!(
        "\nshare of the run time saved, {THREADS} threads; medians of {} runs, before and after in turns",
        args.runs
    );
    println!(
        "{:<16} {:>10} {:>18} {:>14} {:>14} {:>10}",
        "advice", "predicted", "interval", "before, /s", "after, /s", "measured"
    );
    for kind in KINDS {
        let predicted = predict(&lockbpf, &program, kind)?;
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for _ in 0..args.runs.max(1) {
            before.push(rate(&program, kind, "plain", args.seconds)?);
            after.push(rate(&program, kind, "fixed", args.seconds)?);
        }
        let median = |rates: Vec<f64>| Spread::of(rates).map(|spread| spread.median).context("no run has a rate");
        let (before, after) = (median(before)?, median(after)?);
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let interval = predicted.interval.map(|(low, high)| format!("{} – {}", percent(low), percent(high)));
        println!(
            "{kind:<16} {:>10} {:>18} {before:>14.0} {after:>14.0} {:>10}",
            percent(predicted.gain),
            interval.unwrap_or_else(|| "upper bound".to_owned()),
            percent(1.0 - before / after)
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn start(program: &Path, kind: &str, version: &str) -> Result<Child> {
    let mut child = Child::start(Command::new(program).args([kind, version, THREADS]))?;
    child.expect_out(|line| (line == "ready").then_some(()))?;
    Ok(child)
}

/// The gain that advice on the program predicts.
fn predict(lockbpf: &Lockbpf, program: &Path, kind: &str) -> Result<Predicted> {
    let child = start(program, kind, "plain")?;
    let mut command = Command::new(&lockbpf.program);
    command.args(["advise", "--format", "json", "--pid", &child.pid().to_string()]);
    let text = process::output(&mut command, LIMIT)?;
    let advice: Value = serde_json::from_str(&text).context("`lockbpf advise` printed no JSON")?;
    predicted(&advice, kind).with_context(|| format!("there is no prediction for {kind} in: {text}"))
}

/// What advice of a kind would gain.
fn predicted(advice: &Value, kind: &str) -> Option<Predicted> {
    if kind == OPTIMISTIC {
        return Some(Predicted { gain: 1.0 - 1.0 / advice["occ"]["best_case_speedup"].as_f64()?, interval: None });
    }
    let item = advice["advice"].as_array()?.iter().find(|item| item["kind"] == kind)?;
    let predicted = &item["predicted"];
    let end = |i: usize| predicted["gain_interval"][i].as_f64();
    Some(Predicted { gain: predicted["gain"].as_f64()?, interval: end(0).zip(end(1)) })
}

/// Sections a second of an unobserved run.
fn rate(program: &Path, kind: &str, version: &str, seconds: u64) -> Result<f64> {
    let mut child = start(program, kind, version)?;
    interrupt::sleep(Duration::from_secs(seconds))?;
    child.tell("")?;
    let said: Value = child.expect_out(|line| serde_json::from_str(line).ok())?;
    let number = |name: &str| said[name].as_f64().with_context(|| format!("the program does not say its {name}"));
    Ok(number("sections")? / number("elapsed_ns")?.max(1.0) * 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn predictions_are_found_by_kind() {
        let advice = json!({
            "advice": [{"kind": "split", "predicted": {"gain": 0.4, "gain_interval": [0.1, 0.5]}},
                       {"kind": "remove", "predicted": null}],
            "occ": {"best_case_speedup": 2.0},
        });
        let split = predicted(&advice, "split").unwrap();
        assert_eq!((split.gain, split.interval), (0.4, Some((0.1, 0.5))));
        assert!(predicted(&advice, "remove").is_none() && predicted(&advice, "shorten").is_none());
        let optimistic = predicted(&advice, OPTIMISTIC).unwrap();
        assert_eq!((optimistic.gain, optimistic.interval), (0.5, None));
    }
}
