//! `bench interference`: what watching and recording take of a program's run time and of its caches, beside a recorder inside of it
//! (HaLock, section 5).

use std::{
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use comfy_table::{Table, presets};
use serde::Serialize;
use serde_json::Value;

use self::work::{Inside, Programs, Took, Work};
use super::{build::Lockbpf, child::Child, interrupt, machine::Machine, result::Output, stats::Spread};

mod work;

/// Value of [`Results::schema`]: changes when a field changes its meaning or goes away.
const SCHEMA: &str = "lockbpf.bench-interference/1";
/// Threads, at each point.
const THREADS: [usize; 5] = [2, 8, 32, 128, 512];
/// The point at which the goal is set, and the goal: what HaLock adds to a run time.
const GOAL: (usize, f64) = (8, 0.01);
/// Sections of a window, 3 s of CPU time.
const SECTIONS: u64 = 14_400;
/// So many are not measured after each start of an observer: the first hits are dearer.
const WARM_UP: u64 = 1_400;

/// Arguments of `bench interference`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: Output,
    /// Two rounds at 2 and 8 threads; enough to see that everything works
    #[arg(long, conflicts_with_all = ["rounds", "threads"])]
    quick: bool,
    /// Windows of each observer at each number of threads; with 9 at all of them, about 35 minutes
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', value_name = "N,…", default_values_t = THREADS)]
    threads: Vec<usize>,
}

/// What disturbs the program, and what that does.
struct Observer {
    name: &'static str,
    /// What of a recorder's work it does.
    part: &'static str,
    by: By,
}

enum By {
    /// lockbpf, with these options.
    Lockbpf(&'static [&'static str]),
    /// A recorder inside of the program.
    Inside(Inside),
}

const OBSERVERS: [Observer; 7] = [
    Observer { name: "lockbpf", part: "as its budget allows", by: By::Lockbpf(&[]) },
    Observer { name: "lockbpf --futex-only", part: "waits", by: By::Lockbpf(&["--futex-only"]) },
    Observer { name: "lockbpf --tid 1", part: "monitoring", by: By::Lockbpf(&["--budget", "off", "--tid", "1"]) },
    Observer { name: "lockbpf --budget off", part: "sums, records of waits", by: By::Lockbpf(&["--budget", "off"]) },
    Observer {
        name: "lockbpf --all-events",
        part: "a record of each section",
        by: By::Lockbpf(&["--budget", "off", "--all-events"]),
    },
    Observer { name: "RDTSC-Lock", part: "monitoring", by: By::Inside(Inside::Monitor) },
    Observer { name: "RDTSC-Lock", part: "a record of each operation", by: By::Inside(Inside::Recorder) },
];

/// Everything that a run found.
#[derive(Debug, Serialize)]
struct Results {
    schema: &'static str,
    machine: Machine,
    quick: bool,
    rows: Vec<Row>,
}

/// What one observer does to the program with so many threads; what it adds, as a share of the bare program's.
#[derive(Debug, Serialize)]
struct Row {
    threads: usize,
    observer: &'static str,
    part: &'static str,
    run_time: Spread,
    cpu_time: Spread,
    memory_requests: Option<Spread>,
    cache_misses: Option<Spread>,
    /// Bytes of memory that it wrote records into, for each section.
    bytes_per_section: Spread,
}

/// What it added in each round, and how much it wrote.
#[derive(Default)]
struct Added {
    bytes: Vec<f64>,
    run_time: Vec<f64>,
    cpu_time: Vec<f64>,
    memory_requests: Vec<f64>,
    cache_misses: Vec<f64>,
}

