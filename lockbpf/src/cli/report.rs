//! `lockbpf report`: recordings in, a report out.

use super::again::Again;
use super::formats::{self, ExportFormat, OwnFormat, ReportFormat};
use super::page::Answers;
use super::source::{Ending, Input};
use super::{output, serve};
use crate::analysis::{self, Analyst, Closing};
use crate::fleet::Run;
use crate::id::Process;
use crate::names::Names;
use crate::observation::Observation;
use crate::render::{Format, Page};
use crate::report::combine::{self, combine};
use crate::report::profile::{Mapping, Profile};
use crate::report::timeline::Timeline;
use crate::report::{self, Parts, Report, Rows, Selection, dot};
use crate::trace::{Capture, Header, Modules};
use crate::units::{Nanos, Time};
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Which recordings to analyse, and what to show of them.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  lockbpf report --from t.bin                        the report that the observation would have printed
  lockbpf report --from t.bin --format json          for programs
  lockbpf report --from 1.bin --from 2.bin           several runs: their means, and how far they agree
  lockbpf report --from t.bin --format folded | flamegraph.pl > t.svg
  lockbpf report --from /var/lib/lockbpf/ring        what a flight recorder has kept")]
pub(super) struct ReportArgs {
    /// Trace files or event lines; `-` is standard input. Several are runs of one program: the report tells their means
    /// and how far they agree (repeatable).
    #[arg(long, value_name = "FILE", num_args = 1.., required = true)]
    pub from: Vec<PathBuf>,
    /// Output format.
    #[arg(long, value_parser = formats::report(), default_value = "table")]
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
    /// Instead of printing it, serve `--format firefox` to profiler.firefox.com in a browser on this machine, at this port of the
    /// loopback interface or any, until Ctrl-C; print the URL to open.
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "0")]
    pub serve: Option<u16>,
    /// Exit with status 1 if anything is missing from a recording.
    #[arg(long)]
    pub strict: bool,
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
    let selection = Selection { lock: Parts(args.lock.clone()), site: Parts(args.site.clone()) };
    let format = match args.format {
        ReportFormat::Own(_) if args.serve.is_some() => return serve::check(None).map(|()| ExitCode::SUCCESS),
        ReportFormat::Own(format) => format,
        ReportFormat::View(format) => return view(args, format, &selection),
    };
    if format == OwnFormat::Dot && !args.graph {
        bail!("--format dot draws the wait graph: ask for that with --graph");
    }
    if args.graph && args.from.len() > 1 {
        bail!("--graph shows the wait graph of one recording, not of {}", args.from.len());
    }
    if args.graph && format == OwnFormat::Table {
        say!("lockbpf: the table does not show the graph: use --format json or --format dot");
    }
    let how = analysis::Options {
        detail: args.graph,
        overlapping_barriers: args.barrier_cost == BarrierCost::Overlapping,
        ..analysis::Options::default()
    };
    let recordings = args.from.iter().map(|path| Recording::analyse(path, how)).collect::<Result<Vec<_>>>()?;
    let reports = selected(recordings, &selection)?;
    let default = (format == OwnFormat::Table).then_some(output::TABLE_TOP);
    let report = combine(reports, &combine::Options { top: args.top.or(default), ..combine::Options::default() });
    print(&report, format)?;
    Ok(ExitCode::from(u8::from(args.strict && report.quality.incomplete)))
}

