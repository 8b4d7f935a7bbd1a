//! The budget while an observation runs: the governor at work, and estimates from what it tells.

use super::census::Census;
use super::own::thread_cpu;
use crate::capture::attach::ProbeSite;
use crate::capture::governor::{Governor, Told, Watched};
use crate::capture::session::Session;
use crate::capture::target::FileKey;
use crate::costs::Costs;
use crate::estimate::{Estimates, Estimator, Stretch};
use crate::governor::Budget;
use crate::units::Time;
use anyhow::{Context, Result};
use std::collections::HashSet;

/// A governor and an estimator, if there is a budget to be kept.
#[derive(Default)]
pub(crate) struct Watch {
    governor: Option<Governor>,
    estimator: Option<Estimator>,
    /// Whether processes that turn up are observed.
    follows: bool,
}

impl Watch {
    /// Starts a governor over a session that is active; `pids` are observed already, in the order of
    /// their slots. With `follows`, the processes that turn up are, too.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start(
        session: &mut Session,
        pids: &[u32],
        follows: bool,
        budget: Option<Budget>,
        costs: Costs,
    ) -> Result<Self> {
        let ungoverned = Self { follows, ..Self::default() };
        let Some(budget) = budget else { return Ok(ungoverned) };
        let Some(gates) = session.take_gates() else { return Ok(ungoverned) };
        let lease = session.lease().clone();
        let governor = Governor::start(gates, lease, pids, budget, costs).context("failed to start the governor")?;
        let estimator = Some(Estimator::new(costs, Some(budget.share())));
        Ok(Self { governor: Some(governor), estimator, follows })
    }

    /// What the governor tells; nothing ever without one.
    pub(crate) async fn told(&mut self) -> Option<Told> {
        match &mut self.governor {
            Some(governor) => governor.told().await,
            None => std::future::pending().await,
        }
    }

    /// Makes something of it.
    ///
    /// # Errors
    /// When the sums cannot be read.
    pub(crate) fn take(&mut self, told: Option<Told>, session: &mut Session, census: &Census) -> Result<()> {
        let Some(told) = told else {
            self.governor = None;
            return Ok(());
        };
        // Many processes may ask at once: the sums are read once for all.
        let governor = &mut self.governor;
        let more = std::iter::from_fn(|| governor.as_mut()?.told_already());
        let all = std::iter::once(told).chain(more).collect();
        let before = thread_cpu();
        let ended = self.note(all, session, census)?;
        if let Some(governor) = &self.governor {
            governor.reading_took(thread_cpu() - before);
            ended.into_iter().for_each(|pid| governor.go_on(pid));
        }
        Ok(())
    }

    /// Takes note of what was told; returns the processes whose stretches have ended, now that their sums have been read.
    fn note(&mut self, told: Vec<Told>, session: &mut Session, census: &Census) -> Result<Vec<u32>> {
        let mut ended = Vec::new();
        let mut fresh = HashSet::new();
        for told in told {
            match told {
                Told::Stretch(watched) => {
                    log::debug!("{watched:?}");
                    if let (Some(estimator), Some(stretch)) = (&mut self.estimator, stretch(&watched, census)) {
                        // Two stretches of one process are not to share a difference of sums.
                        if !fresh.insert(stretch.process) {
                            estimator.snapshot(&session.sums_of(|process| estimator.awaits(process))?);
                            fresh = HashSet::from([stretch.process]);
                        }
                        estimator.stretch(stretch);
                    }
                    ended.push(watched.pid);
                }
                Told::Failed(failed) => session.failed(failed),
                Told::Gaps(gaps) => session.gaps(gaps),
                Told::Refused(processes) => session.refused(processes),
            }
        }
        if let Some(estimator) = self.estimator.as_mut().filter(|_| !fresh.is_empty()) {
            estimator.snapshot(&session.sums_of(|process| estimator.awaits(process))?);
        }
        Ok(ended)
    }

    /// Whether processes that turn up are observed.
    pub(crate) fn follows(&self) -> bool {
        self.follows
    }

    /// Observes one more process, in these files, or, with `None`, in all that are known. Nothing is done where probes that
    /// all processes share see it already.
    ///
    /// # Errors
    /// When the kernel side cannot be told.
    pub(crate) fn admit(&self, session: &mut Session, pid: u32, files: Option<Vec<FileKey>>) -> Result<()> {
        match &self.governor {
            Some(governor) => governor.admit(pid, files),
            None if self.follows => session.admit(pid, files)?,
            None => {}
        }
        Ok(())
    }

    /// Waits until the probes are in place that are there all the time.
    pub(crate) fn settle(&self) {
        if let Some(governor) = &self.governor {
            governor.settle();
        }
    }

    /// Places anew what was placed in a process, which it follows no more.
    pub(crate) fn renew(&self, session: &mut Session, pid: u32, since: Time) {
        match &self.governor {
            Some(governor) => governor.renew(pid, since),
            None => session.renew(pid, since),
        }
    }

    /// While lockbpf has no CPU time left, processes that have used none get no probes.
    pub(crate) fn pace(&self, busy: bool) {
        if let Some(governor) = &self.governor {
            governor.pace(busy);
        }
    }

    /// Places probes in further libraries.
    pub(crate) fn extend(&self, session: &mut Session, sites: &[ProbeSite]) {
        match &self.governor {
            Some(governor) => governor.extend(sites.to_vec()),
            None => session.attach(sites),
        }
    }

    /// Removes every probe until [`Watch::resume`], to which what this returns is given. The lease is to be paused before.
    ///
    /// # Errors
    /// When the kernel side cannot be told.
    pub(crate) fn suspend(&self, session: &mut Session) -> Result<Vec<u32>> {
        match &self.governor {
            Some(governor) => {
                governor.suspend();
                Ok(Vec::new())
            }
            None => Ok(session.suspend()?),
        }
    }

    /// Goes on after [`Watch::suspend`].
    ///
    /// # Errors
    /// As above.
    pub(crate) fn resume(&self, session: &mut Session, placed: &[u32]) -> Result<()> {
        match &self.governor {
            Some(governor) => governor.resume(),
            None => session.resume(placed)?,
        }
        Ok(())
    }

    /// How much was observed so far.
    pub(crate) fn coverage(&self) -> Option<Estimates> {
        self.estimator.as_ref().map(Estimator::coverage)
    }

    /// The estimates so far.
    pub(crate) fn so_far(&self) -> Option<Estimates> {
        self.estimator.as_ref().map(Estimator::so_far)
    }

    /// Closes every gate; the session has them again. Returns what the governor had still to tell.
    pub(crate) fn stop(&mut self, session: &mut Session) -> Vec<Told> {
        let Some(mut governor) = self.governor.take() else { return Vec::new() };
        let (told, gates) = governor.stop();
        gates.into_iter().for_each(|gates| session.put_gates(gates));
        told
    }

    /// The estimates, with what [`Watch::stop`] returned.
    ///
    /// # Errors
    /// When the sums cannot be read.
    pub(crate) fn finish(
        mut self,
        last: Vec<Told>,
        session: &mut Session,
        census: &Census,
    ) -> Result<Option<Estimates>> {
        self.note(last, session, census)?;
        Ok(self.estimator.map(Estimator::finish))
    }
}

/// What was watched of a process, by its number; `None` if it never did anything that is observed.
fn stretch(watched: &Watched, census: &Census) -> Option<Stretch> {
    let Watched { pid, from, to, open: (observed, observed_cpu, observed_cost), sampled, whole } = *watched;
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
        sampled: to.sampled - from.sampled,
        observed_sampled: sampled,
        whole,
    })
}
