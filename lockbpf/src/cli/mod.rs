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
mod budget;
mod calibrate;
mod calibration_file;
mod census;
mod collect;
mod command;
mod convert;
mod cost_cache;
mod counters;
mod cpus;
mod deadlocks;
mod described;
mod destination;
mod diff;
mod doctor;
mod dump;
mod ends;
mod export;
mod flight;
mod flight_args;
mod focus;
mod formats;
mod functions;
mod holders;
mod http;
mod input;
mod interpreters;
mod java;
mod limits;
mod live;
mod looks;
mod manual;
mod messages;
mod observe;
mod output;
mod own;
mod page;
mod parking;
mod parquet;
mod place;
mod placement;
mod predict;
mod prepare;
mod probing;
mod processes;
mod progress;
mod python;
mod record;
mod report;
mod script;
mod segments;
mod select;
mod serve;
mod sink;
mod snapshots;
mod source;
mod stacks;
mod summed;
mod suspend;
mod tables;
mod threads;
mod top;
mod what_if;

use crate::capture::lent;
use crate::sandbox;
use anyhow::{Context, Result};
use args::{Format, ObserveArgs, Plan, Target};
use clap::{CommandFactory as _, Parser};
use command::{Cli, Command};
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

/// How long `lockbpf demo` observes if it is not told.
const DEMO_DURATION: Duration = Duration::from_secs(5);

/// Runs the tool.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let verbose = match &cli.command {
        Some(Command::Demo { common }) => common.capture.verbose,
        Some(Command::Export(args)) => args.capture.verbose,
        Some(Command::Top(args)) => args.capture.verbose,
        Some(_) => 0,
        None => cli.observe.common.capture.verbose,
    };
    let level = ["warn", "info,lockbpf=debug", "trace"][usize::from(verbose.min(2))];
    env_logger::Builder::from_env(env_logger::Env::new().filter_or("LOCKBPF_LOG", level))
        .format_timestamp(None)
        .format(output::log)
        .target(env_logger::Target::Pipe(Box::new(messages::Log)))
        .init();
    let code = run(cli).unwrap_or_else(|error| {
        say!("lockbpf: {error:#}");
        ExitCode::from(2)
    });
    crate::capture::launch::see_off(|text| say!("lockbpf: {text}"));
    crate::capture::aside::wait(|| say!("lockbpf: waiting until the kernel has removed the probes"));
    crate::capture::remover::dismiss();
    crate::capture::reader::dismiss();
    code
}

/// The process that reads files of observed programs: where their functions are to be probed, or what they are called.
fn reader(probes: bool) -> Result<ExitCode> {
    sandbox::enter()?;
    // After that: what was open beside it is closed.
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    if probes {
        crate::capture::serve::serve(&socket)?;
    } else {
        crate::symbol::serve(&socket, &[sandbox::LENT.into()])?;
    }
    Ok(ExitCode::SUCCESS)
}

fn run(cli: Cli) -> Result<ExitCode> {
    if cli.command.as_ref().is_some_and(Command::only_reads) {
        lent::give_up()?;
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
            described::load(&locks)?;
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
        Some(Command::Guardian { pid }) => Ok(crate::capture::guardian::run(pid)),
        Some(Command::Remover { pid }) => Ok(crate::capture::remover::run(pid)),
        Some(Command::Reader { probes }) => reader(probes),
        Some(Command::Advise(args)) => advise::run(&args),
        Some(Command::Select(args)) => select::run(&args),
        Some(Command::DemoTarget) => crate::capture::demo_target::run(),
        Some(Command::SeccompTarget) => Ok(crate::capture::seccomp_target::run()),
        Some(Command::CalibrateTarget) => Ok(crate::capture::calibrate_target::run()),
    }
}
