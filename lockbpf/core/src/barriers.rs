//! Sums of barriers, added up from rounds that are complete: the kernel side keeps none.
#![forbid(unsafe_code)]

use crate::id::Lock;
use crate::op::{Arrival, LockKind};
use crate::state::Instance;
use crate::sums::{MAX_ROWS, Rows, SiteSums};
use crate::tally::Tally;
use crate::units::Nanos;
use lockbpf_common::kind::Via;
use std::collections::HashMap;

/// The sums so far.
#[derive(Clone, Debug, Default)]
pub struct Barriers {
    /// Participants of as many barriers as have sums.
    participants: HashMap<Lock, u32>,
    sites: Rows,
}

impl Barriers {
    /// A thread arrives.
    pub fn arrive(&mut self, arrival: &Arrival) {
        if self.participants.len() < MAX_ROWS || self.participants.contains_key(&arrival.barrier) {
            self.participants.insert(arrival.barrier, arrival.participants);
        }
    }

    /// A thread has passed a barrier: its region counts as a section that waits for nobody and holds nothing, the region
    /// after it as one that waited from its arrival until the last one.
    pub fn passed(&mut self, region: &Instance, successor: &Instance) {
        let waited = successor.attempt.zip(successor.acquire).filter(|_| successor.contended);
        let waited = waited.map(|(attempt, acquire)| acquire.since(attempt));
        for (i, waited) in [(region, None), (successor, waited)] {
            let Some((site, first)) = i.site.zip(i.attempt.or(i.acquire)) else { continue };
            let key = (i.lock, site, Via::Lock);
            let Some(sums) = self.sites.row(key, first, waited.unwrap_or_default()) else { continue };
            sums.kind = LockKind::Barrier;
            sums.acquisitions += 1;
            sums.hold.add(Nanos(0));
            if let Some(wait) = waited {
                sums.contended += 1;
                sums.wait.add(wait);
            }
        }
    }

    /// Sums by barrier and site, in the order of their first arrivals. Every arrival has two sections.
    #[must_use]
    pub fn sums(&self) -> Vec<SiteSums> {
        let mut sums = self.sites.sums();
        for s in &mut sums {
            s.participants = self.participants.get(&s.lock).copied().unwrap_or_default();
        }
        sums
    }

    /// Sections of barriers and sites beyond the number that is told apart, and what they waited.
    #[must_use]
    pub fn beyond(&self) -> Tally {
        self.sites.beyond()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Process, Site, Tid};
    use crate::units::Time;

    fn section(addr: u64, attempt: u64, acquire: u64) -> Instance {
        Instance {
            number: 1,
            tid: Tid(1),
            process: Process(0),
            lock: Lock { process: Process(0), addr },
            kind: LockKind::Barrier,
            site: Some(Site { process: Process(0), addr: 9 }),
            shared: false,
            contended: acquire > attempt,
            attempt: Some(Time(attempt)),
            acquire: Some(Time(acquire)),
            stack: None,
        }
    }

    #[test]
    fn rows_are_bounded_and_the_rest_is_counted() {
        let mut barriers = Barriers::default();
        for addr in 0..MAX_ROWS as u64 + 3 {
            barriers.passed(&section(addr, 0, 0), &section(addr, 4, 9));
        }
        let sums = barriers.sums();
        assert_eq!(sums.len(), MAX_ROWS);
        assert!(sums.iter().all(|s| (s.kind, s.acquisitions, s.contended) == (LockKind::Barrier, 2, 1)));
        assert_eq!(barriers.beyond(), Tally { count: 6, time: Nanos(15) });
    }
}
