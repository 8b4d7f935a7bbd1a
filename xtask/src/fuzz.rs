//! `cargo xtask fuzz`: feeds the readers of files with arbitrary bytes for a bounded time.
//!
//! The targets in `fuzz/` are laid out for cargo-fuzz, which needs a nightly compiler for its sanitizers. The readers are
//! safe Rust, in which a panic, an overflow or runaway memory is the fault to look for, so coverage alone will do, and
//! stable rustc instruments for that ([`crate::instrument`]).

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail};

use crate::{instrument, process, test::step::Outcome, workspace};

/// Arguments of `fuzz`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Time for each target
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Inputs for each target, if that is done sooner
    #[arg(long)]
    inputs: Option<u64>,
    /// Only this target: the name of a file in fuzz/fuzz_targets/
    target: Option<String>,
}

/// Memory, in MB, beyond which a reader has run away.
const MEMORY_LIMIT: u32 = 1024;
/// How long one input may take, in s.
const INPUT_LIMIT: u32 = 10;
/// How much longer than asked for a target may run.
const GRACE: Duration = Duration::from_secs(120);

/// Runs the targets; succeeds if none found a fault.
///
/// # Errors
/// They cannot be built or started, or one has found a fault.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    println!("{}", fuzz(Bound { seconds: args.seconds, inputs: args.inputs }, args.target.as_deref())?);
    Ok(ExitCode::SUCCESS)
}

/// All targets, as a step of the tests.
///
/// # Errors
/// As [`run`].
pub(crate) fn step(seconds: u64) -> Result<Outcome> {
    if workspace::find_program("c++").is_none() {
        return Ok(Outcome::unavailable("libFuzzer is C++, and there is no c++"));
    }
    Ok(Outcome::passed(fuzz(Bound { seconds, inputs: None }, None)?))
}

/// How much one target does.
#[derive(Clone, Copy)]
struct Bound {
    seconds: u64,
    inputs: Option<u64>,
}

fn fuzz(bound: Bound, only: Option<&str>) -> Result<String> {
    let targets = targets(only)?;
    let programs = build(&targets)?;
    let next = AtomicUsize::new(0);
    // As many side by side as there are CPUs: each takes one.
    let take = || {
        let n = next.fetch_add(1, Ordering::Relaxed);
        targets.get(n).zip(programs.get(n))
    };
    let worker = || {
        let mut done = Vec::new();
        while let Some((target, program)) = take() {
            done.push(format!("{target}: {} inputs", run_target(target, program, bound)?));
        }
        Ok(done)
    };
    let done: Result<Vec<Vec<String>>> = thread::scope(|scope| {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..cpus).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().map(|worker| worker.join().map_err(|_| anyhow!("a run has panicked"))?).collect()
    });
    let mut done = done?.concat();
    done.sort();
    Ok(done.join(", "))
}

fn dir() -> PathBuf {
    workspace::root().join("fuzz")
}

fn targets(only: Option<&str>) -> Result<Vec<String>> {
    let folder = dir().join("fuzz_targets");
    let files = fs::read_dir(&folder).with_context(|| format!("failed to read {}", folder.display()))?;
    let mut names = Vec::new();
    for file in files {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    names.retain(|name| only.is_none_or(|only| only == name));
    names.sort();
    match only {
        Some(only) if names.is_empty() => bail!("there is no fuzz target {only}"),
        _ => Ok(names),
    }
}

/// Where a target's seeds are: in a folder of its own, else among the ELF files, which several targets take apart.
fn seeds(target: &str) -> PathBuf {
    let own = dir().join("corpus").join(target);
    if own.is_dir() { own } else { dir().join("corpus/elf") }
}

/// Compiles the targets, where the release build has compiled their dependencies.
fn build(targets: &[String]) -> Result<Vec<PathBuf>> {
    let wrapper = env::current_exe().context("failed to find xtask's own program")?;
    let folder = workspace::root().join("target");
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--quiet", "--release", "--manifest-path"]).arg(dir().join("Cargo.toml"));
    cargo.arg("--target-dir").arg(&folder);
    for target in targets {
        cargo.args(["--bin", target]);
    }
    cargo.env("RUSTC_WRAPPER", wrapper).env(instrument::ROOT_VAR, workspace::root());
    let status = cargo.status().with_context(|| format!("failed to start `{}`", process::describe(&cargo)))?;
    if !status.success() {
        bail!("the fuzz targets do not compile");
    }
    Ok(targets.iter().map(|target| folder.join("release").join(target)).collect())
}

/// Runs one target and returns how many inputs it has tried.
fn run_target(target: &str, program: &Path, bound: Bound) -> Result<u64> {
    let work = workspace::root().join("target/fuzz/corpus").join(target);
    let faults = dir().join("artifacts").join(target);
    for folder in [&work, &faults] {
        fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;
    }
    let log = workspace::root().join("target/fuzz").join(format!("{target}.log"));
    let output = fs::File::create(&log).with_context(|| format!("failed to create {}", log.display()))?;
    let mut command = Command::new(program);
    command.args([
        format!("-max_total_time={}", bound.seconds),
        format!("-rss_limit_mb={MEMORY_LIMIT}"),
        format!("-timeout={INPUT_LIMIT}"),
        format!("-artifact_prefix={}/", faults.display()),
        "-print_final_stats=1".to_owned(),
    ]);
    command.args(bound.inputs.map(|inputs| format!("-runs={inputs}")));
    // What is found goes to the first folder; the committed seeds are only read.
    command.arg(&work).arg(seeds(target));
    command.stdout(output.try_clone()?).stderr(output);
    let status = process::status(&mut command, Duration::from_secs(bound.seconds) + GRACE)?;
    let said = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    if !status.success() {
        let fault = said.lines().filter(|line| line.contains("panicked at") || line.contains("ERROR: libFuzzer"));
        let fault: Vec<&str> = fault.take(2).collect();
        bail!(
            "{target} found a fault: {}; the input is in {}, the log is {}",
            fault.join("; "),
            faults.display(),
            log.display()
        );
    }
    executed(&said).with_context(|| format!("{target} does not say what it did: see {}", log.display()))
}

/// The number of inputs tried, from libFuzzer's final statistics.
fn executed(log: &str) -> Option<u64> {
    let line = log.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_found_in_the_log() {
        let log = "INFO: Seed: 1\nDone 7 runs\nstat::number_of_executed_units: 70225\nstat::peak_rss_mb:     58\n";
        assert_eq!(executed(log), Some(70_225));
        assert_eq!(executed("INFO: Seed: 1\n"), None);
    }

    #[test]
    fn every_target_has_seeds() {
        let targets = targets(None).unwrap();
        assert!(targets.contains(&"event_lines".to_owned()));
        for target in targets {
            assert!(fs::read_dir(seeds(&target)).is_ok_and(|mut seeds| seeds.next().is_some()), "{target}");
        }
        assert!(super::targets(Some("no_such_target")).is_err());
    }
}
