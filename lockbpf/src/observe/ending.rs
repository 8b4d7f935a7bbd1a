//! How an observation ends: all of it at one moment, then what the kernel side has summed up, and what has to be said of it.

use super::audience::Audience;
use super::running::Running;
use super::sink::{Captured, Sink, wants};
use super::{placement, stacks};
use crate::capture::aside::drop_aside;
use crate::capture::cpu_use::CpuUse;
use crate::capture::gates::Sheds;
use crate::capture::launch::Launched;
use crate::capture::offspring;
use crate::costs::Costs;
use crate::estimate::Estimates;
use crate::perturbation::{self, Children, Perturbation, Taken};
use crate::unwind::Method;
use anyhow::Result;

impl Running<'_> {
    /// Ends it.
    ///
    /// # Errors
    /// When the kernel side cannot be told or read, or the sink has failed.
    pub(super) fn end(mut self, sink: &mut impl Sink, audience: &mut impl Audience) -> Result<Captured> {
        let Self {
            request, mut ready, mut session, mut watch, mut census, mut deadlocks, mut stacks, mut cpu_use, ..
        } = self;
        drop(self.suspendable);
        // What is said to stand at the end has been looked at then.
        audience.tell(&deadlocks.look_now(&mut session, &mut census).unwrap_or_default());
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
        audience.tell(&deadlocks.withdrawn(&census.pids()));
        audience.tell(&sink.stopped());
        audience.ends();
        census.pace(false);
        census.refresh_all();
        let mut harvest = session.harvest(end, census.symbols())?;
        harvest.deadlocks = deadlocks.found().to_vec();
        if harvest.sums.is_empty() && !self.many {
            ready
                .notes
                .extend(offspring::note(&census.pids().into_values().chain(ready.pids.iter().copied()).collect()));
        }
        ready.notes.extend(self.throttling.note(census.pids().into_values()));
        harvest.quality.throttled = self.throttling.found();
        harvest.quality.unwatched = self.unwatched.found();
        ready.notes.extend(session.sheds().and_then(Sheds::note));
        let by_stacks = request.unwind != Method::Fp;
        let sheds = session.sheds().filter(|_| by_stacks && !request.futex_only);
        let sees = |pid| sheds.is_some_and(|sheds| sheds.knows_absences(pid));
        harvest.quality.virtual_threads =
            census.java().with_unseen_waits(|process, pid| sees(pid) && self.carriers.knows(process));
        harvest.open_waits.retain(|wait| !over.contains(&(wait.tid, wait.since)));
        self.placing.complete(&mut harvest.library);
        ready.notes.extend(self.own.notes());
        ready.notes.extend(census.notes());
        ready.notes.extend(self.later.iter().flat_map(placement::remarks_on));
        ready.targets.libraries.extend(self.later);
        ready.notes.extend(self.focus.notes(&session, &harvest)?);
        ready.notes.extend(stacks.notes(&mut census, &harvest));
        ready.notes.extend(self.interpreters.notes());
        ready.notes.extend(placement::dear_calls(&ready.targets, &harvest.sums));
        let children = Children::of(&harvest.quality.counters);
        let perturbation = perturbation(taken, self.measured, estimates.as_ref(), &cpu_use);
        harvest.quality.perturbation = Some(Perturbation { children, ..perturbation });
        harvest.estimates = estimates;
        drop_aside(session);
        let mut earlier = self.before.still_waiting(&census.numbers(&self.there), self.start, &harvest.open_waits);
        let awaited = self.awaited.still_waiting(self.start, &harvest.open_waits, &mut census);
        earlier.retain(|wait| awaited.iter().all(|awaited| awaited.tid != wait.tid));
        earlier.extend(awaited);
        earlier.retain(|wait| wants(request, wait.tid));
        stacks::take_in_earlier(earlier, &mut harvest, census.symbols());
        self.interpreters.tell_sleepers(&mut harvest, &mut census);
        census.unite(&mut harvest);
        if let Some(status) = status.filter(|status| !status.success()) {
            ready.notes.push(format!("the command ended with {status}."));
        }
        harvest.quality.notes.splice(0..0, ready.notes);
        let (target, start) = (ready.description, self.start);
        let mut captured = Captured { harvest, census, target, start, end };
        audience.tell(&sink.end(&mut captured));
        Ok(captured)
    }
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