/// Writes the recordings in a viewer's format.
fn view(args: &ReportArgs, format: &'static Format, selection: &Selection) -> Result<ExitCode> {
    if args.serve.is_some() {
        serve::check(Some(format))?;
    }
    formats::check_takes(ExportFormat::View(format), args.from.len())?;
    let analysed = args.from.iter().map(|path| formats::analyse(&Input::open(path)?, format));
    let mut recordings = analysed.collect::<Result<Vec<_>>>()?;
    let mut shown = Vec::new();
    let incomplete = formats::view(format, &mut recordings, selection, Path::new("-"), &mut shown)?;
    match args.serve {
        Some(port) => serve::profile(shown, port)?,
        None => output::write(&shown)?,
    }
    Ok(ExitCode::from(u8::from(args.strict && incomplete)))
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

fn print(report: &Report, format: OwnFormat) -> Result<()> {
    output::write(&match (format, &report.graph) {
        (OwnFormat::Dot, Some(graph)) => dot::render(graph, report),
        (OwnFormat::Dot, None) => bail!("the recording has no wait graph"),
        (OwnFormat::Table, _) => report::table::render(report, &output::layout()),
        (OwnFormat::Json, _) => output::json(report, "report")?,
    })
}

/// A recording, analysed.
pub(super) struct Recording {
    observation: Observation,
    names: Box<dyn Names>,
    min_wait: Nanos,
    /// When it began, ns since 1970 (UTC).
    started_ns: Option<u64>,
    modules: Vec<Modules>,
    /// Access records that it holds beside.
    pub access_records: u64,
    /// Where it was made.
    pub run: Run,
    answers: Answers,
}

impl Recording {
    /// Reads and analyses a recording; `-` is standard input.
    ///
    /// # Errors
    /// When it cannot be read, or is none.
    pub(super) fn analyse(path: &Path, how: analysis::Options) -> Result<Self> {
        Self::of(&Input::open(path)?, how)
    }

    /// Analyses a recording.
    ///
    /// # Errors
    /// When it cannot be read, or is none.
    pub(super) fn of(input: &Input, how: analysis::Options) -> Result<Self> {
        Ok(Self::read(input, how, false)?.0)
    }

    /// Analyses a recording, of which every wait and hold is to be read later.
    ///
    /// # Errors
    /// When it cannot be read, or is none.
    pub(super) fn twice(input: &Input) -> Result<(Self, Again)> {
        let (recording, again) = Self::read(input, analysis::Options::default(), true)?;
        Ok((recording, again.context("the recording is not kept")?))
    }

    fn read(input: &Input, how: analysis::Options, again: bool) -> Result<(Self, Option<Again>)> {
        // Captured sums cover what was not recorded one by one too. Where there are none, they come from the steps.
        let sums_inside = |header: &Header| header.capture.is_some();
        let (mut analyst, mut ending) =
            read(input, |header| analysis::Options { totals: !sums_inside(header), ..how })?;
        if sums_inside(&ending.header) && ending.harvest.sums.is_empty() && analyst.events() > 0 {
            // It was torn before its first sums.
            (analyst, ending) = read(input, |_| analysis::Options { totals: true, ..how })?;
        }
        if analyst.events() == 0 && ending.access_records > 0 && ending.harvest.sums.is_empty() {
            bail!("{} holds access records and nothing else: `lockbpf advise --from` reads those", input.name());
        }
        let Ending { header, harvest, names, modules, end, access_records, .. } = ending;
        let Header { host, kernel, arch, .. } = &header;
        let (host, kernel, arch) = (host.clone(), kernel.clone(), arch.clone());
        // What was converted from event lines lasts from its first event to its last.
        let period = end.filter(|_| header.capture.is_some()).map(|end| (Time(header.start), end));
        let Capture { min_wait_ns, futex_only, .. } = header.capture.unwrap_or_default();
        let target = if header.target.is_empty() { input.name().to_owned() } else { header.target };
        let closing = Closing { target, period, futex_only, ticks_per_ns: header.ticks_per_ns, harvest };
        let again = again.then(|| Again::new(how, header.ticks_per_ns, closing.clone()));
        let (observation, min_wait) = (analyst.finish(closing), Nanos(min_wait_ns));
        let run = Run { host, kernel, arch, version: None, cgroups: cgroups(&modules, &observation) };
        let (started_ns, answers) = (header.wall_ns, Answers::default());
        Ok((Self { observation, names, min_wait, started_ns, modules, access_records, run, answers }, again))
    }

    /// The recording, and what else a page shows of it.
    pub(super) fn asked(self, answers: Answers) -> Self {
        Self { answers, ..self }
    }

    /// Its report, with all its locks.
    ///
    /// # Errors
    /// When nothing matches the selection.
    pub(super) fn report(&mut self, selection: Selection) -> Result<Report, report::Unmatched> {
        let options = self.options(selection);
        report::build(&self.observation, &mut *self.names, &options)
    }

    /// Its report, and all waiting by stack.
    ///
    /// # Errors
    /// When nothing matches the selection.
    pub(super) fn profile(&mut self, selection: Selection) -> Result<(Report, Profile), report::Unmatched> {
        let options = self.options(selection);
        let (report, profile) = report::build_profile(&self.observation, &mut *self.names, &options)?;
        // The same address means something else in another process.
        let mut mapped = self.modules.iter().map(|process| process.modules.as_slice()).filter(|m| !m.is_empty());
        let modules = if let (Some(only), None) = (mapped.next(), mapped.next()) { only } else { &[] };
        let mappings = modules.iter().map(|m| Mapping {
            start: m.start,
            end: m.end,
            file: m.file.clone(),
            build_id: m.build_id.clone(),
        });
        Ok((report, Profile { started_ns: self.started_ns, mappings: mappings.collect(), ..profile }))
    }

    /// Its report, and every recorded wait and hold in time.
    ///
    /// # Errors
    /// When nothing matches the selection.
    pub(super) fn timeline(&mut self, selection: Selection) -> Result<(Report, Timeline), report::Unmatched> {
        let options = self.options(selection);
        let (report, timeline) = report::build_timeline(&self.observation, &mut *self.names, &options)?;
        Ok((report, Timeline { started_ns: self.started_ns, ..timeline }))
    }

    /// Its report with all its locks, and what `read` makes of it and of rows to be read. `read` is
    /// told as well when it began, in ns since 1970, if that is known.
    ///
    /// # Errors
    /// When `read` fails.
    pub(super) fn rows<T>(
        &mut self,
        read: impl FnOnce(&Report, Rows<'_, '_>, Option<u64>) -> Result<T>,
    ) -> Result<(Report, T)> {
        let (options, started_ns) = (self.options(Selection::default()), self.started_ns);
        let read = |report: &Report, rows: Rows<'_, '_>| read(report, rows, started_ns);
        let (report, done) = report::build_rows(&self.observation, &mut *self.names, &options, read)?;
        Ok((report, done?))
    }

    /// Its report, and what pictures of it are drawn from.
    ///
    /// # Errors
    /// When nothing matches the selection.
    pub(super) fn page(&mut self, selection: Selection) -> Result<Page, report::Unmatched> {
        let options = self.options(selection);
        let (report, pictures) = report::build_pictures(&self.observation, &mut *self.names, &options)?;
        let Answers { what_if, advice } = std::mem::take(&mut self.answers);
        Ok(Page { report, pictures, started_ns: self.started_ns, what_if, advice })
    }

    fn options(&self, selection: Selection) -> report::Options {
        report::Options { selection, min_wait: self.min_wait, ..report::Options::default() }
    }

    /// The report of a run in which nothing matches.
    fn nothing_of(&mut self, selection: &Selection) -> Result<Report> {
        let Report { schema, quality, .. } = self.report(Selection::default())?;
        Ok(Report { schema, selection: Some(selection.clone()), quality, ..Report::default() })
    }
}

/// Paths of cgroups by process id. Of an id that has come again in another cgroup none is known.
fn cgroups(modules: &[Modules], observation: &Observation) -> BTreeMap<u32, String> {
    let mut paths: BTreeMap<u32, Option<&str>> = BTreeMap::new();
    for told in modules {
        let seen = observation.processes.get(&Process(told.process));
        if let (Some(seen), Some(path)) = (seen, told.cgroup.as_deref()) {
            let known = paths.entry(seen.pid).or_insert(Some(path));
            known.take_if(|known| *known != path);
        }
    }
    paths.into_iter().filter_map(|(pid, path)| Some((pid, path?.to_owned()))).collect()
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
