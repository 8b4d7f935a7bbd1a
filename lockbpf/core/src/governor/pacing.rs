//! How far apart windows are, so that they do not take too much of lockbpf's own CPU time: beside many processes that work, or many locks
//! whose sums are to be read, each one being cheap for its process is not enough. Longer cycles have longer windows, so as much is seen.

use crate::units::{Nanos, Time};
use std::time::Duration;

/// Share of a CPU that windows may take of lockbpf itself.
pub const OWN_SHARE: f64 = 0.02;
/// How often it is looked at what they take, and how much of what was seen before still counts.
const LOOK: Duration = Duration::from_millis(500);
const MEMORY: f64 = 0.5;
/// By how much the distance changes at most at a time: cycles that have begun end as they were planned, so that it takes a while to tell.
const MOST: f64 = 1.5;
/// So far apart windows are at most, against the usual.
const FARTHEST: f64 = 16.0;

/// How far apart windows are, against the usual.
#[derive(Debug)]
pub struct Pacing {
    factor: f64,
    /// Share of a CPU that they took lately.
    share: f64,
    /// What they had taken when that was looked at.
    seen: (Time, Nanos),
}

impl Pacing {
    /// As usual, nothing having been taken.
    #[must_use]
    pub fn new(now: Time) -> Self {
        Self { factor: 1.0, share: 0.0, seen: (now, Nanos(0)) }
    }

    /// Whether it is time to look.
    #[must_use]
    pub fn is_due(&self, now: Time) -> bool {
        now.since(self.seen.0).0 >= LOOK.as_nanos() as u64
    }

    /// Takes note of what windows have taken so far of lockbpf's own CPU time.
    pub fn look(&mut self, now: Time, taken: Nanos) {
        let (since, before) = std::mem::replace(&mut self.seen, (now, taken));
        let share = (taken - before).0 as f64 / now.since(since).0.max(1) as f64;
        self.share = self.share * MEMORY + share * (1.0 - MEMORY);
        let change = (self.share / OWN_SHARE).clamp(1.0 / MOST, MOST);
        self.factor = (self.factor * change).clamp(1.0, FARTHEST);
    }

    /// The factor, 1 or more.
    #[must_use]
    pub fn factor(&self) -> f64 {
        self.factor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many processes whose windows take so much each, ms: the factor, and the share of a CPU, after a minute.
    fn after_a_minute(processes: f64, each_ms: f64) -> (f64, f64) {
        let (mut pacing, mut taken, mut lately) = (Pacing::new(Time(0)), 0.0, 0.0);
        // Cycles go on as planned for as long as one takes.
        let mut factors = vec![1.0; 120];
        for step in 1..=120_u64 {
            let delay = (pacing.factor() as usize).max(1);
            let factor = factors[(step as usize).saturating_sub(delay)];
            lately = processes * each_ms * 1e6 / factor;
            taken += lately;
            let now = Time(step * LOOK.as_nanos() as u64);
            assert!(pacing.is_due(now));
            pacing.look(now, Nanos(taken as u64));
            if let Some(factor) = factors.get_mut(step as usize) {
                *factor = pacing.factor();
            }
        }
        (pacing.factor(), lately / LOOK.as_nanos() as f64)
    }

    #[test]
    fn few_processes_have_windows_as_usual() {
        assert_eq!(after_a_minute(2.0, 4.0).0, 1.0);
    }

    #[test]
    fn windows_of_many_processes_take_what_they_may() {
        for (processes, each_ms) in [(22.0, 4.0), (8.0, 4.0), (1.0, 60.0)] {
            let (factor, share) = after_a_minute(processes, each_ms);
            assert!(
                (OWN_SHARE * 0.4..=OWN_SHARE * 2.0).contains(&share),
                "{processes} of {each_ms} ms: {share} by {factor}"
            );
        }
    }

    #[test]
    fn there_is_an_end_to_it() {
        assert_eq!(after_a_minute(1_000.0, 4.0).0, FARTHEST);
    }
}