/// Measures at every number of threads.
///
/// # Errors
/// Something cannot be built, an observer fails, the benchmark was interrupted, or the figures cannot be written.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let machine = Machine::look_as_root()?;
    let lockbpf = Lockbpf::build()?;
    interrupt::watch()?;
    let programs = Programs::compile()?;
    let (points, rounds) = if args.quick { (&THREADS[..2], 2) } else { (&args.threads[..], args.rounds.max(1)) };
    let mut rows = Vec::new();
    let begin = Instant::now();
    for &threads in points {
        eprintln!("{threads} threads ({:.0} s so far)", begin.elapsed().as_secs_f64());
        rows.extend(measure(&lockbpf, &programs, threads, rounds)?);
    }
    println!("\n{}", table(&rows));
    if rows.iter().all(|row| row.cache_misses.is_none()) {
        println!("no hardware counters on this machine: memory requests and cache misses are not measured");
    }
    println!("{}", verdict(&rows));
    args.output.write(&Results { schema: SCHEMA, machine, quick: args.quick, rows })?;
    Ok(ExitCode::SUCCESS)
}

fn measure(lockbpf: &Lockbpf, programs: &Programs, threads: usize, rounds: usize) -> Result<Vec<Row>> {
    let mut bare = programs.start(threads, Inside::Nothing)?;
    let mut added: Vec<Added> = OBSERVERS.iter().map(|_| Added::default()).collect();
    // A program of their own for those inside, kept from round to round.
    let mut inside: Vec<Option<Work>> = OBSERVERS
        .iter()
        .map(|observer| match observer.by {
            By::Lockbpf(_) => Ok(None),
            By::Inside(inside) => programs.start(threads, inside).map(Some),
        })
        .collect::<Result<_>>()?;
    for _ in 0..rounds {
        for ((observer, work), added) in OBSERVERS.iter().zip(&mut inside).zip(&mut added) {
            interrupt::check()?;
            let before = window(&mut bare)?;
            let (disturbed, bytes) = match (&observer.by, work) {
                (By::Lockbpf(options), _) => {
                    let mut observing = observe(lockbpf, options, &bare)?;
                    let took = window(&mut bare)?;
                    observing.interrupt()?;
                    (took, written(&observing.out.rest())? / (WARM_UP + SECTIONS) as f64)
                }
                (By::Inside(inside), Some(work)) => (window(work)?, inside.bytes_per_section()),
                (By::Inside(_), None) => continue,
            };
            // The machine's other programs come and go: compared with what is just before and just after.
            let after = window(&mut bare)?;
            added.note(disturbed, [before, after]);
            added.bytes.push(bytes);
        }
    }
    let row = |(observer, added): (&Observer, Added)| added.row(observer, threads).context("nothing was measured");
    OBSERVERS.iter().zip(added).map(row).collect()
}

fn window(work: &mut Work) -> Result<Took> {
    work.run(WARM_UP)?;
    work.run(SECTIONS)
}

/// Starts lockbpf, and returns when it observes.
fn observe(lockbpf: &Lockbpf, options: &[&str], work: &Work) -> Result<Child> {
    let mut command = Command::new(&lockbpf.program);
    command.args(["--pid", &work.pid().to_string(), "--format", "json", "--top", "1"]).args(options);
    let mut child = Child::start(&mut command)?;
    child.expect_err(|line| line.starts_with("observing ").then_some(()))?;
    interrupt::sleep(Duration::from_millis(100))?;
    Ok(child)
}

/// How many bytes of memory lockbpf wrote records and stacks into, by its report.
fn written(report: &str) -> Result<f64> {
    let report: Value = serde_json::from_str(report).context("failed to read lockbpf's report")?;
    let took = &report["quality"]["perturbation"];
    let bytes = |field: &str| took[field].as_f64().with_context(|| format!("lockbpf does not tell its {field}"));
    Ok(bytes("record_bytes")? + bytes("stack_bytes")?)
}

impl Added {
    fn note(&mut self, disturbed: Took, bare: [Took; 2]) {
        let extra = |of: fn(&Took) -> f64| of(&disturbed) / ((of(&bare[0]) + of(&bare[1])) / 2.0) - 1.0;
        self.run_time.push(extra(|took| took.wall_ns));
        self.cpu_time.push(extra(|took| took.cpu_ns));
        if disturbed.memory.is_some() && bare.iter().all(|took| took.memory.is_some()) {
            self.memory_requests.push(extra(|took| took.memory.unwrap_or_default().0));
            self.cache_misses.push(extra(|took| took.memory.unwrap_or_default().1));
        }
    }

