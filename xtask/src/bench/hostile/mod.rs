//! `cargo xtask bench hostile`: damaged inputs, damaged libraries in observed programs, and programs that are hard to observe: how lockbpf
//! ends, how long that takes, and what it uses.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use comfy_table::{Table, presets};
use fastrand::Rng;
use serde::Serialize;
use tempfile::TempDir;

use self::watched::{CPU, MEMORY, REPORT, Run, Subject, watch};
use super::{build::Given, child::Child, interrupt, machine::Machine, result::Output};
use crate::{cc, workspace};

mod damage;
mod watched;

/// Value of [`Results::schema`]: changes when a field changes its meaning or goes away.
const SCHEMA: &str = "lockbpf.bench-hostile/1";
/// Libraries in one program.
const TOGETHER: u32 = 20;
/// How long such a program is observed.
const OBSERVED: Duration = Duration::from_secs(3);

/// Arguments of `bench hostile`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: Output,
    /// Some of each, within three minutes
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    given: Given,
}

/// How many of each.
struct Amounts {
    recordings: u32,
    lines: u32,
    libraries: u32,
    threads: u32,
    processes: u32,
    crowd: u32,
    words: u32,
    locks: u32,
    restless_s: u32,
    map_mib: u32,
}

const ALL: Amounts = Amounts {
    recordings: 1_000,
    lines: 350,
    libraries: 200,
    threads: 100_000,
    processes: 10_000,
    crowd: 25_000,
    words: 33_000_000,
    locks: 4_000_000,
    restless_s: 20,
    map_mib: 139,
};
const QUICK: Amounts = Amounts {
    recordings: 100,
    lines: 50,
    libraries: 40,
    threads: 20_000,
    processes: 1_000,
    crowd: 5_000,
    words: 3_000_000,
    locks: 1_000_000,
    restless_s: 5,
    map_mib: 139,
};

/// Everything that a run found.
#[derive(Serialize)]
struct Results {
    schema: &'static str,
    machine: Machine,
    quick: bool,
    rows: Vec<Row>,
}

/// What came of one kind of hostility.
#[derive(Serialize)]
struct Row {
    what: &'static str,
    number: u32,
    #[serde(flatten)]
    run: Run,
}

