//! Sums of sections, lock by lock and site by site: what the kernel side kept, or what was added up from steps.

use crate::histogram::Histogram;
use crate::id::{Lock, Process, Site, StackId};
use crate::op::LockKind;
use crate::tally::Tally;
use crate::units::{Nanos, Time};
use foldhash::fast::RandomState;
use lockbpf_common::kind::{Via, mutex_kind};
use lockbpf_common::sums::{BUCKETS, SumKey, Sums};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Rows that are told apart: as many as the kernel's map has.
pub const MAX_ROWS: usize = 32_768;

/// Durations, as far as sums keep them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measure {
    /// Their sum.
    pub sum: Nanos,
    /// The longest.
    pub max: Nanos,
    /// How they are distributed.
    pub histogram: Histogram,
}

impl Measure {
    /// Counts one duration.
    pub fn add(&mut self, duration: Nanos) {
        self.sum += duration;
        self.max = self.max.max(duration);
        self.histogram.add(duration);
    }

    /// The longest of those that are summed. [`Measure::max`] may be that of a section that was cut, which took so long at least and is not
    /// among them.
    #[must_use]
    pub fn longest_summed(&self) -> Nanos {
        self.histogram.nth(self.histogram.count(), self.max).min(self.sum)
    }

    /// Adds another's.
    pub fn merge(&mut self, other: &Self) {
        self.sum += other.sum;
        self.max = self.max.max(other.max);
        self.histogram.merge(&other.histogram);
    }

    fn from_raw(sum: u64, max: u64, raw: &[u64; BUCKETS]) -> Self {
        let mut histogram = Histogram::default();
        histogram.merge_raw(raw);
        Self { sum: Nanos(sum), max: Nanos(max), histogram }
    }
}

/// The sums of one lock at one call site, as the kernel side kept them.
#[derive(Clone, Copy, Debug)]
pub struct KernelSums {
    /// The lock, condition variable or futex word.
    pub lock: Lock,
    /// Where it was requested; address 0 for [`Via::Futex`].
    pub site: Site,
    /// By which call.
    pub via: Via,
    /// The sums.
    pub sums: Sums,
}

impl KernelSums {
    /// An entry of the kernel's map; `None` if its numbers stand for nothing.
    #[must_use]
    pub fn new(key: &SumKey, sums: Sums) -> Option<Self> {
        let process = Process(key.process);
        Some(Self {
            lock: Lock { process, addr: key.lock },
            site: Site { process, addr: key.site },
            via: Via::from_u8(u8::try_from(key.via).ok()?)?,
            sums,
        })
    }

    /// Whether they are those of a lock, and not of a condition variable or a futex word.
    #[must_use]
    pub fn is_of_lock(&self) -> bool {
        !matches!(self.via, Via::Futex | Via::CondWait)
            && self.sums.kind & (mutex_kind::IS_CONDVAR | mutex_kind::IS_FUTEX) == 0
    }
}

/// The sums of one lock at one call site.
#[derive(Clone, Debug)]
pub struct SiteSums {
    /// The lock, condition variable or futex word.
    pub lock: Lock,
    /// Where it was requested; address 0 for [`Via::Futex`].
    pub site: Site,
    /// By which call.
    pub via: Via,
    /// What sort of lock.
    pub kind: LockKind,
    /// glibc's mutex kind, or one of lockbpf's own marks ([`lockbpf_common::kind::mutex_kind`]); of a kernel lock, what
    /// [`lockbpf_common::kernel`] says.
    pub mutex_kind: u32,
    /// Barrier only: how many threads a round takes; 0 elsewhere.
    pub participants: u32,
    /// Time of the first operation.
    pub first: Time,
    /// Sections completed (condition variable: waits; futex: waits that slept and were woken).
    pub acquisitions: u64,
    /// The contended ones of these.
    pub contended: u64,
    /// Acquisitions of which the release was not seen: their holds are not among `hold`.
    pub unseen: u64,
    /// Failed trylocks (futex: waits that returned at once, `EAGAIN`).
    pub try_failures: u64,
    /// Attempts that timed out.
    pub timeouts: u64,
    /// Σ wait of those.
    pub timed_out: Nanos,
    /// Attempts that failed otherwise (futex: interrupted).
    pub errors: u64,
    /// Futex only: wake calls that woke at least one thread.
    pub wakes: u64,
    /// Futex only: wake calls that woke nobody.
    pub wakes_of_none: u64,
    /// Waits of the contended ones; an uncontended one waits 0.
    pub wait: Measure,
    /// Holds.
    pub hold: Measure,
    /// Stack of a representative section.
    pub stack: Option<StackId>,
}

impl SiteSums {
    /// How well a row is known beside others.
    pub(crate) fn seen(&self) -> (Nanos, u64, u64) {
        (self.wait.sum, self.contended, self.acquisitions)
    }

