//! One observation from the command line to the report: check, discover, attach, wait, harvest, print.

use super::args::{CommonArgs, Format, Plan, Target};
use super::collect::Collector;
use super::deadlocks::Deadlocks;
use super::progress::Progress;
use super::{output, placement};
use crate::capture::btf::Btf;
use crate::capture::inflight::Snapshot;
use crate::capture::launch::Launched;
use crate::capture::liveness::Liveness;
use crate::capture::session::{Options, Session, now};
use crate::capture::target::{self, Targets};
use crate::capture::{feature, privilege};
use crate::event::ProcessSeen;
use crate::id::Process;
use crate::observation::Observation;
use crate::report::{self, Report};
use crate::symbol::Symbols;
use crate::units::{Nanos, Time};
use anyhow::{Context, Result};
use lockbpf_common::config::MAX_PROCESSES;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::collections::HashSet;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

/// How often the ring buffers are emptied. They are not waited for: a wake-up costs the target as much as a probe.
const POLL: Duration = Duration::from_millis(50);
/// Locks in a table, if the user does not say.
const TABLE_TOP: usize = 10;
/// How often it is looked whether a target has loaded a C library, or generated code, since.
const RESCAN: Duration = Duration::from_secs(1);

/// Runs one observation and prints its report; `name` describes the target if its command line would not.
///
/// # Errors
/// When it cannot begin, or its report cannot be written.
pub(super) fn run(plan: &Plan, name: Option<&str>) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (observation, mut symbols) = runtime.block_on(observe(plan, name))?;
    let mut report = report::build(&observation, &mut symbols, &report_options(&plan.common))?;
    report.quality.notes.extend(symbols.problems().map(|problem| format!("{problem}.")));
    print(&report, &plan.common)?;
    let failed = plan.common.strict && observation.quality.incomplete();
    Ok(if failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn report_options(common: &CommonArgs) -> report::Options {
    let min_wait = common.min_wait.unwrap_or_default();
    let default = (common.format == Format::Table).then_some(TABLE_TOP);
    report::Options {
        top: common.top.or(default),
        min_wait: Nanos(min_wait.as_nanos() as u64),
        ..report::Options::default()
    }
}

fn print(report: &Report, common: &CommonArgs) -> Result<()> {
    output::write(&match common.format {
        Format::Table => report::table::render(report, &output::layout()),
        Format::Json => serde_json::to_string_pretty(report).context("failed to write the report as JSON")? + "\n",
    })
}

/// What is observed, made ready.
struct Prepared {
    targets: Targets,
    launched: Option<Launched>,
    /// Empty for the whole system.
    pids: Vec<u32>,
    description: String,
    tracefs: bool,
    notes: Vec<String>,
}

async fn observe(plan: &Plan, name: Option<&str>) -> Result<(Observation, Symbols)> {
    let mut ready = prepare(plan, name)?;
    let common = &plan.common;
    let sites =
        if common.futex_only { Vec::new() } else { placement::sites(&ready.targets.libraries, common.placement) };
    let known = known(&ready.targets, &ready.pids);
    let there: Vec<u32> = known.iter().map(|seen| seen.pid).collect();
    let mut session = Session::start(&options(plan, &ready, known.clone())?, &sites)?;
    let mut attached: HashSet<_> = sites.iter().map(|s| s.file).collect();
    let mut collector = Collector::new(known);
    let mut liveness = Liveness::of(&ready.pids);
    let before = Snapshot::take(&there);
    let mut signals = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);

    let start = session.activate()?;
    if let Some(child) = &mut ready.launched {
        child.release()?;
    }
    let began = Instant::now();
    eprintln!("observing {}: {}", ready.description, placement::summary(&session, &attached, common.futex_only));
    let bell = session.bell()?;
    let progress = Progress::start(common.duration);
    let mut poll = interval_at(began + POLL, POLL);
    poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut deadlocks = Deadlocks::new(&before, start);
    let mut rescan_at = began + RESCAN / 10;
    loop {
        tokio::select! {
            _ = signals.0.recv() => break,
            _ = signals.1.recv() => break,
            () = tokio::time::sleep_until(began + common.duration.unwrap_or(Duration::MAX / 4)),
                if common.duration.is_some() => break,
            rung = bell.rung() => {
                rung?;
                session.drain(|event| collector.take(event));
            }
            _ = poll.tick() => {
                let seen = now();
                session.drain(|event| collector.take(event));
                collector.advance(seen);
                if let Some(text) = deadlocks.look(&session, &mut collector) {
                    progress.tell(&text);
                }
                progress.update(began.elapsed(), collector.events());
                if ready.launched.as_mut().is_some_and(|child| child.exited().is_some()) || liveness.all_exited() {
                    break;
                }
                // Not for the whole system: reading the maps of every process each second would be dear.
                if Instant::now() >= rescan_at && !ready.pids.is_empty() {
                    rescan_at = Instant::now() + RESCAN;
                    collector.refresh();
                    if !common.futex_only {
                        attach_later(&mut session, &ready.pids, common, &mut attached)?;
                    }
                }
            }
        }
    }
    drop(progress);

    let end = session.deactivate()?;
    session.drain(|event| collector.take(event));
    collector.refresh();
    let mut harvest = session.harvest(end)?;
    harvest.deadlocks = deadlocks.finish();
    drop(session);
    let earlier = before.still_waiting(&collector.numbers(&there), start, &harvest.open_waits);
    let (mut observation, symbols) = collector.finish(harvest, &ready.description, start, end);
    observation.open_waits.extend(earlier);
    observation.futex_only = common.futex_only;
    if let Some(status) = ready.launched.as_mut().and_then(Launched::end)
        && !status.success()
    {
        ready.notes.push(format!("the command ended with {status}."));
    }
    observation.quality.notes.splice(0..0, ready.notes);
    Ok((observation, symbols))
}

