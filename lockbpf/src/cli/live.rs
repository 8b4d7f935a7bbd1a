//! One observation from its targets to the last sum: check, discover, attach, wait, harvest. What becomes of the events
//! is the business of a [`Sink`]; a flight recorder sees them, too.

use super::alerts::Alerts;
use super::args::{CaptureArgs, Plan};
use super::budget::Watch;
use super::census::Census;
use super::deadlocks::Deadlocks;
use super::ends::Ends;
use super::flight::Tee;
use super::focus::Focus;
use super::functions::Placing;
use super::interpreters::Interpreters;
use super::own::{MAX_MEMORY, Own};
use super::parking::Parking;
use super::prepare::{guardian, known, options, prepare, prices};
use super::progress::Progress;
pub(super) use super::sink::{Captured, Live, Sink};
use super::stacks::{self, Seen, Stacks};
use super::{placement, suspend};
use crate::alert::SoFar;
use crate::capture::aside::drop_aside;
use crate::capture::attach::ProbeSite;
use crate::capture::cgroup::Throttling;
use crate::capture::cpu_use::CpuUse;
use crate::capture::inflight::Snapshot;
use crate::capture::launch::Launched;
use crate::capture::liveness::Liveness;
use crate::capture::mapped::Mapped;
use crate::capture::newcomers::{Found, Newcomers, Whom};
use crate::capture::session::{Options, Scope, Session, now};
use crate::capture::suspend::Suspendable;
use crate::capture::target::{FileKey, Library};
use crate::costs::Costs;
use crate::estimate::Estimates;
use crate::id::Tid;
use crate::perturbation::{self, Children, Perturbation, Taken};
use anyhow::Result;
use std::collections::HashSet;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

/// How often the ring buffers are emptied. They are not waited for: a wake-up costs the target as much as a probe.
const POLL: Duration = Duration::from_millis(50);
/// How often it is looked who is there and whether a target has loaded a C library, or generated code, since: what the kernel
/// did not tell.
const RESCAN: Duration = Duration::from_secs(1);
/// The same while lockbpf has no CPU time left.
const SELDOM: Duration = Duration::from_secs(10);

/// Observes until the time is over, the targets have exited, or Ctrl-C; `name` describes the target if its command line
/// would not.
///
/// # Errors
/// When it cannot begin or go on, or the sink fails.
pub(super) fn observe(plan: &Plan, name: Option<&str>, sink: &mut impl Sink) -> Result<Captured> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run(plan, name, sink))
}

