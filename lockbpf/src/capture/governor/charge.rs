//! A process in the governor's charge: its policy, and how far it is in the present stretch of its time.

use super::super::lease::Lease;
use super::now;
use crate::governor::shedding::Shedding;
use crate::governor::thinning::Thinning;
use crate::governor::{Budget, Policy, Reading};
use crate::units::Time;

/// What the governor knows of one process.
pub(super) struct Charge {
    pub pid: u32,
    pub policy: Policy,
    pub thinning: Thinning,
    /// Judges the probes that no gate closes; `None` once all of them are gone.
    pub shedding: Option<Shedding>,
    /// When to look next.
    pub due: Time,
    /// Where the stretch began.
    pub from: Reading,
    /// The last reading.
    pub seen: Reading,
    /// When the process was last seen to have used CPU time.
    pub busy: Time,
    /// Where its probes began to be placed last.
    pub placing: Reading,
    /// Where the gate was opened and closed again in this stretch, if it was.
    pub opened: Option<Reading>,
    pub closed: Option<Reading>,
    /// Whether its last stretch has not been read yet.
    pub held: bool,
    /// Whether it works and has to share a place with others: each of its turns is a window.
    pub shares: bool,
}

impl Charge {
    /// One whose gate is closed.
    pub fn new(pid: u32, policy: Policy, reading: Reading, budget: Budget) -> Self {
        let thinning = Thinning::new(budget);
        let busy = reading.time;
        let shedding = Some(Shedding::new(budget));
        Self {
            pid,
            policy,
            thinning,
            shedding,
            due: busy,
            from: reading,
            seen: reading,
            busy,
            placing: reading,
            opened: None,
            closed: None,
            held: false,
            shares: false,
        }
    }

    /// Whether the gate has been open since the stretch began.
    pub fn is_whole(&self) -> bool {
        self.opened == Some(self.from)
    }

    /// Until when it was seen since its gate was opened, if that is closed at this reading: not beyond a lapse of the lease. What it
    /// had used by then lies between two readings.
    pub fn seen_until(&self, lease: &Lease, closed: Reading) -> Reading {
        let Some(opened) = self.opened else { return closed };
        match lease.first_after(opened.time) {
            Some(lapsed) if lapsed < closed.time => {
                let before = if self.seen.time > opened.time && self.seen.time <= lapsed { self.seen } else { opened };
                before.towards(closed, lapsed)
            }
            _ => closed,
        }
    }

    /// What can still be said of a process that may be gone.
    pub fn last(&self) -> Reading {
        Reading { time: now(), ..self.seen }
    }
}
