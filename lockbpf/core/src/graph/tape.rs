//! A list that grows at its end and forgets its beginning. Copies share all parts but the last, so a copy costs next to nothing.

use std::collections::VecDeque;
use std::sync::Arc;

/// Entries in a part.
const PART: usize = 4_096;

/// Entries numbered 0, 1, … as they came, without those that were forgotten.
#[derive(Clone, Debug)]
pub(super) struct Tape<T> {
    parts: VecDeque<Arc<Vec<T>>>,
    /// The number of the first entry of the first part, a multiple of [`PART`].
    begin: u64,
    first: u64,
    end: u64,
}

impl<T> Default for Tape<T> {
    fn default() -> Self {
        Self { parts: VecDeque::new(), begin: 0, first: 0, end: 0 }
    }
}

impl<T: Clone> Tape<T> {
    /// Adds an entry; its number is what [`Self::end`] was.
    pub(super) fn push(&mut self, entry: T) {
        if self.end.is_multiple_of(PART as u64) {
            self.parts.push_back(Arc::new(Vec::with_capacity(PART)));
        }
        if let Some(part) = self.parts.back_mut() {
            Arc::make_mut(part).push(entry);
            self.end += 1;
        }
    }

    /// Forgets the oldest entry.
    pub(super) fn forget_first(&mut self) {
        self.first = (self.first + 1).min(self.end);
        if self.first - self.begin == PART as u64 {
            self.parts.pop_front();
            self.begin = self.first;
        }
    }

    /// The entry of a number; `None` if it was forgotten, or is still to come.
    pub(super) fn get(&self, number: u64) -> Option<&T> {
        let at = number.checked_sub(self.begin).filter(|_| number >= self.first)? as usize;
        self.parts.get(at / PART)?.get(at % PART)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        (self.end - self.first) as usize
    }

    /// The number of the oldest entry.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// The number that the next entry will have.
    pub(super) fn end(&self) -> u64 {
        self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forgotten_is_gone_and_copies_are_apart() {
        let mut tape = Tape::default();
        (0..3 * PART as u64).for_each(|n| tape.push(n));
        (0..PART + 5).for_each(|_| tape.forget_first());
        let copy = tape.clone();
        tape.push(7);
        tape.forget_first();
        let first = PART as u64 + 5;
        assert_eq!((copy.first(), copy.end(), copy.len()), (first, 3 * PART as u64, 2 * PART - 5));
        assert_eq!((copy.get(first - 1), copy.get(first), copy.get(copy.end())), (None, Some(&first), None));
        assert_eq!((tape.get(first), tape.get(first + 1), tape.get(copy.end())), (None, Some(&(first + 1)), Some(&7)));
        assert_eq!((tape.len(), tape.parts.len(), copy.parts.len()), (copy.len(), 3, 2));
    }

    #[test]
    fn an_empty_one_has_nothing_to_forget() {
        let mut tape = Tape::<u8>::default();
        tape.forget_first();
        assert_eq!((tape.len(), tape.get(0)), (0, None));
        tape.push(1);
        tape.forget_first();
        tape.push(2);
        assert_eq!((tape.len(), tape.get(0), tape.get(1)), (1, None, Some(&2)));
    }
}
