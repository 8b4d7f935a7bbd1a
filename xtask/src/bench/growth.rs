//! `cargo xtask bench growth`: whether observing a lock operation costs the same however many threads, locks and
//! processes there are, and what is lost where it does not.

use std::{
    collections::BTreeMap,
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use nix::unistd::Pid;
use serde::Serialize;
use serde_json::Value;

use super::{
    build::{FULL, Lockbpf},
    child::Child,
    interrupt,
    locker::{Done, Kind, Locker, Program},
    machine::Machine,
    result::Output,
    server::Loaded as _,
    stats::{Spread, ratio},
    usage::{Objects, children, cpu_time, peak_rss},
    wrapper::Wrapper,
};

mod table;

/// Value of [`Results::schema`]: changes when a field changes its meaning or goes away.
const SCHEMA: &str = "lockbpf.bench-growth/1";
/// How often the workers are asked whether all of them rest.
const POLL: Duration = Duration::from_millis(30);
/// How long they may take to.
const REST_LIMIT: Duration = Duration::from_secs(20);

/// Arguments of `bench growth`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: Output,
    /// One short window at each point instead of several; enough to see that everything works
    #[arg(long)]
    quick: bool,
    /// Let only the number of these grow
    #[arg(long, value_enum, value_name = "WHAT", value_delimiter = ',')]
    only: Vec<Axis>,
}

/// What grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Axis {
    /// Threads, each with a lock of its own
    Threads,
    /// Locks, taken in turn by one thread
    Locks,
    /// Processes, each with a thread and a lock, under --system-wide
    Processes,
    /// The same within the default budget, after some seconds
    Windows,
}

impl Axis {
    const ALL: [Self; 4] = [Self::Threads, Self::Locks, Self::Processes, Self::Windows];

    fn name(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::Locks => "locks",
            Self::Processes => "processes",
            Self::Windows => "processes in windows",
        }
    }

    /// What locker.c calls the workers.
    fn workers(self) -> &'static str {
        if self == Self::Windows { "processes" } else { self.name() }
    }

    fn points(self) -> &'static [usize] {
        match self {
            Self::Threads => &[1, 2, 8, 64, 512],
            Self::Locks => &[1, 10, 100, 1_000, 10_000, 30_000, 100_000],
            Self::Processes => &[1, 8, 64, 250, 500],
            Self::Windows => &[1, 8, 24, 64, 250],
        }
    }

    fn is_system_wide(self) -> bool {
        matches!(self, Self::Processes | Self::Windows)
    }

    /// For how long it is measured, and before that it is worked to no end: what windows take settles within some seconds.
    fn window(self, quick: bool) -> Duration {
        match self {
            _ if quick => Duration::from_millis(200),
            Self::Windows => Duration::from_secs(8),
            _ => Duration::from_millis(700),
        }
    }
}

/// Everything that a run found.
#[derive(Debug, Serialize)]
struct Results {
    schema: &'static str,
    machine: Machine,
    quick: bool,
    points: Vec<Point>,
    failed: Vec<String>,
}

/// What was measured at one point of an axis.
#[derive(Debug, Serialize)]
struct Point {
    axis: Axis,
    count: usize,
    /// CPU time of a lock/unlock pair, bare, ns.
    bare_ns: Spread,
    /// The same while observed in full.
    observed_ns: Spread,
    /// What observing adds to a pair where other programs disturbed both least, ns: they share caches and cores, so they
    /// cost CPU time, too, but never less of it.
    added_ns: f64,
    /// Acquisitions that lockbpf counted by those that were made; unknown under `--system-wide`, where others count, too.
    counted: Option<Spread>,
    /// What lockbpf says that it lost, by cause, in all windows.
    lost: BTreeMap<String, u64>,
    /// lockbpf's own CPU time and that of its helpers, % of one core.
    own_cpu_percent: Spread,
    /// lockbpf's resident memory and its maps at most, bytes.
    memory_bytes: f64,
}

/// What one observation told and used.
struct Observed {
    pair_ns: f64,
    counted: Option<f64>,
    lost: BTreeMap<String, u64>,
    own_cpu_percent: f64,
    memory_bytes: f64,
}

/// Measures every point that is asked for.
///
/// # Errors
/// lockbpf cannot be built, the benchmark was interrupted, or the figures cannot be written.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let machine = Machine::look_as_root()?;
    let lockbpf = Lockbpf::build()?;
    interrupt::watch()?;
    let program = Program::compile()?;
    let rounds = if args.quick { 1 } else { 5 };
    let mut results = Results { schema: SCHEMA, machine, quick: args.quick, points: Vec::new(), failed: Vec::new() };
    for axis in Axis::ALL.into_iter().filter(|axis| args.only.is_empty() || args.only.contains(axis)) {
        for &count in axis.points() {
            match measure(&program, &lockbpf, axis, count, axis.window(args.quick), rounds) {
                Ok(point) => results.points.push(point),
                Err(error) => {
                    interrupt::check()?;
                    println!("failed: {count} {}: {error:#}", axis.name());
                    results.failed.push(format!("{count} {}: {error:#}", axis.name()));
                }
            }
        }
        let points: Vec<&Point> = results.points.iter().filter(|point| point.axis == axis).collect();
        println!("\n{}\n{}", table::points(axis.name(), &points), table::verdict(axis.name(), &points));
    }
    args.output.write(&results)?;
    Ok(if results.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn measure(
    program: &Program,
    lockbpf: &Lockbpf,
    axis: Axis,
    count: usize,
    window: Duration,
    rounds: usize,
) -> Result<Point> {
    let mut locker = program.start(Kind { name: axis.workers(), count, text: "" }, &Wrapper::none())?;
    work(&mut locker, window)?;
    let (mut bare, mut observed) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        bare.push(work(&mut locker, window)?.pair_ns().context("no pair was made")?);
        observed.push(observe(&mut locker, lockbpf, axis, window)?);
    }
    let spread = |value: fn(&Observed) -> Option<f64>| Spread::of(observed.iter().filter_map(value));
    let mut lost = BTreeMap::new();
    for (cause, count) in observed.iter().flat_map(|observed| &observed.lost) {
        *lost.entry(cause.clone()).or_default() += count;
    }
    let nothing = || "nothing was measured";
    let least_bare = bare.iter().copied().min_by(f64::total_cmp).with_context(nothing)?;
    let least = observed.iter().map(|observed| observed.pair_ns).min_by(f64::total_cmp).with_context(nothing)?;
    Ok(Point {
        axis,
        count,
        added_ns: least - least_bare,
        bare_ns: Spread::of(bare).with_context(nothing)?,
        observed_ns: spread(|observed| Some(observed.pair_ns)).with_context(nothing)?,
        counted: spread(|observed| observed.counted),
        lost,
        own_cpu_percent: spread(|observed| Some(observed.own_cpu_percent)).with_context(nothing)?,
        memory_bytes: observed.iter().map(|observed| observed.memory_bytes).fold(0.0, f64::max),
    })
}

