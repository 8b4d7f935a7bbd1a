//! `lockbpf advise`: what to do about locks, from what their critical sections read and write.

use super::access::{AccessArgs, some_share};
use super::accesses::{self, Accesses};
use super::args::{CaptureArgs, Format, Plan, Share};
use super::destination::{self, Whole};
use super::formats::ExportFormat;
use super::report::Recording;
use super::script::Timed;
use super::source::Input;
use super::{access, convert, export, output, script};
use crate::advice::predict::Predictor;
use crate::advice::traced::Traced;
use crate::advice::{self, Advice, Options, Records};
use crate::analysis;
use crate::capture::access::check;
use crate::governor::Budget;
use crate::observe::Target;
use crate::observe::calibration_file;
use crate::report::Selection;
use crate::report::words::{Called, called};
use crate::rights;
use crate::trace::Compression;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// From which records, and what else is known.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  lockbpf advise --pid 1234                            records it, follows its sections, and advises
  lockbpf advise --from accesses.jsonl --trace t.bin
  lockbpf advise --from accesses.jsonl --w insert=1.6
  lockbpf advise --pid 1234 --keep trace.bin           keeps what it rests upon, for later:
  lockbpf advise --from trace.bin

The records' form, and what the advice rests upon, are told in docs/advice.md.")]
pub(super) struct AdviseArgs {
    /// A running process: every section is recorded for a moment, then sampled ones are followed (`lockbpf access`).
    #[arg(short, long, value_name = "PID", conflicts_with_all = ["from", "trace"])]
    pub pid: Option<u32>,
    /// With --pid: sections of this lock only, by a part of its name, or its address (repeatable).
    #[arg(long, value_name = "LOCK", requires = "pid")]
    pub lock: Vec<String>,
    /// With --pid: sections of each lock to follow.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub samples: u64,
    /// With --pid: share of its threads' time for which sampled threads may be held up.
    #[arg(long, value_name = "SHARE", value_parser = some_share, default_value = "2%")]
    pub budget: Budget,
    /// With --pid: for how long every section is recorded.
    #[arg(long, value_name = "TIME", value_parser = super::limits::span, default_value = "1s")]
    pub timing: Duration,
    /// With --pid: keep the recording and the access records in this trace (`.bin`, `.trace`).
    #[arg(long, value_name = "FILE", requires = "pid")]
    pub keep: Option<PathBuf>,
    /// Access records, one critical section a line, or a trace that holds them; `-` is standard input.
    #[arg(long, value_name = "FILE", required_unless_present = "pid")]
    pub from: Option<PathBuf>,
    /// A recording of the same program, a trace (best with every section: `lockbpf export --all-events`) or event lines: who
    /// waited for whom and for how long, and what changes would gain. Default: that in the file named by --from, if there is one.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Sections of this site wait for so many other threads' holds, on average (repeatable).
    #[arg(long, value_name = "SITE=VALUE", value_parser = named_number)]
    pub w: Vec<(String, f64)>,
    /// What recording a lock operation cost in the trace, ns. Default: as calibrated on this machine, if lockbpf recorded the
    /// trace.
    #[arg(long, value_name = "NS", value_parser = number)]
    pub overhead: Option<f64>,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

fn number(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        _ => Err(format!("`{text}` is no number of 0 or more")),
    }
}

fn named_number(text: &str) -> Result<(String, f64), String> {
    let (name, value) = text.rsplit_once('=').ok_or("`=` and a number are missing")?;
    Ok((name.to_owned(), number(value)?))
}

/// Advises and prints.
///
/// # Errors
/// When the records or the recording cannot be read, or no section has the name.
pub(super) fn run(args: &AdviseArgs) -> Result<ExitCode> {
    let (records, recording, mut cautions) = match (&args.from, args.pid) {
        (Some(from), _) => read(from, args.trace.as_deref())?,
        (None, Some(pid)) => watch(pid, args)?,
        (None, None) => bail!("nothing to advise on: name access records with --from, or a process with --pid"),
    };
    if args.overhead.is_some() && recording.is_none() {
        bail!("--overhead is what recording cost: name a recording with --trace");
    }
    let known = Known { w: args.w.clone(), overhead_ns: args.overhead };
    let (timed, called) = recording.as_ref().map_or((None, &[][..]), |(timed, called)| (Some(timed), called));
    let mut advice = of(&records, timed, called, &known)?;
    advice.cautions.append(&mut cautions);
    output::write(&match args.format {
        Format::Table => advice::render(&advice, output::layout().width),
        Format::Json => output::json(&advice, "advice")?,
    })?;
    Ok(ExitCode::SUCCESS)
}

/// What the user knows.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// By site, for how many other threads' holds its sections wait.
    pub w: Vec<(String, f64)>,
    /// What recording a lock operation cost, ns.
    pub overhead_ns: Option<f64>,
}

