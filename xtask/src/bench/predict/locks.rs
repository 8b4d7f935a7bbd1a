//! Predictions against real locks: a program recorded with one lock, predicted with others, and run with those unobserved.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    str::FromStr,
};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::{LIMIT, list, number, scores, utf8};
use crate::{
    bench::{
        build::{FULL, Lockbpf},
        interrupt,
        stats::Spread,
    },
    cc, process,
};

const SOURCE: &str = include_str!("locks.c");
/// Mean sections and local work, ns.
const HOLDS: [u32; 3] = [200, 1_000, 5_000];
const LOCALS: [u32; 3] = [1_000, 5_000, 20_000];
/// Those of the program with two locks.
const OF_TWO: [(u32, u32); 3] = [(200, 1_000), (1_000, 1_000), (5_000, 5_000)];
const THREADS: [u32; 3] = [1, 2, 4];
/// Locks as the program calls them, beside what `--with` calls them.
const LOCKS: [(&str, &str); 7] = [
    ("mutex", "mutex"),
    ("rwlock", "rwlock:0%"),
    ("spin", "spin"),
    ("ticket", "ticket"),
    ("mcs", "mcs"),
    ("qd-wait", "qd-wait"),
    ("qd", "qd"),
];
/// The lock that is recorded.
const RECORDED: &str = "mutex";
/// For how long sections are counted in an unobserved run, after as long without, ms.
const RUN_MS: u32 = 60;
/// The same where there are fewer CPUs than threads: locks whose threads wait in turn then go well until one that has its turn loses its CPU,
/// and all but stop from then on.
const CROWDED_MS: u32 = 400;
/// How long a recorded run takes, ms.
const RECORDING_MS: u32 = 300;
/// The same where windows of it are recorded.
const WINDOWS_MS: u32 = 2_000;

/// Which settings, and where what was measured is kept.
#[derive(clap::Args)]
pub(super) struct Real {
    /// Real locks: three settings, recordings of one thread only
    #[arg(long)]
    quick: bool,
    /// Real locks: keep recordings and measured rates in this directory. Those that are there are not made again
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Real locks: instead of the usual settings these: means of sections and of local work, ns, and locks (1 or 2), as in `500:2000:1`
    #[arg(long, value_name = "SETTINGS", value_delimiter = ',')]
    settings: Vec<Setting>,
}

/// Sections and local work of a program, and how many locks it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    hold: u32,
    local: u32,
    locks: u32,
}

impl Setting {
    pub(super) fn all(quick: bool) -> Vec<Self> {
        let one = HOLDS.iter().flat_map(|&hold| LOCALS.map(|local| Self { hold, local, locks: 1 }));
        let two = OF_TWO.iter().map(|&(hold, local)| Self { hold, local, locks: 2 });
        let mut all: Vec<Self> = one.chain(two).collect();
        if quick {
            // One of each length of sections.
            all.retain(|setting| setting.locks == 1 && setting.local == 5_000);
        }
        all
    }

    /// In words.
    pub(super) fn text(self) -> String {
        let Self { hold, local, locks } = self;
        format!("{hold} ns, {local} ns{}", if locks > 1 { ", 2 locks" } else { "" })
    }

    /// Those asked for.
    fn wanted(args: &Real) -> Vec<Self> {
        if args.settings.is_empty() { Self::all(args.quick) } else { args.settings.clone() }
    }

    fn key(self) -> String {
        let Self { hold, local, locks } = self;
        format!("{hold}-{local}-{locks}")
    }
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Result<Vec<u32>, _> = text.split(':').map(str::parse).collect();
        match numbers.as_deref() {
            Ok(&[hold, local, locks @ 1..=2]) => Ok(Self { hold, local, locks }),
            _ => Err(format!("`{text}` is no setting: sections, local work and locks, as in 500:2000:1")),
        }
    }
}

