//! The focus of a running session: which locks the kernel side records, and by how much each was waited for.

use super::CaptureError;
use super::session::Session;
use crate::id::{Lock, Process};
use aya::maps::{Array, HashMap as BpfHashMap};
use lockbpf_common::focus::{Focus, FocusKey, MAX_RANGES, Range, mode};
use lockbpf_common::kind::Via;
use lockbpf_common::sums::SumKey;
use std::collections::{HashMap, HashSet};

/// Addresses in the focus.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<Range>);

impl Ranges {
    /// Takes in the locks inside a variable.
    ///
    /// # Errors
    /// When there are too many ranges.
    pub fn variable(&mut self, process: Process, range: std::ops::Range<u64>) -> Result<(), TooMany> {
        self.add(Range { start: range.start, end: range.end, process: process.0, sites: 0 })
    }

    /// Takes in the sites inside a function.
    ///
    /// # Errors
    /// When there are too many ranges.
    pub fn function(&mut self, process: Process, range: std::ops::Range<u64>) -> Result<(), TooMany> {
        self.add(Range { start: range.start, end: range.end, process: process.0, sites: 1 })
    }

    fn add(&mut self, range: Range) -> Result<(), TooMany> {
        if self.0.contains(&range) {
            return Ok(());
        }
        if self.0.len() >= MAX_RANGES {
            return Err(TooMany);
        }
        self.0.push(range);
        Ok(())
    }
}

/// Futex waits outside probed calls that are recorded whatever is in the focus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// None.
    None,
    /// Those of at least a second.
    Long,
    /// All: their sites are found later.
    All,
}

/// More ranges than the kernel side looks through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {MAX_RANGES} variables and functions match: name them more exactly")]
pub struct TooMany;

/// How long one lock was waited for so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contention {
    /// The lock.
    pub lock: Lock,
    /// Σ wait, ns.
    pub wait_ns: u64,
    /// Whether only futex calls tell of it: what looks like contention may be idleness.
    pub futex: bool,
}

impl Session {
    /// Records from now on only what has to do with these addresses, and with the locks of [`Session::focus_on`]; of futex waits outside
    /// probed calls, these, too.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn focus(&mut self, ranges: &Ranges, too: Waits) -> Result<(), CaptureError> {
        let too = match too {
            Waits::None => 0,
            Waits::Long => mode::LONG,
            Waits::All => mode::SITES,
        };
        let mut focus = Focus { mode: mode::ON | too, ..Focus::default() };
        focus.used = ranges.0.len() as u32;
        for (place, range) in focus.ranges.iter_mut().zip(&ranges.0) {
            *place = *range;
        }
        let map = self.map_mut("FOCUS")?;
        Array::<_, Focus>::try_from(map)?.set(0, focus, 0)?;
        Ok(())
    }

    /// Takes locks into the focus. Returns how many of them found room.
    ///
    /// # Errors
    /// When the map is missing.
    pub fn focus_on(&mut self, locks: impl IntoIterator<Item = Lock>) -> Result<usize, CaptureError> {
        let mut map: BpfHashMap<_, FocusKey, u32> = self.map_mut("FOCUSED")?.try_into()?;
        let key = |lock: Lock| FocusKey { lock: lock.addr, process: u64::from(lock.process.0) };
        Ok(locks.into_iter().filter(|&lock| map.insert(key(lock), 1, 0).is_ok()).count())
    }

    /// The locks in the focus, those included that others depend on.
    ///
    /// # Errors
    /// When the map is missing.
    pub fn focused(&self) -> Result<HashSet<Lock>, CaptureError> {
        let map: BpfHashMap<_, FocusKey, u32> = self.map("FOCUSED")?.try_into()?;
        let lock = |key: FocusKey| Lock { process: Process(key.process as u32), addr: key.lock };
        Ok(map.keys().filter_map(Result::ok).map(lock).collect())
    }

    /// How long each lock was waited for so far.
    ///
    /// # Errors
    /// When the map is missing.
    pub fn contention(&self) -> Result<Vec<Contention>, CaptureError> {
        Ok(by_lock(self.waits_by_key()?.into_iter()))
    }
}

/// Adds up waits by lock. A mutex's futex waits are part of those of its sections where these are all seen; where they are seen in windows only,
/// the futex calls tell more. Idle waits are none.
pub(crate) fn by_lock(sums: impl Iterator<Item = (SumKey, u64)>) -> Vec<Contention> {
    let mut all: HashMap<Lock, (Option<u64>, u64)> = HashMap::new();
    for (key, wait_ns) in sums {
        let lock = Lock { process: Process(key.process), addr: key.lock };
        match u8::try_from(key.via).ok().and_then(Via::from_u8) {
            Some(Via::Futex) => all.entry(lock).or_default().1 += wait_ns,
            Some(Via::CondWait) | None => {}
            Some(_) => *all.entry(lock).or_default().0.get_or_insert(0) += wait_ns,
        }
    }
    let told = |(lock, (sections, slept)): (Lock, (Option<u64>, u64))| Contention {
        lock,
        wait_ns: sections.unwrap_or(0).max(slept),
        futex: sections.is_none(),
    };
    all.into_iter().map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_counted_once() {
        let key = |lock, site, via: Via| SumKey { lock, site, process: 1, via: via as u32 };
        let mut all = by_lock(
            [
                (key(0x10, 1, Via::Lock), 5),
                (key(0x10, 2, Via::TimedLock), 6),
                (key(0x10, 0, Via::Futex), 9),
                (key(0x20, 0, Via::Futex), 7),
                (key(0x40, 1, Via::Lock), 1),
                (key(0x40, 0, Via::Futex), 50),
                (key(0x30, 3, Via::CondWait), 100),
            ]
            .into_iter(),
        );
        all.sort_by_key(|c| c.lock.addr);
        let lock = |addr| Lock { process: Process(1), addr };
        let expected = [
            Contention { lock: lock(0x10), wait_ns: 11, futex: false },
            Contention { lock: lock(0x20), wait_ns: 7, futex: true },
            // Seen in windows only.
            Contention { lock: lock(0x40), wait_ns: 50, futex: false },
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn ranges_are_bounded_and_each_is_there_once() {
        let mut ranges = Ranges::default();
        for i in 0..MAX_RANGES as u64 {
            for _ in 0..2 {
                assert_eq!(ranges.variable(Process(1), i..i + 1), Ok(()));
            }
        }
        assert_eq!(ranges.function(Process(1), 0..1), Err(TooMany));
        assert_eq!(ranges.variable(Process(1), 3..4), Ok(()));
    }
}
