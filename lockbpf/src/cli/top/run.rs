//! `lockbpf top`: the command, from its arguments to what is told after the screen.

use super::screen;
use super::sink::Shown;
use crate::capture::launch::How;
use crate::cli::args::{CaptureArgs, Plan, TargetArgs};
use crate::cli::{ends, live, output};
use crate::observe::{Target, conclude};
use crate::report::{self, table};
use crate::rights;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::process::ExitCode;
use std::sync::Arc;

/// Whom to watch, and how.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  lockbpf top --pid 1234            a process
  lockbpf top --system-wide         everything
  lockbpf top -- ./server           a command; what it writes goes to a file whose name is told at the end
  lockbpf top --pid 1234 --report   with the whole report afterwards

Keys: ? shows them all; q ends.")]
pub struct TopArgs {
    /// Whom.
    #[command(flatten)]
    pub target: TargetArgs,
    /// How.
    #[command(flatten)]
    pub capture: CaptureArgs,
    /// Print the whole report after the screen, as `lockbpf` without a command does. Without it: the verdict and the worst locks.
    #[arg(long)]
    pub report: bool,
}

/// Shows the observation, and tells what was found.
///
/// # Errors
/// When there is no terminal, it cannot begin, or the report cannot be written.
pub fn run(args: TopArgs) -> Result<ExitCode> {
    screen::check()?;
    let TopArgs { target, capture, report } = args;
    if capture.alerts_on_stdout() {
        bail!("the screen is on standard output: name a file for --alerts");
    }
    let mut plan = Plan::from_args(target, capture)?;
    // What a command writes would be drawn over.
    let written = match &plan.target {
        Target::Command(_) => {
            let create = || tempfile::Builder::new().prefix("lockbpf-top-").suffix(".out").tempfile();
            let file = create().context("failed to create a file for what the command writes")?;
            let (file, path) = file.keep().context("failed to keep a file for what the command writes")?;
            plan.capture.launch = How { output: Some(Arc::new(file)), ..plan.capture.launch };
            Some(path)
        }
        _ => None,
    };
    let (futex_only, strict) = (plan.capture.futex_only, plan.capture.strict);
    let options = plan.request(None).report_options(None);
    ends::before_exit(screen::restore);
    let mut shown = Shown::new(options.clone(), futex_only);
    let captured = live::observe_on_screen(&plan, &mut shown);
    let closed = shown.close();
    // Whatever happened.
    screen::restore();
    let captured = captured?;
    if let Some(path) = written {
        say!("lockbpf: what the command has written is in {}", path.display());
    }
    rights::give_up()?;
    let options = report::Options { top: Some(output::TABLE_TOP), ..options };
    let (found, incomplete) = conclude(shown.finish(captured, futex_only), &options)?;
    let layout = output::layout();
    output::write(if report { table::render(&found, &layout) } else { table::summary(&found, layout.width) })?;
    closed?;
    Ok(ExitCode::from(u8::from(strict && incomplete)))
}
