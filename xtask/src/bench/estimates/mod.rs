//! `cargo xtask bench estimates`: how often the truth lies within the interval that lockbpf states under its default budget,
//! on workloads that know it.

mod quantity;
mod run;
mod tally;

use std::process::ExitCode;

use anyhow::{Result, ensure};
use comfy_table::{CellAlignment, Table, presets};

use super::{build::Lockbpf, interrupt, machine::Machine};
use quantity::Quantity;
use run::{WORKLOADS, Workloads};
use tally::{Tallies, Tally};

/// Part of the runs in which the truth must lie within the interval, which claims 95 %.
const REQUIRED: f64 = 0.90;

/// Arguments of `bench estimates`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Runs of each workload, a few seconds each
    #[arg(long, default_value_t = 30)]
    runs: usize,
    /// Only this workload (repeatable): its name
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// The budget
    #[arg(long, default_value = "3%")]
    budget: String,
}

/// Runs every workload as often as asked for, in turn, and judges what was stated.
///
/// # Errors
/// lockbpf or a workload cannot be built or fails, or the benchmark was interrupted.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    Machine::look_as_root()?;
    let chosen: Vec<_> =
        WORKLOADS.iter().filter(|w| args.only.is_empty() || args.only.iter().any(|name| name == w.name)).collect();
    ensure!(!chosen.is_empty(), "no workload of that name: {}", WORKLOADS.map(|w| w.name).join(", "));
    let workloads = Workloads::compile(Lockbpf::build()?.program, args.budget.clone())?;
    interrupt::watch()?;
    let mut tallies = Tallies::default();
    for number in 1..=args.runs {
        for workload in &chosen {
            let stated = workloads.observe(workload)?;
            for statement in stated {
                tallies.add(workload.name, &statement);
            }
            interrupt::check()?;
        }
        eprintln!("run {number} of {}", args.runs);
    }
    println!("\n{}", table(&tallies));
    let failed = tallies.rows().filter(|(_, tally)| !tally.reaches(REQUIRED)).count();
    println!(
        "{failed} of {} intervals hold the truth in less than {:.0} % of the runs.",
        tallies.rows().count(),
        REQUIRED * 100.0
    );
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn table(tallies: &Tallies) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header([
        "Workload",
        "Lock",
        "Quantity",
        "Within",
        "%",
        "Median width,\n% of the truth",
        "Median error,\n% of the truth",
    ]);
    for ((workload, lock, quantity), tally) in tallies.rows() {
        table.add_row(row(workload, lock, *quantity, tally));
    }
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn row(workload: &str, lock: &str, quantity: Quantity, tally: &Tally) -> [String; 7] {
    let percent = |share: Option<f64>| share.map_or_else(|| "–".to_owned(), |share| format!("{:.1}", share * 100.0));
    [
        workload.to_owned(),
        lock.to_owned(),
        quantity.name().to_owned(),
        format!("{} of {}", tally.within(), tally.runs()),
        format!("{:.0}", tally.share() * 100.0),
        percent(tally.median_width()),
        percent(tally.median_error()),
    ]
}
