//! One observation from the command line to the report.

use super::args::{CommonArgs, Format, Plan};
use super::looks::{Looked, Looks};
use super::{live, output};
use crate::observe::{Collector, conclude};
use crate::report::{self, Report};
use crate::rights;
use anyhow::Result;
use std::process::ExitCode;

/// Runs one observation and prints its report; `name` describes the target if its command line would not.
///
/// # Errors
/// When it cannot begin, or its report cannot be written.
pub(super) fn run(plan: &Plan, common: &CommonArgs, name: Option<&str>) -> Result<ExitCode> {
    let default = (common.format == Format::Table).then_some(output::TABLE_TOP);
    let (options, futex_only) = (plan.request(name).report_options(common.top.or(default)), plan.capture.futex_only);
    let looks = common.every.map(|every| Looks::new(every, &options, futex_only));
    let mut looked = Looked { collector: Collector::default(), looks };
    let captured = live::observe(plan, name, &mut looked)?;
    // Names and the report come from what is open already.
    rights::give_up()?;
    let (report, incomplete) = conclude(looked.collector.finish(captured, futex_only), &options)?;
    print(&report, common)?;
    let failed = plan.capture.strict && incomplete;
    Ok(if failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn print(report: &Report, common: &CommonArgs) -> Result<()> {
    output::write(&match common.format {
        Format::Table => report::table::render(report, &output::layout()),
        Format::Json => output::json(report, "report")?,
    })
}
