//! `bench attach`: how long `--system-wide` takes until it observes, and to end, beside many processes that sleep.

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use comfy_table::{Table, presets};
use serde::Serialize;
use serde_json::Value;
use tempfile::TempDir;

use super::{
    build::Lockbpf, child::Child, interrupt, machine::Machine, result::Output, stats::Spread, usage::cpu_time,
};
use crate::cc;

/// Value of [`Results::schema`]: changes when a field changes its meaning or goes away.
const SCHEMA: &str = "lockbpf.bench-attach/1";
const SOURCE: &str = include_str!("sleeper.c");
/// Programs that are the same, each a file of its own, beside a static one.
const DYNAMIC: usize = 4;
/// Threads of each process.
const THREADS: &str = "3";
/// Processes, at each point; the last is beyond what can be observed fully under a budget.
const POINTS: [usize; 3] = [10, 500, 1_500];
/// The point at which the goal is set, and the goal.
const GOAL: (usize, f64) = (500, 2.0);
/// The budgets.
const BUDGETS: [&str; 2] = ["off", "3%"];
/// How long each observation lasts.
const WINDOW: Duration = Duration::from_secs(1);

/// Arguments of `bench attach`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: Output,
    /// Once at each point instead of several times
    #[arg(long)]
    quick: bool,
}

/// Everything that a run found.
#[derive(Debug, Serialize)]
struct Results {
    schema: &'static str,
    machine: Machine,
    quick: bool,
    points: Vec<Point>,
}

/// What was measured with so many processes under one budget.
#[derive(Debug, Serialize)]
struct Point {
    processes: usize,
    budget: &'static str,
    /// From the start of lockbpf until it observes, s.
    attach_s: Spread,
    /// CPU time of lockbpf until then, s: other programs do not disturb this.
    attach_cpu_s: Spread,
    /// From Ctrl-C until its exit, the report included, s.
    end_s: Spread,
    /// Processes of which only waits are seen.
    beyond: u64,
}

/// The compiled programs.
struct Programs {
    _dir: TempDir,
    paths: Vec<PathBuf>,
}

/// Running processes. Killed when dropped.
struct Sleepers(Vec<std::process::Child>);

/// Measures every point.
///
/// # Errors
/// lockbpf cannot be built, the benchmark was interrupted, or the figures cannot be written.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let machine = Machine::look_as_root()?;
    let lockbpf = Lockbpf::build()?;
    interrupt::watch()?;
    let programs = Programs::compile()?;
    let rounds = if args.quick { 1 } else { 5 };
    let mut results = Results { schema: SCHEMA, machine, quick: args.quick, points: Vec::new() };
    for processes in POINTS {
        let _sleepers = Sleepers::start(&programs, processes)?;
        for budget in BUDGETS {
            results.points.push(measure(&lockbpf.program, processes, budget, rounds)?);
        }
    }
    println!("\n{}\n{}", table(&results.points), verdict(&results.points));
    args.output.write(&results)?;
    Ok(ExitCode::SUCCESS)
}

fn measure(lockbpf: &Path, processes: usize, budget: &'static str, rounds: usize) -> Result<Point> {
    let (mut attach, mut cpu, mut end, mut beyond) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for _ in 0..rounds {
        let begin = Instant::now();
        let mut command = Command::new(lockbpf);
        command.args(["--system-wide", "--format", "json", "--top", "1", "--budget", budget]);
        let mut child = Child::start(&mut command)?;
        child.expect_err(|line| line.starts_with("observing ").then_some(()))?;
        attach.push(begin.elapsed().as_secs_f64());
        cpu.push(cpu_time(child.pid())?.as_secs_f64());
        interrupt::sleep(WINDOW)?;
        let begin = Instant::now();
        child.interrupt()?;
        end.push(begin.elapsed().as_secs_f64());
        beyond = beyond_slots(&child.out.rest())?;
    }
    let spread = |values: Vec<f64>| Spread::of(values).context("nothing was measured");
    Ok(Point { processes, budget, attach_s: spread(attach)?, attach_cpu_s: spread(cpu)?, end_s: spread(end)?, beyond })
}

