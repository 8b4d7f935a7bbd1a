//! What an uncontended lock/unlock pair costs, bare and observed in every mode, and where the time goes.

use std::{
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::{
    bpf_stats::BpfStats,
    child::Child,
    observer::{Cost, Mode, Observation, Observers},
    result::{InMode, ObserverUse},
    stats::Spread,
};
use crate::cc;

const SOURCE: &str = include_str!("pairs.c");
/// Modes of a round, in this order, with bare windows before each.
const ROUND: [Mode; 9] = [
    Mode::Full,
    Mode::EntryPlacement,
    Mode::PlainUprobes,
    Mode::AllEvents,
    Mode::Clock,
    Mode::Counters,
    Mode::Functions,
    Mode::FutexOnly,
    Mode::Empty,
];
/// Windows of each visit.
const WINDOWS: usize = 3;
/// The first hits of a probe make pages private and storage for the thread: they are not measured.
const WARM_UP_MS: u64 = 20;

/// The uncontended pair.
#[derive(Debug, Serialize)]
pub(super) struct Pairs {
    /// Nobody observes.
    pub(super) bare: Row,
    /// Observed; in the order of the table.
    pub(super) observed: Vec<InMode<ObservedRow>>,
    /// The programs' own part of the cost.
    pub(super) programs: Option<Programs>,
}

/// Times of a pair and of a system call.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    /// CPU time of a lock/unlock pair, ns.
    pub(super) pair_cpu_ns: Spread,
    /// The same in the window that other programs disturbed least, ns: they share caches and cores, so they cost CPU
    /// time, too.
    pub(super) pair_least_cpu_ns: f64,
    /// Wall time of the same, ns.
    pub(super) pair_wall_ns: Spread,
    /// CPU time of a cheap system call that is not futex, ns.
    pub(super) call_cpu_ns: Spread,
}

/// A row, and what the observer used for it.
#[derive(Debug, Serialize)]
pub(super) struct ObservedRow {
    /// Times.
    #[serde(flatten)]
    pub(super) row: Row,
    /// The observer's own use.
    pub(super) observer: ObserverUse,
}

/// Runs of eBPF programs in the full mode, timed by the kernel.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Programs {
    /// Mean time of a run, ns.
    pub(super) run_ns: f64,
    /// Runs for each pair.
    pub(super) runs_per_pair: f64,
}

/// One window of the workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Window {
    pub(super) made: f64,
    wall_ns: f64,
    pub(super) cpu_ns: f64,
}

#[derive(Default)]
struct Samples {
    pairs: Vec<Window>,
    calls: Vec<Window>,
    costs: Vec<Cost>,
}

/// Measures round by round until the time is used up, one round at least begun.
///
/// # Errors
/// The workload cannot be compiled, an observer fails, or the benchmark was interrupted.
pub(super) fn measure(observers: &Observers, window: Duration, time: Duration) -> Result<Pairs> {
    let deadline = Instant::now() + time;
    let mut workload = Workload::start(window)?;
    let mut bare = Samples::default();
    let mut observed: Vec<(Mode, Samples)> = ROUND.map(|mode| (mode, Samples::default())).into();
    let programs = programs(observers, &mut workload)
        .inspect_err(|error| eprintln!("the programs' run time is not known: {error:#}"))
        .ok();
    let mut longest = Duration::ZERO;
    'rounds: loop {
        for (mode, samples) in &mut observed {
            let begin = Instant::now();
            if !bare.pairs.is_empty() && begin + longest > deadline && !samples.pairs.is_empty() {
                break 'rounds;
            }
            workload.visit(&mut bare)?;
            let observation = Observation::start(observers, *mode, workload.child.pid())?;
            let reading = observation.read()?;
            workload.visit(samples)?;
            let used = reading.percent_until(&observation.read()?);
            let (cost, _) = observation.stop(used)?;
            samples.costs.push(cost);
            longest = longest.max(begin.elapsed());
        }
    }
    let bare = bare.row().context("no bare window was measured")?;
    let row = |(mode, samples): (Mode, Samples)| {
        Some(InMode { mode, row: ObservedRow { row: samples.row()?, observer: ObserverUse::of(&samples.costs)? } })
    };
    Ok(Pairs { bare, observed: observed.into_iter().filter_map(row).collect(), programs })
}