/// Runs all of it and prints a table.
///
/// # Errors
/// It could not be run. What is above its bound is a result, told by the exit status.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let machine = Machine::look_as_root()?;
    interrupt::watch()?;
    let lockbpf = args.given.lockbpf()?.program;
    let bench = Bench { lockbpf, dir: tempfile::tempdir()? };
    let storm = cc::compile_text(include_str!("storm.c"), bench.dir.path(), "storm", &["-ldl"])?;
    let amounts = if args.quick { QUICK } else { ALL };
    let mut rows = Vec::new();
    let mut done = |what, number, run: Result<Run>| -> Result<()> {
        let row = Row { what, number, run: run.with_context(|| what.to_owned())? };
        eprintln!("{}", cells(&row).join("; "));
        rows.push(row);
        Ok(())
    };
    let Amounts { recordings, lines, libraries, threads, processes, crowd, words, locks, restless_s, map_mib } =
        amounts;
    done("mutated recordings", recordings, bench.inputs(recordings, "tests/goldens/recordings", "bin"))?;
    done("hostile event lines", lines, bench.inputs(lines, "fuzz/corpus/event_lines", "jsonl"))?;
    done("libraries with mutated sections", libraries, bench.libraries(&storm, libraries))?;
    done("threads that come and go", threads, bench.storm(&storm, "threads", threads, &[]))?;
    let run = bench.storm(&storm, "processes", processes, &["--follow-forks"]);
    done("processes that come and go", processes, run)?;
    done("threads at one time", crowd, bench.storm(&storm, "crowd", crowd, &[]))?;
    done("futex words", words, bench.storm(&storm, "words", words, &[]))?;
    done("locks, seen one by one", locks, bench.storm(&storm, "locks", locks, &["--budget", "off"]))?;
    let run = bench.storm(&storm, "restless", restless_s * 100, &[]);
    done("hundredths of a second: loads, renames, remaps, unshares", restless_s * 100, run)?;
    done("MiB of a perf map that grows", map_mib, bench.storm(&storm, "map", map_mib, &["--unwind", "dwarf"]))?;
    println!("{}", table(&rows));
    let (bound, report) = (MEMORY >> 20, REPORT.as_secs());
    println!(
        "bounds: no failure, a report within {report} s, {bound} MiB, {:.0} % of a CPU and 1 s of CPU time",
        100.0 * CPU
    );
    let within = rows.iter().all(|row| row.run.within());
    args.output.write(&Results { schema: SCHEMA, machine, quick: args.quick, rows })?;
    Ok(if within { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct Bench {
    lockbpf: PathBuf,
    dir: TempDir,
}

impl Bench {
    /// Reports on mutated files of a folder, each in as much memory as is allowed and no more.
    fn inputs(&self, number: u32, folder: &str, suffix: &str) -> Result<Run> {
        let seeds = seeds(&workspace::root().join(folder), suffix)?;
        let path = self.dir.path().join(format!("input.{suffix}"));
        let mut worst = Run::default();
        for n in 0..number {
            let mut rng = Rng::with_seed(u64::from(n));
            let mut bytes = rng.choice(&seeds).cloned().unwrap_or_default();
            if suffix == "jsonl" {
                damage::lines(&mut bytes, &mut rng);
            } else {
                damage::anywhere(&mut bytes, &mut rng);
            }
            fs::write(&path, &bytes).with_context(|| format!("failed to write {}", path.display()))?;
            let mut command = Command::new("prlimit");
            command.arg(format!("--data={MEMORY}")).arg(&self.lockbpf).args(["report", "--format", "json", "--from"]);
            let run = watch(command.arg(&path), self.dir.path(), Subject::Input)?;
            if run.failed > 0 {
                let kept = std::env::temp_dir().join(format!("lockbpf-hostile-{n}.{suffix}"));
                fs::copy(&path, &kept).with_context(|| format!("failed to write {}", kept.display()))?;
                eprintln!("input {n} of seed {n} made lockbpf fail: {}", kept.display());
            }
            worst.add(run);
        }
        Ok(worst)
    }

    /// Observes programs that take locks in damaged libraries.
    fn libraries(&self, storm: &Path, number: u32) -> Result<Run> {
        let options = ["-shared", "-fPIC", "-g"];
        let whole = cc::compile_text(include_str!("library.c"), self.dir.path(), "library", &options)?;
        let whole = fs::read(&whole).with_context(|| format!("failed to read {}", whole.display()))?;
        let paths: Vec<PathBuf> = (0..number).map(|n| self.dir.path().join(format!("damaged{n}.so"))).collect();
        for (n, path) in (0_u64..).zip(&paths) {
            let mut file = whole.clone();
            damage::unloaded(&mut file, &mut Rng::with_seed(n))?;
            fs::write(path, file).with_context(|| format!("failed to write {}", path.display()))?;
        }
        let mut worst = Run::default();
        for some in paths.chunks(TOGETHER as usize) {
            let mut program = Child::start(Command::new(storm).args(["libraries", "600"]).args(some))?;
            let loaded: usize = program.expect_out(|line| line.parse().ok())?;
            if loaded == 0 {
                bail!("no damaged library can be loaded");
            }
            let pid = program.pid().to_string();
            let seconds = format!("{}s", OBSERVED.as_secs());
            let args = ["--pid", &pid, "--duration", &seconds, "--unwind", "dwarf", "--format", "json"];
            worst.add(watch(Command::new(&self.lockbpf).args(args), self.dir.path(), Subject::For(OBSERVED))?);
        }
        Ok(worst)
    }

    /// Observes a program from before it begins until it ends.
    fn storm(&self, storm: &Path, kind: &str, number: u32, options: &[&str]) -> Result<Run> {
        let mut program = Child::start(Command::new(storm).args([kind, &number.to_string()]))?;
        program.expect_out(|line| (line == "ready").then_some(()))?;
        let pid = program.pid().to_string();
        let mut command = Command::new(&self.lockbpf);
        command.args(["--pid", &pid, "--format", "json"]).args(options);
        watch(&mut command, self.dir.path(), Subject::Whole(&mut program))
    }
}

/// The files of a folder with a suffix.
fn seeds(folder: &Path, suffix: &str) -> Result<Vec<Vec<u8>>> {
    let files = fs::read_dir(folder).with_context(|| format!("failed to read {}", folder.display()))?;
    let mut paths: Vec<PathBuf> = files.filter_map(|file| Some(file.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|found| found == suffix));
    paths.sort();
    paths.iter().map(|path| fs::read(path).with_context(|| format!("failed to read {}", path.display()))).collect()
}

const HEADER: [&str; 11] = [
    "what",
    "number",
    "failed",
    "refused",
    "report",
    "until the report, s",
    "lockbpf, MiB",
    "helpers, MiB",
    "maps, MiB",
    "at one time, MiB",
    "CPU while observing, %",
];

/// All rows, as Markdown.
fn table(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(HEADER).add_rows(rows.iter().map(cells));
    table.trim_fmt()
}

fn cells(row: &Row) -> Vec<String> {
    let Row { what, number, run } = row;
    let mib = |bytes: u64| if bytes == 0 { "–".to_owned() } else { bytes.div_ceil(1 << 20).to_string() };
    let mut cells = vec![(*what).to_owned()];
    cells.extend([*number, run.failed, run.refused, run.well].map(|count| count.to_string()));
    cells.push(format!("{:.1}", run.report_s));
    cells.extend([run.rss_bytes, run.helpers_bytes, run.map_bytes, run.together_bytes].map(mib));
    cells.push(run.cpu.map_or("–".to_owned(), |cpu| format!("{:.1}", 100.0 * cpu)));
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_a_cell_for_each_column() {
        let row = Row { what: "x", number: 2, run: Run { rss_bytes: 200 << 20, cpu: Some(0.012), ..Run::default() } };
        assert_eq!(cells(&row).len(), HEADER.len());
        let table = table(&[row]);
        assert!(table.contains("| 200 ") && table.contains("| 1.2 "), "{table}");
    }

    #[test]
    fn there_are_files_to_damage() {
        for (folder, suffix) in [("tests/goldens/recordings", "bin"), ("fuzz/corpus/event_lines", "jsonl")] {
            assert!(seeds(&workspace::root().join(folder), suffix).unwrap().len() > 5);
        }
    }
}
