//! What was counted: in the sections of each lock and site, and in each thread.

use crate::id::{Lock, Process, Site};
use lockbpf_common::counts::{Counts, SiteCounts, ThreadCounts};
use lockbpf_common::kind::Via;
use lockbpf_common::sums::SumKey;

/// The clock's place among the events.
pub const CLOCK: usize = 0;

/// Counts of one lock at one site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedSite {
    /// The lock.
    pub lock: Lock,
    /// Where it was requested.
    pub site: Site,
    /// By which call.
    pub via: Via,
    /// What was counted.
    pub counts: SiteCounts,
}

impl CountedSite {
    /// An entry of the kernel's; `None` if its numbers stand for nothing.
    #[must_use]
    pub fn new(key: &SumKey, counts: SiteCounts) -> Option<Self> {
        let process = Process(key.process);
        Some(Self {
            lock: Lock { process, addr: key.lock },
            site: Site { process, addr: key.site },
            via: Via::from_u8(u8::try_from(key.via).ok()?)?,
            counts,
        })
    }
}

/// Everything that was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Names of the events, the clock's first; none if nothing was counted.
    pub events: Vec<String>,
    /// Counts by lock and site.
    pub sites: Vec<CountedSite>,
    /// Counts by thread, and by process of the threads that have exited.
    pub threads: Vec<ThreadCounts>,
}

/// Adds what others counted.
pub fn add(to: &mut Counts, other: &Counts) {
    to.on_cpu_ns = to.on_cpu_ns.saturating_add(other.on_cpu_ns);
    to.preempted_ns = to.preempted_ns.saturating_add(other.preempted_ns);
    for (to, from) in to.counted_ns.iter_mut().zip(other.counted_ns) {
        *to = to.saturating_add(from);
    }
    for (to, from) in to.counts.iter_mut().zip(other.counts) {
        *to = to.saturating_add(from);
    }
}

/// By what the count of an event is multiplied, since events took turns: 1 if it was counted all the time; `None` if never.
#[must_use]
pub fn scale(counts: &Counts, event: usize) -> Option<f64> {
    let counted_ns = counts.counted_ns.get(event).copied()?;
    match (counts.on_cpu_ns, counted_ns) {
        (all, counted) if counted >= all => Some(1.0),
        (_, 0) => None,
        (all, counted) => Some(all as f64 / counted as f64),
    }
}

/// How many there were of an event, as if it had been counted all the time; `None` if it never was.
#[must_use]
pub fn scaled(counts: &Counts, event: usize) -> Option<f64> {
    Some(counts.counts.get(event).copied()? as f64 * scale(counts, event)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockbpf_common::counts::MAX_EVENTS;

    fn counts(on_cpu_ns: u64, counted_ns: u64, count: u64) -> Counts {
        let mut counts = Counts { on_cpu_ns, ..Counts::NONE };
        (counts.counted_ns[1], counts.counts[1]) = (counted_ns, count);
        counts
    }

    #[test]
    fn counts_are_scaled_by_the_time_in_which_they_were_counted() {
        assert_eq!(scaled(&counts(1_000, 1_000, 7), 1), Some(7.0));
        assert_eq!(scaled(&counts(1_000, 250, 7), 1), Some(28.0));
        assert_eq!(scaled(&counts(1_000, 0, 0), 1), None, "never counted");
        assert_eq!(scaled(&counts(0, 0, 0), 1), Some(0.0), "no time in which it could have been");
        // The kernel brings the two times up to date one after the other.
        assert_eq!(scaled(&counts(999, 1_000, 7), 1), Some(7.0));
        assert_eq!(scaled(&counts(1, 1, 1), MAX_EVENTS), None);
    }

    #[test]
    fn many_sections_counted_in_turns_give_the_whole() {
        // Every third section is counted; each has 100 of the event in 50 ns.
        let mut sum = Counts::NONE;
        for n in 0..300 {
            let seen = n % 3 == 0;
            add(&mut sum, &counts(50, if seen { 50 } else { 0 }, if seen { 100 } else { 0 }));
        }
        assert_eq!(scaled(&sum, 1), Some(30_000.0));
    }
}
