//! `cargo xtask goldens`: what lockbpf makes of the recordings in `tests/goldens`, compared with what was accepted, or accepted anew.

use std::{io, process::ExitCode};

use anyhow::{Result, bail};

use crate::{
    test::step::{self, Verdict},
    workspace,
};

/// Arguments of `goldens`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Take what lockbpf writes now as right: look at `git diff tests/goldens` afterwards
    #[arg(long)]
    accept: bool,
}

/// Compares or accepts.
///
/// # Errors
/// The goldens differ, or the tests cannot be run.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut test = workspace::cargo();
    // A debug build, in which a report that contradicts itself ends the program.
    test.args(["test", "--quiet", "--package", "lockbpf", "--test", "goldens"]);
    if args.accept {
        test.env("LOCKBPF_ACCEPT_GOLDENS", "1");
    }
    match step::run_tests(&mut test, &mut io::stdout())?.verdict {
        Verdict::Passed => Ok(ExitCode::SUCCESS),
        Verdict::Failed | Verdict::Skipped => bail!("the goldens were not matched or not renewed"),
    }
}
