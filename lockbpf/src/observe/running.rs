//! An observation under way: everything that it keeps, and how it begins.

use super::audience::Audience;
use super::awaited;
use super::budget::Watch;
use super::carriers::Carriers;
use super::census::Census;
use super::deadlocks::Deadlocks;
use super::focus::Focus;
use super::functions::Placing;
use super::interpreters::Interpreters;
use super::own::{MAX_MEMORY, Own};
use super::parking::Parking;
use super::placement;
use super::prepare::{Prepared, guardian, known, options, prepare, prices};
use super::request::Request;
use super::sink::{Live, Sink};
use super::stacks::{Seen, Stacks};
use crate::capture::aside::drop_aside;
use crate::capture::attach::ProbeSite;
use crate::capture::cgroup::Throttling;
use crate::capture::cpu_use::CpuUse;
use crate::capture::inflight::Snapshot;
use crate::capture::liveness::Liveness;
use crate::capture::mapped::Mapped;
use crate::capture::newcomers::{Newcomers, Whom};
use crate::capture::session::{Options, Scope, Session};
use crate::capture::suspend::Suspendable;
use crate::capture::target::{FileKey, Library};
use crate::capture::unwatched::Looks;
use crate::costs::Costs;
use crate::units::Time;
use anyhow::Result;
use std::collections::HashSet;
use std::time::Instant;

/// What observes, and what is known so far.
pub(super) struct Running<'a> {
    pub request: &'a Request,
    pub ready: Prepared,
    /// Whether nobody in particular is observed: who is there, and who comes.
    pub many: bool,
    /// The kernel side.
    pub session: Session,
    pub watch: Watch,
    /// What observing costs here, as far as that was measured.
    pub measured: Option<Costs>,
    pub began: Instant,
    pub start: Time,
    /// Waits that were in progress then.
    pub before: Snapshot,
    /// What processes said that they waited for, where they say it.
    pub awaited: awaited::Before,
    /// Processes that were there then.
    pub there: Vec<u32>,
    /// Who is observed, and what they are called.
    pub census: Census,
    pub newcomers: Newcomers,
    pub liveness: Liveness,
    pub stacks: Stacks,
    pub deadlocks: Deadlocks,
    pub focus: Focus,
    pub interpreters: Interpreters,
    pub carriers: Carriers,
    pub parking: Parking,
    /// Where probes go, and where they are.
    pub placing: Placing<'a>,
    pub sites: Vec<ProbeSite>,
    pub attached: HashSet<FileKey>,
    /// Libraries that were loaded since.
    pub later: Vec<Library>,
    pub mapped: Mapped,
    pub throttling: Throttling,
    pub unwatched: Looks,
    pub cpu_use: CpuUse,
    pub own: Own,
    /// As long as it is there, this process's being stopped takes the probes away first.
    pub suspendable: Suspendable,
}

