//! One observation from the command line to the report: check, discover, attach, wait, harvest, print.

use super::args::{CommonArgs, Format, Plan, PlacementChoice, Target};
use super::collect::Collector;
use super::progress::Progress;
use crate::capture::attach::{FutexTier, Mechanism, ProbeSite};
use crate::capture::inflight::Snapshot;
use crate::capture::launch::Launched;
use crate::capture::session::{self, Options, Session};
use crate::capture::target::{self, Library, TargetError, Targets};
use crate::capture::{btf, feature, liveness::Liveness, privilege};
use crate::observation::Observation;
use crate::report::{self, Report};
use anyhow::{Context, Result};
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

/// How often the ring buffers are emptied. They are not waited for: a wake-up costs the target as much as a probe.
const POLL: Duration = Duration::from_millis(50);
/// How often targets are looked at for libraries loaded later.
const RESCAN: Duration = Duration::from_secs(1);

/// Runs one observation and prints its report.
///
/// # Errors
/// When it cannot begin, or its report cannot be written.
pub(super) fn run(plan: &Plan, name: Option<&str>) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut observation, mut symbols) = runtime.block_on(observe(plan, name))?;
    observation.quality.notes.extend(symbols.problems().map(str::to_owned));
    let options = report::Options { top: plan.common.top, ..report::Options::default() };
    let report = report::build(&observation, &mut symbols, &options);
    print(&report, &plan.common)?;
    let incomplete = observation.quality.incomplete();
    Ok(if plan.common.strict && incomplete { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn print(report: &Report, common: &CommonArgs) -> Result<()> {
    let text = match common.format {
        Format::Table => report::table::render(report, super::output::width()),
        Format::Json => serde_json::to_string_pretty(report).context("failed to write the report as JSON")? + "\n",
    };
    super::output::write(&text)
}

async fn observe(plan: &Plan, name: Option<&str>) -> Result<(Observation, crate::symbol::Symbols)> {
    privilege::require()?;
    feature::require(!plan.common.futex_only)?;
    raise_file_limit();
    let mut notes = Vec::new();
    let tracefs = match feature::ensure_tracefs() {
        Ok(tracefs) => {
            if tracefs.mounted_now {
                eprintln!("lockbpf: mounted tracefs at {}", tracefs.dir.display());
            }
            true
        }
        Err(error) => {
            notes.push(format!("{error}; the futex calls are watched among all system calls, which costs each of them more"));
            false
        }
    };

    let (targets, mut launched) = discover(plan)?;
    let pids: Vec<u32> = match &launched {
        Some(child) => vec![child.id()],
        None => targets.processes.iter().filter_map(|p| p.pid).collect(),
    };
    if !plan.common.futex_only {
        match plan.target {
            Target::SystemWide => targets.check_any()?,
            Target::Pids(_) | Target::Command(_) => targets.check_full_tier()?,
        }
    }
    notes.extend(remarks(&targets, plan));
    let sites = if plan.common.futex_only { Vec::new() } else { sites(&targets.libraries, plan.common.placement) };

    let mut session = Session::start(&options(plan, &pids, tracefs)?, &sites)?;
    let description = match name {
        Some(name) => name.to_owned(),
        None => describe(&plan.target, &targets, &pids),
    };
    let watched: &[u32] = if matches!(plan.target, Target::SystemWide) { &[] } else { &pids };
    let before = Snapshot::take(watched);
    let mut liveness = Liveness::of(watched);
    let mut collector = Collector::new(watched);
    let start = session.activate()?;
    if let Some(child) = &mut launched {
        child.release()?;
    }
    eprintln!("observing {description}: {}", placed(&session, &targets));

    wait(plan, &mut session, &mut collector, &mut liveness, &mut launched).await?;

    let end = session.deactivate()?;
    session.drain(|event| collector.take(event));
    let harvest = session.harvest(end)?;
    drop(session);
    let running = collector.processes_of(watched);
    let mut observation = collector.finish(harvest, &description, start, end);
    let earlier = before.still_waiting(&running, start, &observation.open_waits);
    observation.open_waits.extend(earlier);
    observation.futex_only = plan.common.futex_only;
    observation.quality.notes.splice(0..0, notes);
    if let Some(status) = launched.as_mut().and_then(Launched::exited)
        && !status.success()
    {
        observation.quality.notes.push(format!("the command ended with {status}"));
    }
    Ok((observation, collector_symbols))
}
