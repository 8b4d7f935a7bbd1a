//! Formats on the command line: those of recordings and reports, and those of viewers.

use super::report::Recording;
use super::source::Input;
use super::{destination, page};
use crate::analysis;
use crate::render::{FORMATS, Format, Page, Renderer};
use crate::report::profile::Profile;
use crate::report::schema::Ns;
use crate::report::words::called;
use crate::report::{MAX_RUNS, Selection, side_by_side};
use anyhow::{Context, Result, anyhow, bail};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use std::io::Write;
use std::path::Path;

/// Formats of recordings, or a viewer's.
#[derive(Clone, Copy, Debug)]
pub(super) enum ExportFormat {
    /// A trace: everything, in little space.
    Bin,
    /// Event lines: one JSON object a step, for other programs.
    Jsonl,
    /// Tables in Parquet, several files in a folder.
    Tables,
    /// A viewer's.
    View(&'static Format),
}

/// Output formats of a report, or a viewer's.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReportFormat {
    /// A report's own.
    Own(OwnFormat),
    /// A viewer's.
    View(&'static Format),
}

/// Output formats of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnFormat {
    /// For people.
    Table,
    /// For programs: schema `lockbpf.report/1`.
    Json,
    /// The wait graph for Graphviz.
    Dot,
}

/// A format's name, what it is, and what it stands for.
type Named<T> = (&'static str, &'static str, T);

const EXPORT: &[Named<ExportFormat>] = &[
    ("bin", "A trace: everything, in little space", ExportFormat::Bin),
    ("jsonl", "Event lines: one JSON object a step, for other programs", ExportFormat::Jsonl),
    ("parquet", "Tables in Parquet, for DuckDB and others: --to names a folder", ExportFormat::Tables),
];

const REPORT: &[Named<ReportFormat>] = &[
    ("table", "For people", ReportFormat::Own(OwnFormat::Table)),
    ("json", "For programs: schema `lockbpf.report/1`", ReportFormat::Own(OwnFormat::Json)),
    ("dot", "The wait graph for Graphviz; with `--graph`", ReportFormat::Own(OwnFormat::Dot)),
];

/// Formats to export in, by name.
pub(super) fn export() -> impl TypedValueParser<Value = ExportFormat> {
    parser(EXPORT, ExportFormat::View)
}

/// Formats to report in, by name.
pub(super) fn report() -> impl TypedValueParser<Value = ReportFormat> {
    parser(REPORT, ReportFormat::View)
}

fn parser<T: Copy + Send + Sync + 'static>(
    own: &'static [Named<T>],
    view: fn(&'static Format) -> T,
) -> impl TypedValueParser<Value = T> {
    let named = |&(name, about, _): &Named<T>| PossibleValue::new(name).help(about);
    let views = FORMATS.iter().map(|format| PossibleValue::new(format.name).help(format.about));
    PossibleValuesParser::new(own.iter().map(named).chain(views)).try_map(move |name| {
        let own = own.iter().find(|format| format.0 == name).map(|format| format.2);
        let viewed = || FORMATS.iter().find(|format| format.name == name).map(view);
        own.or_else(viewed).ok_or("no such format")
    })
}

/// Analyses a recording for a viewer.
///
/// # Errors
/// When it cannot be read, or is none.
pub(super) fn analyse(input: &Input, format: &Format) -> Result<Recording> {
    let how = analysis::Options { detail: format.is_timeline(), ..analysis::Options::default() };
    let mut recording = Recording::of(input, how)?;
    Ok(match format.renderer {
        Renderer::Page(_) => {
            let has_accesses = recording.access_records > 0;
            let called = || recording.report(Selection::default()).map(|report| called(&report)).unwrap_or_default();
            let answers = page::ask(input, has_accesses, called);
            recording.asked(answers)
        }
        Renderer::Profile(_) | Renderer::Timed(_) | Renderer::Timeline(_) => recording,
    })
}

/// Writes recordings in a viewer's format, and tells what that has no place for. Returns whether one of them is incomplete.
///
/// # Errors
/// When nothing matches the selection, the format shows one recording only, or the result cannot be written.
pub(super) fn view(
    format: &Format,
    recordings: &mut [Recording],
    selection: &Selection,
    to: &Path,
    out: &mut dyn Write,
) -> Result<bool> {
    let failed = || format!("failed to write {}", destination::told(to));
    let mut reports = Vec::with_capacity(recordings.len());
    match format.renderer {
        Renderer::Profile(render) | Renderer::Timed(render) => {
            let mut all: Option<Profile> = None;
            for recording in recordings {
                let (report, profile) = recording.profile(selection.clone())?;
                reports.push(report);
                match &mut all {
                    Some(all) => all.add(profile),
                    None => all = Some(profile),
                }
            }
            render(&all.unwrap_or_default(), out).with_context(failed)?;
        }
        Renderer::Timeline(render) => {
            let mut runs = Vec::with_capacity(recordings.len());
            for recording in recordings {
                let (report, timeline) = recording.timeline(selection.clone())?;
                reports.push(report);
                runs.push(timeline);
            }
            if runs.len() > 1 {
                say!(
                    "lockbpf: {} runs beside each other, each from its own beginning, numbered in the order in which they were named",
                    runs.len()
                );
            }
            let timeline = side_by_side(runs);
            render(&timeline, out).with_context(failed)?;
            if timeline.not_shown_ns > Ns::default() {
                say!(
                    "lockbpf: {} of waiting was counted, but not recorded one by one: the timeline does not show it",
                    timeline.not_shown_ns
                );
            }
        }
        Renderer::Page(render) => {
            let recordings_given = recordings.len();
            let [recording] = recordings else { return Err(shows_one(format, recordings_given)) };
            let page = recording.page(selection.clone())?;
            render(&page, out).with_context(failed)?;
            let Page { report, .. } = page;
            reports.push(report);
        }
    }
    say!("lockbpf: {}", format.leaves_out);
    for note in reports.iter().flat_map(|report| &report.quality.notes) {
        say!("lockbpf: {note}");
    }
    Ok(reports.iter().any(|report| report.quality.incomplete))
}

/// Refuses several recordings, before they are read, where a format has no place for them.
///
/// # Errors
/// When it cannot.
pub(super) fn check_takes(format: ExportFormat, recordings: usize) -> Result<()> {
    let name = match format {
        _ if recordings < 2 => return Ok(()),
        ExportFormat::View(format) => match format.renderer {
            Renderer::Profile(_) | Renderer::Timed(_) => return Ok(()),
            Renderer::Timeline(_) if recordings <= MAX_RUNS => return Ok(()),
            Renderer::Timeline(_) => bail!(
                "--format {} shows up to {MAX_RUNS} recordings, not {recordings}: name fewer of them",
                format.name
            ),
            Renderer::Page(_) => return Err(shows_one(format, recordings)),
        },
        ExportFormat::Bin => "bin",
        ExportFormat::Jsonl => "jsonl",
        ExportFormat::Tables => "parquet",
    };
    bail!("--as {name} takes one recording, not {recordings}: convert them one by one")
}

fn shows_one(format: &Format, recordings: usize) -> anyhow::Error {
    let instead = "ask for them one by one, or for two of them with `lockbpf diff A B --format html`";
    anyhow!("--format {} shows one recording, not {recordings}: {instead}", format.name)
}
