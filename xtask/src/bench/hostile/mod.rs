//! `cargo xtask bench hostile`: damaged inputs, damaged libraries in observed programs, and programs that are hard to observe: how lockbpf
//! ends, how long that takes, and what it uses.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use comfy_table::{Table, presets};
use fastrand::Rng;
use tempfile::TempDir;

use self::watched::{MEMORY, Run, watch};
use super::{build::Lockbpf, child::Child, interrupt};
use crate::{cc, workspace};

mod damage;
mod watched;

/// How long an input may take.
const INPUT_LIMIT: Duration = Duration::from_secs(10);
/// How long an observation may take beyond the observed time.
const GRACE: Duration = Duration::from_secs(40);
/// Libraries in one program.
const TOGETHER: usize = 20;

/// Arguments of `bench hostile`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Mutated recordings
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    recordings: u32,
    /// Hostile files of event lines
    #[arg(long, value_name = "N", default_value_t = 350)]
    lines: u32,
    /// Libraries with damaged sections
    #[arg(long, value_name = "N", default_value_t = 200)]
    libraries: u32,
    /// Threads that come and go
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    threads: u32,
    /// Processes that come and go
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    processes: u32,
    /// How long a program changes all that can be changed, s
    #[arg(long, value_name = "N", default_value_t = 20)]
    restless: u32,
    /// This lockbpf instead of one that is built now
    #[arg(long, value_name = "PROGRAM")]
    lockbpf: Option<PathBuf>,
}

/// Runs all of it and prints a table.
///
/// # Errors
/// It could not be run. What is above its bound is a result, told by the exit status.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    interrupt::watch()?;
    let lockbpf = match &args.lockbpf {
        Some(program) => program.clone(),
        None => Lockbpf::build()?.program,
    };
    let bench = Bench { lockbpf, dir: tempfile::tempdir()? };
    let storm = cc::compile_text(include_str!("storm.c"), bench.dir.path(), "storm", &["-ldl"])?;
    let mut rows = Vec::new();
    let mut done = |what: &'static str, number: u32, run: Run| {
        eprintln!("{}", table(&[(what, number, run)]).lines().last().unwrap_or_default());
        rows.push((what, number, run));
    };
    done("mutated recordings", args.recordings, bench.inputs(args.recordings, "tests/goldens/recordings", "bin")?);
    done("hostile event lines", args.lines, bench.inputs(args.lines, "fuzz/corpus/event_lines", "jsonl")?);
    done("libraries with mutated sections", args.libraries, bench.libraries(&storm, args.libraries)?);
    done("threads that come and go", args.threads, bench.storm(&storm, "threads", args.threads, &[])?);
    let processes = bench.storm(&storm, "processes", args.processes, &["--follow-forks"])?;
    done("processes that come and go", args.processes, processes);
    let restless = bench.storm(&storm, "restless", args.restless * 100, &[])?;
    done("seconds of loading, renaming, remapping, unsharing", args.restless, restless);
    println!("{}", table(&rows));
    let within = rows.iter().all(|(_, _, run)| run.within());
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
            let run = watch(command.arg(&path), INPUT_LIMIT, Duration::from_millis(2), || Ok(()))?;
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
        for some in paths.chunks(TOGETHER) {
            let mut program = Child::start(Command::new(storm).args(["libraries", "600"]).args(some))?;
            let loaded: usize = program.expect_out(|line| line.parse().ok())?;
            if loaded == 0 {
                bail!("no damaged library can be loaded");
            }
            let pid = program.pid().to_string();
            let args = ["--pid", &pid, "--duration", "3s", "--unwind", "dwarf", "--format", "json"];
            let limit = Duration::from_secs(3) + GRACE;
            worst.add(watch(Command::new(&self.lockbpf).args(args), limit, Duration::from_millis(50), || Ok(()))?);
        }
        Ok(worst)
    }

    /// Observes a program from before it begins until it ends.
    fn storm(&self, storm: &Path, kind: &str, number: u32, options: &[&str]) -> Result<Run> {
        let mut program = Child::start(Command::new(storm).args([kind, &number.to_string()]).stdin(Stdio::piped()))?;
        program.expect_out(|line| (line == "ready").then_some(()))?;
        let pid = program.pid().to_string();
        let mut command = Command::new(&self.lockbpf);
        command.args(["--pid", &pid, "--format", "json"]).args(options);
        let limit = Duration::from_secs(240);
        watch(&mut command, limit, Duration::from_millis(100), || program.tell("go"))
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

fn table(rows: &[(&str, u32, Run)]) -> String {
    let mib = |bytes: u64| if bytes == 0 { "–".to_owned() } else { format!("{}", bytes.div_ceil(1 << 20)) };
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header(["what", "number", "failed", "refused", "well", "longest, s", "RSS, MiB", "maps, MiB", "CPU, %"]);
    for (what, number, run) in rows {
        let counts = [*number, run.failed, run.refused, run.well].map(|count| count.to_string());
        let cpu = if run.maps == 0 { "–".to_owned() } else { format!("{:.0}", 100.0 * run.cpu) };
        let used = [format!("{:.1}", run.took.as_secs_f64()), mib(run.rss), mib(run.maps), cpu];
        table.add_row([(*what).to_owned()].into_iter().chain(counts).chain(used));
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_above_its_bound_is_told() {
        let mut worst = Run { well: 1, rss: 200 << 20, ..Run::default() };
        assert!(worst.within());
        worst.add(Run { well: 1, maps: 101 << 20, ..Run::default() });
        assert!(!worst.within() && worst.well == 2);
        assert!(!Run { failed: 1, ..Run::default() }.within());
        assert!(table(&[("x", 2, worst)]).contains("200"));
    }

    #[test]
    fn there_are_files_to_damage() {
        for (folder, suffix) in [("tests/goldens/recordings", "bin"), ("fuzz/corpus/event_lines", "jsonl")] {
            assert!(seeds(&workspace::root().join(folder), suffix).unwrap().len() > 5);
        }
    }
}
