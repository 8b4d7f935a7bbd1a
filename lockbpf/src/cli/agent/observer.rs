//! One observation of the service: a snapshot now and then, until it is time to begin anew.

use super::super::ends::Ends;
use super::args::AgentArgs;
use super::config::Config;
use super::notify::Notify;
use super::told::Told;
use crate::analysis::{Analyst, Closing, Options};
use crate::event::Event;
use crate::names::Names;
use crate::observation::Observation;
use crate::observe::snapshots::Snapshots;
use crate::observe::{Captured, Live, Sink};
use crate::report;
use crate::report::measured::Certainty;
use crate::units::{Nanos, Time};
use anyhow::Result;
use std::time::Instant;

/// Snapshots may take one part in so many of the time.
const PART: u32 = 50;

/// An observation of the service.
pub(super) struct Observer<'a> {
    config: &'a Config,
    args: &'a AgentArgs,
    told: &'a mut Told,
    notify: &'a Notify,
    analyst: Analyst,
    snapshots: Snapshots,
    /// When it is to end; `None` until it has begun.
    end: Option<Instant>,
    /// A new configuration, and the token that it names.
    reloaded: Option<(Config, Option<String>)>,
}

impl<'a> Observer<'a> {
    /// Will tell what it sees.
    pub(super) fn new(config: &'a Config, args: &'a AgentArgs, told: &'a mut Told, notify: &'a Notify) -> Self {
        Self {
            config,
            args,
            told,
            notify,
            // The kernel side keeps the sums.
            analyst: Analyst::new(Options { totals: false, ..Options::default() }),
            snapshots: Snapshots::new(config.interval, PART, config.observe.futex_only),
            end: None,
            reloaded: None,
        }
    }

    /// Takes what there is at its end. Returns a new configuration, if there is one.
    ///
    /// # Errors
    /// When nothing can be made of it.
    pub(super) fn finish(self, captured: Captured) -> Result<Option<(Config, Option<String>)>> {
        let Self { config, told, mut analyst, reloaded, .. } = self;
        let Captured { harvest, census, target, start, end } = captured;
        let cost = Nanos(harvest.quality.perturbation.map_or(0, |taken| taken.cost_ns));
        let (processes, mut symbols) = census.into_parts();
        processes.into_values().for_each(|seen| analyst.meet(seen));
        let futex_only = config.observe.futex_only;
        let closing = Closing { target, period: Some((start, end)), futex_only, ticks_per_ns: 1, harvest };
        take(told, &analyst.finish(closing), &mut symbols, cost, Certainty::Likely)?;
        told.end_round();
        Ok(reloaded)
    }

    fn snapshot(&mut self, now: Time, live: &mut Live<'_>) -> Result<()> {
        let Self { told, analyst, snapshots, .. } = self;
        let made = snapshots.take(analyst, now, live, |observation, live| {
            let cost = live.cost()?;
            // Estimates get better until the end, and counters cannot be taken back.
            take(told, &observation, live.census.symbols(), cost, Certainty::AtLeast)
        })?;
        made.unwrap_or(Ok(()))
    }
}

fn take(
    told: &mut Told,
    observation: &Observation,
    names: &mut dyn Names,
    cost: Nanos,
    certainty: Certainty,
) -> Result<()> {
    let (_, measured) = report::build_measured(observation, names, &report::Options::default(), certainty)?;
    told.take(observation, &measured, cost);
    Ok(())
}

impl Sink for Observer<'_> {
    fn begin(&mut self, live: &mut Live<'_>) -> Result<()> {
        live.census.processes().values().for_each(|seen| self.told.meet(seen));
        self.told.begin();
        self.end = Some(Instant::now() + self.config.renew);
        self.notify.ready();
        Ok(())
    }

    fn take(&mut self, event: Event) {
        self.snapshots.see(&event);
        if let Event::Process(seen) = &event {
            self.told.meet(seen);
        }
        self.analyst.take(event);
    }

    fn poll(&mut self, now: Time, live: &mut Live<'_>) -> Result<String> {
        self.notify.alive();
        if Ends::reload_asked() {
            self.reloaded = self.config.reloaded(self.args);
        }
        if !self.is_done() {
            self.snapshot(now, live)?;
        }
        Ok(String::new())
    }

    fn is_done(&self) -> bool {
        self.reloaded.is_some() || self.end.is_some_and(|end| Instant::now() >= end)
    }
}
