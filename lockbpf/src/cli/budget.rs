//! The budget while an observation runs: the governor at work, and estimates from what it tells.

use super::census::Census;
use crate::capture::attach::ProbeSite;
use crate::capture::governor::{Governor, Told, Watched};
use crate::capture::session::Session;
use crate::costs::Costs;
use crate::estimate::{Estimates, Estimator, Stretch};
use crate::event::Event;
use crate::governor::Budget;
use anyhow::{Context, Result};

/// A governor and an estimator, if there is a budget to be kept.
#[derive(Default)]
pub(super) struct Watch {
    governor: Option<Governor>,
    estimator: Option<Estimator>,
    /// Whether every process that turns up is observed.
    all: bool,
}

impl Watch {
    /// Starts a governor over a session that is active; `pids` are observed already, in the order of
    /// their slots; none means every process.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(super) fn start(session: &mut Session, pids: &[u32], budget: Option<Budget>, costs: Costs) -> Result<Self> {
        let Some(budget) = budget else { return Ok(Self::default()) };
        let Some(gates) = session.take_gates() else { return Ok(Self::default()) };
        let governor = Governor::start(gates, pids, budget, costs).context("failed to start the governor")?;
        let estimator = Some(Estimator::new(costs, Some(budget.share())));
        Ok(Self { governor: Some(governor), estimator, all: pids.is_empty() })
    }

    /// What the governor tells; nothing ever without one.
    pub(super) async fn told(&mut self) -> Option<Told> {
        match &mut self.governor {
            Some(governor) => governor.told().await,
            None => std::future::pending().await,
        }
    }

    /// Makes something of it.
    ///
    /// # Errors
    /// When the sums cannot be read.
    pub(super) fn take(&mut self, told: Option<Told>, session: &mut Session, census: &Census) -> Result<()> {
        match told {
            Some(Told::Stretch(watched)) => {
                if let (Some(estimator), Some(stretch)) = (&mut self.estimator, stretch(&watched, census)) {
                    estimator.stretch(stretch);
                    estimator.snapshot(&session.sums()?);
                }
                if let Some(governor) = &self.governor {
                    governor.go_on(watched.pid);
                }
            }
            Some(Told::Failed(failed)) => session.failed(failed),
            None => self.governor = None,
        }
        Ok(())
    }

    /// Takes note of a process that is told of for the first time.
    pub(super) fn meet(&self, event: &Event) {
        if let (true, Event::Process(seen)) = (self.all, event) {
            self.admit(seen.pid);
        }
    }

    /// Observes one more process.
    pub(super) fn admit(&self, pid: u32) {
        if let Some(governor) = &self.governor {
            governor.admit(pid);
        }
    }

    /// Places probes in further libraries.
    pub(super) fn extend(&self, session: &mut Session, sites: &[ProbeSite]) {
        match &self.governor {
            Some(governor) => governor.extend(sites.to_vec()),
            None => session.attach(sites),
        }
    }

    /// How much was observed so far.
    pub(super) fn coverage(&self) -> Option<Estimates> {
        self.estimator.as_ref().map(Estimator::coverage)
    }

    /// Closes every gate. Returns the estimates.
    ///
    /// # Errors
    /// When the sums cannot be read.
    pub(super) fn stop(mut self, session: &mut Session, census: &Census) -> Result<Option<Estimates>> {
        if let Some(mut governor) = self.governor.take() {
            for told in governor.stop() {
                self.take(Some(told), session, census)?;
            }
        }
        Ok(self.estimator.map(Estimator::finish))
    }
}

/// What was watched of a process, by its number; `None` if it never did anything that is observed.
fn stretch(watched: &Watched, census: &Census) -> Option<Stretch> {
    let Watched { pid, from, to, open: (observed, observed_cpu, observed_cost), whole } = *watched;
    let process = census.number(pid)?;
    Some(Stretch {
        process,
        from: from.time,
        to: to.time,
        observed,
        cpu: to.cpu - from.cpu,
        observed_cpu,
        cost: to.cost - from.cost,
        observed_cost,
        whole,
    })
}
