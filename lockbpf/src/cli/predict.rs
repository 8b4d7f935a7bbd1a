//! `lockbpf predict`: what waits and throughput would be with other numbers of threads, or other locks.

use super::args::{CaptureArgs, Format, Plan, Share, TargetArgs, share};
use super::destination::{self, Whole};
use super::source::Input as Recording;
use super::{calibrate, export, output, script, summed};
use crate::input;
use crate::model::calibration::Calibration;
use crate::model::check::check;
use crate::model::predict::predict;
use crate::model::rank::{Ranking, rank};
use crate::model::schema::{Input, Prediction, Solver};
use crate::model::with::{self, With};
use crate::model::{ModelError, cores, profile, rank_table, table};
use crate::observe::{calibration_file, cpus};
use crate::report::text::percent;
use crate::rights;
use crate::trace::Compression;
use anyhow::{Context, Result, anyhow, bail};
use clap::{ArgGroup, Args, ValueEnum};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The share of the acquisitions that must have been recorded one by one for a model.
const MODEL_NEEDS: f64 = 0.95;
/// Numbers of threads in one range.
const MAX_POINTS: u32 = 4_096;

/// What to predict, and from what.
#[derive(Clone, Debug, Args)]
#[command(group = ArgGroup::new("source").required(true).multiple(true).args(["model", "from", "pid", "system_wide", "cgroup", "container", "cmd"]))]
#[command(group = ArgGroup::new("live").multiple(true).args(["pid", "system_wide", "cgroup", "container", "cmd", "user", "kill_after"]).conflicts_with_all(["model", "from"]))]
#[command(after_help = "Examples:
  lockbpf predict --pid 1234 --duration 10s --threads 1..64
  lockbpf predict --from t.bin --threads 1..64 --with qd
  lockbpf predict --from t.bin --with all
  lockbpf predict --model m.json --lock cache --with sharded:8

JSON has the schema lockbpf.prediction/1, or lockbpf.ranking/1 where locks are ranked; both and the model's form are told in
docs/predictions.md.")]
pub(super) struct PredictArgs {
    /// The model, as JSON; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    pub model: Option<PathBuf>,
    /// Make the model of this recording, a trace or event lines; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Make the model of a running program: whom to observe.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Of a running program: observe it for so long. Without it: until Ctrl-C, or until it exits.
    #[arg(short, long, value_name = "TIME", value_parser = super::limits::span, requires = "live")]
    pub duration: Option<Duration>,
    /// Of a running program: how much of its CPU time observing may cost, or `off`. Where every lock operation would cost more, the
    /// model is made of what was seen in windows.
    #[arg(long, value_name = "SHARE", value_parser = share, default_value = "3%", env = "LOCKBPF_BUDGET")]
    pub budget: Share,
    /// Make the model of a recording by its events, which must tell of every section (`lockbpf export --all-events`), or by the sums
    /// that traces hold. Default: by its events, if it was recorded like that.
    #[arg(long, value_enum, requires = "from")]
    pub by: Option<By>,
    /// Only locks whose name contains this are in the model of a recording (repeatable: any of them).
    #[arg(long, value_name = "LOCK", conflicts_with = "model")]
    pub only: Vec<String>,
    /// For how many threads: `8`, `1,2,4`, `1..64`. Default: as the model says.
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<Threads>,
    /// How many CPUs the program has. Default: as the model says, or those that the recorded program could use, else those of this
    /// machine.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub cores: Option<u32>,
    /// Replace only locks whose name contains this (repeatable: any of them).
    #[arg(long, value_name = "LOCK", requires = "with")]
    pub lock: Vec<String>,
    /// Replace locks: by `qd` (queue delegation: who delegates a section goes on at once), `qd-wait` (queue delegation: who delegates a
    /// section waits until it is done), `mutex`, `mcs`, `ticket`, `spin`, `sharded:K`, `rwlock` or `rwlock:SHARE%` (of sections that only
    /// read). With several, or `all`, they are ranked beside today's locks.
    #[arg(long, value_name = "LOCK TYPES", value_parser = withs)]
    pub with: Option<Withs>,
    /// Where it is not known what locks cost on this machine: measure that first (`auto`; some seconds in which all CPUs are busy, and not
    /// where other programs run or one is to be observed), or `never`.
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = Calibrate::Auto, env = "LOCKBPF_CALIBRATE")]
    pub calibrate: Calibrate,
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

/// Whether what locks cost is measured before a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Calibrate {
    /// Where it is not known.
    Auto,
    /// Not by itself.
    Never,
}

