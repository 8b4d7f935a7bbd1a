//! How far apart windows are, so that they do not take too much of lockbpf's own CPU time: beside many processes that work, or many locks
//! whose sums are to be read, each one being cheap for its process is not enough. Longer cycles have longer windows, as long as a burst in one cannot cost too much: up to there as much is seen.

use crate::units::{Nanos, Time};
use std::time::Duration;

/// Share of a CPU that windows may take of lockbpf itself.
pub const OWN_SHARE: f64 = 0.02;
/// Time between two looks at what windows take: the usual length of a cycle. It grows with the factor.
const LOOK: Duration = Duration::from_millis(500);
/// Largest change of the factor at one look. Cycles that have begun end as planned, so a change shows late.
const MOST: f64 = 2.0;
/// Largest factor.
const FARTHEST: f64 = 16.0;

/// How far apart windows are, against the usual.
#[derive(Debug)]
pub struct Pacing {
    factor: f64,
    /// What they had taken when that was looked at.
    seen: (Time, Nanos),
}

impl Pacing {
    /// As usual, nothing having been taken.
    #[must_use]
    pub fn new(now: Time) -> Self {
        Self { factor: 1.0, seen: (now, Nanos(0)) }
    }

    /// Whether it is time to look.
    #[must_use]
    pub fn is_due(&self, now: Time) -> bool {
        now.since(self.seen.0).0 as f64 >= LOOK.as_nanos() as f64 * self.factor
    }

    /// Takes note of what windows have taken so far of lockbpf's own CPU time.
    pub fn look(&mut self, now: Time, taken: Nanos) {
        let (since, before) = std::mem::replace(&mut self.seen, (now, taken));
        let share = (taken - before).0 as f64 / now.since(since).0.max(1) as f64;
        // The root of the ratio: the effect of the last change does not show yet.
        let change = (share / OWN_SHARE).sqrt().clamp(1.0 / MOST, MOST);
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

    /// So many processes whose windows take so much each, ms, for two minutes: the factors of the second one, and the share of a CPU meanwhile.
    fn second_minute(processes: f64, each_ms: f64) -> (Vec<f64>, f64) {
        let (mut pacing, mut taken) = (Pacing::new(Time(0)), 0.0);
        let (mut factors, mut late, mut random) = (Vec::new(), 0.0, fastrand::Rng::with_seed(7));
        let mut ends = vec![0.0; processes as usize];
        for step in 1..=1_200_u64 {
            let seconds = step as f64 / 10.0;
            let now = Time(step * 100_000_000);
            // A cycle that has begun ends as it was planned, and has one window.
            for end in &mut ends {
                while *end <= seconds {
                    *end += 0.5 * pacing.factor() * (0.8 + 0.4 * random.f64());
                    taken += each_ms * 1e6;
                    late += if seconds > 60.0 { each_ms * 1e6 } else { 0.0 };
                }
            }
            if pacing.is_due(now) {
                pacing.look(now, Nanos(taken as u64));
            }
            if seconds > 60.0 {
                factors.push(pacing.factor());
            }
        }
        (factors, late / 60e9)
    }

    #[test]
    fn few_processes_have_windows_as_usual() {
        let (factors, _) = second_minute(2.0, 4.0);
        let mean = factors.iter().sum::<f64>() / factors.len() as f64;
        assert!(mean < 1.1, "{mean}");
    }

    #[test]
    fn windows_of_many_processes_take_what_they_may() {
        for (processes, each_ms) in [(22.0, 4.0), (8.0, 4.0), (40.0, 3.0), (3.0, 25.0)] {
            let (factors, share) = second_minute(processes, each_ms);
            let least = factors.iter().copied().fold(f64::MAX, f64::min);
            let most = factors.iter().copied().fold(0.0, f64::max);
            assert!((OWN_SHARE * 0.7..=OWN_SHARE * 1.3).contains(&share), "{processes} of {each_ms} ms: {share}");
            assert!(most <= 3.0 * least, "{processes} of {each_ms} ms: {least} to {most}");
        }
    }

    #[test]
    fn there_is_an_end_to_it() {
        let (factors, _) = second_minute(1_000.0, 4.0);
        assert!(factors.iter().all(|&factor| factor == FARTHEST), "{factors:?}");
    }
}
