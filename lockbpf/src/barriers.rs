//! Sums of barriers, added up from rounds that are complete: the kernel side keeps none.
#![forbid(unsafe_code)]

use crate::id::{Lock, Site};
use crate::op::{Arrival, LockKind};
use crate::state::Instance;
use crate::sums::SiteSums;
use crate::units::Nanos;
use lockbpf_common::kind::Via;
use std::collections::HashMap;

/// Barriers, and barriers with their sites, that are told apart.
const MAX: usize = 32_768;

/// The sums so far.
#[derive(Clone, Debug, Default)]
pub struct Barriers {
    participants: HashMap<Lock, u32>,
    sites: HashMap<(Lock, Site), SiteSums>,
}

impl Barriers {
    /// A thread arrives.
    pub fn arrive(&mut self, arrival: &Arrival) {
        if self.participants.len() < MAX || self.participants.contains_key(&arrival.barrier) {
            self.participants.insert(arrival.barrier, arrival.participants);
        }
    }

    /// A thread has passed a barrier: its region counts as a section that waits for nobody and holds nothing, the region
    /// after it as one that waited from its arrival until the last one.
    pub fn passed(&mut self, region: &Instance, successor: &Instance) {
        if let Some(sums) = self.site(region) {
            sums.acquisitions += 1;
            sums.hold.add(Nanos(0));
        }
        if let Some(sums) = self.site(successor) {
            sums.acquisitions += 1;
            sums.hold.add(Nanos(0));
            if let (true, Some((attempt, acquire))) = (successor.contended, successor.attempt.zip(successor.acquire)) {
                sums.contended += 1;
                sums.wait.add(acquire.since(attempt));
            }
        }
    }

    fn site(&mut self, i: &Instance) -> Option<&mut SiteSums> {
        let key = (i.lock, i.site?);
        if self.sites.len() >= MAX && !self.sites.contains_key(&key) {
            return None;
        }
        let first = i.attempt.or(i.acquire)?;
        let sums = self
            .sites
            .entry(key)
            .or_insert_with(|| SiteSums { kind: LockKind::Barrier, ..SiteSums::new(key.0, key.1, Via::Lock, first) });
        sums.first = sums.first.min(first);
        Some(sums)
    }

    /// Sums by barrier and site, in the order of their first arrivals. Every arrival has two sections.
    #[must_use]
    pub fn sums(&self) -> Vec<SiteSums> {
        let participants = |lock| self.participants.get(&lock).copied().unwrap_or_default();
        let sums = self.sites.values().map(|s| SiteSums { participants: participants(s.lock), ..s.clone() });
        let mut sums: Vec<_> = sums.collect();
        sums.sort_unstable_by_key(|s| (s.first, s.lock, s.site));
        sums
    }
}
