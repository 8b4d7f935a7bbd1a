//! `cargo xtask bench tables`: how fast a long recording becomes Parquet tables, and in how much memory.

use std::{
    fs,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use nix::unistd::Pid;

use super::{
    build::Lockbpf,
    interrupt,
    machine::Machine,
    usage::{bytes_below, cpu_time, peak_rss},
};
use crate::process::describe;

/// The made-up program.
const THREADS: u64 = 8;
const LOCKS: u64 = 4;
const SITES: u64 = 6;
/// The benchmark reads after each such time what the writer has used. It misses what the writer uses after the last reading.
const LOOK: Duration = Duration::from_millis(5);

/// Arguments of `bench tables`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Waits in the recording, which has twice as many holds
    #[arg(long, default_value_t = 1_000_000)]
    waits: u64,
    /// Directory for the recording and its tables, which take some 50 bytes a wait
    #[arg(long, default_value = "target")]
    within: PathBuf,
}

/// Makes a recording, and its tables.
///
/// # Errors
/// lockbpf cannot be built, or fails, or the benchmark was interrupted.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    Machine::look_and_tell();
    let lockbpf = Lockbpf::build()?;
    interrupt::watch()?;
    let dir = tempfile::tempdir_in(&args.within).context("failed to create a temporary directory")?;
    let (trace, tables) = (dir.path().join("t.bin"), dir.path().join("tables"));
    record(&lockbpf, args.waits, &trace)?;
    let mut export = Command::new(&lockbpf.program);
    export.args(["export", "--as", "parquet", "--from"]).arg(&trace).arg("--to").arg(&tables);
    let used = measure(&mut export)?;
    let mut report = Command::new(&lockbpf.program);
    report.args(["report", "--format", "json", "--from"]).arg(&trace).stdout(Stdio::null());
    let reading = measure(&mut report)?.cpu;
    let rows = 3.0 * args.waits as f64;
    println!(
        "| waits | holds | recording, MB | tables, MB | time, s | CPU, s | a report's CPU, s | rows a second of CPU | … beyond two reports | memory at most, MB |\n\
         |---|---|---|---|---|---|---|---|---|---|\n\
         | {} | {} | {:.0} | {:.0} | {:.1} | {:.1} | {:.1} | {:.0} | {:.0} | {:.0} |",
        args.waits,
        2 * args.waits,
        fs::metadata(&trace)?.len() as f64 / 1e6,
        bytes_below(&tables)? as f64 / 1e6,
        used.time.as_secs_f64(),
        used.cpu.as_secs_f64(),
        reading.as_secs_f64(),
        rows / used.cpu.as_secs_f64(),
        // A recording is read twice, and analysed each time.
        rows / used.cpu.saturating_sub(2 * reading).as_secs_f64(),
        used.memory as f64 / 1e6,
    );
    Ok(ExitCode::SUCCESS)
}

/// Lets lockbpf make a recording of event lines.
fn record(lockbpf: &Lockbpf, waits: u64, to: &Path) -> Result<()> {
    let mut command = Command::new(&lockbpf.program);
    command.args(["export", "--from", "-", "--to"]).arg(to).stdin(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("failed to start `{}`", describe(&command)))?;
    let mut lines = BufWriter::new(child.stdin.take().context("it has no input")?);
    for round in 0..waits {
        if round % 100_000 == 0 {
            interrupt::check()?;
        }
        write(round, &mut lines).with_context(|| format!("`{}` does not read", describe(&command)))?;
    }
    lines.into_inner().context("failed to write the last event lines")?;
    ensure!(child.wait()?.success(), "`{}` failed", describe(&command));
    Ok(())
}

/// Two sections of one lock: the second one's thread waits for the first one's.
fn write(round: u64, to: &mut impl Write) -> io::Result<()> {
    let scatter = |salt: u64| (round + 1).wrapping_mul(salt).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let lock = scatter(3) % LOCKS;
    let first = scatter(5) % THREADS;
    let second = (first + 1 + scatter(7) % (THREADS - 1)) % THREADS;
    let sites = [scatter(11) % SITES, scatter(13) % SITES];
    let begin = 10_000 * round;
    let (asks, gets) = (begin + 100 + scatter(17) % 1_000, begin + 2_000 + scatter(19) % 3_000);
    let end = gets + 100 + scatter(23) % 4_000;
    for (t, thread, what, site) in [
        (begin, first, "attempt", Some(sites[0])),
        (begin, first, "acquire", None),
        (asks, second, "attempt", Some(sites[1])),
        (gets, first, "release", None),
        (gets, second, "acquire", None),
        (end, second, "release", None),
    ] {
        write!(to, r#"{{"t":{t},"tid":"t{thread}","op":"{what}","lock":"lock{lock}""#)?;
        if let Some(site) = site {
            write!(to, r#","site":"site{site}""#)?;
        }
        writeln!(to, "}}")?;
    }
    Ok(())
}

/// What a program used until its end.
struct Used {
    cpu: Duration,
    time: Duration,
    memory: u64,
}

fn measure(command: &mut Command) -> Result<Used> {
    let begin = Instant::now();
    let mut child = command.spawn().with_context(|| format!("failed to start `{}`", describe(command)))?;
    let pid = Pid::from_raw(child.id().cast_signed());
    let mut used = Used { cpu: Duration::ZERO, time: Duration::ZERO, memory: 0 };
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        used.cpu = cpu_time(pid).unwrap_or_default().max(used.cpu);
        used.memory = peak_rss(pid).unwrap_or_default().max(used.memory);
        interrupt::sleep(LOOK)?;
    };
    ensure!(status.success(), "`{}` failed", describe(command));
    used.time = begin.elapsed();
    Ok(used)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn each_round_has_one_wait_and_two_sections_of_one_lock() {
        for round in 0..1_000 {
            let mut text = Vec::new();
            write(round, &mut text).unwrap();
            let lines: Vec<Value> =
                String::from_utf8(text).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let of = |at: usize, field: &str| lines[at][field].clone();
            assert!(lines.iter().all(|line| line["lock"] == of(0, "lock")));
            assert!(of(0, "tid") != of(2, "tid") && of(2, "t").as_u64() < of(4, "t").as_u64());
            assert!(lines.is_sorted_by_key(|line| line["t"].as_u64()));
            assert!(of(5, "t").as_u64() < Some(10_000 * (round + 1)), "{lines:?}");
        }
    }
}
