//! An observation under way, and where its events go.

use super::budget::Watch;
use super::census::Census;
use super::request::Request;
use crate::capture::attach::ProbeSite;
use crate::capture::inflight::Snapshot;
use crate::capture::session::Session;
use crate::costs::Costs;
use crate::deadlock::Deadlock;
use crate::estimate::Estimates;
use crate::event::Event;
use crate::id::Tid;
use crate::names::Names;
use crate::observation::Harvest;
use crate::proc;
use crate::units::{Nanos, Time};
use anyhow::Result;

/// Where events go while an observation runs.
pub trait Sink {
    /// It begins.
    ///
    /// # Errors
    /// When it cannot.
    fn begin(&mut self, live: &mut Live<'_>) -> Result<()>;

    /// Takes one event; across CPUs they are not in order.
    fn take(&mut self, event: Event);

    /// Every event known at this time has been taken. Returns what is to be told meanwhile, if anything is: whole lines.
    ///
    /// # Errors
    /// When the sink has failed.
    fn poll(&mut self, now: Time, live: &mut Live<'_>) -> Result<String>;

    /// Whether the observation is to end after a poll.
    fn is_done(&self) -> bool {
        false
    }

    /// This process is about to be stopped, or goes on: a screen makes room, and comes back.
    fn suspended(&mut self, _stops: bool) {}

    /// The last event was taken. Returns what is to be told, if anything is.
    fn stopped(&mut self) -> String {
        String::new()
    }

    /// The observation has yielded this beside its events. Returns what is to be told, if anything is.
    fn end(&mut self, _captured: &mut Captured) -> String {
        String::new()
    }
}

/// An observation under way.
pub struct Live<'a> {
    /// What was asked for.
    pub(crate) request: &'a Request,
    /// The kernel side.
    pub(crate) session: &'a mut Session,
    /// Who is observed.
    pub(crate) census: &'a mut Census,
    /// Probes in place.
    pub(crate) sites: &'a [ProbeSite],
    /// What is observed, in words.
    pub(crate) target: &'a str,
    /// When it began.
    pub(crate) start: Time,
    /// Waits that were in progress then.
    pub(crate) before: &'a Snapshot,
    /// Remarks so far.
    pub(crate) notes: &'a [String],
    /// Deadlocks found so far.
    pub(crate) deadlocks: &'a [Deadlock],
    /// The budget, and how it is kept.
    pub(crate) watch: &'a Watch,
    /// What observing costs on this machine.
    pub(crate) costs: Costs,
}

impl Live<'_> {
    /// What is observed, in words.
    #[must_use]
    pub fn target(&self) -> &str {
        self.target
    }

    /// When it began.
    #[must_use]
    pub fn start(&self) -> Time {
        self.start
    }

    /// Names for what is observed.
    pub fn names(&mut self) -> &mut dyn Names {
        self.census.symbols()
    }

    /// Sums, threads, waits and losses up to now.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub fn harvest(&mut self, now: Time) -> Result<Harvest> {
        self.harvest_with(now, self.watch.coverage())
    }

    /// The same with the estimates so far, as they are at the end.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub fn harvest_estimated(&mut self, now: Time) -> Result<Harvest> {
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
    pub fn cost(&self) -> Result<Nanos> {
        Ok(self.session.taken()?.cost(&self.costs))
    }

    /// Whether a thread is among those that were asked for.
    pub(crate) fn wants(&self, tid: Tid) -> bool {
        wants(self.request, tid)
    }
}

/// Whether a thread is among those that are asked for, where that is not the kernel side's to say.
pub(super) fn wants(request: &Request, Tid(tid): Tid) -> bool {
    let is_called =
        |name: &String| proc::text(format!("/proc/{tid}/comm")).is_ok_and(|comm| comm.trim_end_matches('\n') == name);
    (request.tids.is_empty() || request.tids.contains(&tid)) && request.comm.as_ref().is_none_or(is_called)
}

/// What an observation yielded beside its events.
pub struct Captured {
    /// Sums, threads, waits, losses.
    pub harvest: Harvest,
    /// Who was observed, and names for it.
    pub(crate) census: Census,
    /// What was observed, in words.
    pub target: String,
    /// When it began.
    pub start: Time,
    /// When it ended.
    pub end: Time,
}