async fn run(plan: &Plan, name: Option<&str>, sink: &mut impl Sink) -> Result<Captured> {
    let mut ends = Ends::listen()?;
    ends.check()?;
    let mut alerts = Alerts::prepare(&plan.capture)?;
    let mut sink = Tee::prepare(plan, sink)?;
    let (mut newcomers, deaf) = Newcomers::listen();
    let mut ready = prepare(plan, name, &mut newcomers)?;
    ends.check()?;
    ready.notes.extend(deaf.map(|why| format!("libraries that are loaded later may be noticed late: {why}.")));
    let capture = &plan.capture;
    let mut placing = Placing::new(capture);
    let mut sites = placing.sites(&ready.targets.libraries);
    let known = known(&ready.targets, &ready.pids);
    let there: Vec<u32> = known.iter().map(|seen| seen.pid).collect();
    // Without uprobes the lease is enough: there are no traps in the target.
    let guardian = if capture.futex_only { None } else { guardian(&mut ready.notes) };
    let options = Options { guardian, ..options(plan, &ready, known.clone())? };
    // A model of a recording is made without what observing added to it.
    let modelled = (options.transitions || options.all_events) && !options.futex_only;
    let priced = options.governed || options.library || modelled;
    let prices = if priced { prices(&options, &mut ready.notes) } else { None };
    let measured = prices.as_ref().map(|prices| prices.costs);
    let costs = measured.unwrap_or_default();
    if let Some(cost) = placing.cost(&costs) {
        say!("lockbpf: {cost}");
    }
    ends.check()?;
    let mut session = Session::start(&options, &sites)?;
    // Not earlier: while the kernel removes perf events, it places none.
    drop_aside(prices.and_then(|prices| prices.measured_by));
    let mut attached: HashSet<_> = sites.iter().map(|s| s.file).collect();
    let mut census = Census::new(known);
    if options.custom {
        census.know(session.met()?);
    }
    let mut stacks = Stacks::new(options.unwind);
    let mut liveness = Liveness::of(&ready.pids);
    let before = Snapshot::take(&there);
    let mut throttling = Throttling::of(&there);
    let mut interpreters = Interpreters::default();
    interpreters.look(&mut session, &mut census);
    let mut parking = Parking::new();
    if !ready.pids.is_empty() {
        parking.look_at_all(&mut session, &mut census);
    }
    let mut focus = Focus::begin(capture, &mut session, &mut census, ready.launched.is_some())?;
    let suspendable = Suspendable::install();

    ends.check()?;
    let start = session.activate()?;
    // Nobody in particular: who is there, and who comes.
    let many = ready.pids.is_empty();
    let shared = matches!(options.scope, Scope::SystemWide { at_once: true });
    let follows = plan.follow_forks || many && !shared;
    let mut watch = Watch::start(&mut session, &ready.pids, follows, capture.budget(), costs)?;
    if many {
        let whom = ready.cgroup.clone().map_or(Whom::All, Whom::Cgroup);
        newcomers.look_for(whom, shared, &ready.targets);
        for process in ready.targets.processes.iter().filter(|process| process.unusable.is_none()) {
            let Some(pid) = process.pid else { continue };
            watch.admit(&mut session, pid, Some(process.files.clone()))?;
        }
    }
    if let Some(child) = &mut ready.launched {
        child.release()?;
    }
    let began = Instant::now();
    let mut cpu_use = CpuUse::of(&ready.pids);
    let mut own = Own::begin(capture.max_memory.unwrap_or(MAX_MEMORY));
    say!("observing {}: {}", ready.description, placement::summary(&session, &attached, capture.futex_only));
    let bell = session.bell()?;
    let progress = Progress::start(capture.duration, sink.has_screen());
    let mut poll = interval_at(began + POLL, POLL);
    poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut deadlocks = Deadlocks::new(&before, start);
    if let Some(alerts) = &mut alerts {
        alerts.begin(&before, start, |tid| is_wanted(capture, tid));
    }
    let mut rescan_at = began + RESCAN / 10;
    let mut mapped = Mapped::default();
    let mut later = Vec::new();
    let target = ready.description.as_str();
    let notes = ready.notes.as_slice();
    sink.begin(&mut Live {
        session: &mut session,
        census: &mut census,
        sites: &sites,
        target,
        start,
        notes,
        deadlocks: deadlocks.found(),
        alerts: &SoFar::default(),
        watch: &watch,
        costs,
    })?;
    loop {
        tokio::select! {
            () = ends.asked() => break,
            () = tokio::time::sleep_until(began + capture.duration.unwrap_or_default()), if capture.duration.is_some() => break,
            rung = bell.rung(), if !census.is_busy() => {
                rung?;
                let seen = stacks.drain(&mut session, &mut census, |event| sink.take(deadlocks.pass(event)))?;
                newcomers.notice(seen.iter().map(|seen| seen.pid));
                seen.iter().for_each(|seen| throttling.meet(seen.pid));
                renew(&seen, &mut session, &watch);
                if !many {
                    follow(&seen, &mut session, &watch, &mut ready.pids, &mut liveness)?;
                }
                if many {
                    let found = newcomers.look(false, false);
                    sites.extend(take_in(found, &mut session, &watch, &mut census, &mut placing, &mut attached, &mut later)?);
                }
            }
            told = watch.told() => watch.take(told, &mut session, &census)?,
            _ = poll.tick() => {
                if suspend::asked() {
                    sink.suspended(true);
                    suspend::stop(&mut session, &watch, &progress)?;
                    sink.suspended(false);
                }
                let time = now();
                census.pace(own.is_busy());
                watch.pace(census.is_busy());
                let seen = stacks.drain(&mut session, &mut census, |event| sink.take(deadlocks.pass(event)))?;
                newcomers.notice(seen.iter().map(|seen| seen.pid));
                if !census.is_busy() {
                    seen.iter().for_each(|seen| throttling.meet(seen.pid));
                }
                renew(&seen, &mut session, &watch);
                if !many {
                    follow(&seen, &mut session, &watch, &mut ready.pids, &mut liveness)?;
                }
                session.look_after();
                let blind = if census.is_busy() { Vec::new() } else { session.witness(|pid| census.number(pid)) };
                for pid in blind {
                    progress.tell(&format!("lockbpf: pid {pid} is not observed any more: its probes see nothing\n"));
                }
                cpu_use.look(&mut ready.pids);
                focus.look(&mut session, census.events())?;
                interpreters.look(&mut session, &mut census);
                parking.look(&mut session, &mut census);
                if let Some(text) = deadlocks.look(&mut session, &mut census) {
                    progress.tell(&text);
                }
                if let Some(text) = alerts.as_mut().and_then(|alerts| alerts.look(&session, &mut census)) {
                    progress.tell(&text);
                }
                let found = sink.poll(time, &mut Live {
                    session: &mut session,
                    census: &mut census,
                    sites: &sites,
                    target,
                    start,
                    notes,
                    deadlocks: deadlocks.found(),
                    alerts: alerts.as_ref().map_or(&SoFar::default(), Alerts::told),
                    watch: &watch,
                    costs,
                })?;
                if !found.is_empty() {
                    progress.tell(&found);
                }
                progress.update(began.elapsed(), census.events());
                if own.is_full() || sink.is_done() {
                    break;
                }
                if ready.launched.as_mut().is_some_and(|child| child.exited().is_some()) || liveness.all_exited() {
                    break;
                }
                let thorough = Instant::now() >= rescan_at;
                if thorough {
                    rescan_at = Instant::now() + if census.is_busy() { SELDOM } else { RESCAN };
                    census.symbols().rest();
                }
                if many {
                    let found = newcomers.look(thorough, census.is_busy());
                    sites.extend(take_in(found, &mut session, &watch, &mut census, &mut placing, &mut attached, &mut later)?);
                    continue;
                }
                if !newcomers.heard_of(&ready.pids) && !thorough {
                    continue;
                }
                census.refresh_made();
                if mapped.changed(&ready.pids) {
                    census.refresh();
                    interpreters.reconsider(&census);
                    parking.reconsider();
                    focus.refresh(&mut session, &mut census)?;
                    if !capture.futex_only {
                        sites.extend(attach_later(&mut newcomers, &mut session, &watch, &ready.pids, &mut placing, &mut attached, &mut later)?);
                    }
                }
            }
        }
    }
    drop(suspendable);

    // What is said to stand at the end has been looked at then.
    progress.tell(&deadlocks.look_now(&mut session, &mut census).unwrap_or_default());
    let over = deadlocks.missed_ends(&session, &census);
    // All at once: what futex calls tell and what probes tell is of the same time.
    let last = watch.stop(&mut session);
    let end = session.deactivate()?;
    let taken = session.taken()?;
    cpu_use.look(&mut ready.pids);
    // Beside all that is read and named from here on.
    session.remove_probes();
    let estimates = watch.finish(last, &mut session, &census)?;
    let status = ready.launched.take().and_then(Launched::end);
    stacks.drain(&mut session, &mut census, |event| sink.take(deadlocks.pass(event)))?;
    progress.tell(&deadlocks.withdrawn(&census.pids()));
    if let Some(alerts) = alerts {
        progress.tell(&alerts.end());
    }
    drop(progress);
    census.pace(false);
    census.refresh_all();
    let mut harvest = session.harvest(end, census.symbols())?;
    harvest.deadlocks = deadlocks.found().to_vec();
    ready.notes.extend(throttling.note(census.pids().into_values()));
    harvest.quality.throttled = throttling.found();
    harvest.open_waits.retain(|wait| !over.contains(&(wait.tid, wait.since)));
    placing.complete(&mut harvest.library);
    ready.notes.extend(own.notes());
    ready.notes.extend(census.notes());
    ready.notes.extend(later.iter().flat_map(placement::remarks_on));
    ready.targets.libraries.append(&mut later);
    ready.notes.extend(focus.notes(&session, &harvest)?);
    ready.notes.extend(stacks.notes(&mut census, &harvest));
    ready.notes.extend(interpreters.notes());
    ready.notes.extend(placement::dear_calls(&ready.targets, &harvest.sums));
    let children = Children::of(&harvest.quality.counters);
    let perturbation = perturbation(taken, measured, estimates.as_ref(), &cpu_use);
    harvest.quality.perturbation = Some(Perturbation { children, ..perturbation });
    harvest.estimates = estimates;
    drop_aside(session);
    let mut earlier = before.still_waiting(&census.numbers(&there), start, &harvest.open_waits);
    earlier.retain(|wait| is_wanted(capture, wait.tid));
    stacks::take_in_earlier(earlier, &mut harvest, census.symbols());
    census.unite(&mut harvest);
    sink.end(&harvest, &mut census, end);
    if let Some(status) = status.filter(|status| !status.success()) {
        ready.notes.push(format!("the command ended with {status}."));
    }
    harvest.quality.notes.splice(0..0, ready.notes);
    Ok(Captured { harvest, census, target: ready.description, start, end })
}

