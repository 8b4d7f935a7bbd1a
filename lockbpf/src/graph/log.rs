//! What threads did last, each thread's in order of time, bounded in number: records of several CPUs come out of order.

use crate::id::Tid;
use crate::units::Time;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Entries that are remembered, and of these those of one thread: waits are divided some time after their end.
const MAX_ENTRIES: usize = 1 << 19;
const MAX_OF_THREAD: usize = 1 << 14;

/// What is remembered by its time.
pub(super) trait Timed {
    /// When it was, or ended.
    fn time(&self) -> Time;
}

/// Threads' last entries.
#[derive(Debug)]
pub(super) struct Log<T> {
    of: FxHashMap<Tid, VecDeque<T>>,
    /// How many there are in all.
    count: usize,
}

impl<T> Default for Log<T> {
    fn default() -> Self {
        Self { of: FxHashMap::default(), count: 0 }
    }
}

impl<T: Timed> Log<T> {
    /// Takes note of one. Where there is no room, the older half of each thread's goes.
    pub(super) fn add(&mut self, tid: Tid, entry: T) {
        if self.count >= MAX_ENTRIES {
            self.of.retain(|_, known| {
                known.drain(..known.len().div_ceil(2));
                !known.is_empty()
            });
            self.count = self.of.values().map(VecDeque::len).sum();
        }
        let known = self.of.entry(tid).or_default();
        let later = known.iter().rev().take_while(|other| other.time() > entry.time()).count();
        known.insert(known.len() - later, entry);
        self.count += 1;
        if known.len() > MAX_OF_THREAD {
            known.pop_front();
            self.count -= 1;
        }
    }

    /// A thread's entries after a time.
    pub(super) fn after(&self, tid: Tid, time: Time) -> impl Iterator<Item = &T> {
        let known = self.of.get(&tid);
        let first = known.map_or(0, |known| known.partition_point(|entry| entry.time() <= time));
        known.into_iter().flat_map(move |known| known.range(first..))
    }

    /// A thread's last entry after one time, up to another.
    pub(super) fn last(&self, tid: Tid, after: Time, up_to: Time) -> Option<&T> {
        let known = self.of.get(&tid)?;
        let next = known.partition_point(|entry| entry.time() <= up_to);
        known.get(next.checked_sub(1)?).filter(|entry| entry.time() > after)
    }
}
