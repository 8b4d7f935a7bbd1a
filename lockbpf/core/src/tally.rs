//! Sums by key in bounded memory: the largest keys are kept, the others folded into one remainder, so that the total
//! is always complete.

use crate::units::Nanos;
use rustc_hash::FxHashMap;
use std::cmp::Ordering;
use std::hash::Hash;
use std::ops::AddAssign;

/// How often, and how long in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How often.
    pub count: u64,
    /// How long in all.
    pub time: Nanos,
}

impl Tally {
    /// Counts one occurrence.
    pub fn add(&mut self, time: Nanos) {
        *self += Self { count: 1, time };
    }

    /// Counts one that stands for this many like it.
    pub fn add_for(&mut self, count: u64, time: Nanos) {
        *self += Self { count, time: Nanos(time.0.saturating_mul(count)) };
    }

    /// Makes it one that there can be of waits up to `longest`, which it may shorten: shares of it need not be.
    pub fn settle(&mut self, longest: &mut Nanos) {
        longest.0 = longest.0.min(self.time.0);
        if longest.0 > 0 {
            self.count = self.count.max(self.time.0.div_ceil(longest.0));
        }
    }

    /// These shares of it, rounded down.
    pub fn scale(&mut self, of_count: f64, of_time: f64) {
        self.count = (self.count as f64 * of_count) as u64;
        self.time = Nanos((self.time.0 as f64 * of_time) as u64);
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, rhs: Self) {
        self.count += rhs.count;
        self.time += rhs.time;
    }
}

/// Tallies by key. Of more than `2 * N` keys the N largest survive; a key that returns after it was folded starts anew.
#[derive(Clone, Debug)]
pub struct TopTallies<K, const N: usize> {
    kept: FxHashMap<K, Tally>,
    rest: Tally,
}

impl<K, const N: usize> Default for TopTallies<K, N> {
    fn default() -> Self {
        Self { kept: FxHashMap::default(), rest: Tally::default() }
    }
}

impl<K: Copy + Ord + Hash, const N: usize> TopTallies<K, N> {
    /// Counts one occurrence of a key.
    pub fn add(&mut self, key: K, time: Nanos) {
        self.add_for(key, 1, time);
    }

    /// Counts one that stands for this many like it.
    pub fn add_for(&mut self, key: K, count: u64, time: Nanos) {
        self.kept.entry(key).or_default().add_for(count, time);
        if self.kept.len() > 2 * N {
            self.fold();
        }
    }

    /// These shares of each, rounded down.
    pub fn scale(&mut self, of_count: f64, of_time: f64) {
        let all = self.kept.values_mut().chain(std::iter::once(&mut self.rest));
        all.for_each(|tally| tally.scale(of_count, of_time));
    }

    /// Adds another's.
    pub fn merge(&mut self, other: &Self) {
        self.rest += other.rest;
        for (key, tally) in other.top() {
            *self.kept.entry(key).or_default() += tally;
        }
        if self.kept.len() > 2 * N {
            self.fold();
        }
    }

    fn fold(&mut self) {
        let mut all: Vec<_> = self.kept.drain().collect();
        all.select_nth_unstable_by(N, largest_first);
        for (_, tally) in all.drain(N..) {
            self.rest += tally;
        }
        self.kept.extend(all);
    }

    /// Forgets the keys that are none, and their tallies.
    pub fn retain(&mut self, mut is_one: impl FnMut(K) -> bool) {
        self.kept.retain(|&key, _| is_one(key));
    }

    /// The keys that were kept, longest time first, then most frequent, then smallest key.
    #[must_use]
    pub fn top(&self) -> Vec<(K, Tally)> {
        let mut all: Vec<_> = self.kept.iter().map(|(&key, &tally)| (key, tally)).collect();
        all.sort_unstable_by(largest_first);
        all
    }

    /// What was folded.
    #[must_use]
    pub fn rest(&self) -> Tally {
        self.rest
    }

    /// Everything, kept and folded.
    #[must_use]
    pub fn total(&self) -> Tally {
        self.kept.values().fold(self.rest, |mut sum, &tally| {
            sum += tally;
            sum
        })
    }
}

fn largest_first<K: Ord>((ka, a): &(K, Tally), (kb, b): &(K, Tally)) -> Ordering {
    (b.time, b.count, ka).cmp(&(a.time, a.count, kb))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_survive_and_the_total_is_complete() {
        let mut tallies = TopTallies::<u32, 4>::default();
        for round in 0..100 {
            tallies.add(7, Nanos(1_000));
            tallies.add(100 + round, Nanos(3));
        }
        assert_eq!(tallies.total(), Tally { count: 200, time: Nanos(100_300) });
        assert_eq!(tallies.top()[0], (7, Tally { count: 100, time: Nanos(100_000) }));
        assert!(tallies.top().len() <= 8 && tallies.rest().count > 0);
    }
}
