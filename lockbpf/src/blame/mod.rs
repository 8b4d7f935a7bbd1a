//! Who held a lock while others waited for it: section records in, shares of waiting per holder out.
//!
//! A waiting interval is cut into pieces (direct and indirect blame; gaps between a release and the next acquire go to
//! the releaser). A record arrives when its section ends, which is after every section that ended before it acquired:
//! the tenures remembered per lock suffice to divide its wait at once. Nested waiting is not relabelled here: a holder
//! that itself waits for an inner lock keeps the blame for the outer one.
//!
//! Conservation, for every lock: Σ blame of its holders + unattributed = Σ recorded wait.
#![forbid(unsafe_code)]

mod history;
mod lock;
mod shares;
#[cfg(test)]
mod tests;

pub use crate::graph::{CONTENDED_VALUE, FutexSite, FutexWaits, Threads, plausible_owner};
pub use shares::{Holder, Pairs, Shares, Stacks, Waiter, Who};

use crate::event::{FutexWait, Section};
use crate::id::Lock;
use crate::tally::Tally;
use lock::LockBlame;
use std::collections::HashMap;

/// Locks, and futex words, that are followed.
const MAX_LOCKS: usize = 32_768;
/// Tenures remembered over all locks, about: each takes 72 bytes.
const MAX_TENURES: usize = 131_072;
/// Tenures remembered per lock: at most, and however many locks there are.
const TENURES_PER_LOCK: (usize, usize) = (16, 16_384);

/// Accumulates section records into shares of waiting per holder. Memory is bounded; what does not fit is counted.
#[derive(Clone, Debug, Default)]
pub struct Blame {
    locks: HashMap<Lock, LockBlame>,
    words: HashMap<Lock, FutexWaits>,
    beyond: Tally,
    late: u64,
}

impl Blame {
    /// Takes in a section or a failed attempt. Sections come in the order of their ends, nearly.
    pub fn section(&mut self, s: &Section) {
        let known = self.locks.len();
        if known >= MAX_LOCKS && !self.locks.contains_key(&s.lock) {
            return self.beyond.add(s.wait);
        }
        let (least, most) = TENURES_PER_LOCK;
        let limit = (MAX_TENURES / known.max(1)).clamp(least, most);
        if !self.locks.entry(s.lock).or_default().section(s, limit) {
            self.late += 1;
        }
    }

    /// Takes in a futex wait that no lock call explains.
    pub fn futex_wait(&mut self, w: &FutexWait) {
        if self.words.len() >= MAX_LOCKS && !self.words.contains_key(&w.word) {
            return self.beyond.add(w.wait);
        }
        self.words.entry(w.word).or_default().add(w);
    }

    /// The locks with at least one record, in no particular order.
    pub fn locks(&self) -> impl Iterator<Item = Lock> + '_ {
        self.locks.keys().copied()
    }

    /// The waiting for one lock so far; `None` without any record.
    #[must_use]
    pub fn shares(&self, lock: Lock) -> Option<Shares> {
        self.locks.get(&lock).map(LockBlame::shares)
    }

    /// The futex words with at least one record, in no particular order.
    pub fn words(&self) -> impl Iterator<Item = (Lock, &FutexWaits)> + '_ {
        self.words.iter().map(|(&word, waits)| (word, waits))
    }

    /// The waiting for one futex word so far; `None` without any record.
    #[must_use]
    pub fn word(&self, word: Lock) -> Option<&FutexWaits> {
        self.words.get(&word)
    }

    /// Records of locks and words beyond the number that is followed, and their waits.
    #[must_use]
    pub fn beyond(&self) -> Tally {
        self.beyond
    }

    /// Sections that came too late to be blamed for anything.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.late
    }
}