impl Samples {
    fn row(&self) -> Option<Row> {
        let pairs = self.pairs.iter().map(|window| window.cpu_ns / window.made);
        Some(Row {
            pair_cpu_ns: Spread::of(pairs.clone())?,
            pair_least_cpu_ns: pairs.min_by(f64::total_cmp)?,
            pair_wall_ns: Spread::of(self.pairs.iter().map(|window| window.wall_ns / window.made))?,
            call_cpu_ns: Spread::of(self.calls.iter().map(|window| window.cpu_ns / window.made))?,
        })
    }
}

/// A program that uses locks which nobody else wants.
pub(super) struct Workload {
    pub(super) child: Child,
    window: Duration,
}

/// The program, built in this directory.
///
/// # Errors
/// There is no C compiler, or it fails.
pub(super) fn build(dir: &Path) -> Result<Command> {
    Ok(Command::new(cc::compile_text(SOURCE, dir, "pairs", &["-pthread"])?))
}

impl Workload {
    /// Compiles and starts it.
    ///
    /// # Errors
    /// It cannot be compiled or started.
    pub(super) fn start(window: Duration) -> Result<Self> {
        let dir = tempfile::tempdir().context("failed to create a temporary directory")?;
        Self::of(&mut build(dir.path())?, window)
    }

    /// Starts one that speaks the same way.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn of(program: &mut Command, window: Duration) -> Result<Self> {
        Ok(Self { child: Child::start(program)?, window })
    }

    /// One window of uses, after a warm-up.
    ///
    /// # Errors
    /// The program has gone.
    pub(super) fn window(&mut self, what: &str) -> Result<Window> {
        self.run(what, WARM_UP_MS)?;
        self.run(what, self.window.as_millis() as u64)
    }

    fn visit(&mut self, samples: &mut Samples) -> Result<()> {
        self.run("mutex", WARM_UP_MS)?;
        let window = self.window.as_millis() as u64;
        for _ in 0..WINDOWS {
            samples.pairs.push(self.run("mutex", window)?);
        }
        samples.calls.push(self.run("calls", WARM_UP_MS)?);
        Ok(())
    }

    fn run(&mut self, what: &str, milliseconds: u64) -> Result<Window> {
        self.child.tell(&format!("{what} {milliseconds}"))?;
        self.child.expect_out(parse)
    }
}

/// How long the programs of the full mode run for a pair, timed apart from the pairs themselves.
fn programs(observers: &Observers, workload: &mut Workload) -> Result<Programs> {
    let observation = Observation::start(observers, Mode::Full, workload.child.pid())?;
    workload.run("mutex", WARM_UP_MS)?;
    let _stats = BpfStats::enable()?;
    let (time_before, runs_before) = observation.objects()?.program_runs();
    let pairs = workload.run("mutex", workload.window.as_millis() as u64)?.made;
    let (time, runs) = observation.objects()?.program_runs();
    let (time, runs) = (time.saturating_sub(time_before) as f64, runs.saturating_sub(runs_before) as f64);
    anyhow::ensure!(runs > 0.0, "the kernel counted no run of a program");
    Ok(Programs { run_ns: time / runs, runs_per_pair: runs / pairs })
}

/// `MADE WALL_NS CPU_NS`.
fn parse(line: &str) -> Option<Window> {
    let mut numbers = line.split_whitespace().map(|word| word.parse::<u64>().ok().map(|number| number as f64));
    let mut next = || numbers.next().flatten();
    let window = Window { made: next()?, wall_ns: next()?, cpu_ns: next()? };
    (window.made > 0.0).then_some(window)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_three_numbers() {
        assert_eq!(parse("200 4000 3000"), Some(Window { made: 200.0, wall_ns: 4000.0, cpu_ns: 3000.0 }));
        assert_eq!(parse("200 4000"), None);
        assert_eq!(parse("0 4000 3000"), None);
        assert_eq!(parse("a 4000 3000"), None);
    }

    #[test]
    fn the_workload_answers_what_it_is_asked() {
        let mut workload = Workload::start(Duration::from_millis(2)).unwrap();
        let mut samples = Samples::default();
        workload.visit(&mut samples).unwrap();
        assert_eq!((samples.pairs.len(), samples.calls.len()), (WINDOWS, 1));
        assert!(samples.pairs.iter().all(|window| window.cpu_ns > 0.0 && window.wall_ns >= 2e6), "{:?}", samples.pairs);
        assert!(samples.row().is_some());
    }
}