/// How a recording is made: its name, threads, lockbpf's options and the program's time.
const RECORDINGS: [(&str, u32, &[&str], u32); 3] = [
    ("one thread", 1, &FULL, RECORDING_MS),
    ("two threads", 2, &FULL, RECORDING_MS),
    ("one thread, default budget", 1, &[], WINDOWS_MS),
];

/// A throughput measured and predicted, per s.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) recording: &'static str,
    pub(super) setting: Setting,
    pub(super) threads: u32,
    pub(super) lock: &'static str,
    pub(super) measured: f64,
    /// The slowest run and the fastest one.
    pub(super) runs: [f64; 2],
    pub(super) predicted: f64,
    pub(super) interval: [f64; 2],
}

struct Bench<'a> {
    lockbpf: &'a Lockbpf,
    dir: &'a Path,
    program: PathBuf,
    /// Turns of the program's work in a second, so that all runs do the same.
    rate: String,
    runs: usize,
}

/// Compares predictions with measured throughput, and prints the table.
///
/// # Errors
/// The program cannot be compiled, run or observed, or a prediction fails.
pub(super) fn compare(lockbpf: &Lockbpf, dir: &Path, runs: usize, args: &Real) -> Result<()> {
    let dir = args.keep.as_deref().unwrap_or(dir);
    fs::create_dir_all(dir).with_context(|| format!("failed to create {}", dir.display()))?;
    let program = cc::compile_text(SOURCE, dir, "locks", &["-g", "-Wl,--no-as-needed,-lm"])
        .context("the locks of Concurrency Kit are needed: install Debian's libck-dev")?;
    let mut bench = Bench { lockbpf, dir, rate: String::new(), program, runs };
    bench.rate = bench.once("rate", || process::output(Command::new(&bench.program).arg("rate"), LIMIT))?;
    bench.calibrate()?;
    let recordings = &RECORDINGS[..if args.quick { 1 } else { RECORDINGS.len() }];
    let mut rows = Vec::new();
    for setting in Setting::wanted(args) {
        let measured = bench.measured(setting)?;
        for &(recording, threads, options, ms) in recordings {
            let trace = bench.record(setting, recording, threads, options, ms)?;
            for (lock, with) in LOCKS {
                for (threads, predicted, interval) in bench.predicted(&trace, with)? {
                    let key = format!("{lock} {threads}");
                    let &measured = measured.get(&key).with_context(|| format!("{key} was not measured"))?;
                    let (measured, runs) = (measured.median, [measured.low, measured.high]);
                    rows.push(Row { recording, setting, threads, lock, measured, runs, predicted, interval });
                }
            }
        }
    }
    scores::print(&rows);
    Ok(())
}