    /// Nothing summed yet.
    #[must_use]
    pub fn new(lock: Lock, site: Site, via: Via, first: Time) -> Self {
        Self {
            lock,
            site,
            via,
            kind: LockKind::Mutex,
            mutex_kind: 0,
            participants: 0,
            first,
            acquisitions: 0,
            contended: 0,
            unseen: 0,
            try_failures: 0,
            timeouts: 0,
            timed_out: Nanos(0),
            errors: 0,
            wakes: 0,
            wakes_of_none: 0,
            wait: Measure::default(),
            hold: Measure::default(),
            stack: None,
        }
    }

    /// Adds what another row of futex calls counted.
    pub(crate) fn add_futex_calls(&mut self, other: &Self) {
        self.first = self.first.min(other.first);
        self.acquisitions += other.acquisitions;
        self.contended += other.contended;
        self.try_failures += other.try_failures;
        self.timeouts += other.timeouts;
        self.timed_out += other.timed_out;
        self.errors += other.errors;
        self.wakes += other.wakes;
        self.wakes_of_none += other.wakes_of_none;
        self.wait.merge(&other.wait);
    }
}

impl From<&KernelSums> for SiteSums {
    fn from(k: &KernelSums) -> Self {
        let s = &k.sums;
        Self {
            kind: match k.via {
                Via::Kernel => LockKind::of_kernel(s.kind),
                via => LockKind::of(via),
            },
            mutex_kind: s.kind,
            acquisitions: s.acquisitions,
            contended: s.contended,
            unseen: s.unseen,
            try_failures: s.try_failures,
            timeouts: s.timeouts,
            timed_out: Nanos(s.timeout_ns),
            errors: s.errors,
            wakes: s.wakes,
            wakes_of_none: s.wakes_of_none,
            wait: Measure::from_raw(s.wait_ns, s.wait_max_ns, &s.wait_hist),
            hold: Measure::from_raw(s.hold_ns, s.hold_max_ns, &s.hold_hist),
            stack: StackId::from_raw(s.stack),
            ..Self::new(k.lock, k.site, k.via, Time(s.first_ns))
        }
    }
}

/// Sums added up here, by lock, site and call. Bounded; what finds no room is counted.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    rows: HashMap<(Lock, Site, Via), SiteSums, RandomState>,
    beyond: Tally,
}

impl Rows {
    /// The sums to which an occurrence belongs; without room it is counted apart, with its wait.
    pub fn row(&mut self, key: (Lock, Site, Via), first: Time, wait: Nanos) -> Option<&mut SiteSums> {
        let known = self.rows.len();
        match self.rows.entry(key) {
            Entry::Occupied(entry) => {
                let sums = entry.into_mut();
                sums.first = sums.first.min(first);
                Some(sums)
            }
            Entry::Vacant(_) if known >= MAX_ROWS => {
                self.beyond.add(wait);
                None
            }
            Entry::Vacant(entry) => Some(entry.insert(SiteSums::new(key.0, key.1, key.2, first))),
        }
    }

    /// All of them, in the order of their first operations.
    #[must_use]
    pub fn sums(&self) -> Vec<SiteSums> {
        let mut sums: Vec<SiteSums> = self.rows.values().cloned().collect();
        sums.sort_unstable_by_key(|s| (s.first, s.lock, s.site, s.via));
        sums
    }

    /// Occurrences for which there was no room, and what they waited.
    #[must_use]
    pub fn beyond(&self) -> Tally {
        self.beyond
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What 10⁸ operations a second make in a year.
    const A_YEAR: u64 = 100_000_000 * 366 * 24 * 3_600;

    proptest! {
        #[test]
        fn no_count_wraps_in_a_year(waits in 0..A_YEAR, holds in A_YEAR / 2..A_YEAR, bucket in 0..BUCKETS) {
            let mut sums = Sums { acquisitions: holds, contended: waits, ..Sums::EMPTY };
            (sums.wait_hist[bucket], sums.hold_hist[bucket]) = (waits, holds);
            let key = SumKey { lock: 1, site: 2, process: 3, via: Via::Lock as u32 };
            let mut told = SiteSums::from(&KernelSums::new(&key, sums).unwrap());
            prop_assert_eq!(told.wait.histogram.count(), waits);
            prop_assert_eq!(told.hold.histogram.count(), holds);
            let again = told.hold.clone();
            told.hold.merge(&again);
            prop_assert_eq!(told.hold.histogram.count(), 2 * holds);
        }

        #[test]
        fn a_section_that_was_cut_is_not_the_longest_of_those_summed(
            holds in proptest::collection::vec(0..1_000_000_u64, 0..20),
            cut_ns in 0..10_000_000_000_u64,
        ) {
            let mut sums = Sums::EMPTY;
            for &ns in &holds {
                sums.hold_ns += ns;
                sums.hold_hist[lockbpf_common::sums::bucket(ns)] += 1;
            }
            let longest = holds.iter().copied().max().unwrap_or(0);
            let told = |max| Measure::from_raw(sums.hold_ns, max, &sums.hold_hist).longest_summed().0;
            prop_assert_eq!(told(longest), longest);
            let told = told(longest.max(cut_ns));
            prop_assert!(longest <= told && told <= (2 * longest).min(sums.hold_ns), "{} of {:?}", told, holds);
        }
    }
}
