//! `cargo xtask bench peers`: what lockbpf and other tools cost the same programs, and what each can tell of their locks.

use std::{process::ExitCode, time::Duration};

use anyhow::Result;

use self::{
    result::{Results, SCHEMA},
    rotation::Plan,
    tool::Tool,
    workload::{Starter, Workload},
};
use super::{build::Lockbpf, interrupt, locker::Program, machine::Machine, result::Output};
use crate::{install, workspace};

mod attached;
mod kyoto;
mod lttng;
mod result;
mod rotation;
mod started;
mod table;
mod tool;
mod verdict;
mod workload;

/// Arguments of `bench peers`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: Output,
    /// One rotation of short windows instead of a quarter of an hour; enough to see that everything works
    #[arg(long)]
    quick: bool,
    /// Measure only these workloads
    #[arg(long, value_enum, value_name = "WORKLOAD", value_delimiter = ',')]
    only: Vec<Workload>,
    /// Measure only these tools
    #[arg(long, value_enum, value_name = "TOOL", value_delimiter = ',')]
    tools: Vec<Tool>,
}

impl Args {
    fn workloads(&self) -> Vec<Workload> {
        Workload::ALL.into_iter().filter(|workload| self.only.is_empty() || self.only.contains(workload)).collect()
    }

    fn tools(&self) -> Vec<Tool> {
        Tool::ALL.into_iter().filter(|tool| self.tools.is_empty() || self.tools.contains(tool)).collect()
    }

    fn plan(&self) -> Plan {
        if self.quick {
            Plan { window: Duration::from_millis(300), time: Duration::ZERO }
        } else {
            Plan { window: Duration::from_millis(800), time: Duration::from_secs(75) }
        }
    }
}

/// Measures every workload under every tool that is asked for and possible. What fails does not hide the others.
///
/// # Errors
/// lockbpf cannot be built, the benchmark was interrupted, or the figures cannot be written.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    // Before the build, which is a load of its own.
    let machine = Machine::look_as_root()?;
    let (workloads, tools) = (args.workloads(), args.tools());
    install_missing(&workloads, &tools);
    let lockbpf = Lockbpf::build()?;
    interrupt::watch()?;
    let missing: Vec<_> = tools.iter().filter_map(|&tool| Some((tool, tool.missing()?))).collect();
    let tools: Vec<Tool> = tools.into_iter().filter(|tool| missing.iter().all(|(other, _)| other != tool)).collect();
    let mut results = Results {
        schema: SCHEMA,
        machine,
        quick: args.quick,
        missing,
        measured: Vec::new(),
        failed: Vec::new(),
        verdicts: Vec::new(),
    };
    let program = Program::compile()?;
    for workload in workloads {
        println!();
        if let Err(error) =
            measure(&Starter { workload, program: &program }, &lockbpf, &tools, args.plan(), &mut results)
        {
            interrupt::check()?;
            println!("failed: {error:#}");
            results.failed.push(format!("{}: {error:#}", workload.name()));
        }
        // After each workload: an interrupted run has something to show, too.
        args.output.write(&results)?;
    }
    Ok(conclude(&results))
}

/// Installs what is not there. Each package alone: one that this Debian does not have must not hinder the others.
fn install_missing(workloads: &[Workload], tools: &[Tool]) {
    let of_workloads = workloads.iter().flat_map(|workload| workload.packages()).map(|needed| (*needed, &[][..]));
    let of_tools = tools.iter().filter_map(|tool| Some((tool.package()?, tool.more_packages())));
    let mut packages: Vec<Vec<&str>> = of_workloads
        .chain(of_tools)
        .filter(|((_, program), _)| workspace::find_program(program).is_none())
        .map(|((package, _), more)| [&[package], more].concat())
        .collect();
    packages.dedup();
    for packages in packages {
        let names = packages.join(" ");
        let installed = match install::impossible() {
            Some(reason) => Err(anyhow::anyhow!(reason)),
            None => install::packages(&packages),
        };
        match installed {
            Ok(()) => println!("installed {names}"),
            Err(reason) => println!("cannot install {names}: {reason:#}"),
        }
    }
}

fn measure(starter: &Starter, lockbpf: &Lockbpf, tools: &[Tool], plan: Plan, results: &mut Results) -> Result<()> {
    let name = starter.workload.name();
    if let Some(missing) = starter.workload.missing() {
        println!("=== {name}: skipped, {missing}");
        results.failed.push(format!("{name}: {missing}"));
        return Ok(());
    }
    let measured = rotation::measure(starter, lockbpf, tools, plan)?;
    println!("=== {name}: {}; windows of {} s", measured.load, measured.window_s);
    println!("{}", table::workload(&measured));
    println!(
        "noise: bare windows between bare ones are off by {:.3} either way (interquartile)",
        measured.noise_half_width()
    );
    results.verdicts.extend(verdict::on(&measured));
    results.failed.extend(
        measured
            .rows
            .iter()
            .filter_map(|row| Some(format!("{name} under {}: {}", row.tool.name(), row.failed.as_ref()?))),
    );
    results.measured.push(measured);
    Ok(())
}

fn conclude(results: &Results) -> ExitCode {
    println!("\n{}\n", table::all(results));
    results.failed.iter().for_each(|failed| println!("failed: {failed}"));
    results.verdicts.iter().for_each(|verdict| println!("{verdict}"));
    if results.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
