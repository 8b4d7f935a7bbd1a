//! The operations by which locks are requested, as numbers shared with the kernel side.

/// The call by which a lock was requested, or the role in which a futex word was seen.
///
/// The operations of runtimes with locks of their own begin at [`Via::RUNTIMES`], four numbers for each: a mutex, a shared and
/// an exclusive acquisition of a read-write lock, and one to spare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Via {
    /// `pthread_mutex_lock`.
    Lock = 1,
    /// `pthread_mutex_trylock`.
    TryLock = 2,
    /// `pthread_mutex_timedlock`.
    TimedLock = 3,
    /// `pthread_mutex_clocklock`.
    ClockLock = 4,
    /// A mutex re-acquired inside `pthread_cond_wait` and its timed forms.
    CondReacquire = 5,
    /// A condition variable: the idle wait itself, not contention.
    CondWait = 6,
    /// A futex word as the kernel sees it; its purpose is not known from the word alone.
    Futex = 7,
    /// `pthread_barrier_wait`: only in the kernel side's own state, in no record and no sum.
    Barrier = 8,
    /// `pthread_rwlock_rdlock`.
    ReadLock = 9,
    /// `pthread_rwlock_wrlock`.
    WriteLock = 10,
    /// `pthread_rwlock_tryrdlock`.
    TryReadLock = 11,
    /// `pthread_rwlock_trywrlock`.
    TryWriteLock = 12,
    /// `pthread_rwlock_timedrdlock` and `pthread_rwlock_clockrdlock`.
    TimedReadLock = 13,
    /// `pthread_rwlock_timedwrlock` and `pthread_rwlock_clockwrlock`.
    TimedWriteLock = 14,
    /// `pthread_spin_lock`.
    SpinLock = 15,
    /// `pthread_spin_trylock`.
    TrySpinLock = 16,
    /// `sem_wait`.
    SemWait = 17,
    /// `sem_trywait`.
    TrySemWait = 18,
    /// `sem_timedwait` and `sem_clockwait`.
    TimedSemWait = 19,
    /// `pthread_once`: holds while it initialises, waits for another thread that does.
    Once = 20,
    /// A lock of the kernel's own: only waits for it are seen ([`crate::kernel`]).
    Kernel = 21,
    /// CPython's global interpreter lock: known by what the unlocks of its mutex leave behind, wherever that is called.
    Gil = 22,
    /// A lock that the user has described ([`crate::custom`]) by what its waiters call, which is seen all the time, not in windows only.
    CustomWait = 23,
    /// A lock that the user has described, with one holder.
    CustomLock = 24,
    /// A described read-write lock, asked for by a reader.
    CustomReadLock = 25,
    /// A described read-write lock, asked for by a writer.
    CustomWriteLock = 26,
    /// A described lock with one holder, by a call that does not wait.
    TryCustomLock = 27,
    /// A described read-write lock, by a reader's call that does not wait.
    TryCustomReadLock = 28,
    /// A described read-write lock, by a writer's call that does not wait.
    TryCustomWriteLock = 29,
    /// A described spin lock.
    CustomSpinLock = 30,
    /// A described spin lock, by a call that does not wait.
    TryCustomSpinLock = 31,
    /// Go's `sync.Mutex`, where it is contended.
    GoLock = 32,
    /// Go's `sync.RWMutex`, a reader that has to wait.
    GoReadLock = 33,
    /// Go's `sync.RWMutex`, a writer that has to wait.
    GoWriteLock = 34,
    /// Rust's `std::sync::Mutex`, where it is contended.
    RustLock = 36,
    /// Rust's `std::sync::RwLock`, a reader that has to wait.
    RustReadLock = 37,
    /// Rust's `std::sync::RwLock`, a writer that has to wait.
    RustWriteLock = 38,
    /// `parking_lot::Mutex`, where it is contended.
    ParkingLock = 40,
    /// `parking_lot::RwLock`, a reader that has to wait.
    ParkingReadLock = 41,
    /// `parking_lot::RwLock`, a writer that has to wait.
    ParkingWriteLock = 42,
    /// `absl::Mutex`, where it is contended.
    AbseilLock = 44,
    /// A Java object's monitor, where it is contended.
    JavaMonitor = 48,
    /// The same of a virtual thread, which is seen all the time, not in windows only.
    VirtualMonitor = 49,
    /// `tokio::sync::Mutex`.
    TokioLock = 52,
    /// `tokio::sync::RwLock`, a reader.
    TokioReadLock = 53,
    /// `tokio::sync::RwLock`, a writer.
    TokioWriteLock = 54,
    /// Permits of a `tokio::sync::Semaphore`.
    TokioPermits = 55,
}

