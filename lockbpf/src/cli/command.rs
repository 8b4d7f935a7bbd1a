//! The whole command line as it is typed: the subcommands, each with the arguments that its own file declares.

use super::access::AccessArgs;
use super::advise::AdviseArgs;
use super::agent::AgentArgs;
use super::args::{CommonArgs, ExportArgs, Format, ObserveArgs};
use super::calibrate::CalibrateArgs;
use super::described::DescribedArgs;
use super::diff::DiffArgs;
use super::dump::DumpArgs;
use super::manual::{CompletionsArgs, ManArgs};
use super::predict::PredictArgs;
use super::report::ReportArgs;
use super::select::SelectArgs;
use super::top::TopArgs;
use super::what_if::WhatIfArgs;
use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Observe the locks of running programs: which lock holds them back, who blocks whom, and why.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true, arg_required_else_help = true, after_help = EXAMPLES)]
pub(super) struct Cli {
    /// What to do other than observe.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// What to observe.
    #[command(flatten)]
    pub observe: ObserveArgs,
}

const EXAMPLES: &str = "Examples:
  lockbpf --pid 1234 --duration 30s      a running process, all its threads
  lockbpf --system-wide --duration 10s   every process that uses a C library found now
  lockbpf --container 3f4e1c9d2ab0       every process of a container, those started later too
  lockbpf -- ./server --port 8080        a command, from its first instruction
  lockbpf --pid 1234 --budget 1%         cost it less than the usual 3 % of its CPU time; `off` for no bound
  lockbpf --pid 1234 --futex-only        waits only, at no cost to uncontended locks
  lockbpf top --pid 1234                 watch it live
  lockbpf export --pid 1234 --to t.bin   record to a file
  lockbpf --pid 1234 --keep 10m          keep the last ten minutes, for `lockbpf dump --to t.bin` when something has happened
  lockbpf export --from t.bin --to t.jsonl   convert it to text
  lockbpf report --from t.bin            what a recording tells
  lockbpf diff old.bin new.bin           what changed from one recording to another
  lockbpf select --sizes 1,2,4 -- ./bench {size}
                                         at which sizes locks hold a program back
  lockbpf what-if --from t.bin --auto    which single change would gain most
  lockbpf predict --from t.bin --threads 1..64 --with qd
                                         what another lock would gain
  lockbpf predict --pid 1234 --duration 10s --threads 1..64
                                         what more threads would gain
  lockbpf access --pid 1234              which memory its critical sections read and write
  lockbpf advise --from accesses.jsonl --trace t.bin
                                         what to do about a lock, by what its sections access
  lockbpf agent --config agent.toml      a service that Prometheus and Parca scrape
  lockbpf doctor                         what this machine allows, and what probes cost on it

Ctrl-C, SIGTERM and SIGHUP end an observation with its report, and a command that was started with it is asked to end; a second Ctrl-C or
SIGTERM, a quarter of a second later or more, ends at once.

Exit status: 0 done; 1 done, but incomplete (with --strict); 2 error; 128+N ended at once by signal N.";

/// Subcommands.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Start a small contended program and observe it: shows what lockbpf does, on any machine. Nobody depends on that program, so it
    /// is observed without a budget unless one is named.
    #[command(mut_arg("budget", |budget| budget.default_value("off")), after_help = "Examples:
  lockbpf demo                    five seconds of it
  lockbpf demo --duration 2s --format json")]
    Demo {
        /// How to observe and report.
        #[command(flatten)]
        common: CommonArgs,
    },
    /// Watch locks live on the terminal: who holds what right now and who queues behind it, what mattered in the last second, and since the
    /// start.
    Top(Box<TopArgs>),
    /// Record to a file, or convert a recording.
    Export(Box<ExportArgs>),
    /// Make a recording of what the flight recorder of a running lockbpf has kept (`--keep`), or of what a killed one has left (`--keep-dir`).
    Dump(DumpArgs),
    /// Observe for months as a service: metrics for Prometheus and profiles for Parca, Pyroscope and pprof, over HTTP.
    Agent(AgentArgs),
    /// Tell what this machine allows: kernel features, capabilities, and the cost of each probe in each library found.
    #[command(after_help = "Examples:
  lockbpf doctor              the machine, and the libraries of all processes
  lockbpf doctor --pid 1234   those of this process")]
    Doctor {
        /// Look at the libraries of this process only (repeatable).
        #[arg(long, value_name = "PID")]
        pid: Vec<u32>,
        /// Also look for the functions that this file describes (repeatable).
        #[arg(long, value_name = "FILE")]
        locks: Vec<PathBuf>,
        /// Output format.
        #[arg(long, value_enum, default_value_t = Format::Table)]
        format: Format,
    },
    /// Locks that you describe to lockbpf (docs/locks.md): check a description, or show one that lockbpf brings along.
    Locks(DescribedArgs),
    /// Analyse recordings and print the report; of several, their means and how far they agree.
    Report(ReportArgs),
    /// Tell what changed from one recording to another: rates by lock and site, with what exceeds chance called out.
    Diff(DiffArgs),
    /// Measure what locks cost on this machine: what `predict` needs for other locks.
    Calibrate(CalibrateArgs),
    /// Predict waits and throughput with other numbers of threads or other locks, from a model of a program or a
    /// recording.
    Predict(PredictArgs),
    /// Predict how long a recorded run would take with one change: a shorter section, a lock removed or split, other threads.
    WhatIf(WhatIfArgs),
    /// Tell which memory the critical sections of a running process read and write.
    Access(AccessArgs),
    /// Advise on locks, from what their critical sections read and write: whether they conflict, and so whether a lock can be
    /// split, made reader–writer, held for a shorter time or left out.
    Advise(AdviseArgs),
    /// Find the sizes of a workload at which locks hold it back, and observe those.
    Select(SelectArgs),
    /// Print what a shell needs to complete commands and options.
    Completions(CompletionsArgs),
    /// Write manual pages, one for each command.
    Man(ManArgs),
    /// The program that `demo` observes.
    #[command(hide = true)]
    DemoTarget,
}

