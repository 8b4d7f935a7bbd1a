//! `lockbpf diff`: what changed from one recording to another.

use super::output;
use super::report::Recording;
use crate::analysis;
use crate::diff::gate::{self, Condition, Outcome};
use crate::diff::{self, Thresholds};
use crate::render;
use crate::report::{Report, Selection};
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Which recordings to compare.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  lockbpf diff before.bin after.bin                              what changed
  lockbpf diff before.bin after.bin --fail-if 'wait > +20%'      a gate for continuous integration

Exit status: 0 done; 1 done, but a recording is incomplete (with --strict); 2 error; 3 a condition of --fail-if is met.")]
pub(super) struct DiffArgs {
    /// The recording before: a trace file or event lines.
    pub a: PathBuf,
    /// The recording after.
    pub b: PathBuf,
    /// Output format.
    #[arg(long, value_enum, default_value_t = DiffFormat::Table)]
    pub format: DiffFormat,
    /// Show at most this many locks and sites in the table, those that changed most.
    #[arg(long, value_name = "N", default_value_t = output::TABLE_TOP, value_parser = super::limits::top)]
    pub top: usize,
    /// Call out changes by this factor or more.
    #[arg(long, value_name = "N", default_value_t = Thresholds::default().factor, value_parser = factor)]
    pub factor: f64,
    /// Exit with status 3 if this grew by more than so much, beyond what chance explains: `wait > +20%` of the whole program,
    /// `hold[cache_lock] > +50%` of each lock whose name contains that (`[]`: of every lock). There are wait, hold, held, contended and
    /// acquisitions. `hold[] > 2ms` bounds B's value, `acquisitions < -10%` a decrease; `and` joins them (repeatable).
    #[arg(long, value_name = "CONDITION")]
    pub fail_if: Vec<Condition>,
    /// With `--fail-if`: exit with status 3 also where that cannot be told.
    #[arg(long, requires = "fail_if")]
    pub fail_if_inconclusive: bool,
    /// Exit with status 1 if anything is missing from a recording.
    #[arg(long)]
    pub strict: bool,
}

/// Output formats of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum DiffFormat {
    /// For people.
    Table,
    /// For programs: schema `lockbpf.diff/1`.
    Json,
    /// For summaries and comments in continuous integration.
    Markdown,
    /// One page to look at, without network.
    Html,
    /// Annotations of GitHub's workflows: conditions that did not pass, and changes.
    Github,
}

/// Exit status where a condition of the gate failed.
const GATE_FAILED: u8 = 3;

fn factor(text: &str) -> Result<f64, String> {
    let factor: f64 = text.parse().map_err(|error: std::num::ParseFloatError| error.to_string())?;
    if factor >= 1.0 && factor.is_finite() { Ok(factor) } else { Err("not a factor of 1 or more".to_owned()) }
}

/// Compares two recordings and prints the comparison.
///
/// # Errors
/// When one of them cannot be read or has no duration, or the comparison cannot be written.
pub(super) fn run(args: &DiffArgs) -> Result<ExitCode> {
    let (a, b) = (report(&args.a)?, report(&args.b)?);
    let mut diff = diff::diff(&a, &b, Thresholds { factor: args.factor, ..Thresholds::default() })?;
    diff.gate = gate::judge(&diff, &args.fail_if);
    output::write(match args.format {
        DiffFormat::Table => diff::table::render(&diff, args.top, output::layout().width),
        DiffFormat::Json => output::json(&diff, "comparison")?,
        DiffFormat::Markdown => diff::markdown::render(&diff, args.top),
        DiffFormat::Html => render::comparison(&diff, &a, &b).context("failed to put the comparison into a page")?,
        DiffFormat::Github => diff::markdown::annotations(&diff),
    })?;
    let worst = diff.gate.iter().map(|judged| judged.outcome).max();
    if worst == Some(Outcome::Failed) || args.fail_if_inconclusive && worst == Some(Outcome::Inconclusive) {
        return Ok(ExitCode::from(GATE_FAILED));
    }
    Ok(ExitCode::from(u8::from(args.strict && (diff.a.incomplete || diff.b.incomplete))))
}

fn report(path: &Path) -> Result<Report> {
    Ok(Recording::analyse(path, analysis::Options::default())?.report(Selection::default())?)
}
