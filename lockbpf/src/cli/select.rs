//! `lockbpf select`: runs a command at growing sizes, tells which of them expose a synchronization bottleneck, and
//! observes those. Times and CPU use come from runs without probes.

use super::args::{CaptureArgs, Format, Plan};
use super::{live, output};
use crate::capture::launch::How;
use crate::observe::{Collector, Target, own};
use crate::report::combine::{self, combine};
use crate::report::{self, Report};
use crate::select::{self, Criteria, Run, Runs, Selection};
use crate::units::Nanos;
use anyhow::{Context, Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nix::sys::resource::UsageWho;
use serde::Serialize;
use std::collections::HashSet;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::Instant;

/// What stands for the size in the command.
const PLACEHOLDER: &str = "{size}";
/// Level of significance.
const ALPHA: f64 = 0.05;
/// Which workload to run, and how often.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:
  lockbpf select --sizes 1,2,4,8 -- ./server-benchmark --clients {size}

{size} is replaced in every argument. What the command prints on stdout is dropped. Times and CPU use are taken without
probes; the sizes that expose a bottleneck are then run again under observation, which takes the rights for that, and sees
the command's own process, not those that it starts.")]
pub(super) struct SelectArgs {
    /// The sizes, growing, e.g. 1,2,4,8.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', required = true)]
    pub sizes: Vec<String>,
    /// Runs of each size.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(3..=1_000))]
    pub runs: u32,
    /// A size whose runs use this much of the CPUs, or more, is not selected.
    #[arg(long, value_name = "SHARE", default_value = "90%", value_parser = share)]
    pub max_cpu: f64,
    /// Runs of each selected size under observation; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub observe_runs: u32,
    /// Count runs whatever their exit status.
    #[arg(long)]
    pub allow_failures: bool,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Show at most this many locks of the observed runs. Default: 10 in the table, all of them in JSON.
    #[arg(long, value_name = "N", value_parser = super::limits::top)]
    pub top: Option<usize>,
    /// The command, with {size} where the size goes.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub cmd: Vec<String>,
}

/// `90%` or `0.9`.
fn share(text: &str) -> Result<f64, String> {
    let (number, scale) = text.strip_suffix('%').map_or((text, 1.0), |percent| (percent.trim_end(), 100.0));
    let share = number.parse::<f64>().map_err(|error| error.to_string())? / scale;
    if share > 0.0 && share <= 1.0 { Ok(share) } else { Err("not a share between 0 and 100%".to_owned()) }
}

/// Runs the command, judges its sizes, observes the selected ones, prints.
///
/// # Errors
/// When the sizes make no sense, the command fails, or the result cannot be written.
pub(super) fn run(args: &SelectArgs) -> Result<ExitCode> {
    check(args)?;
    let cores = std::thread::available_parallelism().context("failed to count the available CPUs")?.get() as f64;
    let runs = measure(args)?;
    let criteria = Criteria { alpha: ALPHA, max_cpu_use: args.max_cpu, cores };
    let selection = select::select(args.cmd.clone(), &runs, criteria);
    let (ranking, no_ranking) = match rank(args, &selection) {
        Ok(report) => (Some(report), None),
        // The runs took their time: what they tell is printed all the same.
        Err(error) => (None, Some(format!("{error:#}"))),
    };
    print(args, &Outcome { selection: &selection, ranking, no_ranking })?;
    Ok(ExitCode::SUCCESS)
}

/// What is printed.
#[derive(Serialize)]
struct Outcome<'a> {
    #[serde(flatten)]
    selection: &'a Selection,
    /// The report on the observed runs of the selected sizes, all of them together.
    ranking: Option<Report>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    no_ranking: Option<String>,
}

fn print(args: &SelectArgs, outcome: &Outcome<'_>) -> Result<()> {
    output::write(&match args.format {
        Format::Table => {
            let layout = output::layout();
            let selection = select::table::render(outcome.selection, layout.width);
            let ranking = match (&outcome.ranking, &outcome.no_ranking) {
                (Some(report), _) => {
                    let sizes = outcome.selection.selected.join(", ");
                    let runs = args.observe_runs;
                    let body = report::table::render(report, &layout);
                    format!("Observed: sizes {sizes}, {runs} runs each (not those timed above)\n\n{body}")
                }
                (None, reason) => format!("No ranking of locks: {}.\n", reason.as_deref().unwrap_or("none was made")),
            };
            format!("{selection}\n{ranking}")
        }
        Format::Json => output::json(outcome, "selection")?,
    })
}