/// Observes these processes from now on, if forks of some in particular are followed.
fn follow(
    seen: &[Seen],
    session: &mut Session,
    watch: &Watch,
    pids: &mut Vec<u32>,
    liveness: &mut Liveness,
) -> Result<()> {
    if !watch.follows() {
        return Ok(());
    }
    for &Seen { pid, start } in seen {
        watch.admit(session, pid, None)?;
        if !pids.contains(&pid) {
            pids.push(pid);
            liveness.add(pid, start);
        }
    }
    Ok(())
}

/// Places anew what was placed in those of these processes whose image another thread than the first has replaced: the kernel tied it to
/// that one.
fn renew(seen: &[Seen], session: &mut Session, watch: &Watch) {
    for &Seen { pid, .. } in seen {
        if let Some(when) = session.replaced(pid) {
            watch.renew(session, pid, when);
        }
    }
}

/// Whether a thread is among those that the user has named, where that is not the kernel side's to say.
fn is_wanted(capture: &CaptureArgs, Tid(tid): Tid) -> bool {
    let is_called = |name: &String| {
        std::fs::read_to_string(format!("/proc/{tid}/comm")).is_ok_and(|comm| comm.trim_end_matches('\n') == name)
    };
    (capture.tid.is_empty() || capture.tid.contains(&tid)) && capture.comm.as_ref().is_none_or(is_called)
}