/// Processes that lockbpf's report says to have been beyond its slots.
fn beyond_slots(report: &str) -> Result<u64> {
    let report: Value = serde_json::from_str(report).context("failed to read lockbpf's report")?;
    Ok(report.pointer("/quality/lost/slots_full").and_then(Value::as_u64).unwrap_or(0))
}

impl Programs {
    fn compile() -> Result<Self> {
        let dir = tempfile::tempdir().context("failed to create a temporary directory")?;
        let compile = |name: &str, more: &[&str]| cc::compile_text(SOURCE, dir.path(), name, more);
        let mut paths = vec![compile("static", &["-static"])?];
        for i in 0..DYNAMIC {
            paths.push(compile(&format!("dynamic-{i}"), &[])?);
        }
        Ok(Self { _dir: dir, paths })
    }
}

impl Sleepers {
    fn start(programs: &Programs, count: usize) -> Result<Self> {
        let mut sleepers = Self(Vec::with_capacity(count));
        for program in programs.paths.iter().cycle().take(count) {
            let mut command = Command::new(program);
            command.arg(THREADS).stdin(Stdio::null());
            sleepers.0.push(command.spawn().with_context(|| format!("failed to start {}", program.display()))?);
        }
        interrupt::sleep(Duration::from_secs(1))?;
        Ok(sleepers)
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        // Both fail only if it has exited, which is as well.
        self.0.iter_mut().for_each(|child| drop(child.kill()));
        self.0.iter_mut().for_each(|child| drop(child.wait()));
    }
}

fn table(points: &[Point]) -> String {
    let header = ["processes", "budget", "until it observes, s (95 %)", "of that own CPU, s", "end, s", "waits only"];
    let rows = points.iter().map(|point| {
        let Spread { median, low, high, .. } = point.attach_s;
        [
            point.processes.to_string(),
            point.budget.to_owned(),
            format!("{median:.2} ({low:.2}–{high:.2})"),
            format!("{:.2}", point.attach_cpu_s.median),
            format!("{:.2}", point.end_s.median),
            if point.beyond == 0 { "–".to_owned() } else { point.beyond.to_string() },
        ]
    });
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(header).add_rows(rows);
    table.trim_fmt()
}

fn verdict(points: &[Point]) -> String {
    let (processes, seconds) = GOAL;
    let at_goal = points.iter().filter(|point| point.processes == processes);
    let sentence = |point: &Point| {
        let word = if point.attach_s.median < seconds { "reached" } else { "NOT reached" };
        let Point { budget, attach_s, .. } = point;
        format!("{processes} processes, budget {budget}: {:.2} s, goal of {seconds} s {word}", attach_s.median)
    };
    at_goal.map(sentence).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(attach: f64) -> Point {
        let spread = |value| Spread::of([value]).unwrap();
        Point {
            processes: GOAL.0,
            budget: "3%",
            attach_s: spread(attach),
            attach_cpu_s: spread(0.5),
            end_s: spread(0.4),
            beyond: 7,
        }
    }

    #[test]
    fn the_goal_is_judged() {
        assert!(verdict(&[point(1.5)]).ends_with("goal of 2 s reached"));
        assert!(verdict(&[point(2.5)]).ends_with("NOT reached"));
        assert!(table(&[point(1.5)]).contains("| 7 "));
    }

    #[test]
    fn processes_beyond_the_slots_are_read() {
        assert_eq!(beyond_slots(r#"{"quality": {"lost": {"slots_full": 9}}}"#).unwrap(), 9);
        assert_eq!(beyond_slots(r#"{"quality": {}}"#).unwrap(), 0);
        assert!(beyond_slots("").is_err());
    }
}
