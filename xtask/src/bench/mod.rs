//! `cargo xtask bench`: what observing costs, measured on this machine.

use std::process::ExitCode;

use anyhow::Result;

mod advice;
mod attach;
mod bpf_stats;
mod bpftrace;
mod build;
mod child;
mod estimates;
mod exposition;
mod fleet;
mod growth;
mod harm;
mod hostile;
mod interference;
mod interrupt;
mod kinds;
mod load;
mod locker;
mod machine;
mod mariadb;
mod memcached;
mod observer;
mod overhead;
mod pairs;
mod peers;
mod predict;
mod result;
mod server;
pub(crate) mod soak;
mod stats;
mod table;
mod tables;
mod usage;
mod user;
mod verdict;
mod verdicts;
mod wrapper;

/// Arguments of `bench`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(clap::Subcommand)]
enum Bench {
    /// What lockbpf costs an uncontended lock and real servers, beside a bpftrace script.
    Overhead(overhead::Args),
    /// What lockbpf itself uses at a steady rate of contended sections.
    User(user::Args),
    /// How often the truth lies within what lockbpf states under its budget.
    Estimates(estimates::Args),
    /// What lockbpf and other tools cost the same programs, side by side.
    Peers(peers::Args),
    /// Whether the cost stays the same with many threads, locks and processes.
    Growth(growth::Args),
    /// How far predictions are off, from simulations and from programs really changed.
    Predict(predict::Args),
    /// What advice promises, beside what a program gains that follows it.
    Advice(advice::Args),
    /// How long it takes to begin to observe many processes, and to end.
    Attach(attach::Args),
    /// What is left of an observer that was killed or stopped, in its target and on the machine.
    Harm(harm::Args),
    /// How lockbpf ends, and what it uses, when what it reads and observes is hostile.
    Hostile(hostile::Args),
    /// What watching and recording take of a program's run time and caches, beside a recorder inside of it.
    Interference(interference::Args),
    /// Whether the right lock, place and reason are named of programs whose culprit is known.
    Verdicts(verdicts::Args),
    /// How fast a long recording becomes Parquet tables.
    Tables(tables::Args),
    /// What the metrics of many agents cost whoever collects them.
    Fleet(fleet::Args),
}

/// Runs a benchmark.
///
/// # Errors
/// It could not be run. A target that is not reached is a result, not an error.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    match &args.bench {
        Bench::Overhead(args) => overhead::run(args),
        Bench::User(args) => user::run(args),
        Bench::Estimates(args) => estimates::run(args),
        Bench::Peers(args) => peers::run(args),
        Bench::Growth(args) => growth::run(args),
        Bench::Predict(args) => predict::run(args),
        Bench::Advice(args) => advice::run(args),
        Bench::Attach(args) => attach::run(args),
        Bench::Harm(args) => harm::run(args),
        Bench::Hostile(args) => hostile::run(args),
        Bench::Interference(args) => interference::run(args),
        Bench::Verdicts(args) => verdicts::run(args),
        Bench::Tables(args) => tables::run(args),
        Bench::Fleet(args) => fleet::run(args),
    }
}
