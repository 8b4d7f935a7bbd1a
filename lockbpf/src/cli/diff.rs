//! `lockbpf diff`: what changed from one recording to another.

use super::args::Format;
use super::output;
use super::report::Recording;
use crate::analysis;
use crate::diff::{self, Thresholds};
use crate::report::{Report, Selection};
use anyhow::Result;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Which recordings to compare.
#[derive(Clone, Debug, Args)]
pub(super) struct DiffArgs {
    /// The recording before: a trace file or event lines.
    pub a: PathBuf,
    /// The recording after.
    pub b: PathBuf,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Show at most this many locks and sites in the table, those that changed most.
    #[arg(long, value_name = "N", default_value_t = output::TABLE_TOP, value_parser = super::limits::top)]
    pub top: usize,
    /// Call out changes by this factor or more.
    #[arg(long, value_name = "N", default_value_t = Thresholds::default().factor, value_parser = factor)]
    pub factor: f64,
    /// Exit with status 1 if anything is missing from a recording.
    #[arg(long)]
    pub strict: bool,
}

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
    let diff = diff::diff(&a, &b, Thresholds { factor: args.factor, ..Thresholds::default() })?;
    output::write(&match args.format {
        Format::Table => diff::table::render(&diff, args.top, output::layout().width),
        Format::Json => output::json(&diff, "comparison")?,
    })?;
    Ok(ExitCode::from(u8::from(args.strict && (diff.a.incomplete || diff.b.incomplete))))
}

fn report(path: &Path) -> Result<Report> {
    Ok(Recording::analyse(path, analysis::Options::default())?.report(Selection::default())?)
}
