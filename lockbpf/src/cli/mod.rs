//! The command line tool: parses, observes, prints. The only place that writes to stdout and stderr, and the only exit.

/// Writes a message to stderr. What it quotes cannot write on the terminal, nor pass for a message of its own.
macro_rules! say {
    ($($message:tt)*) => { $crate::cli::output::say(&format!($($message)*)) };
}

mod access;
mod accesses;
mod advise;
mod again;
mod agent;
mod alert_args;
mod alerts;
mod args;
mod calibrate;
mod command;
mod convert;
mod described;
mod destination;
mod diff;
mod doctor;
mod dump;
mod ends;
mod export;
mod flight;
mod flight_args;
mod formats;
mod holders;
mod http;
mod limits;
mod live;
mod looks;
mod manual;
mod messages;
mod observe;
mod output;
mod page;
mod parquet;
mod place;
mod predict;
mod probing;
mod progress;
mod report;
mod script;
mod segments;
mod select;
mod serve;
mod source;
mod summed;
mod tables;
mod top;
mod what_if;

use crate::helper;
use crate::observe::{self as observation, Target};
use crate::rights;
use anyhow::{Context, Result};
use args::{Format, ObserveArgs, Plan};
use clap::{CommandFactory as _, Parser};
use command::{Cli, Command};
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

/// How long `lockbpf demo` observes if it is not told.
const DEMO_DURATION: Duration = Duration::from_secs(5);

/// What of the log is shown, without `--verbose`, with it, and with two of it.
const LEVELS: [&str; 3] = ["warn", "info,lockbpf=debug", "trace"];

/// Runs the tool.
#[must_use]
pub fn main() -> ExitCode {
    if helper::is_one() {
        log(LEVELS[0]);
    }
    if let Some(code) = observation::serve() {
        return code;
    }
    if let Err(error) = rights::lay_down() {
        say!("lockbpf: {error}");
        return ExitCode::from(2);
    }
    let cli = Cli::parse();
    let verbose = match &cli.command {
        Some(Command::Demo { common }) => common.capture.verbose,
        Some(Command::Export(args)) => args.capture.verbose,
        Some(Command::Top(args)) => args.capture.verbose,
        Some(_) => 0,
        None => cli.observe.common.capture.verbose,
    };
    log(LEVELS[usize::from(verbose.min(2))]);
    let code = run(cli).unwrap_or_else(|error| {
        say!("lockbpf: {error:#}");
        ExitCode::from(2)
    });
    observation::settle(&|text| say!("lockbpf: {text}"));
    code
}

/// Shows the log from this level on, unless `LOCKBPF_LOG` says otherwise.
fn log(level: &str) {
    env_logger::Builder::from_env(env_logger::Env::new().filter_or("LOCKBPF_LOG", level))
        .format_timestamp(None)
        .format(output::log)
        .target(env_logger::Target::Pipe(Box::new(messages::Log)))
        .init();
}

fn run(cli: Cli) -> Result<ExitCode> {
    if cli.command.as_ref().is_some_and(Command::only_reads) {
        rights::give_up()?;
    }
    match cli.command {
        None => {
            let ObserveArgs { target, common } = cli.observe;
            observe::run(&Plan::from_args(target, common.capture.clone())?, &common, None)
        }
        Some(Command::Demo { mut common }) => {
            common.capture.duration = Some(common.capture.duration.unwrap_or(DEMO_DURATION));
            let program = std::env::current_exe().context("failed to find the program itself")?;
            let command = vec![program.into_os_string(), OsString::from("demo-target")];
            let plan = Plan { target: Target::Command(command), follow_forks: false, capture: common.capture.clone() };
            observe::run(&plan, &common, Some("the demo's program"))
        }
        Some(Command::Export(args)) => export::run(*args),
        Some(Command::Agent(args)) => agent::run(&args),
        Some(Command::Dump(args)) => dump::run(&args),
        Some(Command::Top(args)) => top::run(*args),
        Some(Command::Locks(args)) => described::run(args),
        Some(Command::Doctor { pid, locks, format }) => {
            observation::described::load(&locks)?;
            let doctor = doctor::run(&pid)?;
            let text = match format {
                Format::Table => doctor.to_string(),
                Format::Json => output::json(&doctor, "findings")?,
            };
            output::write(&text)?;
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Report(args)) => report::run(&args),
        Some(Command::Diff(args)) => diff::run(&args),
        Some(Command::Calibrate(args)) => calibrate::run(&args),
        Some(Command::Predict(args)) => predict::run(&args),
        Some(Command::WhatIf(args)) => what_if::run(&args),
        Some(Command::Access(args)) => access::run(&args),
        Some(Command::Completions(args)) => manual::complete(&args, &Cli::command()),
        Some(Command::Man(args)) => manual::run(&args, Cli::command()),
        Some(Command::Advise(args)) => advise::run(&args),
        Some(Command::Select(args)) => select::run(&args),
        Some(Command::DemoTarget) => crate::capture::demo_target::run(),
    }
}
