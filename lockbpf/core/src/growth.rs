//! What grew between two snapshots of one observation: their sums are cumulative, and a person who watches wants to know what happened in
//! the last second.
//!
//! A sum that rests on estimates may fall when more is known. What grew is told by the highest value so far: it is never negative, and what
//! grew over neighbouring spans adds up to what grew over both. A sum that has fallen grows again once it has passed its highest value.
#![forbid(unsafe_code)]

use crate::units::{Nanos, Time};
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// The last snapshots of the sums of many subjects: locks, sections, threads.
#[derive(Clone, Debug)]
pub struct History<K> {
    kept: usize,
    start: Time,
    /// When the snapshots were taken, oldest first.
    times: VecDeque<Time>,
    /// The highest value of each subject so far, at the same snapshots. One that turned up later has fewer.
    highest: HashMap<K, VecDeque<u64>>,
    /// Snapshots that are no longer kept.
    forgotten: bool,
}

/// A span of time that ends with the last snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// How long it is.
    pub length: Nanos,
    /// Snapshots from its beginning to its end; `None` if it begins with the observation.
    steps: Option<usize>,
}

impl<K: Eq + Hash> History<K> {
    /// Nothing yet of an observation that began at `start`; the last `kept` snapshots will be remembered.
    #[must_use]
    pub fn new(start: Time, kept: usize) -> Self {
        Self { kept: kept.max(2), start, times: VecDeque::new(), highest: HashMap::new(), forgotten: false }
    }

    /// Takes a snapshot: the cumulative sum of each subject. One that is missing has not grown.
    pub fn push(&mut self, at: Time, sums: impl IntoIterator<Item = (K, u64)>) {
        self.times.push_back(at);
        for values in self.highest.values_mut() {
            let last = values.back().copied().unwrap_or(0);
            values.push_back(last);
        }
        for (subject, sum) in sums {
            let values = self.highest.entry(subject).or_default();
            match values.back_mut() {
                Some(last) => *last = sum.max(*last),
                None => values.push_back(sum),
            }
        }
        if self.times.len() > self.kept {
            self.times.pop_front();
            self.forgotten = true;
            let snapshots = self.times.len();
            self.highest.values_mut().filter(|values| values.len() > snapshots).for_each(|values| {
                values.pop_front();
            });
        }
    }

    /// The shortest span of at least this length that ends with the last snapshot and begins with another one, or with the
    /// observation; the longest one that is remembered if all are shorter.
    #[must_use]
    pub fn span(&self, least: Nanos) -> Span {
        let Some(&end) = self.times.back() else { return Span::default() };
        let earlier = self.times.iter().rev().enumerate().skip(1);
        let since_start = Span { length: end.since(self.start), steps: None };
        let mut longest = since_start;
        for (steps, &at) in earlier {
            longest = Span { length: end.since(at), steps: Some(steps) };
            if longest.length >= least {
                return longest;
            }
        }
        if self.forgotten { longest } else { since_start }
    }

    /// By how much a subject's sum grew over a span.
    #[must_use]
    pub fn grew(&self, subject: &K, span: Span) -> u64 {
        let Some(values) = self.highest.get(subject) else { return 0 };
        let last = values.back().copied().unwrap_or(0);
        last - span.steps.map_or(0, |steps| value(values, steps))
    }

    /// By how much a subject's sum grew from each of the last `most` snapshots to the next, and how long that took, oldest first.
    #[must_use]
    pub fn steps(&self, subject: &K, most: usize) -> Vec<(u64, Nanos)> {
        let Some(values) = self.highest.get(subject) else { return Vec::new() };
        let snapshots = self.times.len();
        // What grew before the oldest snapshot is known only if that is the observation's first.
        let known = if self.forgotten { snapshots.saturating_sub(1) } else { snapshots };
        let step = |back: usize| {
            let length = self.time(back).since(self.time(back + 1));
            (value(values, back) - value(values, back + 1), length)
        };
        (0..known.min(most)).rev().map(step).collect()
    }