/// What a model of a recording is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum By {
    /// Its events.
    Events,
    /// Its sums.
    Sums,
}

/// Locks to replace others by.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Withs(Vec<With>);

fn withs(text: &str) -> Result<Withs, String> {
    if text == "all" {
        return Ok(Withs(With::ALL.to_vec()));
    }
    text.split(',').map(|part| part.trim().parse()).collect::<Result<_, _>>().map(Withs)
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
    let (calibration, lacking) = match known(args)? {
        Ok(calibration) => (Some(calibration), String::new()),
        Err(why) => (None, why),
    };
    // What could not be written is said before anything is observed.
    let out = args.emit_model.as_deref().map(Whole::create).transpose()?;
    let (mut input, name) = if let Some(path) = &args.model {
        let name = input::told(path);
        (read(path).with_context(|| format!("failed to read the model {name}"))?, name)
    } else {
        let (mut input, name) = match &args.from {
            Some(path) => {
                let name = input::told(path);
                let input = of_recording(path, args.by, &args.only, calibration.as_ref());
                (input.with_context(|| format!("there is no model of {name}"))?, name)
            }
            None => (of_program(args, calibration.as_ref())?, "the observed program".to_owned()),
        };
        let all: Vec<usize> = (0..input.locks.len()).collect();
        if calibration.is_some() {
            // What the calls themselves take is no part of the holds.
            with::replace(&mut input, &all, With::Mutex, calibration.as_ref())?;
        } else {
            input.violations.push(format!(
                "Calls and waking threads that sleep for a mutex take no time here, since what they take on this machine has not been \
                 measured{lacking}: run `lockbpf calibrate`, which takes some seconds."
            ));
        }
        (input, name)
    };
    let fails = |error| match error {
        ModelError::Invalid { .. } => anyhow!(error).context(name.clone()),
        error => anyhow!(error).context(format!("failed to solve {name}")),
    };
    let check = check(&input).map_err(fails)?;
    input.cores = args.cores.or(input.cores);
    if let Some(Threads(threads)) = &args.threads {
        input.threads.clone_from(threads);
    }
    input.solver = args.solver.unwrap_or(input.solver);
    let mut replaced_by = None;
    match args.with.as_ref().map(|Withs(all)| &all[..]) {
        None => {}
        Some(&[with]) => {
            let locks = selected(&input, &args.lock)?;
            with::replace(&mut input, &locks, with, calibration.as_ref())?;
            replaced_by = Some(with.to_string());
        }
        Some(several) => {
            if out.is_some() {
                bail!(
                    "several locks are several models: choose one of them with --with to write its model with --emit-model"
                );
            }
            let others = alternatives(&mut input, &args.lock, several, calibration.as_ref())?;
            let ranking = Ranking { check, ..rank(&input, &others).map_err(fails)? };
            output::write(&match args.format {
                Format::Table => rank_table::render(&ranking, output::layout().width),
                Format::Json => output::json(&ranking, "ranking")?,
            })?;
            return Ok(ExitCode::SUCCESS);
        }
    }
    if let Some((path, out)) = args.emit_model.as_deref().zip(out) {
        emit(&input, path, out)?;
        if path == Path::new("-") {
            return Ok(ExitCode::SUCCESS);
        }
    }
    let prediction = Prediction { check, with: replaced_by, ..predict(&input).map_err(fails)? };
    output::write(&match args.format {
        Format::Table => table::render(&prediction, output::layout().width),
        Format::Json => output::json(&prediction, "prediction")?,
    })?;
    Ok(ExitCode::SUCCESS)
}

/// What locks cost on this machine. Where that is not known it is measured now, but not while there is a program to be observed: it would be in that
/// one's way. Else why it is not known, as a clause.
fn known(args: &PredictArgs) -> Result<Result<Calibration, String>> {
    match (calibration_file::load()?, args.calibrate) {
        (Some(calibration), _) => Ok(Ok(calibration)),
        (None, Calibrate::Auto) if args.from.is_some() || args.model.is_some() && args.with.is_some() => {
            let measured =
                calibrate::in_passing().context("failed to measure what locks cost here (--calibrate never)")?;
            Ok(measured.map_err(|why| format!(" ({why})")))
        }
        (None, _) => Ok(Err(String::new())),
    }
}

