//! The budget while an observation runs: the governor at work, and what becomes of what it tells.

use super::census::Census;
use crate::capture::attach::ProbeSite;
use crate::capture::governor::{Governor, Told, Watched};
use crate::capture::session::Session;
use crate::costs::Costs;
use crate::governor::Budget;
use anyhow::{Context, Result};

/// A governor, if there is a budget to be kept.
#[derive(Default)]
pub(super) struct Watch {
    governor: Option<Governor>,
    stretches: Vec<Watched>,
}

impl Watch {
    /// Starts a governor over a session that is active; `pids` are observed already.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(super) fn start(session: &mut Session, pids: &[u32], budget: Option<Budget>, costs: Costs) -> Result<Self> {
        let (Some(budget), true) = (budget, session.has_gates()) else { return Ok(Self::default()) };
        let Some(gates) = session.take_gates() else { return Ok(Self::default()) };
        let governor = Governor::start(gates, pids, budget, costs).context("failed to start the governor")?;
        Ok(Self { governor: Some(governor), stretches: Vec::new() })
    }

    /// What the governor tells; nothing ever without one.
    pub(super) async fn told(&mut self) -> Option<Told> {
        match &mut self.governor {
            Some(governor) => governor.told().await,
            None => std::future::pending().await,
        }
    }

    /// Makes something of it.
    pub(super) fn take(&mut self, told: Option<Told>, session: &mut Session, census: &Census) -> Result<()> {
        match told {
            Some(Told::Stretch(watched)) => {
                self.stretches.push(watched);
                if let Some(governor) = &self.governor {
                    governor.go_on(watched.pid);
                }
            }
            Some(Told::Failed(failed)) => session.failed(failed),
            None => self.governor = None,
        }
        let _ = census;
        Ok(())
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

    /// Closes every gate.
    pub(super) fn stop(&mut self, session: &mut Session, census: &Census) -> Result<()> {
        let Some(mut governor) = self.governor.take() else { return Ok(()) };
        for told in governor.stop() {
            self.take(Some(told), session, census)?;
        }
        let mut open = 0;
        for s in &self.stretches {
            open += s.open.0.0;
            eprintln!(
                "{:>8.1} ms: cpu {:.1} cost {:.2} open {:.1} ms cpu {:.1} cost {:.2} whole {}",
                s.to.time.since(s.from.time).0 as f64 / 1e6,
                (s.to.cpu - s.from.cpu).0 as f64 / 1e6,
                (s.to.cost - s.from.cost).0 as f64 / 1e6,
                s.open.0.0 as f64 / 1e6,
                s.open.1.0 as f64 / 1e6,
                s.open.2.0 as f64 / 1e6,
                s.whole
            );
        }
        eprintln!("open {} ms", open / 1_000_000);
        Ok(())
    }
}