impl Bench<'_> {
    /// What is in a file of this name, which is made first if there is none.
    fn once(&self, name: &str, make: impl FnOnce() -> Result<String>) -> Result<String> {
        let path = self.dir.join(name);
        if let Ok(text) = fs::read_to_string(&path) {
            return Ok(text);
        }
        let text = make()?;
        fs::write(&path, &text).with_context(|| format!("failed to write {}", path.display()))?;
        Ok(text)
    }

    /// lockbpf with a calibration of its own.
    fn lockbpf(&self) -> Command {
        let mut command = Command::new(&self.lockbpf.program);
        command.env("XDG_STATE_HOME", self.dir);
        command
    }

    fn calibrate(&self) -> Result<()> {
        if !self.dir.join("lockbpf").exists() {
            process::output(self.lockbpf().args(["calibrate", "--max-load", "100%"]), LIMIT)?;
        }
        Ok(())
    }

    fn arguments(&self, setting: Setting, lock: &str, threads: u32, ms: u32) -> [String; 7] {
        let Setting { hold, local, locks } = setting;
        let [threads, hold, local, locks, ms] = [threads, hold, local, locks, ms].map(|number| number.to_string());
        [lock.to_owned(), threads, hold, local, locks, ms, self.rate.trim().to_owned()]
    }

    /// Sections per s, by lock and number of threads, of runs that take turns.
    fn measured(&self, setting: Setting) -> Result<BTreeMap<String, Spread>> {
        let cpus = std::thread::available_parallelism().context("failed to find out how many CPUs there are")?.get();
        let text = self.once(&format!("{}.json", setting.key()), || {
            let mut rates: BTreeMap<String, Vec<f64>> = BTreeMap::new();
            for _ in 0..self.runs {
                for (lock, threads) in LOCKS.iter().flat_map(|(lock, _)| THREADS.map(|threads| (lock, threads))) {
                    interrupt::check()?;
                    let mut command = Command::new(&self.program);
                    let ms = if threads as usize > cpus { CROWDED_MS } else { RUN_MS };
                    let said = process::output(command.args(self.arguments(setting, lock, threads, ms)), LIMIT)?;
                    rates.entry(format!("{lock} {threads}")).or_default().push(rate(&said)?);
                }
            }
            Ok(serde_json::to_string(&rates)?)
        })?;
        let rates: BTreeMap<String, Vec<f64>> = serde_json::from_str(&text).context("failed to read measured rates")?;
        Ok(rates.into_iter().filter_map(|(key, rates)| Some((key, Spread::of(rates)?))).collect())
    }

    fn record(&self, setting: Setting, name: &str, threads: u32, options: &[&str], ms: u32) -> Result<PathBuf> {
        let trace = self.dir.join(format!("{} {name}.bin", setting.key()));
        if !trace.exists() {
            let mut command = self.lockbpf();
            command.arg("export").args(options).arg("--to").arg(&trace).arg("--").arg(&self.program);
            // The program runs for twice as long as it counts.
            process::output(command.args(self.arguments(setting, RECORDED, threads, ms / 2)), LIMIT)?;
        }
        Ok(trace)
    }

    /// Throughput per s with a lock, by number of threads, with its interval.
    fn predicted(&self, trace: &Path, with: &str) -> Result<Vec<(u32, f64, [f64; 2])>> {
        let threads = THREADS.map(|threads| threads.to_string()).join(",");
        let mut command = self.lockbpf();
        command.args(["predict", "--from", utf8(trace)?, "--threads", &threads, "--with", with, "--format", "json"]);
        let text = process::output(&mut command, LIMIT)?;
        let prediction: Value = serde_json::from_str(&text).context("the prediction is no JSON")?;
        let points = list(&prediction["points"])?.iter().zip(THREADS);
        points
            .map(|(point, threads)| {
                let interval = &point["throughput_interval_per_ns"];
                let [at, low, high] = [&point["throughput_per_ns"], &interval[0], &interval[1]].map(number);
                Ok((threads, at? * 1e9, [low? * 1e9, high? * 1e9]))
            })
            .collect()
    }
}

/// Sections per s out of what the program says: sections and ns.
fn rate(said: &str) -> Result<f64> {
    let numbers: Vec<f64> = said.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let &[sections, ns] = &numbers[..] else { bail!("`{}` is no result of the program", said.trim()) };
    Ok(sections / ns * 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_names_of_their_own() {
        let all = Setting::all(false);
        assert_eq!((all.len(), Setting::all(true).len()), (12, 3));
        let mut keys: Vec<String> = all.iter().map(|setting| setting.key()).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), all.len());
    }

    #[test]
    fn settings_can_be_asked_for() {
        assert_eq!("500:2000:2".parse(), Ok(Setting { hold: 500, local: 2_000, locks: 2 }));
        assert!("500:2000".parse::<Setting>().is_err() && "1:2:3".parse::<Setting>().is_err());
    }

    #[test]
    fn rates_are_sections_in_a_second() {
        assert_eq!(rate("500 1000000000\n").unwrap(), 500.0);
        assert!(rate("no lock\n").is_err());
    }
}
