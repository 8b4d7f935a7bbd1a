//! One observation from the command line to the report.

use super::args::{CommonArgs, Format, Plan};
use super::collect::Collector;
use super::looks::Looks;
use super::{live, output};
use crate::capture::lent;
use crate::observation::Observation;
use crate::report::{self, Report, Selection};
use crate::symbol::Symbols;
use crate::units::Nanos;
use anyhow::Result;
use std::process::ExitCode;

/// Runs one observation and prints its report; `name` describes the target if its command line would not.
///
/// # Errors
/// When it cannot begin, or its report cannot be written.
pub(super) fn run(plan: &Plan, common: &CommonArgs, name: Option<&str>) -> Result<ExitCode> {
    let (options, futex_only) = (report_options(common), plan.capture.futex_only);
    let looks = common.every.map(|every| Looks::new(every, &options, futex_only));
    let mut collector = Collector::default().looked_at(looks);
    let captured = live::observe(plan, name, &mut collector)?;
    // Names and the report come from what is open already.
    lent::give_up()?;
    let (report, incomplete) = conclude(collector.finish(captured, futex_only), &options)?;
    print(&report, common)?;
    let failed = plan.capture.strict && incomplete;
    Ok(if failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// The report of an observation that is over, and whether anything is missing from it.
///
/// # Errors
/// When it cannot be made.
pub(super) fn conclude(
    (observation, mut symbols): (Observation, Symbols),
    options: &report::Options,
) -> Result<(Report, bool)> {
    let mut report = match report::build(&observation, &mut symbols, options) {
        Ok(report) => report,
        Err(unmatched) => {
            // Nothing went wrong: it was not used.
            let mut report = report::build(
                &observation,
                &mut symbols,
                &report::Options { selection: Selection::default(), ..options.clone() },
            )?;
            report.quality.notes.push(format!("Not restricted: {unmatched}."));
            report
        }
    };
    report.quality.notes.extend(symbols.problems().map(|problem| format!("{problem}.")));
    Ok((report, observation.quality.incomplete()))
}

fn report_options(common: &CommonArgs) -> report::Options {
    let min_wait = common.capture.min_wait.unwrap_or_default();
    let default = (common.format == Format::Table).then_some(output::TABLE_TOP);
    report::Options {
        top: common.top.or(default),
        min_wait: Nanos(min_wait.as_nanos() as u64),
        selection: common.capture.selection(),
    }
}

fn print(report: &Report, common: &CommonArgs) -> Result<()> {
    output::write(&match common.format {
        Format::Table => report::table::render(report, &output::layout()),
        Format::Json => output::json(report, "report")?,
    })
}