impl Via {
    /// The number of the first operation of a runtime with locks of its own.
    pub const RUNTIMES: u8 = 32;

    /// Every operation.
    pub const ALL: &[Self] = &[
        Self::Lock,
        Self::TryLock,
        Self::TimedLock,
        Self::ClockLock,
        Self::CondReacquire,
        Self::CondWait,
        Self::Futex,
        Self::Barrier,
        Self::ReadLock,
        Self::WriteLock,
        Self::TryReadLock,
        Self::TryWriteLock,
        Self::TimedReadLock,
        Self::TimedWriteLock,
        Self::SpinLock,
        Self::TrySpinLock,
        Self::SemWait,
        Self::TrySemWait,
        Self::TimedSemWait,
        Self::Once,
        Self::Kernel,
        Self::Gil,
        Self::CustomWait,
        Self::CustomLock,
        Self::CustomReadLock,
        Self::CustomWriteLock,
        Self::TryCustomLock,
        Self::TryCustomReadLock,
        Self::TryCustomWriteLock,
        Self::CustomSpinLock,
        Self::TryCustomSpinLock,
        Self::GoLock,
        Self::GoReadLock,
        Self::GoWriteLock,
        Self::RustLock,
        Self::RustReadLock,
        Self::RustWriteLock,
        Self::ParkingLock,
        Self::ParkingReadLock,
        Self::ParkingWriteLock,
        Self::AbseilLock,
        Self::JavaMonitor,
        Self::VirtualMonitor,
        Self::TokioLock,
        Self::TokioReadLock,
        Self::TokioWriteLock,
        Self::TokioPermits,
    ];

    /// The operation for a number read from a record; `None` for a number no version has written.
    #[must_use]
    pub fn from_u8(raw: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|via| *via as u8 == raw)
    }

    /// Whether others may hold the lock at the same time.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        is_shared(self as u32)
    }

    /// Whether the lock is a read-write lock.
    #[must_use]
    pub const fn is_rwlock(self) -> bool {
        is_rwlock(self as u32)
    }

    /// Whether the lock is one that the user has described.
    #[must_use]
    pub const fn is_custom(self) -> bool {
        is_custom(self as u32) || matches!(self, Self::CustomWait)
    }

    /// Whether the lock is a semaphore.
    #[must_use]
    pub const fn is_semaphore(self) -> bool {
        is_semaphore(self as u32)
    }

    /// Whether the lock is a spin lock.
    #[must_use]
    pub const fn is_spin(self) -> bool {
        is_spin(self as u32)
    }

    /// Whether these locks are taken and given back where nobody looks: only acquisitions after a wait are seen.
    #[must_use]
    pub const fn is_inline(self) -> bool {
        self as u8 >= Self::RUNTIMES && (self as u8) < Self::TokioLock as u8 || matches!(self, Self::CustomWait)
    }

    /// Whether each wait of this kind is seen, whatever windows there are.
    #[must_use]
    pub const fn is_seen_always(self) -> bool {
        matches!(self, Self::Futex | Self::VirtualMonitor | Self::CustomWait)
    }

    /// Whose locks these are, if not the C library's.
    #[must_use]
    pub const fn runtime(self) -> Option<&'static str> {
        Some(match self as u8 >> 2 {
            8 => "Go",
            9 => "Rust std",
            10 => "parking_lot",
            11 => "abseil",
            12 => "Java",
            13 => "tokio",
            _ => return None,
        })
    }
}

/// Operations as bits of a word: to ask whether a number is among them takes the kernel side one branch.
const fn set(of: &[Via]) -> u64 {
    let mut bits = 0;
    let mut i = 0;
    while i < of.len() {
        bits |= 1 << of[i] as u64;
        i += 1;
    }
    bits
}