/// Advice from access records and a recording of the same program, some of whose sections are called by several functions.
///
/// # Errors
/// When no section has a name that is given, or the calibration cannot be read.
pub(super) fn of(records: &Records, timed: Option<&Timed>, called: &[Called], known: &Known) -> Result<Advice> {
    let mut w = BTreeMap::new();
    for (name, value) in &known.w {
        let Some(site) = records.sites.find(name) else {
            let some: Vec<&str> = records.sites.iter().take(8).collect();
            bail!("no section of the records is called `{name}`; they have {}", some.join(", "));
        };
        w.insert(site, *value);
    }
    let calibrated = match timed {
        Some(timed) if timed.captured && known.overhead_ns.is_none() => calibration_file::load()?,
        _ => None,
    };
    let operation_ns = known.overhead_ns.or_else(|| calibrated?.observer_operation_ns);
    let traced = timed.map(|timed| {
        let ticks = timed.recorded.script.ticks_per_ns;
        Traced::new(records, &timed.timing, &timed.names, &timed.counted, ticks)
    });
    let predictor = timed.zip(traced.as_ref()).map(|(timed, traced)| {
        let recorded = &timed.recorded;
        Predictor::new(recorded.oracle(None), &recorded.script, traced)
    });
    let site = |called: &Called| called.names.iter().find_map(|name| records.sites.find(name));
    let callers = called.iter().filter_map(|called| Some((site(called)?, called.by.clone()))).collect();
    let options = Options { w, traced: traced.as_ref(), predictor: predictor.as_ref(), operation_ns, callers };
    let mut advice = advice::advise(records, &options);
    if let Some(timed) = timed {
        advice.cautions.extend(timed.recorded.remarks.iter().cloned());
        if timed.captured && operation_ns.is_none() {
            advice.cautions.push(
                "What recording cost is not known (run `lockbpf calibrate`, or give --overhead): waits for short sections are too long."
                    .to_owned(),
            );
        }
    }
    Ok(advice)
}

/// The whole chain on a running process: its records, its timing, and what could make both wrong.
fn watch(pid: u32, args: &AdviseArgs) -> Result<(Records, Option<Read>, Vec<String>)> {
    check(pid)?;
    if let Some(keep) = &args.keep
        && !matches!(destination::format(keep, None), Ok(ExportFormat::Bin))
    {
        bail!("--keep writes a trace: the suffix of {} is neither `.bin` nor `.trace`", keep.display());
    }
    let kept = args.keep.as_deref().map(Whole::create).transpose()?;
    say!("recording every section of pid {pid} for {}", humantime::format_duration(args.timing));
    let capture = CaptureArgs {
        duration: Some(args.timing),
        budget: Share(None),
        all_events: true,
        no_focus: true,
        ..CaptureArgs::default()
    };
    let plan = Plan { target: Target::Pids(vec![pid]), follow_forks: false, capture };
    let trace = destination::temporary()?;
    export::record(&plan, trace.as_file(), trace.path(), Compression::None)?;
    let asked = AccessArgs { lock: args.lock.clone(), samples: args.samples, ..AccessArgs::of(pid, args.budget) };
    let followed = access::follow(pid, &asked)?;
    rights::give_up()?;
    let mut lines = Vec::new();
    accesses::write_lines(&mut lines, &followed.records).context("failed to put down what was followed")?;
    let records = advice::read(&lines[..]).context("failed to understand what was followed")?;
    if records.executions.is_empty() {
        bail!("no section of pid {pid} could be followed to its end: {}", followed.summary.notes.join(" "));
    }
    let recording = Input::open(trace.path())?;
    if let Some(mut kept) = kept {
        let to = args.keep.as_deref().map(destination::told).unwrap_or_default();
        convert::to_trace(&recording, &mut kept, Compression::None, &lines)
            .with_context(|| format!("failed to keep the recording in {to}"))?;
        kept.finish()?;
    }
    Ok((records, Some(read_recording(&recording)?), followed.summary.notes))
}

/// A recording, and its sections that are called by several functions.
type Read = (Timed, Vec<Called>);

fn read_recording(input: &Input) -> Result<Read> {
    let timed = script::read_timed_input(input)?;
    let report = Recording::of(input, analysis::Options::default())?.report(Selection::default())?;
    Ok((timed, called(&report)))
}

/// Records, the recording in the same file or another one, and what of the records is missing.
fn read(from: &Path, trace: Option<&Path>) -> Result<(Records, Option<Read>, Vec<String>)> {
    let input = Input::open(from)?;
    let Accesses { records, remarks, has_events } = accesses::read(&input)?;
    let timed = match trace {
        Some(trace) => Some(read_recording(&Input::open(trace)?)?),
        None if has_events => Some(read_recording(&input)?),
        None => None,
    };
    Ok((records, timed, remarks))
}
