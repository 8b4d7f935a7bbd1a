//! Sequences, each kept once.

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use std::hash::{BuildHasher, Hash};

/// Sequences, numbered from 0 in the order in which they came. They lie one behind the other: a table of pointers to each would
/// be twice as slow to search, and reading access records is mostly that.
#[derive(Clone, Debug)]
pub(super) struct Once<T> {
    items: Vec<T>,
    /// By number: where it ends.
    ends: Vec<usize>,
    numbers: HashTable<u32>,
    hasher: RandomState,
}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self { items: Vec::new(), ends: Vec::new(), numbers: HashTable::new(), hasher: RandomState::default() }
    }
}

impl<T: Copy + Eq + Hash> Once<T> {
    /// The number of a sequence that is known.
    pub(super) fn find(&self, items: &[T]) -> Option<u32> {
        self.numbers.find(self.hasher.hash_one(items), |&number| self.get(number) == items).copied()
    }

    /// The number of a sequence, a new one if it is new.
    pub(super) fn number(&mut self, items: &[T]) -> u32 {
        if let Some(known) = self.find(items) {
            return known;
        }
        let number = self.ends.len() as u32;
        self.items.extend_from_slice(items);
        self.ends.push(self.items.len());
        let Self { items: all, ends, numbers, hasher } = self;
        let hash = |&number: &u32| hasher.hash_one(part(all, ends, number));
        numbers.insert_unique(hash(&number), number, hash);
        number
    }

    /// The sequence of a number; empty where there is none.
    pub(super) fn get(&self, number: u32) -> &[T] {
        part(&self.items, &self.ends, number)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }
}

fn part<'a, T>(items: &'a [T], ends: &[usize], number: u32) -> &'a [T] {
    let number = number as usize;
    let begin = number.checked_sub(1).map_or(Some(0), |before| ends.get(before).copied());
    begin.zip(ends.get(number)).and_then(|(begin, &end)| items.get(begin..end)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ones_have_one_number() {
        let mut once = Once::default();
        let numbers: Vec<u32> = (0..2_000).map(|i| once.number(&[i % 1_000, 7][..1 + i as usize % 2])).collect();
        assert_eq!((once.len(), numbers[0], numbers[1_999]), (1_000, 0, 999));
        assert_eq!((once.get(5), once.get(6), once.get(1_000)), (&[5, 7][..], &[6][..], &[][..]));
        assert_eq!((once.find(&[5, 7]), once.find(&[5]), once.find(&[])), (Some(5), None, None));
        assert_eq!((once.number(&[]), once.get(1_000), once.find(&[])), (1_000, &[][..], Some(1_000)));
    }
}