impl<'a> Running<'a> {
    /// Checks rights and features, finds the targets, places the probes, and lets a command go that was to be started.
    ///
    /// # Errors
    /// When something that is needed is not to be had, or the audience does not want it any more.
    pub(super) fn begin(request: &'a Request, audience: &mut impl Audience) -> Result<Self> {
        audience.check()?;
        let (mut newcomers, deaf) = Newcomers::listen();
        let mut ready = prepare(request, &mut newcomers, audience)?;
        audience.check()?;
        ready.notes.extend(deaf.map(|why| format!("libraries that are loaded later may be noticed late: {why}.")));
        let mut placing = Placing::new(request);
        let sites = placing.sites(&ready.targets.libraries);
        let known = known(&ready.targets, &ready.pids);
        let there: Vec<u32> = known.iter().map(|seen| seen.pid).collect();
        // Without uprobes the lease is enough: there are no traps in the target.
        let guardian = if request.futex_only { None } else { guardian(&mut ready.notes) };
        let options = Options { guardian, ..options(request, &ready, known.clone())? };
        // A model of a recording is made without what observing added to it.
        let modelled = (options.transitions || options.all_events) && !options.futex_only;
        let priced = options.governed || options.library || modelled;
        let prices = if priced { prices(&options, &mut ready.notes) } else { None };
        let measured = prices.as_ref().map(|prices| prices.costs);
        let costs = measured.unwrap_or_default();
        if let Some(cost) = placing.cost(&costs) {
            audience.tell(&format!("lockbpf: {cost}\n"));
        }
        audience.check()?;
        let mut session = Session::start(&options, &sites)?;
        // Not earlier: while the kernel removes perf events, it places none.
        drop_aside(prices.and_then(|prices| prices.measured_by));
        let attached: HashSet<_> = sites.iter().map(|site| site.file).collect();
        let mut census = Census::new(known);
        if !crate::custom::catalogue().is_empty() {
            census.know(session.met()?);
        }
        let stacks = Stacks::new(options.unwind);
        let liveness = Liveness::of(&ready.pids);
        let throttling = Throttling::of(&there);
        let (mut interpreters, mut carriers) = (Interpreters::default(), Carriers::default());
        let new = census.newly_met();
        interpreters.look(&new, &mut session, &mut census);
        carriers.look(&new, &mut session, &mut census);
        let mut parking = Parking::new();
        let many = ready.pids.is_empty();
        if !many {
            parking.look_at_all(&mut session, &mut census);
        }
        let focus = Focus::begin(request, &mut session, &mut census, ready.launched.is_some(), audience)?;
        let suspendable = Suspendable::install();

        audience.check()?;
        let before = Snapshot::take(&there);
        let start = session.activate(&before)?;
        let awaited = awaited::Before::look(&census);
        let shared = matches!(options.scope, Scope::SystemWide { at_once: true });
        let follows = request.follow_forks || many && !shared;
        let watch = Watch::start(&mut session, &ready.pids, follows, request.kept_budget(), costs)?;
        if many {
            let whom = ready.cgroup.clone().map_or(Whom::All, Whom::Cgroup);
            newcomers.look_for(whom, shared, &ready.targets);
            for process in ready.targets.processes.iter().filter(|process| process.unusable.is_none()) {
                let Some(pid) = process.pid else { continue };
                watch.admit(&mut session, pid, Some(process.files.clone()))?;
            }
            watch.settle();
        }
        if let Some(child) = &mut ready.launched {
            child.release()?;
        }
        let began = Instant::now();
        let placed = placement::summary(&session, &attached, request.futex_only);
        audience.tell(&format!("observing {}: {placed}\n", ready.description));
        audience.begins(request.duration);
        Ok(Self {
            cpu_use: CpuUse::of(&ready.pids),
            own: Own::begin(request.max_memory.unwrap_or(MAX_MEMORY)),
            deadlocks: Deadlocks::new(&before, start),
            later: Vec::new(),
            mapped: Mapped::default(),
            request,
            ready,
            many,
            session,
            watch,
            measured,
            began,
            start,
            before,
            awaited,
            there,
            census,
            newcomers,
            liveness,
            stacks,
            focus,
            interpreters,
            carriers,
            parking,
            placing,
            sites,
            attached,
            throttling,
            unwatched: Looks::new(!request.kernel_locks),
            suspendable,
        })
    }

    /// What sinks see of it.
    pub(super) fn live(&mut self) -> Live<'_> {
        Live {
            request: self.request,
            session: &mut self.session,
            census: &mut self.census,
            sites: &self.sites,
            target: &self.ready.description,
            start: self.start,
            before: &self.before,
            notes: &self.ready.notes,
            deadlocks: self.deadlocks.found(),
            watch: &self.watch,
            costs: self.measured.unwrap_or_default(),
        }
    }

    /// Empties the ring buffers into a sink. Returns the processes that were seen for the first time.
    ///
    /// # Errors
    /// When the kernel side cannot be read.
    pub(super) fn drain(&mut self, sink: &mut impl Sink) -> Result<Vec<Seen>> {
        let Self { session, census, stacks, deadlocks, .. } = self;
        stacks.drain(session, census, |event| sink.take(deadlocks.pass(event)))
    }
}