    fn row(self, observer: &Observer, threads: usize) -> Option<Row> {
        Some(Row {
            threads,
            observer: observer.name,
            part: observer.part,
            run_time: Spread::of(self.run_time)?,
            cpu_time: Spread::of(self.cpu_time)?,
            memory_requests: Spread::of(self.memory_requests),
            cache_misses: Spread::of(self.cache_misses),
            bytes_per_section: Spread::of(self.bytes)?,
        })
    }
}

fn table(rows: &[Row]) -> String {
    let header = [
        "threads",
        "observer",
        "does",
        "run time (95 %)",
        "CPU time (95 %)",
        "memory requests",
        "cache misses",
        "bytes written a section",
    ];
    let optional = |spread: &Option<Spread>| spread.as_ref().map_or_else(|| "–".to_owned(), percent);
    let cells = |row: &Row| {
        [
            row.threads.to_string(),
            row.observer.to_owned(),
            row.part.to_owned(),
            percent(&row.run_time),
            percent(&row.cpu_time),
            optional(&row.memory_requests),
            optional(&row.cache_misses),
            format!("{:.2}", row.bytes_per_section.median),
        ]
    };
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(header).add_rows(rows.iter().map(cells));
    table.trim_fmt()
}

/// A share that was added, as `+1.2 % (+0.8 – +1.9)`.
fn percent(spread: &Spread) -> String {
    let Spread { median, low, high, .. } = spread;
    format!("{:+.1} % ({:+.1} to {:+.1})", median * 100.0, low * 100.0, high * 100.0)
}

fn verdict(rows: &[Row]) -> String {
    let (threads, share) = GOAL;
    let Some(row) = rows.iter().find(|row| row.threads == threads) else { return String::new() };
    let Spread { low, high, .. } = row.run_time;
    let word = if high <= share {
        "reached"
    } else if low > share {
        "NOT reached"
    } else {
        "neither shown nor excluded"
    };
    let (added, goal) = (percent(&row.run_time), share * 100.0);
    format!("{threads} threads, {}: run time {added}, goal of HaLock's {goal:.0} % or less {word}", row.observer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn took(wall_ns: f64, memory: Option<(f64, f64)>) -> Took {
        Took { wall_ns, cpu_ns: 10.0, memory }
    }

    #[test]
    fn what_is_added_is_by_the_windows_around() {
        let mut added = Added { bytes: vec![64.0], ..Added::default() };
        added.note(took(103.0, Some((22.0, 3.0))), [took(90.0, Some((19.0, 2.0))), took(110.0, Some((21.0, 2.0)))]);
        added.note(took(100.0, None), [took(100.0, None); 2]);
        let row = added.row(&OBSERVERS[0], 8).unwrap();
        assert!((row.run_time.high - 0.03).abs() < 1e-12 && row.run_time.low == 0.0, "{row:?}");
        assert!((row.memory_requests.unwrap().median - 0.1).abs() < 1e-12, "{row:?}");
        assert_eq!((row.cache_misses.unwrap().median, row.cpu_time.median), (0.5, 0.0));
    }

    #[test]
    fn the_verdict_is_by_the_whole_interval() {
        let verdict_of = |adds: [f64; 2]| {
            let mut added = Added { bytes: vec![0.0], ..Added::default() };
            adds.into_iter().for_each(|add| added.note(took(100.0 + add, None), [took(100.0, None); 2]));
            verdict(&[added.row(&OBSERVERS[0], GOAL.0).unwrap()])
        };
        assert!(verdict_of([0.1, 0.9]).ends_with("less reached"));
        assert!(verdict_of([0.1, 1.1]).ends_with("less neither shown nor excluded"));
        assert!(verdict_of([1.1, 1.2]).ends_with("less NOT reached"));
    }
}