    /// When the snapshot was taken that was `back` ones before the last; the observation's beginning before the first.
    fn time(&self, back: usize) -> Time {
        let at = self.times.len().checked_sub(back + 1);
        at.and_then(|at| self.times.get(at)).copied().unwrap_or(self.start)
    }
}

/// The value that was `back` snapshots before the last; 0 before the subject turned up.
fn value(values: &VecDeque<u64>, back: usize) -> u64 {
    values.len().checked_sub(back + 1).and_then(|at| values.get(at)).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    fn second(n: u64) -> Time {
        Time(n * SECOND)
    }

    #[test]
    fn the_difference_of_two_snapshots() {
        let mut history = History::new(second(100), 60);
        assert_eq!((history.span(Nanos(SECOND)), history.grew(&"a", Span::default())), (Span::default(), 0));
        for (n, a) in [(101, 5), (102, 7), (103, 7), (104, 10)] {
            history.push(second(n), [("a", a)]);
        }
        let over = |seconds| {
            let span = history.span(Nanos(seconds * SECOND));
            (span.length.0 / SECOND, history.grew(&"a", span))
        };
        assert_eq!([1, 2, 3, 4, 9].map(over), [(1, 3), (2, 3), (3, 5), (4, 10), (4, 10)]);
        let steps: Vec<u64> = history.steps(&"a", 60).into_iter().map(|(grew, _)| grew).collect();
        assert_eq!(steps, [5, 2, 0, 3]);
    }

    #[test]
    fn who_turns_up_later_has_grown_since_the_start() {
        let mut history = History::new(second(0), 60);
        history.push(second(1), [("a", 1)]);
        history.push(second(2), [("a", 1), ("late", 9)]);
        history.push(second(3), [("late", 11)]);
        let last = history.span(Nanos(SECOND));
        assert_eq!((history.grew(&"late", last), history.grew(&"a", last), history.grew(&"nobody", last)), (2, 0, 0));
        assert_eq!(history.grew(&"late", history.span(Nanos(2 * SECOND))), 11);
    }

    #[test]
    fn an_estimate_that_falls_takes_nothing_back() {
        let mut history = History::new(second(0), 60);
        for (n, sum) in [(1, 100), (2, 60), (3, 90), (4, 130)] {
            history.push(second(n), [("a", sum)]);
        }
        let steps: Vec<u64> = history.steps(&"a", 3).into_iter().map(|(grew, _)| grew).collect();
        assert_eq!(steps, [0, 0, 30]);
    }

    proptest! {
        #[test]
        fn what_grew_adds_up_and_is_never_negative(
            snapshots in prop::collection::vec((1u64..3 * SECOND, prop::collection::vec((0u8..5, 0u64..1_000), 0..6)), 1..40),
            kept in 2usize..12,
            least in 0u64..20 * SECOND,
        ) {
            let mut history = History::new(Time(7), kept);
            let mut highest = [0u64; 5];
            let mut at = Time(7);
            for (pause, sums) in &snapshots {
                at = at + Nanos(*pause);
                history.push(at, sums.iter().copied());
                sums.iter().for_each(|&(who, sum)| highest[usize::from(who)] = highest[usize::from(who)].max(sum));
            }
            let span = history.span(Nanos(least));
            for who in 0..5u8 {
                let steps = history.steps(&who, usize::MAX);
                let spanned = span.steps.unwrap_or(steps.len()).min(steps.len());
                let over: u64 = steps[steps.len() - spanned..].iter().map(|&(grew, _)| grew).sum();
                // Overflow panics in tests, so none of these is negative.
                if span.steps.is_some() || !history.forgotten {
                    prop_assert_eq!(history.grew(&who, span), over);
                }
                prop_assert!(history.grew(&who, span) <= highest[usize::from(who)]);
                let time: u64 = steps.iter().map(|&(_, length)| length.0).sum();
                if !history.forgotten && !steps.is_empty() {
                    prop_assert_eq!(steps.iter().map(|&(grew, _)| grew).sum::<u64>(), highest[usize::from(who)]);
                    prop_assert_eq!(time, at.since(Time(7)).0);
                }
            }
        }
    }
}
