//! `cargo xtask bench predict`: how far predictions are off, from simulations and from programs that were really changed.

use std::{
    fs,
    path::Path,
    process::{Command, ExitCode},
    time::Duration,
};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{build::Lockbpf, machine::Machine};
use crate::process;

mod locks;
mod reality;
mod scores;
mod simulated;

/// How long one prediction, or one run of a program, may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Arguments of `bench predict`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Runs of each real program; the median counts
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Compare only with simulations, which needs no rights, with programs really changed, or with real locks
    #[arg(long, value_enum)]
    only: Option<Part>,
    #[command(flatten)]
    locks: locks::Real,
}

/// What predictions are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Simulations,
    Programs,
    Locks,
}

/// Compares and prints.
///
/// # Errors
/// lockbpf or a program fails, or there are no rights to observe.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let part = |part: Part| args.only.is_none_or(|only| only == part);
    if part(Part::Programs) || part(Part::Locks) {
        Machine::look_as_root()?;
    } else {
        Machine::look_and_tell();
    }
    let lockbpf = Lockbpf::build()?;
    let dir = tempfile::tempdir().context("failed to create a temporary directory")?;
    if part(Part::Simulations) {
        simulated::compare(&lockbpf, dir.path())?;
    }
    if part(Part::Programs) {
        reality::compare(&lockbpf, dir.path(), args.runs.max(1))?;
    }
    if part(Part::Locks) {
        locks::compare(&lockbpf, dir.path(), args.runs.max(1), &args.locks)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What lockbpf answers as JSON.
fn ask(lockbpf: &Lockbpf, arguments: &[&str]) -> Result<Value> {
    let mut command = Command::new(&lockbpf.program);
    let text = process::output(command.args(arguments).args(["--format", "json"]), LIMIT)?;
    serde_json::from_str(&text).with_context(|| format!("`{}` printed no JSON", process::describe(&command)))
}

/// A prediction from a model.
fn predict(lockbpf: &Lockbpf, dir: &Path, model: &Value) -> Result<Value> {
    let path = dir.join("model.json");
    fs::write(&path, model.to_string()).with_context(|| format!("failed to write {}", path.display()))?;
    ask(lockbpf, &["predict", "--model", utf8(&path)?])
}

fn utf8(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}

fn number(value: &Value) -> Result<f64> {
    value.as_f64().with_context(|| format!("`{value}` is no number"))
}

fn list(value: &Value) -> Result<&[Value]> {
    Ok(value.as_array().with_context(|| format!("`{value}` is no list"))?)
}

/// Relative errors.
#[derive(Default)]
struct Errors(Vec<f64>);

impl Errors {
    fn add(&mut self, predicted: f64, truth: f64) -> f64 {
        let off = if truth > 0.0 { predicted / truth - 1.0 } else { 0.0 };
        self.0.push(off);
        off
    }

    /// Mean of their amounts, %.
    fn mean(&self) -> f64 {
        self.0.iter().map(|off| off.abs()).sum::<f64>() / self.0.len().max(1) as f64 * 100.0
    }

    /// The largest amount, %.
    fn worst(&self) -> f64 {
        self.0.iter().map(|off| off.abs()).fold(0.0, f64::max) * 100.0
    }
}

fn percent(off: f64) -> String {
    format!("{:+.1} %", off * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_relative() {
        let mut errors = Errors::default();
        assert_eq!(percent(errors.add(110.0, 100.0)), "+10.0 %");
        errors.add(70.0, 100.0);
        assert!((errors.mean() - 20.0).abs() < 1e-9 && (errors.worst() - 30.0).abs() < 1e-9);
    }
}
