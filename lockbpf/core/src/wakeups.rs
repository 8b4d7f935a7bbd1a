//! Returns from condition variables that were for nothing: the thread looked, found nothing to do, and waited again.
#![forbid(unsafe_code)]

use crate::id::Site;
use crate::op::Released;
use crate::state::Instance;
use crate::tally::Tally;
use crate::units::{Nanos, Time};
use rustc_hash::FxHashMap;

/// Who held the mutex no longer than this before it waited again has only looked whether there is something to do: that takes well below a
/// microsecond, and observing it a few more.
const LOOK: Nanos = Nanos(50_000);
/// Places told apart.
const MAX_SITES: usize = 4_096;

/// What became of those who came back from waiting at one place, as far as their sections of the mutex were recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wakeups {
    /// Returns.
    pub returns: u64,
    /// The ones of these in vain; and Σ wait for the mutex before the thread could look.
    pub in_vain: Tally,
}

/// Sections of mutexes by where they began, of places where one has ended in a wait for a condition. Where it begins with the return from
/// such a wait, its place is that of the wait.
#[derive(Clone, Debug, Default)]
pub struct Returns {
    sites: FxHashMap<Site, Wakeups>,
}

impl Returns {
    /// A section ended.
    pub fn released(&mut self, i: &Instance, at: Time, how: Released) {
        let Some(site) = i.site else { return };
        let again = how == Released::CondWait;
        if again && self.sites.len() < MAX_SITES {
            self.sites.entry(site).or_default();
        }
        let Some(known) = self.sites.get_mut(&site) else { return };
        known.returns += 1;
        if let (true, Some(acquire)) = (again, i.acquire)
            && at.since(acquire) <= LOOK
        {
            known.in_vain.add(acquire.since(i.attempt.unwrap_or(acquire)));
        }
    }

    /// By place.
    #[must_use]
    pub fn sites(self) -> FxHashMap<Site, Wakeups> {
        self.sites
    }
}