/// Lets the workers work for some time, and tells what they did in it.
fn work(locker: &mut Locker, time: Duration) -> Result<Done> {
    let before = locker.done()?;
    locker.resume()?;
    interrupt::sleep(time)?;
    locker.pause()?;
    let begin = Instant::now();
    let mut done = locker.done()?;
    loop {
        interrupt::sleep(POLL)?;
        let now = locker.done()?;
        // A worker that rests has accounted for all that it did.
        if now == done && now.sections == now.cpu_sections {
            return Ok(now.since(before));
        }
        ensure!(begin.elapsed() < REST_LIMIT, "the workers do not rest");
        done = now;
    }
}

fn observe(locker: &mut Locker, lockbpf: &Lockbpf, axis: Axis, window: Duration) -> Result<Observed> {
    let mut child = Child::start(&mut command(lockbpf, axis, locker.pid()))?;
    child.expect_err(|line| line.starts_with("observing ").then_some(()))?;
    // The first operation of a thread, and on a lock, makes its entries in the maps.
    let first = work(locker, window)?;
    let (begin, cpu) = (Instant::now(), with_helpers(child.pid())?);
    let done = work(locker, window)?;
    let used = with_helpers(child.pid())?.saturating_sub(cpu).as_secs_f64() / begin.elapsed().as_secs_f64();
    let memory = peak_rss(child.pid())? + Objects::of(child.pid())?.map_bytes();
    child.interrupt()?;
    let (acquisitions, lost) = read(&child.out.rest())?;
    let made = (first.sections + done.sections) as f64;
    Ok(Observed {
        pair_ns: done.pair_ns().context("no pair was made")?,
        counted: if axis.is_system_wide() { None } else { ratio(acquisitions as f64, made) },
        lost,
        own_cpu_percent: 100.0 * used,
        memory_bytes: memory as f64,
    })
}

/// CPU time of lockbpf and of the processes that help it.
fn with_helpers(pid: Pid) -> Result<Duration> {
    // A helper may have gone.
    let helpers: Duration = children(pid).into_iter().filter_map(|helper| cpu_time(helper).ok()).sum();
    Ok(cpu_time(pid)? + helpers)
}

fn command(lockbpf: &Lockbpf, axis: Axis, pid: Pid) -> Command {
    let mut command = Command::new(&lockbpf.program);
    match axis {
        Axis::Processes | Axis::Windows => command.arg("--system-wide"),
        Axis::Threads | Axis::Locks => command.args(["--pid", &pid.to_string()]),
    };
    // The sums are over all locks, however few are listed.
    command.args(["--format", "json", "--top", "1"]);
    if axis != Axis::Windows {
        command.args(FULL);
    }
    command
}

/// Acquisitions, and what was lost by cause, out of lockbpf's report.
fn read(report: &str) -> Result<(u64, BTreeMap<String, u64>)> {
    let report: Value = serde_json::from_str(report).context("failed to read lockbpf's report")?;
    let acquisitions = report.pointer("/totals/acquisitions").and_then(Value::as_u64);
    let acquisitions = acquisitions.context("lockbpf's report has no number at /totals/acquisitions")?;
    let lost = report.pointer("/quality/lost").and_then(Value::as_object).into_iter().flatten();
    let lost = lost.filter_map(|(cause, count)| Some((cause.clone(), count.as_u64().filter(|&count| count > 0)?)));
    Ok((acquisitions, lost.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_told_by_cause() {
        let report = r#"{"totals": {"acquisitions": 7}, "quality": {"lost": {"ring_full": 0, "sums_full": 3}}}"#;
        assert_eq!(read(report).unwrap(), (7, BTreeMap::from([("sums_full".to_owned(), 3)])));
        assert!(read("{}").is_err());
    }

    #[test]
    fn workers_account_for_all_that_they_do() {
        let program = Program::compile().unwrap();
        let mut locker = program.start(Kind { name: "threads", count: 4, text: "" }, &Wrapper::none()).unwrap();
        // In a single window all its workers may get no CPU time, where others want that.
        let worked = (0..100).find_map(|_| {
            let done = work(&mut locker, Duration::from_millis(30)).unwrap();
            assert_eq!(done.sections, done.cpu_sections);
            done.pair_ns()
        });
        assert!(worked.unwrap() > 1.0, "{worked:?}");
    }
}
