//! The command line tool: parses, observes, prints. The only place that writes to stdout and stderr, and the only exit.

mod args;

use args::Cli;
use clap::Parser;
use std::process::ExitCode;

/// Runs the tool.
#[must_use]
pub fn main() -> ExitCode {
    let _cli = Cli::parse();
    ExitCode::SUCCESS
}
