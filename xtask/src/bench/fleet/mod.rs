//! `cargo xtask bench fleet`: what the metrics of many agents cost whoever collects them. One agent is real; the others serve what it served,
//! with figures that grow on each at another pace.

use std::{
    fs::{self, File},
    io::{BufWriter, Write as _},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;

use self::{farm::Farm, host::Template, prometheus::Prometheus};
use super::{
    build::Given,
    interrupt,
    machine::Machine,
    result::Output,
    soak,
    usage::{cpu_time, peak_rss},
};

mod farm;
mod host;
mod prometheus;

/// Value of [`Results::schema`]: changes when a field changes its meaning or goes away.
const SCHEMA: &str = "lockbpf.bench-fleet/1";
/// How long the agent observes before it is asked what it serves.
const AGE: Duration = Duration::from_secs(30);
/// 24 November 2026, in s since 1970, and a day.
const DAY_BEGIN: u64 = 1_795_478_400;
const DAY: u64 = 86_400;
/// What somebody asks of the whole fleet.
const QUESTION: &str = "topk(10, sum by (comm, lock) (rate(lockbpf_lock_wait_seconds_sum[2m])))";

/// Arguments of `bench fleet`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: Output,
    /// Agents that are asked
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    hosts: u64,
    /// How often each of them is asked, in s
    #[arg(long, value_name = "S", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=300))]
    interval: u64,
    /// How long that is watched once all are known, in s
    #[arg(long, value_name = "S", default_value_t = 180, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    #[command(flatten)]
    given: Given,
}

/// Everything that a run found.
#[derive(Serialize)]
struct Results {
    schema: &'static str,
    machine: Machine,
    hosts: u64,
    interval_s: u64,
    /// How many series one host has.
    series: usize,
    /// How large a host's answer is, bytes.
    text_bytes: usize,
    /// Samples that Prometheus counts as taken from all hosts.
    samples_per_s: f64,
    /// CPU time that Prometheus takes, share of one core.
    cpu_cores: f64,
    /// Samples for each second of Prometheus' CPU time.
    samples_per_cpu_s: f64,
    /// Memory that Prometheus has at most, bytes.
    memory_bytes: u64,
    /// Series that it holds.
    head_series: f64,
    /// Hosts that did not answer in time when it asked them last.
    hosts_missed: f64,
    /// How long [`QUESTION`] takes, s.
    question_s: f64,
    /// A day of a host as Prometheus keeps it, bytes.
    day_bytes: u64,
}

/// Runs it and prints a table.
///
/// # Errors
/// It could not be run.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let machine = Machine::look_as_root()?;
    interrupt::watch()?;
    let lockbpf = args.given.lockbpf()?.program;
    let dir = tempfile::tempdir().context("failed to create a temporary directory")?;
    let text = soak::served(&lockbpf, dir.path(), AGE)?;
    let template = Arc::new(Template::new(&text, AGE.as_secs_f64()));
    let interval = Duration::from_secs(args.interval);
    let farm = Farm::start(Arc::clone(&template), interval.as_secs_f64())?;
    let prometheus = Prometheus::start(farm.address, args.hosts, interval, dir.path())?;
    const APPENDED: &str = "prometheus_tsdb_head_samples_appended_total";
    let read = || {
        Ok::<_, anyhow::Error>((Instant::now(), prometheus.own(APPENDED)?, cpu_time(prometheus.pid())?, farm.served()))
    };
    let (begin, before, cpu_before, served_before) = read()?;
    interrupt::sleep(Duration::from_secs(args.seconds))?;
    let (end, after, cpu_after, served_after) = read()?;
    let (time, cpu) = ((end - begin).as_secs_f64(), cpu_after.saturating_sub(cpu_before).as_secs_f64());
    ensure!(served_after > served_before && after > before, "Prometheus asked nobody in {time:.0} s");
    let asked = Instant::now();
    ensure!(!prometheus.ask(QUESTION)?.is_empty(), "no host has waited for a lock: {QUESTION} is empty");
    let question_s = asked.elapsed().as_secs_f64();
    let (history, blocks) = (dir.path().join("history"), dir.path().join("blocks"));
    let mut out = BufWriter::new(File::create(&history).context("failed to create a history")?);
    template.history(0, DAY_BEGIN, DAY / args.interval, args.interval, &mut out)?;
    out.flush()?;
    fs::create_dir(&blocks)?;
    let results = Results {
        schema: SCHEMA,
        machine,
        hosts: args.hosts,
        interval_s: args.interval,
        series: template.series(),
        text_bytes: text.len(),
        samples_per_s: (after - before) / time,
        cpu_cores: cpu / time,
        samples_per_cpu_s: (after - before) / cpu,
        memory_bytes: peak_rss(prometheus.pid())?,
        head_series: prometheus.own("prometheus_tsdb_head_series")?,
        hosts_missed: prometheus.ask("count(up == 0) or vector(0)")?.first().copied().unwrap_or_default(),
        question_s,
        day_bytes: prometheus::stored(&history, &blocks)?,
    };
    println!("{}", table(&results));
    args.output.write(&results)?;
    Ok(ExitCode::SUCCESS)
}

fn table(results: &Results) -> String {
    let samples_of_a_day = results.series as f64 * (DAY / results.interval_s) as f64;
    format!(
        "| hosts | asked each, s | series of a host | an answer, KB | samples a second | Prometheus' cores | samples a second of CPU | its memory at most, GB | series it holds | hosts missed | `topk` over all, s | a host's day, MB | bytes a sample |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|\n\
         | {} | {} | {} | {:.0} | {:.0} | {:.2} | {:.0} | {:.2} | {:.0} | {} | {:.2} | {:.2} | {:.2} |",
        results.hosts,
        results.interval_s,
        results.series,
        results.text_bytes as f64 / 1e3,
        results.samples_per_s,
        results.cpu_cores,
        results.samples_per_cpu_s,
        results.memory_bytes as f64 / 1e9,
        results.head_series,
        results.hosts_missed,
        results.question_s,
        results.day_bytes as f64 / 1e6,
        results.day_bytes as f64 / samples_of_a_day,
    )
}
