//! `cargo xtask test`: sets up what the tests need and runs every check there is. A failing step does not hide the
//! later ones; what is not run is listed with the reason.

use std::{
    io,
    process::{Command, ExitCode},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};

use crate::{build_ebpf, compile::Toolchain, fuzz, layers, process, vm, workspace};

mod beside;
mod failures;
mod hogs;
mod packages;
pub(crate) mod report;
pub(crate) mod step;
mod tested;
mod times;
mod trees;

use hogs::Hogs;
use report::Report;
use step::{Outcome, Verdict};
use tested::Tested;

/// How long a question to cargo may take, which may have to wait for a lock.
const QUESTION_LIMIT: Duration = Duration::from_secs(300);

/// Tests that fail beside what else runs do so again if they are no more than this: a lack of CPU time fails no more of them.
const REPEATED: usize = 8;

/// How long each fuzz target runs, in s: half a minute for all of them on two CPUs.
const FUZZ_TIME: u64 = 4;

/// Arguments of `test`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Install no Debian packages, do not recompile the eBPF objects, do not fuzz, boot no other kernel
    #[arg(long, conflicts_with = "all")]
    quick: bool,
    /// Recompile the eBPF objects even if they are recorded as made from these sources, with these tools; boot the older kernel even if
    /// what runs there is recorded as having passed
    #[arg(long)]
    all: bool,
    /// Busy loops beside the integration tests, which hold beside two
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=64))]
    hogs: u32,
}

/// Runs every step; succeeds if none failed.
///
/// # Errors
/// Standard output cannot be written to.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut report = Report::begin();
    report.run("Debian packages", || packages::install(args.quick));
    report.run("packages of later releases", || trees::unpack(args.quick));
    report.run("formatting", || component("fmt", "rustfmt", &["--all", "--check"]));
    report.run("layers", layers::step);
    report.run("release build", || step::run(workspace::build_released().arg("--quiet")));
    report.run("documentation tests", || {
        // They are of what is compiled already.
        tests(workspace::released(&["test", "--quiet", "--no-fail-fast"]).arg("--doc"))
    });
    report.run("snapshots and allocations", || {
        let them = ["--test", "snapshots", "--test", "allocations"];
        tests(workspace::released(&["test", "--no-fail-fast"]).args(them))
    });
    let computed = thread::scope(|scope| {
        let computing = scope.spawn(|| compute(args));
        report.run("integration tests", || {
            let _hogs = Hogs::start(args.hogs)?;
            with_a_second_try(integration_tests()?, |failed| {
                while !computing.is_finished() {
                    thread::sleep(Duration::from_millis(100));
                }
                tests_of_integration(failed)
            })
        });
        computing.join()
    });
    report.add(computed.map_err(|_| anyhow!("what ran beside the integration tests has panicked"))?);
    // Alone: an emulated machine is slow enough.
    report.run("an older kernel", || if args.quick { Ok(Outcome::skipped("--quick")) } else { older_kernel(args) });
    report.run("eBPF objects", || ebpf_objects(args));
    report.write(&packages::missing_reasons(), &mut io::stdout())
}

/// Has the tests that failed run `again`, one by one, if they are few; `again` takes the arguments of the test program that choose them.
fn with_a_second_try(first: Outcome, again: impl FnOnce(&[&str]) -> Result<Outcome>) -> Result<Outcome> {
    if !(1..=REPEATED).contains(&first.failed.len()) {
        return Ok(first);
    }
    let failed: Vec<&str> = first.failed.iter().map(|failure| failure.test.as_str()).collect();
    eprintln!("once more: {}", failed.join(", "));
    let again = again(&[&[step::ONE_BY_ONE, "--exact"], failed.as_slice()].concat())?;
    Ok(first.repeated(again))
}

/// What only computes: it gives way to the integration tests, which leave two thirds of the CPU time. The fuzz targets come last, since they are
/// compiled where the release build is, for which those tests have to ask twice.
fn compute(args: &Args) -> Report {
    beside::give_way();
    let mut report = Report::begin();
    report.run("unit tests and goldens", || with_a_second_try(unit_tests(&[])?, unit_tests));
    report.run("clippy", || {
        component(
            "clippy",
            "clippy",
            &["--quiet", "--workspace", "--exclude", "lockbpf-ebpf", "--all-targets", "--", "-Dwarnings"],
        )
    });
    report.run("documentation", || {
        step::run(
            cargo(&["doc", "--quiet", "--no-deps", "--workspace", "--exclude", "lockbpf-ebpf"])
                .env("RUSTDOCFLAGS", "-Dwarnings"),
        )
    });
    report.run("fuzzing", || if args.quick { Ok(Outcome::skipped("--quick")) } else { fuzz::step(FUZZ_TIME) });
    report
}

