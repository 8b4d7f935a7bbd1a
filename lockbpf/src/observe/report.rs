//! From an observation to the report on it.

use super::audience::Log;
use super::collect::Collector;
use super::request::Request;
use super::run::observe;
use crate::observation::Observation;
use crate::report::{self, Report, Selection};
use crate::symbol::Symbols;
use anyhow::Result;

/// Observes, and reports what was seen.
///
/// # Errors
/// When the target cannot be observed.
pub fn report(request: &Request) -> Result<Report> {
    let mut collector = Collector::default();
    let captured = observe(request, &mut collector, &mut Log)?;
    conclude(collector.finish(captured, request.futex_only), &request.report_options(None)).map(|(report, _)| report)
}

/// The report of an observation that is over, and whether anything is missing from it.
///
/// # Errors
/// When it cannot be made.
pub fn conclude(
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
