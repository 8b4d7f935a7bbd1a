//! `lockbpf predict`: what waits and throughput would be with other numbers of threads, or other locks.

use super::args::Format;
use super::destination::Whole;
use super::{calibration_file, output, script};
use crate::model::predict::predict;
use crate::model::schema::{Input, Solver};
use crate::model::with::{self, With};
use crate::model::{ModelError, profile, table};
use crate::report::text::percent;
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The share of the acquisitions that must have been recorded one by one for a model.
const MODEL_NEEDS: f64 = 0.95;
/// Numbers of threads in one range.
const MAX_POINTS: u32 = 4_096;

/// What to predict, and from what.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  lockbpf predict --from t.bin --threads 1..64 --with qd
  lockbpf predict --model m.json --lock cache --with sharded:8

The model's form is told in docs/predictions.md.")]
pub(super) struct PredictArgs {
    /// The model, as JSON; `-` is standard input.
    #[arg(long, value_name = "FILE", required_unless_present = "from", conflicts_with = "from")]
    pub model: Option<PathBuf>,
    /// Make the model of this recording, a trace with every section (`lockbpf export --all-events`) or event lines; `-` is
    /// standard input.
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Only locks whose name contains this are in the model of a recording (repeatable: any of them).
    #[arg(long, value_name = "LOCK", requires = "from")]
    pub only: Vec<String>,
    /// For how many threads: `8`, `1,2,4`, `1..64`. Default: as the model says.
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<Threads>,
    /// Replace only locks whose name contains this (repeatable: any of them).
    #[arg(long, value_name = "LOCK", requires = "with")]
    pub lock: Vec<String>,
    /// Replace locks: by `qd`, `mutex`, `mcs`, `ticket`, `sharded:K`, `rwlock` or `rwlock:SHARE%` (of sections that only
    /// read).
    #[arg(long, value_name = "LOCK TYPE")]
    pub with: Option<With>,
    /// How to solve it. Default: as the model says, or as exactly as is possible in reasonable time.
    #[arg(long, value_parser = solver)]
    pub solver: Option<Solver>,
    /// Write the model, as it was solved, to this file; `-` is standard output, and then nothing is predicted.
    #[arg(long, value_name = "FILE")]
    pub emit_model: Option<PathBuf>,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

/// Numbers of threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Threads(Vec<u32>);

fn threads(text: &str) -> Result<Threads, String> {
    let number = |text: &str| match text.trim().parse::<u32>() {
        Ok(n) if n >= 1 => Ok(n),
        _ => Err(format!("`{text}` is no number of threads")),
    };
    let mut all = Vec::new();
    for part in text.split(',') {
        match part.split_once("..") {
            None => all.push(number(part)?),
            Some((from, to)) => {
                let (from, to) = (number(from)?, number(to.strip_prefix('=').unwrap_or(to))?);
                if from > to {
                    return Err(format!("`{part}` goes down"));
                }
                if to - from >= MAX_POINTS {
                    return Err(format!("`{part}` has more than {MAX_POINTS} numbers"));
                }
                all.extend(from..=to);
            }
        }
    }
    Ok(Threads(all))
}

fn solver(text: &str) -> Result<Solver, String> {
    serde_json::from_value(text.into()).map_err(|_| "not one of auto, exact, schweitzer, simulation".to_owned())
}

/// Predicts and prints the prediction.
///
/// # Errors
/// When the model cannot be read or has no solution, a lock is not in it, or the prediction cannot be written.
pub(super) fn run(args: &PredictArgs) -> Result<ExitCode> {
    let path = args.model.as_deref().or(args.from.as_deref()).unwrap_or(Path::new("-"));
    let name = if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() };
    let calibration = calibration_file::load()?;
    let mut input = match &args.from {
        None => read(path).with_context(|| format!("failed to read the model {name}"))?,
        Some(path) => {
            let mut input = of_recording(path, &args.only).with_context(|| format!("there is no model of {name}"))?;
            let all: Vec<usize> = (0..input.locks.len()).collect();
            if calibration.is_some() {
                // What the calls themselves take is no part of the holds.
                with::replace(&mut input, &all, With::Mutex, calibration.as_ref())?;
            }
            input
        }
    };
    if let Some(Threads(threads)) = &args.threads {
        input.threads.clone_from(threads);
    }
    input.solver = args.solver.unwrap_or(input.solver);
    if let Some(with) = args.with {
        let locks = selected(&input, &args.lock)?;
        with::replace(&mut input, &locks, with, calibration.as_ref())?;
    }
    if let Some(path) = &args.emit_model {
        emit(&input, path)?;
        if path == Path::new("-") {
            return Ok(ExitCode::SUCCESS);
        }
    }
    let prediction = predict(&input).map_err(|error| match error {
        ModelError::Invalid { .. } => anyhow!(error).context(name.clone()),
        error => anyhow!(error).context(format!("failed to solve {name}")),
    })?;
    output::write(&match args.format {
        Format::Table => table::render(&prediction, output::layout().width),
        Format::Json => output::json(&prediction, "prediction")?,
    })?;
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> Result<Input> {
    let mut text = String::new();
    if path == Path::new("-") {
        std::io::stdin().lock().read_to_string(&mut text)?;
    } else {
        text = fs::read_to_string(path)?;
    }
    let mut json = serde_json::Deserializer::from_str(&text);
    let input = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        // The path names the field, the message the line.
        let (path, problem) = (error.path().to_string(), error.into_inner());
        if path == "." { anyhow!("{problem}") } else { anyhow!("`{path}`: {problem}") }
    })?;
    json.end()?;
    Ok(input)
}

/// The model of a recording.
fn of_recording(path: &Path, only: &[String]) -> Result<Input> {
    let recorded = script::read(path)?;
    if recorded.whole < MODEL_NEEDS {
        // Whose sections are missing is not known: r would be that of the contended ones.
        bail!(
            "only {} of the acquisitions were recorded one by one: record with --all-events (and --budget off)",
            percent(recorded.whole)
        );
    }
    let wanted = |name: &str| only.is_empty() || only.iter().any(|part| name.contains(part.as_str()));
    let mut input = profile::model(&recorded.script, |lock| recorded.locks[lock].clone(), wanted)?;
    input.violations.extend(recorded.remarks);
    Ok(input)
}

/// The locks whose names contain one of the parts; without parts, all.
fn selected(input: &Input, parts: &[String]) -> Result<Vec<usize>> {
    let wanted = |name: &str| parts.is_empty() || parts.iter().any(|part| name.contains(part.as_str()));
    let found: Vec<usize> = (0..input.locks.len()).filter(|&i| wanted(&input.locks[i].name)).collect();
    if found.is_empty() {
        let names: Vec<&str> = input.locks.iter().map(|lock| lock.name.as_str()).take(8).collect();
        bail!("no lock of the model is called `{}`; it has {}", parts.join("` or `"), names.join(", "));
    }
    Ok(found)
}

fn emit(input: &Input, path: &Path) -> Result<()> {
    let text = output::json(input, "model")?;
    let mut file = Whole::create(path)?;
    file.write_all(text.as_bytes()).with_context(|| format!("failed to write {}", path.display()))?;
    file.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_threads() {
        let parse = |text| threads(text).map(|Threads(threads)| threads);
        assert_eq!(parse("8"), Ok(vec![8]));
        assert_eq!(parse("1,2, 4..6"), Ok(vec![1, 2, 4, 5, 6]));
        assert_eq!(parse("3..=4"), Ok(vec![3, 4]));
        for text in ["", "0", "a", "4..1", "1..", "..4", "1..4294967295", "-1"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
