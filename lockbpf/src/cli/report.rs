//! `lockbpf report`: recordings in, a report out.

use super::output;
use super::source::{Ending, Input};
use crate::analysis::{self, Analyst, Closing};
use crate::names::Names;
use crate::observation::Observation;
use crate::report::combine::{self, combine};
use crate::report::{self, Parts, Report, Selection, dot};
use crate::trace::{Capture, Header};
use crate::units::{Nanos, Time};
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Which recordings to analyse, and what to show of them.
#[derive(Clone, Debug, Args)]
pub(super) struct ReportArgs {
    /// Trace files or event lines; `-` is standard input. Several are runs of one program: the report tells their means
    /// and how far they agree (repeatable).
    #[arg(long, value_name = "FILE", num_args = 1.., required = true)]
    pub from: Vec<PathBuf>,
    /// Output format.
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    pub format: ReportFormat,
    /// Add the wait graph itself to the JSON, or draw it with `--format dot`.
    #[arg(long)]
    pub graph: bool,
    /// Show at most this many locks, the most harmful ones. Default: 10 in the table, all of them in JSON.
    #[arg(long, value_name = "N", value_parser = super::limits::top)]
    pub top: Option<usize>,
    /// Only critical sections whose symbol or identity contains this, and their locks (repeatable: any of them).
    #[arg(long, value_name = "SITE")]
    pub site: Vec<String>,
    /// Only locks whose name or identity contains this (repeatable: any of them).
    #[arg(long, value_name = "LOCK")]
    pub lock: Vec<String>,
    /// What an arrival at a barrier is charged with, for each thread that waits there.
    #[arg(long, value_enum, default_value_t = BarrierCost::Exclusive)]
    pub barrier_cost: BarrierCost,
    /// Exit with status 1 if anything is missing from a recording.
    #[arg(long)]
    pub strict: bool,
}

/// Output formats of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ReportFormat {
    /// For people.
    Table,
    /// For programs: schema `lockbpf.report/1`.
    Json,
    /// The wait graph for Graphviz; with `--graph`.
    Dot,
}

/// What an arrival at a barrier is charged with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum BarrierCost {
    /// All the time that the other has waited: what several late threads cause is counted for each of them.
    Overlapping,
    /// The time since the arrival before it: the costs add up to the waiting.
    Exclusive,
}

/// Analyses the recordings and prints the report.
///
/// # Errors
/// When a recording cannot be read, nothing matches, or the report cannot be written.
pub(super) fn run(args: &ReportArgs) -> Result<ExitCode> {
    if args.format == ReportFormat::Dot && !args.graph {
        bail!("--format dot draws the wait graph: ask for that with --graph");
    }
    if args.graph && args.from.len() > 1 {
        bail!("--graph shows the wait graph of one recording, not of {}", args.from.len());
    }
    if args.graph && args.format == ReportFormat::Table {
        eprintln!("lockbpf: the table does not show the graph: use --format json or --format dot");
    }
    let how = analysis::Options {
        detail: args.graph,
        overlapping_barriers: args.barrier_cost == BarrierCost::Overlapping,
        ..analysis::Options::default()
    };
    let selection = Selection { lock: Parts(args.lock.clone()), site: Parts(args.site.clone()) };
    let recordings = args.from.iter().map(|path| Recording::analyse(path, how)).collect::<Result<Vec<_>>>()?;
    let reports = selected(recordings, &selection)?;
    let default = (args.format == ReportFormat::Table).then_some(output::TABLE_TOP);
    let report = combine(reports, &combine::Options { top: args.top.or(default), ..combine::Options::default() });
    print(&report, args.format)?;
    Ok(ExitCode::from(u8::from(args.strict && report.quality.incomplete)))
}

/// The reports of all recordings. A selection need not match in each, if it does in one.
fn selected(recordings: Vec<Recording>, selection: &Selection) -> Result<Vec<Report>> {
    let mut reports = Vec::with_capacity(recordings.len());
    let mut unmatched = Vec::new();
    for mut recording in recordings {
        match recording.report(selection.clone()) {
            Ok(report) => reports.push(report),
            Err(error) => {
                unmatched.push(error);
                reports.push(recording.nothing_of(selection)?);
            }
        }
    }
    match unmatched.pop() {
        Some(error) if unmatched.len() + 1 == reports.len() => Err(error.into()),
        _ => Ok(reports),
    }
}

fn print(report: &Report, format: ReportFormat) -> Result<()> {
    output::write(&match (format, &report.graph) {
        (ReportFormat::Dot, Some(graph)) => dot::render(graph, report),
        (ReportFormat::Dot, None) => bail!("the recording has no wait graph"),
        (ReportFormat::Table, _) => report::table::render(report, &output::layout()),
        (ReportFormat::Json, _) => output::json(report, "report")?,
    })
}

/// A recording, analysed.
pub(super) struct Recording {
    observation: Observation,
    names: Box<dyn Names>,
    min_wait: Nanos,
}

impl Recording {
    /// Reads and analyses a recording; `-` is standard input.
    ///
    /// # Errors
    /// When it cannot be read, or is none.
    pub(super) fn analyse(path: &Path, how: analysis::Options) -> Result<Self> {
        let input = Input::open(path)?;
        // Captured sums cover what was not recorded one by one too. Where there are none, they come from the steps.
        let sums_inside = |header: &Header| header.capture.is_some();
        let (mut analyst, mut ending) =
            read(&input, |header| analysis::Options { totals: !sums_inside(header), ..how })?;
        if sums_inside(&ending.header) && ending.harvest.sums.is_empty() && analyst.events() > 0 {
            // It was torn before its first sums.
            (analyst, ending) = read(&input, |_| analysis::Options { totals: true, ..how })?;
        }
        if analyst.events() == 0 && ending.access_records > 0 && ending.harvest.sums.is_empty() {
            bail!("{} holds access records and nothing else: `lockbpf advise --from` reads those", input.name());
        }
        let Ending { header, harvest, names, end, .. } = ending;
        // What was converted from event lines lasts from its first event to its last.
        let period = end.filter(|_| header.capture.is_some()).map(|end| (Time(header.start), end));
        let Capture { min_wait_ns, futex_only, .. } = header.capture.unwrap_or_default();
        let target = if header.target.is_empty() { input.name().to_owned() } else { header.target };
        let closing = Closing { target, period, futex_only, ticks_per_ns: header.ticks_per_ns, harvest };
        Ok(Self { observation: analyst.finish(closing), names, min_wait: Nanos(min_wait_ns) })
    }

    /// Its report, with all its locks.
    ///
    /// # Errors
    /// When nothing matches the selection.
    pub(super) fn report(&mut self, selection: Selection) -> Result<Report, report::Unmatched> {
        let options = report::Options { selection, min_wait: self.min_wait, ..report::Options::default() };
        report::build(&self.observation, &mut *self.names, &options)
    }

    /// The report of a run in which nothing matches.
    fn nothing_of(&mut self, selection: &Selection) -> Result<Report> {
        let Report { schema, quality, .. } = self.report(Selection::default())?;
        Ok(Report { schema, selection: Some(selection.clone()), quality, ..Report::default() })
    }
}

fn read(input: &Input, how: impl Fn(&Header) -> analysis::Options) -> Result<(Analyst, Ending)> {
    input.read(
        |header| Analyst::new(how(header)),
        |analyst, event| {
            analyst.take(event);
            Ok(())
        },
    )
}
