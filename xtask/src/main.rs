//! `cargo xtask`: what building and testing lockbpf needs beyond `cargo build`.

use std::{env, process::ExitCode};

use anyhow::Result;
use clap::{Parser, Subcommand};

mod apt;
mod arch;
mod bench;
mod bpf_linker;
mod build_ebpf;
mod cc;
mod compile;
mod deb;
mod debian;
mod dist;
mod fuzz;
mod goldens;
mod install;
mod instrument;
mod layers;
#[cfg(test)]
mod links;
#[cfg(test)]
mod policy;
mod process;
mod provenance;
mod rust_src;
mod rustc_wrapper;
mod stack_depth;
mod strip;
mod test;
mod vm;
mod workspace;

/// Builds lockbpf's eBPF objects, runs its tests and its benchmarks.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Compile the eBPF programs for every architecture into lockbpf/ebpf/.
    BuildEbpf(build_ebpf::Args),
    /// Install what the tests need and run all of them.
    Test(test::Args),
    /// Compare what lockbpf makes of recordings with what was accepted, or accept it anew.
    Goldens(goldens::Args),
    /// Hold the imports of our crates against their declared floors.
    Layers(layers::Args),
    /// Feed the readers of files with arbitrary bytes.
    Fuzz(fuzz::Args),
    /// Measure what observing costs.
    Bench(bench::Args),
    /// Observe for hours what comes, goes and is killed, and see that nothing grows.
    Soak(bench::soak::Args),
    /// Compile lockbpf for others: the same bytes wherever its sources lie.
    Dist(dist::Args),
    /// Make a Debian package.
    Deb(deb::Args),
    /// Boot other kernels in virtual machines and run lockbpf's core tests in them.
    VmTest(vm::Args),
}

fn main() -> ExitCode {
    let result = if let Some(root) = env::var_os(rustc_wrapper::ROOT_VAR) {
        rustc_wrapper::run(root.as_ref())
    } else if let Some(root) = env::var_os(instrument::ROOT_VAR) {
        instrument::run(root.as_ref())
    } else {
        run(Args::parse())
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(args: Args) -> Result<ExitCode> {
    match args.task {
        Task::BuildEbpf(args) => build_ebpf::run(&args),
        Task::Test(args) => test::run(&args),
        Task::Goldens(args) => goldens::run(&args),
        Task::Layers(args) => layers::run(&args),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::Bench(args) => bench::run(&args),
        Task::Soak(args) => bench::soak::run(&args),
        Task::Dist(args) => dist::run(&args),
        Task::Deb(args) => deb::run(&args),
        Task::VmTest(args) => vm::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn options_do_not_collide() {
        super::Args::command().debug_assert();
    }
}
