//! `cargo xtask bench user`: what lockbpf's own side of an observation costs at a steady rate of contended sections.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Duration,
};

use anyhow::{Context as _, Result};

use super::{
    build::Lockbpf,
    child::Child,
    interrupt,
    machine::Machine,
    observer::{Mode, Observation, Observers},
    stats::Spread,
};
use crate::cc;

const SOURCE: &str = include_str!("../../../tests/workloads/crowd.c");
const HEADERS: [(&str, &str); 2] = [
    ("truth.h", include_str!("../../../tests/workloads/truth.h")),
    ("blocked.h", include_str!("../../../tests/workloads/blocked.h")),
];
/// What is before the first window: names, pages, the first look at what is waited for.
const WARM_UP: Duration = Duration::from_millis(1_500);
/// Contended sections a second that are asked for, and among how many locks they are spread.
const RATES: [(u32, u32); 4] = [(10, 1), (1_000, 1), (5_000, 1), (5_000, 2)];
/// Own CPU that is allowed at ten thousand contended sections a second, % of a core.
const TARGET: f64 = 1.0;

/// Arguments of `bench user`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Windows for each rate
    #[arg(long, default_value_t = 5)]
    windows: usize,
    /// Length of a window in seconds
    #[arg(long, default_value_t = 2)]
    seconds: u64,
}

/// Measures rate by rate.
///
/// # Errors
/// The workload cannot be compiled, the observer fails, or the benchmark was interrupted.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    Machine::look_as_root()?;
    let observers = Observers { lockbpf: Lockbpf::build()?, bpftrace: None };
    interrupt::watch()?;
    let dir = tempfile::tempdir().context("failed to create a temporary directory")?;
    let workload = compile(dir.path())?;
    println!("asked for/s  contended/s  records/s  own CPU, % of a core       ns per record");
    for (rate, groups) in RATES {
        measure(&observers, &workload, rate, groups, args)?;
    }
    println!("target: at 10,000 contended sections a second at most {TARGET} %");
    Ok(ExitCode::SUCCESS)
}

fn measure(observers: &Observers, workload: &Path, rate: u32, groups: u32, args: &Args) -> Result<()> {
    let window = Duration::from_secs(args.seconds);
    let mut command = Command::new(workload);
    // It is ended by being dropped.
    command.args([rate.to_string(), "3600000".to_owned(), groups.to_string()]);
    let mut child = Child::start(&mut command)?;
    child.tell("go")?;
    let observation = Observation::start(observers, Mode::Full, child.pid())?;
    let begin = std::time::Instant::now();
    interrupt::sleep(WARM_UP)?;
    let mut used = Vec::new();
    for _ in 0..args.windows.max(1) {
        let before = observation.read()?;
        interrupt::sleep(window)?;
        used.push(before.percent_until(&observation.read()?));
    }
    let spread = Spread::of(used).context("nothing was measured")?;
    let seconds = begin.elapsed().as_secs_f64();
    let (_, seen) = observation.stop(spread.median)?;
    let seen = seen.context("lockbpf saw nothing")?;
    let (contended, records) = (seen.contended as f64 / seconds, seen.events as f64 / seconds);
    println!(
        "{:>11}  {contended:>11.0}  {records:>9.0}  {:>5.2} ({:.2}–{:.2}), lost {:<6}  {:>6.0}",
        rate * groups,
        spread.median,
        spread.low,
        spread.high,
        seen.lost,
        spread.median * 1e7 / records.max(1.0),
    );
    Ok(())
}

/// Compiles the workload into `dir`.
fn compile(dir: &Path) -> Result<PathBuf> {
    for (name, text) in HEADERS {
        let header = dir.join(name);
        fs::write(&header, text).with_context(|| format!("failed to write {}", header.display()))?;
    }
    cc::compile_text(SOURCE, dir, "crowd", &["-fno-omit-frame-pointer"])
}
