//! Which thread woke whom when, by thread: where a lock's waiters sleep on words of their own, the one that woke a waiter had the lock.

use crate::event::Wake;
use crate::id::Tid;
use crate::units::Time;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Wakes that are remembered, and of these those of one thread.
const MAX_WAKES: usize = 1 << 19;
const MAX_OF_THREAD: usize = 1 << 14;

/// Threads' last wakes, each thread's in order of time.
#[derive(Debug, Default)]
pub(super) struct Wakes {
    of: FxHashMap<Tid, VecDeque<Wake>>,
    /// How many there are in all.
    count: usize,
}

impl Wakes {
    /// Takes note of one.
    pub(super) fn add(&mut self, wake: &Wake) {
        if self.count >= MAX_WAKES {
            self.of.retain(|_, known| {
                known.drain(..known.len().div_ceil(2));
                !known.is_empty()
            });
            self.count = self.of.values().map(VecDeque::len).sum();
        }
        let known = self.of.entry(wake.tid).or_default();
        let later = known.iter().rev().take_while(|other| other.time > wake.time).count();
        known.insert(known.len() - later, *wake);
        self.count += 1;
        if known.len() > MAX_OF_THREAD {
            known.pop_front();
            self.count -= 1;
        }
    }

    /// The last one of a thread after `from`, up to `to`.
    pub(super) fn last_of(&self, tid: Tid, from: Time, to: Time) -> Option<&Wake> {
        let known = self.of.get(&tid)?;
        let next = known.partition_point(|wake| wake.time <= to);
        known.get(next.checked_sub(1)?).filter(|wake| wake.time > from)
    }
}