/// What observing took of the target. Where it was governed, the governor knows best what that used.
fn perturbation(taken: Taken, costs: Option<Costs>, estimates: Option<&Estimates>, cpu_use: &CpuUse) -> Perturbation {
    let used = estimates.map(|estimates| estimates.overall().cpu).or_else(|| cpu_use.used());
    let prices = costs.unwrap_or_default();
    let calls = Taken { futex_calls: taken.futex_calls, ..Taken::default() };
    Perturbation {
        taken,
        cost_ns: taken.cost(&prices).0,
        futex_cost_ns: calls.cost(&prices).0,
        hold_bias_ns: prices.hold_bias_ns.max(0.0) as u64,
        target_cpu_ns: used.map(|used| used.0),
        measured: costs.is_some(),
        prices: costs.as_ref().map(perturbation::Prices::from),
        children: Children::default(),
    }
}

/// Places probes in C libraries that the targets have loaded meanwhile: a dlopen, or a command's exec of another program.
/// Returns them.
fn attach_later(
    newcomers: &mut Newcomers,
    session: &mut Session,
    watch: &Watch,
    pids: &[u32],
    placing: &mut Placing<'_>,
    attached: &mut HashSet<(u64, u64)>,
    later: &mut Vec<Library>,
) -> Result<Vec<ProbeSite>> {
    // A target that is just exiting has nothing to add.
    let Ok(mut targets) = newcomers.survey().of_pids(pids) else { return Ok(Vec::new()) };
    let mut new = placing.sites(&targets.libraries);
    later.append(&mut targets.libraries);
    new.retain(|site| !attached.contains(&site.file));
    if !new.is_empty() {
        watch.extend(session, &new);
        attached.extend(new.iter().map(|site| site.file));
    }
    Ok(new)
}

/// Observes what has turned up: places probes in further files, and admits processes. Returns the probes of further files.
fn take_in(
    found: Found,
    session: &mut Session,
    watch: &Watch,
    census: &mut Census,
    placing: &mut Placing<'_>,
    attached: &mut HashSet<FileKey>,
    later: &mut Vec<Library>,
) -> Result<Vec<ProbeSite>> {
    let Found { processes, mut libraries } = found;
    let mut new = placing.sites(&libraries);
    new.retain(|site| !attached.contains(&site.file));
    if !new.is_empty() {
        watch.extend(session, &new);
        attached.extend(new.iter().map(|site| site.file));
    }
    later.append(&mut libraries);
    let pids: Vec<u32> = processes.iter().filter_map(|process| process.pid).collect();
    census.refresh_some(&pids);
    for process in processes.into_iter().filter(|process| process.unusable.is_none()) {
        if let Some(pid) = process.pid {
            watch.admit(session, pid, Some(process.files))?;
        }
    }
    Ok(new)
}