/// Observes runs of the selected sizes, which are not the timed ones, and ranks what holds them back.
fn rank(args: &SelectArgs, selection: &Selection) -> Result<Report> {
    if selection.selected.is_empty() {
        bail!("no size was selected");
    }
    if args.observe_runs == 0 {
        bail!("no runs were to be observed");
    }
    let mut reports = Vec::new();
    for size in &selection.selected {
        for _ in 0..args.observe_runs {
            let command = command_of(&args.cmd, size);
            let name = command.join(" ");
            let plan = Plan {
                target: Target::Command(command.into_iter().map(OsString::from).collect()),
                // The times are those of all that it starts, too.
                follow_forks: true,
                capture: CaptureArgs { launch: How { silent: true, ..How::default() }, ..CaptureArgs::default() },
            };
            let mut collector = Collector::default();
            let captured = live::observe(&plan, Some(&name), &mut collector)?;
            let (observation, mut symbols) = collector.finish(captured, false);
            reports.push(report::build(&observation, &mut symbols, &report::Options::default())?);
        }
    }
    let default = (args.format == Format::Table).then_some(output::TABLE_TOP);
    Ok(combine(reports, &combine::Options { top: args.top.or(default), ..combine::Options::default() }))
}

fn check(args: &SelectArgs) -> Result<()> {
    if !args.cmd.iter().any(|argument| argument.contains(PLACEHOLDER)) {
        bail!("no {PLACEHOLDER} in the command: every run would be the same");
    }
    if args.sizes.len() < 2 {
        bail!("--sizes must name two sizes at least: each is compared with the one before");
    }
    let distinct: HashSet<_> = args.sizes.iter().collect();
    if distinct.len() < args.sizes.len() {
        bail!("--sizes names a size twice");
    }
    // Sizes that are no numbers (names of inputs) are taken in the order given.
    let numbers: Option<Vec<f64>> = args.sizes.iter().map(|size| size.parse().ok()).collect();
    if let Some(pair) = numbers.iter().flat_map(|n| n.windows(2)).find(|pair| pair[0] >= pair[1]) {
        bail!("--sizes must grow: {} comes before {}", pair[0], pair[1]);
    }
    Ok(())
}

/// Runs every size as often as asked for, by turns, so that a disturbance of the machine meets all sizes alike.
fn measure(args: &SelectArgs) -> Result<Vec<Runs>> {
    let mut all: Vec<Runs> = args.sizes.iter().map(|size| Runs { size: size.clone(), ..Runs::default() }).collect();
    let total = u64::from(args.runs) * all.len() as u64;
    say!("running {} sizes {} times each, unobserved", all.len(), args.runs);
    let bar = progress(total);
    for round in 1..=args.runs {
        for runs in &mut all {
            bar.set_message(format!("size {}, run {round} of {}", runs.size, args.runs));
            let command = command_of(&args.cmd, &runs.size);
            let (run, status) = run_once(&command)?;
            if !status.success() && !args.allow_failures {
                bail!("`{}` failed: {status} (run {round} of {})", command.join(" "), args.runs);
            }
            runs.failed += u64::from(!status.success());
            runs.runs.push(run);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(all)
}

/// The command for one size.
fn command_of(template: &[String], size: &str) -> Vec<String> {
    template.iter().map(|argument| argument.replace(PLACEHOLDER, size)).collect()
}

/// Runs a command to its end. Its CPU time is that of all its descendants that were waited for.
fn run_once(command: &[String]) -> Result<(Run, ExitStatus)> {
    let (program, arguments) = command.split_first().context("no command")?;
    let before = children_cpu()?;
    let begin = Instant::now();
    let status = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .with_context(|| format!("failed to start {program}"))?;
    let wall = Nanos(begin.elapsed().as_nanos() as u64);
    let cpu = children_cpu()? - before;
    Ok((Run { wall, cpu }, status))
}

/// CPU time of all children that have been waited for, and of theirs.
fn children_cpu() -> Result<Nanos> {
    own::cpu(UsageWho::RUSAGE_CHILDREN).context("failed to read the CPU time of the runs")
}

fn progress(total: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(4));
    if let Ok(style) = ProgressStyle::with_template("{elapsed} {wide_bar} {pos}/{len} {msg}, {eta} left") {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read() {
        for (text, value) in [("90%", 0.9), ("0.5", 0.5), ("100 %", 1.0), ("1", 1.0)] {
            assert_eq!(share(text), Ok(value));
        }
        for text in ["90", "0", "-5%", "much", "%"] {
            assert!(share(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_size_goes_everywhere() {
        let template = ["./{size}/work", "-n", "{size}", "{size}-{size}"].map(str::to_owned);
        assert_eq!(command_of(&template, "8"), ["./8/work", "-n", "8", "8-8"]);
    }

    #[test]
    fn a_run_is_measured() {
        let shell = |script: &str| run_once(&["sh", "-c", script].map(str::to_owned)).unwrap();
        // The shell's own child burns what it does not.
        let (burnt, status) = shell("(i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done) & wait");
        assert!(status.success() && burnt.cpu >= Nanos(1_000_000), "{burnt:?}");
        let (slept, status) = shell("sleep 0.05; exit 3");
        assert_eq!(status.code(), Some(3));
        assert!(slept.wall >= Nanos(50_000_000), "{slept:?}");
        assert!(run_once(&["/no/such/program".to_owned()]).is_err());
    }
}