impl Command {
    /// Whether it reads what was written before, or what the user has, and looks into no other process.
    pub(super) fn only_reads(&self) -> bool {
        match self {
            Self::Report(_) | Self::Diff(_) | Self::Dump(_) | Self::WhatIf(_) | Self::Completions(_) | Self::Man(_) => {
                true
            }
            Self::Locks(args) => args.only_reads(),
            Self::Select(args) => args.observe_runs == 0,
            Self::Export(args) => !args.from.is_empty(),
            Self::Predict(args) => args.from.is_some() || args.model.is_some(),
            Self::Access(args) => args.from.is_some(),
            Self::Advise(args) => args.from.is_some(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::args::Plan;
    use super::*;
    use crate::observe::Target;
    use clap::CommandFactory;
    use std::collections::BTreeSet;
    use std::time::Duration;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Each row of `docs/options.md`: an option and a command that has it.
    fn documented() -> BTreeSet<(String, String)> {
        let rows = include_str!("../../../docs/options.md").lines().filter_map(|line| line.strip_prefix("| `--"));
        let cells = rows.map(|row| row.replace("\\|", "/")).map(|row| {
            let mut cells = row.split(" | ");
            let option = cells.next().unwrap_or_default().split([' ', '`']).next().unwrap_or_default().to_owned();
            (option, cells.next().unwrap_or_default().to_owned())
        });
        cells
            .flat_map(|(option, commands)| {
                commands.split(", ").map(|c| (option.clone(), c.to_owned())).collect::<Vec<_>>()
            })
            .collect()
    }

    #[test]
    fn the_index_of_options_is_whole() {
        let mut cli = Cli::command();
        cli.build();
        let of = |command: &clap::Command, name: &str| -> Vec<(String, String)> {
            let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
            let long = shown.filter_map(|argument| argument.get_long().map(str::to_owned));
            long.filter(|long| !["help", "version"].contains(&long.as_str()))
                .map(|long| (long, name.to_owned()))
                .collect()
        };
        let mut defined: BTreeSet<_> = of(&cli, "observe").into_iter().collect();
        for command in cli.get_subcommands().filter(|command| !command.is_hide_set()) {
            defined.extend(of(command, command.get_name()));
        }
        assert_eq!(documented(), defined);
    }

    #[test]
    fn targets_exclude_one_another() {
        for args in [&["lockbpf", "--pid", "1", "--system-wide"][..], &["lockbpf", "--pid", "1", "--", "true"]] {
            assert!(Cli::try_parse_from(args).is_err());
        }
        for one in [["--cgroup", "/x"], ["--container", "0123456789ab"]] {
            for other in [&["--pid", "1"][..], &["--system-wide"], &["--follow-forks"], &["--", "true"]] {
                let args: Vec<_> = ["lockbpf"].iter().chain(&one).chain(other).collect();
                assert!(Cli::try_parse_from(args).is_err(), "{one:?} {other:?}");
            }
            let cli = Cli::try_parse_from(["lockbpf"].iter().chain(&one)).unwrap();
            assert!(Plan::from_args(cli.observe.target, cli.observe.common.capture).is_ok());
        }
        let cli = Cli::try_parse_from(["lockbpf", "-p", "7", "-p", "3", "-p", "7", "-d", "500ms"]).unwrap();
        let plan = Plan::from_args(cli.observe.target, cli.observe.common.capture).unwrap();
        assert!(matches!(plan.target, Target::Pids(pids) if pids == [3, 7]));
        assert_eq!(plan.capture.duration, Some(Duration::from_millis(500)));
        let cli = Cli::try_parse_from(["lockbpf", "--system-wide", "--lock", "x"]).unwrap();
        assert!(Plan::from_args(cli.observe.target, cli.observe.common.capture).is_err());
        let cli = Cli::try_parse_from(["lockbpf", "--duration", "1s"]).unwrap();
        assert!(Plan::from_args(cli.observe.target, cli.observe.common.capture).is_err());
    }
}
