//! Futex words inside of locks. A read-write lock has several words to wait on, a barrier one that is not its first: outside of
//! windows a wait is known by its word only, and would pass for one of unknown purpose.
#![forbid(unsafe_code)]

use crate::graph::FutexWaits;
use crate::id::{Lock, Process};
use crate::observation::OpenWait;
use crate::op::LockKind;
use crate::sums::SiteSums;
use lockbpf_common::kind::Via;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::BuildHasher;

/// The locks with words inside of them, by their first bytes.
#[derive(Debug, Default)]
pub struct Insides(BTreeMap<Lock, u64>);

impl Insides {
    /// Those of which sums tell the kind.
    #[must_use]
    pub fn of(sums: &[SiteSums]) -> Self {
        let called = sums.iter().filter(|s| s.via != Via::Futex && !s.lock.is_kernel());
        Self::sized(called.filter_map(|s| Some((s.lock, size(s.kind)?))))
    }

    /// Locks of so many bytes.
    pub fn sized(locks: impl IntoIterator<Item = (Lock, u64)>) -> Self {
        Self(locks.into_iter().collect())
    }

    /// The lock that a word is inside of, but not at its beginning.
    #[must_use]
    pub fn lock_of(&self, word: Lock) -> Option<Lock> {
        let (&lock, &size) = self.0.range(..word).next_back()?;
        (lock.process == word.process && word.addr - lock.addr < size).then_some(lock)
    }

    /// Gives locks the sums of their words.
    pub fn fold_sums(&self, sums: &mut Vec<SiteSums>) {
        // By process, too: of a lock that several share, each sleeps by itself.
        let mut of_lock: HashMap<(Lock, Process), SiteSums> = HashMap::new();
        sums.retain(|row| match self.lock_of(row.lock).filter(|_| row.via == Via::Futex) {
            None => true,
            Some(lock) => {
                of_lock
                    .entry((lock, row.site.process))
                    .and_modify(|sum| sum.add_futex_calls(row))
                    .or_insert_with(|| SiteSums { lock, ..row.clone() });
                false
            }
        });
        for row in sums.iter_mut().filter(|row| row.via == Via::Futex) {
            if let Some(inside) = of_lock.remove(&(row.lock, row.site.process)) {
                row.add_futex_calls(&inside);
            }
        }
        sums.extend(of_lock.into_values());
    }

    /// The same of recorded waits and of those that have not ended. Records of a word are kept where there are none of its lock.
    pub fn fold_waits<S: BuildHasher>(&self, words: &mut HashMap<Lock, FutexWaits, S>, open: &mut [OpenWait]) {
        let inside: BTreeSet<(Lock, Lock)> =
            words.keys().filter_map(|&word| Some((self.lock_of(word)?, word))).collect();
        for (lock, word) in inside {
            if let Some(waits) = words.remove(&word) {
                words.entry(lock).or_insert(waits);
            }
        }
        for wait in open.iter_mut().filter(|wait| wait.via == Via::Futex) {
            wait.lock = self.lock_of(wait.lock).unwrap_or(wait.lock);
        }
    }
}

/// Bytes of a lock that is waited for at other places than its first word (glibc and musl, 64 bits).
fn size(kind: LockKind) -> Option<u64> {
    match kind {
        LockKind::Rwlock => Some(56),
        LockKind::Barrier => Some(32),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Site;
    use crate::units::{Nanos, Time};

    fn row(addr: u64, via: Via, kind: LockKind, wait_ns: u64) -> SiteSums {
        let process = Process(1);
        let mut row = SiteSums::new(Lock { process, addr }, Site { process, addr: 0 }, via, Time(addr));
        row.kind = kind;
        row.acquisitions = 1;
        row.wait.add(Nanos(wait_ns));
        row
    }

    fn futex(addr: u64, wait_ns: u64) -> SiteSums {
        row(addr, Via::Futex, LockKind::Futex, wait_ns)
    }

    fn folded(mut sums: Vec<SiteSums>) -> Vec<(u64, u32, u64, u64)> {
        Insides::of(&sums).fold_sums(&mut sums);
        let told = sums.iter().map(|s| (s.lock.addr, s.via as u32, s.acquisitions, s.wait.sum.0));
        let mut told: Vec<_> = told.collect();
        told.sort_unstable();
        told
    }

    #[test]
    fn words_of_a_read_write_lock_are_its_own() {
        let rwlock = || row(0x100, Via::WriteLock, LockKind::Rwlock, 7);
        let futex_via = Via::Futex as u32;
        let own = (0x100, Via::WriteLock as u32, 1, 7);
        let sums = vec![rwlock(), futex(0x108, 10), futex(0x10c, 20), futex(0x138, 5), futex(0xf8, 6)];
        assert_eq!(folded(sums), [(0xf8, futex_via, 1, 6), (0x100, futex_via, 2, 30), own, (0x138, futex_via, 1, 5)]);
        assert_eq!(folded(vec![futex(0x100, 1), rwlock(), futex(0x10c, 20)]), [(0x100, futex_via, 2, 21), own]);
    }

    #[test]
    fn what_lies_beside_a_mutex_is_not() {
        let sums = vec![row(0x100, Via::Lock, LockKind::Mutex, 7), futex(0x108, 10)];
        assert_eq!(folded(sums).len(), 2);
        let other = SiteSums { lock: Lock { process: Process(2), addr: 0x108 }, ..futex(0x108, 1) };
        assert_eq!(folded(vec![row(0x100, Via::ReadLock, LockKind::Rwlock, 7), other]).len(), 2);
    }
}
