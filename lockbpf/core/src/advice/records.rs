//! What sampled executions of critical sections read and wrote, as far as advice needs it.
//!
//! Equal sets and equal orders of accesses are kept once, so that memory grows with what is different, not with what was
//! recorded.

use super::names::Names;
use super::once::Once;
use foldhash::fast::RandomState;
use std::collections::{BTreeMap, HashMap};

/// Stands for what is not known.
pub(super) const NONE: u32 = u32::MAX;

/// One execution of a critical section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Execution {
    /// The run of the program.
    pub run: u32,
    /// The thread, the same column in all runs.
    pub thread: u32,
    /// The lock.
    pub lock: u32,
    /// The static critical section.
    pub site: u32,
    /// The number of what it read and wrote: [`Records::sets`].
    pub sets: u32,
    /// The number of its order of accesses, if that is known: [`Records::path`].
    pub path: Option<u32>,
    /// Whether it was not followed to its end.
    pub cut: bool,
}

/// What an execution read and wrote: locations, ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sets<'a> {
    /// Read.
    pub reads: &'a [u32],
    /// Written.
    pub writes: &'a [u32],
}

impl<'a> Sets<'a> {
    /// Read or written; locations that are both come twice.
    pub fn all(self) -> impl Iterator<Item = u32> + 'a {
        self.reads.iter().chain(self.writes).copied()
    }
}

/// Where an execution accessed a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// The location.
    pub location: u32,
    /// Whether this is of its writes, or of its reads.
    pub write: bool,
    /// The first of these accesses, counted from 0.
    pub first: u32,
    /// The last one.
    pub last: u32,
    /// The place in the code of the first one, if that is known.
    pub first_code: Option<u32>,
    /// The same of the last one.
    pub last_code: Option<u32>,
}

/// The order of an execution's accesses.
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    /// Accesses in all.
    pub accesses: u32,
    /// The way through the code: of equal ways the same number, whatever data they were on.
    pub way: u32,
    /// Whether it is known where the accesses went to.
    pub located: bool,
    words: &'a [u32],
}

/// Words of a [`Touch`].
const TOUCH: usize = 5;

impl<'a> Path<'a> {
    /// Where it accessed what it shares with others, or could.
    pub fn touches(self) -> impl Iterator<Item = Touch> + 'a {
        let known = |word: u32| (word != NONE).then_some(word);
        self.words.chunks_exact(TOUCH).filter_map(move |words| {
            let &[location, first, last, first_code, last_code] = words else { return None };
            let (location, write) = (location >> 1, location & 1 == 1);
            Some(Touch { location, write, first, last, first_code: known(first_code), last_code: known(last_code) })
        })
    }
}

/// A conditional branch in a section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Branch {
    /// Its place in the code, if that is known.
    pub code: Option<u32>,
    /// Whether it was ever taken.
    pub taken: bool,
    /// Whether it was ever not taken.
    pub not_taken: bool,
}

impl Branch {
    /// Whether what lies the other way was not seen.
    #[must_use]
    pub fn is_one_sided(self) -> bool {
        self.taken != self.not_taken
    }
}

/// All records of a file.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// Runs of the program.
    pub runs: Names,
    /// Threads.
    pub threads: Names,
    /// Locks.
    pub locks: Names,
    /// Sites.
    pub sites: Names,
    /// Locations: addresses, or whatever else names them.
    pub locations: Names,
    /// Places in the code.
    pub code: Names,
    /// The executions, in the order of the file: that in which each lock was acquired.
    pub executions: Vec<Execution>,
    /// Who waited for whom: positions in `executions`, the one waited for first.
    pub edges: Vec<(u32, u32)>,
    /// What readers call locations, where that is something else.
    pub readable: HashMap<u32, Box<str>, RandomState>,
    /// System calls.
    pub calls: Names,
    /// By site and lock: executions by system call in them.
    pub opaque: BTreeMap<(u32, u32), BTreeMap<u32, u64>>,
    /// Locations of conditional branches.
    pub branch_places: Names,
    /// By site and lock, and location: which ways the conditional branches in it went, in all executions.
    pub branches: BTreeMap<(u32, u32), BTreeMap<u32, Branch>>,
    /// Methods of locks' own classes in which locks are requested.
    pub methods: Names,
    /// By method and lock: executions by site, the method's callers.
    pub requested: BTreeMap<(u32, u32), BTreeMap<u32, u64>>,
    /// Addresses of locks that have another name.
    pub lock_addresses: BTreeMap<u32, Box<str>>,
    pub(super) sets: Once<u32>,
    pub(super) paths: Once<u32>,
}

impl Records {
    /// What an execution read and wrote.
    #[must_use]
    pub fn sets(&self, number: u32) -> Sets<'_> {
        match self.sets.get(number) {
            [reads, locations @ ..] => {
                let (reads, writes) = locations.split_at((*reads as usize).min(locations.len()));
                Sets { reads, writes }
            }
            [] => Sets { reads: &[], writes: &[] },
        }
    }

    /// What a reader calls a location.
    #[must_use]
    pub fn location(&self, number: u32) -> &str {
        match self.readable.get(&number) {
            Some(readable) => readable,
            None => self.locations.text(number),
        }
    }

    /// In which order an execution accessed what it did.
    #[must_use]
    pub fn path(&self, number: u32) -> Path<'_> {
        match self.paths.get(number) {
            &[accesses, way, located, ref words @ ..] => Path { accesses, way, located: located != 0, words },
            _ => Path { accesses: 0, way: NONE, located: false, words: &[] },
        }
    }
}