/// The unit tests and goldens that these arguments of the test programs choose.
fn unit_tests(chosen: &[&str]) -> Result<Outcome> {
    // The goldens are here since in this build a report that contradicts itself ends the program.
    let them = ["--workspace", "--exclude", "lockbpf-ebpf", "--lib", "--bins", "--test", "goldens"];
    tests(cargo(&["test", "--quiet", "--no-fail-fast"]).args(them).arg("--").args(chosen))
}

fn cargo(args: &[&str]) -> Command {
    let mut cargo = workspace::cargo();
    cargo.args(args);
    cargo
}

fn tests(cargo_test: &mut Command) -> Result<Outcome> {
    step::run_tests(cargo_test, &mut io::stdout())
}

/// Runs a cargo subcommand that comes with a toolchain component of its own, which a toolchain may lack.
fn component(subcommand: &str, name: &str, args: &[&str]) -> Result<Outcome> {
    match process::output(&mut cargo(&[subcommand, "--version"]), QUESTION_LIMIT) {
        Ok(_version) => step::run(cargo(&[subcommand]).args(args)),
        Err(proof) => Ok(Outcome::unavailable(format!("this toolchain lacks {name}: {proof:#}"))),
    }
}

/// The tests in `tests/integration`, two at a time: most of them wait most of the time. Those that measure, or observe the whole machine, have a
/// turn of their own.
fn integration_tests() -> Result<Outcome> {
    if !has_test_targets()? {
        return Ok(Outcome::unavailable("no package declares an integration test"));
    }
    if !nix::unistd::geteuid().is_root() {
        return Ok(Outcome::unavailable("attaching eBPF programs needs root: run this task as root"));
    }
    tests_of_integration(&[step::TWO_AT_A_TIME])
}

/// The integration tests that these arguments of the test program choose.
fn tests_of_integration(chosen: &[&str]) -> Result<Outcome> {
    let mut cargo_test = workspace::released(&["test", "--no-fail-fast"]);
    cargo_test.args(["--test", "integration", "--"]).args(chosen);
    for name in packages::tests_not_possible() {
        cargo_test.args(["--skip", name]);
    }
    tests(&mut cargo_test)
}

fn has_test_targets() -> Result<bool> {
    let metadata = process::output(&mut cargo(&["metadata", "--format-version=1", "--no-deps"]), QUESTION_LIMIT)?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata).context("failed to read cargo's metadata")?;
    let list = |value: &serde_json::Value, key: &str| value.get(key).and_then(|list| list.as_array()).cloned();
    let packages = list(&metadata, "packages").unwrap_or_default();
    let mut targets = packages.iter().flat_map(|package| list(package, "targets").unwrap_or_default());
    Ok(targets.any(|target| list(&target, "kind").is_some_and(|kinds| kinds.iter().any(|kind| kind == "test"))))
}

/// Boots an older kernel, unless what its tests depend on is what passed there already.
fn older_kernel(args: &Args) -> Result<Outcome> {
    let now = Tested::now()?;
    match Tested::read() {
        Some(tested) if !args.all && tested.is_of(&now) => {
            Ok(Outcome::passed(format!("what runs there has passed in {}; --all boots it again", tested.kernel)))
        }
        _ => {
            let outcome = vm::few()?;
            if outcome.verdict == Verdict::Passed && outcome.counts.passed > 0 {
                now.passed_in(&outcome.note)?;
            }
            Ok(outcome)
        }
    }
}

fn ebpf_objects(args: &Args) -> Result<Outcome> {
    build_ebpf::check_sources()?;
    if args.quick {
        return Ok(Outcome::passed("hashes only: --quick"));
    }
    if !args.all && build_ebpf::has_recorded_tools()? {
        return Ok(Outcome::passed("sources, tools and objects are the recorded ones; --all compiles them again"));
    }
    match Toolchain::find() {
        Ok(toolchain) => build_ebpf::check_objects(&toolchain).map(|()| Outcome::passed("recompiled: identical")),
        Err(reason) => Ok(Outcome::unavailable(format!("{reason:#}"))),
    }
}
