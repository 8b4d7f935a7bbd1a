//! What happened last to threads or locks, each one's in order of time, bounded in number: records of several CPUs come out of order.

use crate::units::Time;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::hash::Hash;
use std::sync::Arc;

/// What is remembered by its time.
pub(super) trait Timed {
    /// When it was, or ended.
    fn time(&self) -> Time;
}

/// The last entries of each thread or lock: at most `EACH` of one `K`, and `ALL` of all together. Copies share what neither changes.
#[derive(Clone, Debug)]
pub(super) struct Log<K, T, const ALL: usize, const EACH: usize> {
    of: Arc<FxHashMap<K, Arc<VecDeque<T>>>>,
    /// How many there are in all.
    count: usize,
}

impl<K, T, const ALL: usize, const EACH: usize> Default for Log<K, T, ALL, EACH> {
    fn default() -> Self {
        Self { of: Arc::default(), count: 0 }
    }
}

impl<K: Copy + Eq + Hash, T: Clone + Timed, const ALL: usize, const EACH: usize> Log<K, T, ALL, EACH> {
    /// Takes note of one. Where there is no room, the older half of each one's goes.
    pub(super) fn add(&mut self, key: K, entry: T) {
        let of = Arc::make_mut(&mut self.of);
        if self.count >= ALL {
            of.retain(|_, known| {
                let known = Arc::make_mut(known);
                known.drain(..known.len().div_ceil(2));
                !known.is_empty()
            });
            self.count = of.values().map(|known| known.len()).sum();
        }
        let known = Arc::make_mut(of.entry(key).or_default());
        let later = known.iter().rev().take_while(|other| other.time() > entry.time()).count();
        known.insert(known.len() - later, entry);
        self.count += 1;
        if known.len() > EACH {
            known.pop_front();
            self.count -= 1;
        }
    }

    /// The entries of one after a time.
    pub(super) fn after(&self, key: K, time: Time) -> impl Iterator<Item = &T> {
        let known = self.of.get(&key);
        let first = known.map_or(0, |known| known.partition_point(|entry| entry.time() <= time));
        known.into_iter().flat_map(move |known| known.range(first..))
    }

    /// The entries of one, the last first.
    pub(super) fn latest_first(&self, key: K) -> impl Iterator<Item = &T> {
        self.of.get(&key).map(|known| known.iter().rev()).into_iter().flatten()
    }

    /// The entries of one up to a time, the last first.
    pub(super) fn before(&self, key: K, time: Time) -> impl Iterator<Item = &T> {
        let known = self.of.get(&key);
        let next = known.map_or(0, |known| known.partition_point(|entry| entry.time() <= time));
        known.into_iter().flat_map(move |known| known.range(..next).rev())
    }

    /// The last entry of one after one time, up to another.
    pub(super) fn last(&self, key: K, after: Time, up_to: Time) -> Option<&T> {
        self.before(key, up_to).next().filter(|entry| entry.time() > after)
    }
}