const SHARED: u64 = set(&[
    Via::ReadLock,
    Via::TryReadLock,
    Via::TimedReadLock,
    Via::CustomReadLock,
    Via::TryCustomReadLock,
    Via::GoReadLock,
    Via::RustReadLock,
    Via::ParkingReadLock,
    Via::TokioReadLock,
]);
const RWLOCK: u64 = SHARED
    | set(&[
        Via::WriteLock,
        Via::TryWriteLock,
        Via::TimedWriteLock,
        Via::CustomWriteLock,
        Via::TryCustomWriteLock,
        Via::GoWriteLock,
        Via::RustWriteLock,
        Via::ParkingWriteLock,
        Via::TokioWriteLock,
    ]);
const SPIN: u64 = set(&[Via::SpinLock, Via::TrySpinLock, Via::CustomSpinLock, Via::TryCustomSpinLock]);
const SEMAPHORE: u64 = set(&[Via::SemWait, Via::TrySemWait, Via::TimedSemWait, Via::TokioPermits]);
const TRY: u64 = set(&[
    Via::TryLock,
    Via::TryReadLock,
    Via::TryWriteLock,
    Via::TrySpinLock,
    Via::TrySemWait,
    Via::TryCustomLock,
    Via::TryCustomReadLock,
    Via::TryCustomWriteLock,
    Via::TryCustomSpinLock,
]);

#[inline(always)]
const fn among(set: u64, via: u32) -> bool {
    set >> (via & 63) & 1 != 0
}

/// Whether others may hold the lock at the same time, by the operation's number.
#[must_use]
#[inline(always)]
pub const fn is_shared(via: u32) -> bool {
    among(SHARED, via)
}

/// Whether the lock is a read-write lock, by the operation's number.
#[must_use]
#[inline(always)]
pub const fn is_rwlock(via: u32) -> bool {
    among(RWLOCK, via)
}

/// Whether the lock is one that the user has described, and its calls are followed, by the operation's number.
#[must_use]
#[inline(always)]
pub const fn is_custom(via: u32) -> bool {
    via >> 3 == Via::CustomLock as u32 >> 3
}

/// Whether the lock is a spin lock, by the operation's number.
#[must_use]
#[inline(always)]
pub const fn is_spin(via: u32) -> bool {
    among(SPIN, via)
}

/// Whether the lock is a semaphore, by the operation's number.
#[must_use]
#[inline(always)]
pub const fn is_semaphore(via: u32) -> bool {
    among(SEMAPHORE, via)
}

/// Whether the call never waits, by the operation's number.
#[must_use]
#[inline(always)]
pub const fn is_try(via: u32) -> bool {
    among(TRY, via)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_for_one_operation_each() {
        assert!(Via::ALL.is_sorted_by(|a, b| (*a as u8) < *b as u8));
        for &via in Via::ALL {
            assert_eq!(Via::from_u8(via as u8), Some(via));
            assert_eq!(via.runtime().is_some(), via as u8 >= Via::RUNTIMES);
            assert!(via.runtime().is_some() || via.is_custom() || !via.is_inline());
            assert!((via as u8) < 64);
        }
        assert_eq!((Via::from_u8(0), Via::from_u8(255)), (None, None));
    }

    #[test]
    fn sorts_of_locks_do_not_overlap() {
        let is = |via: Via| [via.is_rwlock(), via.is_semaphore(), via.is_spin()].iter().filter(|is| **is).count();
        assert!(Via::ALL.iter().all(|&via| is(via) <= 1 && via.is_rwlock() >= via.is_shared()));
    }

    #[test]
    fn described_locks_are_apart() {
        let custom: [u8; 8] = core::array::from_fn(|i| Via::CustomLock as u8 + i as u8);
        let told = Via::ALL.iter().filter(|&&via| is_custom(via as u32)).map(|&via| via as u8);
        assert!(told.eq(custom));
        assert!(Via::ALL.iter().all(|&via| via.is_custom() == (is_custom(via as u32) || via == Via::CustomWait)));
        let tries = custom.map(|via| is_try(via.into()));
        assert_eq!(tries, [false, false, false, true, true, true, false, true]);
    }
}
