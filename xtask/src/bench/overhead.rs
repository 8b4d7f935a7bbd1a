//! `cargo xtask bench overhead`: what lockbpf costs an uncontended lock and real servers.

use std::{process::ExitCode, time::Duration};

use anyhow::Result;

use super::{
    build::Lockbpf,
    interrupt, kinds,
    machine::Machine,
    mariadb::{self, Mariadb},
    memcached::{self, Memcached},
    observer::Observers,
    pairs,
    result::{Output, Results, SCHEMA},
    server::{self, Loaded},
    table, verdict,
    wrapper::Wrapper,
};
use crate::workspace;

/// Arguments of `bench overhead`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: Output,
    /// Take about a minute instead of eight; enough to see that everything works, too few windows for small effects
    #[arg(long)]
    quick: bool,
    /// Measure only this part (repeatable)
    #[arg(long, value_enum, value_name = "NAME")]
    only: Vec<Part>,
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// An uncontended lock/unlock pair
    Pairs,
    /// An uncontended use of each kind of lock
    Kinds,
    /// memcached under load
    Memcached,
    /// MariaDB under sysbench
    Mariadb,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Pairs => "the uncontended pair",
            Self::Kinds => "the kinds of locks",
            Self::Memcached => memcached::NAME,
            Self::Mariadb => mariadb::NAME,
        }
    }

    /// A program that the part needs and that is not installed.
    fn missing(self) -> Option<&'static str> {
        let needed: &[&str] = match self {
            Self::Pairs | Self::Kinds => &["cc"],
            Self::Memcached => &memcached::PROGRAMS,
            Self::Mariadb => &mariadb::PROGRAMS,
        };
        needed.iter().copied().find(|program| workspace::find_program(program).is_none())
    }
}

/// How long windows are and how long each part goes on measuring. An observer comes and goes between two windows, which
/// takes about as long as a window.
struct Plan {
    pair_window: Duration,
    pairs: Duration,
    kinds: Duration,
    server_window: Duration,
    server: Duration,
}

impl Plan {
    fn new(quick: bool) -> Self {
        let seconds = Duration::from_secs;
        if quick {
            Self {
                pair_window: Duration::from_millis(50),
                pairs: seconds(20),
                kinds: seconds(15),
                server_window: Duration::from_millis(400),
                server: seconds(22),
            }
        } else {
            Self {
                pair_window: Duration::from_millis(100),
                pairs: seconds(75),
                kinds: seconds(60),
                server_window: seconds(1),
                server: seconds(180),
            }
        }
    }
}

/// Runs every part that is asked for and possible. A part that fails does not hide the others.
///
/// # Errors
/// lockbpf cannot be built, the benchmark was interrupted, or the figures cannot be written.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    // Before the build, which is a load of its own.
    let machine = Machine::look_as_root()?;
    let observers = Observers { lockbpf: Lockbpf::build()?, bpftrace: workspace::find_program("bpftrace") };
    interrupt::watch()?;
    let plan = Plan::new(args.quick);
    let wanted = |part| args.only.is_empty() || args.only.contains(&part);
    let mut results = Results {
        schema: SCHEMA,
        machine,
        quick: args.quick,
        pairs: None,
        kinds: Vec::new(),
        servers: Vec::new(),
        skipped: Vec::new(),
        failed: Vec::new(),
        verdicts: Vec::new(),
    };
    if observers.bpftrace.is_none() {
        results.skipped.push("the bpftrace script: bpftrace is not installed".to_owned());
    }
    for part in [Part::Pairs, Part::Kinds, Part::Memcached, Part::Mariadb].into_iter().filter(|&part| wanted(part)) {
        println!();
        if let Err(error) = measure(part, &mut results, &observers, &plan) {
            interrupt::check()?;
            println!("failed: {error:#}");
            results.failed.push(format!("{}: {error:#}", part.name()));
        }
    }
    conclude(&results, args)
}

fn measure(part: Part, results: &mut Results, observers: &Observers, plan: &Plan) -> Result<()> {
    if let Some(missing) = part.missing() {
        println!("=== {}: skipped, {missing} is not installed", part.name());
        results.skipped.push(format!("{}: {missing} is not installed", part.name()));
        return Ok(());
    }
    match part {
        Part::Pairs => measure_pairs(results, observers, plan),
        Part::Kinds => measure_kinds(results, observers, plan),
        Part::Memcached => measure_server(Memcached::start(&Wrapper::none())?, results, observers, plan),
        Part::Mariadb => measure_server(Mariadb::start(&Wrapper::none())?, results, observers, plan),
    }
}

fn measure_pairs(results: &mut Results, observers: &Observers, plan: &Plan) -> Result<()> {
    println!("=== an uncontended pthread mutex, a second thread idle; CPU time, as other load distorts wall time");
    let pairs = pairs::measure(observers, plan.pair_window, plan.pairs)?;
    println!("{}", table::pairs(&pairs));
    verdict::explain_pairs(&pairs).iter().for_each(|line| println!("{line}"));
    results.verdicts.extend(verdict::on_pairs(&pairs));
    results.pairs = Some(pairs);
    Ok(())
}

fn measure_kinds(results: &mut Results, observers: &Observers, plan: &Plan) -> Result<()> {
    println!("=== an uncontended use of each kind of lock, observed in full; CPU time");
    results.kinds = kinds::measure(observers, plan.pair_window, plan.kinds)?;
    println!("{}", table::kinds(&results.kinds));
    Ok(())
}

fn measure_server(mut server: impl Loaded, results: &mut Results, observers: &Observers, plan: &Plan) -> Result<()> {
    println!("=== {}: {}; windows of {} s", server.name(), server.load(), plan.server_window.as_secs_f64());
    let server = server::measure(&mut server, observers, plan.server_window, plan.server)?;
    println!("{}", table::server(&server));
    verdict::explain_server(&server, results.pairs.as_ref()).iter().for_each(|line| println!("{line}"));
    results.verdicts.extend(verdict::on_server(&server));
    results.servers.push(server);
    Ok(())
}

fn conclude(results: &Results, args: &Args) -> Result<ExitCode> {
    println!();
    results.skipped.iter().for_each(|skipped| println!("skipped: {skipped}"));
    results.failed.iter().for_each(|failed| println!("failed: {failed}"));
    results.verdicts.iter().for_each(|verdict| println!("{verdict}"));
    args.output.write(results)?;
    Ok(if results.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
