//! How often threads may be held up, and which are waited for.

use crate::governor::Budget;
use std::collections::HashMap;
use std::time::Duration;

/// However many threads there are, the target keeps most of its speed: a lock's holder that is held up holds up who waits for it.
const MOST: f64 = 0.15;
/// How long nobody is waited for again who did not come so often, in rounds: doubled each time.
const LONGEST_REST: u32 = 6;

/// Share of the time for which threads may be held up. The budget is a share of all threads' time: of one after the other, that is
/// so many times as much of the time.
pub(super) fn allowed(budget: Budget, threads: usize) -> f64 {
    (budget.share() * threads.max(1) as f64).min(MOST.max(budget.share()))
}

/// How long to wait until the next sample, so that what was held up is no more than the allowed share.
pub(super) fn pause(allowed: f64, held_up: Duration, elapsed: Duration) -> Duration {
    let due = held_up.as_secs_f64() / allowed.max(1e-6);
    Duration::try_from_secs_f64((due - elapsed.as_secs_f64()).max(0.0)).unwrap_or(Duration::MAX)
}

/// Who comes, and who does not.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// By thread: times that it was waited for in vain since it came last, and the round in which it is waited for again.
    absent: HashMap<i32, (u32, u64)>,
    round: u64,
}

impl Turns {
    /// Some of these threads, drawn at random among those whose turn it is.
    pub(super) fn draw(&mut self, threads: &[i32], at_most: usize) -> Vec<i32> {
        self.round += 1;
        let due = |tid: &i32| self.absent.get(tid).is_none_or(|&(_, round)| round <= self.round);
        let mut all: Vec<i32> = threads.iter().copied().filter(due).collect();
        if all.is_empty() {
            all = threads.to_vec();
        }
        fastrand::shuffle(&mut all);
        all.truncate(at_most);
        all
    }

    /// These were waited for; of them this one came.
    pub(super) fn note(&mut self, waited_for: &[i32], came: Option<i32>) {
        if let Some(tid) = came {
            // The others might have come next.
            self.absent.remove(&tid);
            return;
        }
        for &tid in waited_for {
            let (times, round) = self.absent.entry(tid).or_default();
            *times = (*times + 1).min(LONGEST_REST);
            *round = self.round + (1 << *times);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_held_up_is_saved_up_again() {
        let budget = Budget::new(0.02).unwrap();
        assert!((allowed(budget, 4) - 0.08).abs() < 1e-9);
        assert!((allowed(budget, 0) - 0.02).abs() < 1e-9);
        assert!((allowed(budget, 64) - MOST).abs() < 1e-9);
        assert!((allowed(Budget::new(0.5).unwrap(), 64) - 0.5).abs() < 1e-9, "who wants more gets more");
        let ms = Duration::from_millis;
        assert_eq!(pause(0.1, ms(0), ms(0)), Duration::ZERO);
        assert_eq!(pause(0.1, ms(20), ms(100)).as_millis(), 100);
        assert_eq!(pause(0.1, ms(20), ms(300)), Duration::ZERO);
    }

    #[test]
    fn who_does_not_come_is_waited_for_less_often() {
        let mut turns = Turns::default();
        let mut idle = 0;
        for _ in 0..200 {
            let drawn = turns.draw(&[1, 2], 1);
            idle += u32::from(drawn == [2]);
            turns.note(&drawn, drawn.first().copied().filter(|&tid| tid == 1));
        }
        assert!((2..30).contains(&idle), "{idle}");
        assert_eq!(turns.draw(&[2], 4), [2], "if nobody else is there");
        assert!(turns.draw(&[], 4).is_empty());
    }
}