/// The model with each of several locks in the place of those whose names contain one of the parts, but for one that changes nothing, and
/// for reader–writer locks where it is not known which share of the sections only reads: the model then says so.
fn alternatives(
    input: &mut Input,
    parts: &[String],
    withs: &[With],
    calibration: Option<&Calibration>,
) -> Result<Vec<(String, Input)>> {
    let locks = selected(input, parts)?;
    let mut others = Vec::new();
    for &with in withs {
        if with.lacks_reads(input, &locks) {
            input.violations.push(
                "Left out: a reader–writer lock, since it is not known which share of the sections only read. If you know it: --with \
                 rwlock:SHARE%."
                    .to_owned(),
            );
            continue;
        }
        let mut other = input.clone();
        with::replace(&mut other, &locks, with, calibration)?;
        let same = other.locks.iter().zip(&input.locks).all(|(a, b)| {
            let algorithm = a.algorithm.unwrap_or(input.model) == b.algorithm.unwrap_or(input.model);
            algorithm && (&a.overhead_ns, a.spins, a.sleep, a.shards) == (&b.overhead_ns, b.spins, b.sleep, b.shards)
        });
        if !same {
            others.push((with.to_string(), other));
        }
    }
    Ok(others)
}

fn read(path: &Path) -> Result<Input> {
    let text = input::read_text(path)?;
    let mut json = serde_json::Deserializer::from_str(&text);
    let input = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        // The path names the field, the message the line.
        let (path, problem) = (error.path().to_string(), error.into_inner());
        if path == "." { anyhow!("{problem}") } else { anyhow!("`{path}`: {problem}") }
    })?;
    json.end()?;
    Ok(input)
}

/// The model of a running program: it is recorded, and the model made of its sums.
fn of_program(args: &PredictArgs, calibration: Option<&Calibration>) -> Result<Input> {
    let capture =
        CaptureArgs { duration: args.duration, budget: args.budget, transitions: true, ..CaptureArgs::default() };
    let plan = Plan::from_args(args.target.clone(), capture)?;
    let trace = destination::temporary()?;
    export::record(&plan, trace.as_file(), trace.path(), Compression::None)?;
    rights::give_up()?;
    of_recording(trace.path(), Some(By::Sums), &args.only, calibration)
        .context("there is no model of what was observed")
}

/// The model of a recording.
fn of_recording(path: &Path, by: Option<By>, only: &[String], calibration: Option<&Calibration>) -> Result<Input> {
    let wanted = |name: &str| only.is_empty() || only.iter().any(|part| name.contains(part.as_str()));
    let called = || format!("of locks called `{}`", only.join("` or `"));
    let recording = Recording::open(path)?;
    let header = recording.source(0)?.header();
    let cpus = cpus::of_recording(&header);
    let capture = header.capture;
    let by_itself = if capture.is_none_or(|capture| capture.all_events) { By::Events } else { By::Sums };
    let model = match by.unwrap_or(by_itself) {
        By::Sums => summed::model(&recording, wanted),
        By::Events => by_events(&recording, wanted),
    };
    let mut input = if only.is_empty() { model? } else { model.with_context(called)? };
    input.cores = Some(cpus);
    input.slice_ns = calibration.and_then(Calibration::slice_ns);
    cores::unstretch(&mut input, cpus)?;
    Ok(input)
}

fn by_events(recording: &Recording, wanted: impl Fn(&str) -> bool) -> Result<Input> {
    let recorded = script::read_input(recording)?;
    if recorded.whole < MODEL_NEEDS {
        // Whose sections are missing is not known: r would be that of the contended ones.
        bail!(
            "only {} of the acquisitions were recorded one by one: make it by the sums of a trace (--by sums), or record with \
             --all-events",
            percent(recorded.whole)
        );
    }
    let name = |lock: usize| recorded.locks[lock].clone();
    let model = profile::model(&recorded.script, recorded.shadow.as_ref(), name, wanted);
    let mut input = model?;
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

fn emit(input: &Input, path: &Path, mut file: Whole) -> Result<()> {
    let text = output::json(input, "model")?;
    file.write_all(text.as_bytes()).with_context(|| format!("failed to write {}", path.display()))?;
    file.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_to_rank() {
        assert_eq!(withs("qd-wait"), Ok(Withs(vec![With::QdWait])));
        assert_eq!(withs("qd, sharded:4"), Ok(Withs(vec![With::Qd, With::Sharded(4)])));
        let Withs(all) = withs("all").unwrap();
        for with in all {
            assert_eq!(with.to_string().parse(), Ok(with));
        }
        assert!(withs("qd,").is_err() && withs("best").is_err());
    }

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
