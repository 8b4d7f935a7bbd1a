//! Programs with parking_lot's locks, whose waiters sleep each on a word of its own: the kernel side is told of them, and has their futex
//! calls count for the lock.

use super::census::Census;
use crate::capture::session::Session;
use crate::id::Process;
use crate::symbol::Search;
use std::collections::HashSet;

/// The crate that its threads are parked by.
const CRATE: &str = "parking_lot_core";

/// Processes that were looked at.
pub(crate) struct Parking {
    looked_at: HashSet<Process>,
    search: Search,
}

impl Parking {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self { looked_at: HashSet::new(), search: Search::of(CRATE) }
    }

    /// Looks into all processes that are known.
    pub(crate) fn look_at_all(&mut self, session: &mut Session, census: &mut Census) {
        let all = census.pids().into_keys();
        self.look_at(all, session, census);
    }

    /// Looks into processes in which threads have slept as they do there. No file is read for others.
    pub(crate) fn look(&mut self, session: &mut Session, census: &mut Census) {
        let parked = census.parked();
        self.look_at(parked, session, census);
    }

    fn look_at(&mut self, processes: impl IntoIterator<Item = Process>, session: &mut Session, census: &mut Census) {
        for process in processes {
            if self.looked_at.insert(process)
                && self.search.finds(census.symbols(), process)
                && let Err(error) = session.parks(process, false)
            {
                log::warn!("which of parking_lot's locks are waited for is not known: {error}");
            }
        }
    }

    /// What is loaded may have changed.
    pub(crate) fn reconsider(&mut self) {
        self.looked_at.clear();
    }
}