/// Checks rights and features, finds the targets, starts the command.
fn prepare(plan: &Plan, name: Option<&str>) -> Result<Prepared> {
    privilege::require()?;
    feature::require(!plan.common.futex_only)?;
    raise_file_limit();
    let mut notes = Vec::new();
    let tracefs = match feature::ensure_tracefs() {
        Ok(tracefs) => {
            if tracefs.mounted_now {
                eprintln!("lockbpf: mounted tracefs at {}, which stays", tracefs.dir.display());
            }
            true
        }
        Err(error) => {
            notes.push(format!("{error}; futex calls are watched among all system calls, at a cost to each of them."));
            false
        }
    };
    let (targets, launched) = match &plan.target {
        Target::Pids(pids) => (target::of_pids(pids)?, None),
        Target::SystemWide => (target::system_wide(std::process::id())?, None),
        Target::Command(command) => {
            let targets = target::of_command(command.first().map(AsRef::as_ref).unwrap_or_default())?;
            (targets, Some(command))
        }
    };
    if !plan.common.futex_only {
        match plan.target {
            Target::SystemWide => targets.check_any()?,
            Target::Pids(_) | Target::Command(_) => targets.check_full_tier()?,
        }
        notes.extend(placement::remarks(&targets));
    }
    notes.extend(targets.notes.iter().map(|note| format!("{note}.")));
    // Last: it waits at its exec until the probes are there.
    let launched = launched.map(|command| Launched::stopped(command)).transpose()?;
    let pids = match (&plan.target, &launched) {
        (Target::SystemWide, _) => Vec::new(),
        (_, Some(child)) => vec![child.id()],
        (_, None) => targets.processes.iter().filter_map(|p| p.pid).collect(),
    };
    let description = name.map_or_else(|| describe(plan, &targets, &pids), str::to_owned);
    Ok(Prepared { targets, launched, pids, description, tracefs, notes })
}

fn describe(plan: &Plan, targets: &Targets, pids: &[u32]) -> String {
    match &plan.target {
        Target::SystemWide => "the whole system".to_owned(),
        Target::Command(command) => {
            let name = command.first().map(|c| c.to_string_lossy().into_owned()).unwrap_or_default();
            format!("{name} (pid {})", pids.first().copied().unwrap_or_default())
        }
        Target::Pids(_) => {
            let named = |p: &target::Process| format!("pid {} ({})", p.pid.unwrap_or_default(), p.name);
            targets.processes.iter().map(named).collect::<Vec<_>>().join(", ")
        }
    }
}

/// The processes that are there at the start, numbered: what their names need is taken before the first event, since they
/// may be gone after the last.
fn known(targets: &Targets, pids: &[u32]) -> Vec<ProcessSeen> {
    let name =
        |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned();
    let number = |(i, pid): (usize, u32)| ProcessSeen {
        time: now(),
        process: Process(i as u32 + 1),
        pid,
        start: Time(0),
        comm: name(pid),
    };
    let all = targets.processes.iter().filter_map(|p| p.pid).take(MAX_PROCESSES as usize / 2);
    if pids.is_empty() {
        all.enumerate().map(number).collect()
    } else {
        pids.iter().copied().enumerate().map(number).collect()
    }
}

fn options(plan: &Plan, ready: &Prepared, known: Vec<ProcessSeen>) -> Result<Options> {
    let types = Btf::kernel()?;
    let common = &plan.common;
    Ok(Options {
        scope: plan.target.scope(&ready.pids),
        known,
        comm: common.comm.clone(),
        tids: common.tid.clone(),
        all_events: common.all_events,
        min_wait: common.min_wait.unwrap_or_default(),
        kernel_log: common.verbose > 0,
        types,
        task_offsets: types.task_offsets()?,
        futex_only: common.futex_only,
        tracefs: ready.tracefs,
        plain_uprobes: common.plain_uprobes || !types.has_uprobe_sessions(),
    })
}

/// Places probes in C libraries that the targets have loaded meanwhile: a dlopen, or a command's exec of another program.
fn attach_later(
    session: &mut Session,
    pids: &[u32],
    common: &CommonArgs,
    attached: &mut HashSet<(u64, u64)>,
) -> Result<()> {
    // A target that is just exiting has nothing to add.
    let Ok(targets) = target::of_pids(pids) else { return Ok(()) };
    let mut new = placement::sites(&targets.libraries, common.placement);
    new.retain(|site| !attached.contains(&site.file));
    if !new.is_empty() {
        session.attach(&new)?;
        attached.extend(new.into_iter().map(|site| site.file));
    }
    Ok(())
}

/// Symbols keep the files of observed processes open: use as many descriptors as the hard limit allows.
fn raise_file_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // A refusal only means fewer names.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
