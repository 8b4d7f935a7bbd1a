//! An observation under way, and where its events go.

use super::budget::Watch;
use super::census::Census;
use crate::alert::SoFar;
use crate::capture::attach::ProbeSite;
use crate::capture::session::Session;
use crate::costs::Costs;
use crate::deadlock::Deadlock;
use crate::estimate::Estimates;
use crate::event::Event;
use crate::observation::Harvest;
use crate::units::{Nanos, Time};
use anyhow::Result;

/// Where events go while an observation runs.
pub(super) trait Sink {
    /// It begins.
    ///
    /// # Errors
    /// When it cannot.
    fn begin(&mut self, live: &mut Live<'_>) -> Result<()>;

    /// Takes one event; across CPUs they are not in order.
    fn take(&mut self, event: Event);

    /// Every event known at this time has been taken. Returns what is to be told meanwhile, if anything is.
    ///
    /// # Errors
    /// When the sink has failed.
    fn poll(&mut self, now: Time, live: &mut Live<'_>) -> Result<String>;

    /// Whether it shows itself how the observation goes.
    fn has_screen(&self) -> bool {
        false
    }

    /// Whether the observation is to end after a poll.
    fn is_done(&self) -> bool {
        false
    }

    /// This process is about to be stopped, or goes on: a screen makes room, and comes back.
    fn suspended(&mut self, _stops: bool) {}
}

/// An observation under way.
pub(super) struct Live<'a> {
    /// The kernel side.
    pub session: &'a mut Session,
    /// Who is observed.
    pub census: &'a mut Census,
    /// Probes in place.
    pub sites: &'a [ProbeSite],
    /// What is observed, in words.
    pub target: &'a str,
    /// When it began.
    pub start: Time,
    /// Remarks so far.
    pub notes: &'a [String],
    /// Deadlocks found so far.
    pub deadlocks: &'a [Deadlock],
    /// Alerts told so far.
    pub alerts: &'a SoFar,
    /// The budget, and how it is kept.
    pub watch: &'a Watch,
    /// What observing costs on this machine.
    pub costs: Costs,
}

impl Live<'_> {
    /// Sums, threads, waits and losses up to now.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub(super) fn harvest(&mut self, now: Time) -> Result<Harvest> {
        self.harvest_with(now, self.watch.coverage())
    }

    /// The same with the estimates so far, as they are at the end.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub(super) fn harvest_estimated(&mut self, now: Time) -> Result<Harvest> {
        self.harvest_with(now, self.watch.so_far())
    }

    fn harvest_with(&mut self, now: Time, estimates: Option<Estimates>) -> Result<Harvest> {
        let mut harvest = self.session.harvest(now, self.census.symbols())?;
        harvest.deadlocks = self.deadlocks.to_vec();
        harvest.estimates = estimates;
        harvest.quality.notes.extend_from_slice(self.notes);
        self.census.unite(&mut harvest);
        Ok(harvest)
    }

    /// What observing has cost the target so far, CPU time.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub(super) fn cost(&self) -> Result<Nanos> {
        Ok(self.session.taken()?.cost(&self.costs))
    }
}

/// What an observation yielded beside its events.
pub(super) struct Captured {
    /// Sums, threads, waits, losses.
    pub harvest: Harvest,
    /// Who was observed, and names for it.
    pub census: Census,
    /// What was observed, in words.
    pub target: String,
    /// When it began.
    pub start: Time,
    /// When it ended.
    pub end: Time,
}
