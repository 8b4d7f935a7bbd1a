//! Waits during which a lock was given back very often, as by a crowd of threads that all queue for it: were each divided among all who gave it
//! back, that would cost the square of the crowd. Each part of such a wait is charged to whoever had the lock at one moment of it, chosen as if by
//! chance. So holders are charged, on average, for as much of the time as they held it.

use super::{Piece, Release, Releases, is_own, nobody, push};
use crate::event::FutexWait;
use crate::id::Tid;
use crate::units::{Nanos, Time};
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::hash::BuildHasher as _;

/// Into how many parts a wait is divided.
const PARTS: u64 = 64;

impl Releases {
    /// What a wait is charged to, part by part.
    pub(super) fn sample(&self, w: &FutexWait) -> Vec<Piece> {
        let after =
            |parts: u64| w.end - w.wait + Nanos((u128::from(w.wait.0) * u128::from(parts) / u128::from(PARTS)) as u64);
        let mut known = FxHashMap::default();
        let mut pieces = Vec::new();
        for part in 0..PARTS {
            let (from, to) = (after(part), after(part + 1));
            // The same each time.
            let within = FxBuildHasher.hash_one((w.end, w.tid, part)).checked_rem(to.since(from).0).unwrap_or_default();
            let piece = self.at(w, from + Nanos(within), &mut known).unwrap_or_else(|| nobody(from, to));
            push(&mut pieces, Piece { from, to, inferred: true, ..piece });
        }
        pieces
    }

    /// Whom a moment of a wait is charged to.
    fn at(&self, w: &FutexWait, moment: Time, known: &mut FxHashMap<Tid, Option<Release>>) -> Option<Piece> {
        let begin = w.end - w.wait;
        let is_others = |release: &&Release| release.tid != w.tid && is_own(w, release);
        let last = self.words.before(w.word, moment).take_while(|release| release.time > begin).find(is_others);
        let last = last.map(|release| self.placed(w.word, release, known));
        let reached = last.map_or(begin, |last| last.time);
        let next = self.words.after(w.word, moment).take_while(|release| release.time <= w.end).find(is_others);
        let mut pieces = Vec::new();
        match next.map(|release| self.placed(w.word, release, known)) {
            Some(next) => self.until(w, &next, last.as_ref(), reached, &mut pieces),
            None => self.until_it_ran(w, last.as_ref(), reached, &mut pieces),
        }
        pieces.into_iter().find(|piece| piece.from <= moment && moment < piece.to)
    }
}
