//! Operations, lock types and the flags of a critical section, as numbers shared with the kernel side.

/// The call by which a lock was requested, or the role in which a futex word was seen.
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
    /// A lock of the kernel's own: only waits for it are seen ([`crate::kernel`]).
    Kernel = 200,
}

impl Via {
    /// Whether others may hold the lock at the same time.
    #[must_use]
    #[inline(always)]
    pub const fn is_shared(self) -> bool {
        matches!(self, Self::ReadLock | Self::TryReadLock | Self::TimedReadLock)
    }

    /// Whether the lock is a read-write lock.
    #[must_use]
    #[inline(always)]
    pub const fn is_rwlock(self) -> bool {
        self.is_shared() || matches!(self, Self::WriteLock | Self::TryWriteLock | Self::TimedWriteLock)
    }

    /// Whether the call never waits.
    #[must_use]
    #[inline(always)]
    pub const fn is_try(self) -> bool {
        matches!(self, Self::TryLock | Self::TryReadLock | Self::TryWriteLock)
    }

    /// The operation for a number read from a record; `None` for a number no version has written.
    #[must_use]
    pub const fn from_u8(raw: u8) -> Option<Self> {
        Some(match raw {
            1 => Self::Lock,
            2 => Self::TryLock,
            3 => Self::TimedLock,
            4 => Self::ClockLock,
            5 => Self::CondReacquire,
            6 => Self::CondWait,
            7 => Self::Futex,
            8 => Self::Barrier,
            9 => Self::ReadLock,
            10 => Self::WriteLock,
            11 => Self::TryReadLock,
            12 => Self::TryWriteLock,
            13 => Self::TimedReadLock,
            14 => Self::TimedWriteLock,
            200 => Self::Kernel,
            _ => return None,
        })
    }
}

/// The probed functions, as cookies of the one session program that serves them all (kernel 6.13).
pub mod cookie {
    /// `pthread_mutex_lock`.
    pub const LOCK: u64 = 1;
    /// `pthread_mutex_trylock`.
    pub const TRYLOCK: u64 = 2;
    /// `pthread_mutex_timedlock`.
    pub const TIMEDLOCK: u64 = 3;
    /// `pthread_mutex_clocklock`.
    pub const CLOCKLOCK: u64 = 4;
    /// `pthread_mutex_unlock`.
    pub const UNLOCK: u64 = 5;
    /// `pthread_cond_wait` and its timed forms.
    pub const COND_WAIT: u64 = 6;
    /// `pthread_barrier_wait`.
    pub const BARRIER_WAIT: u64 = 7;
    /// `pthread_rwlock_rdlock`.
    pub const RDLOCK: u64 = 8;
    /// `pthread_rwlock_wrlock`.
    pub const WRLOCK: u64 = 9;
    /// `pthread_rwlock_tryrdlock`.
    pub const TRYRDLOCK: u64 = 10;
    /// `pthread_rwlock_trywrlock`.
    pub const TRYWRLOCK: u64 = 11;
    /// `pthread_rwlock_timedrdlock` and `pthread_rwlock_clockrdlock`.
    pub const TIMEDRDLOCK: u64 = 12;
    /// `pthread_rwlock_timedwrlock` and `pthread_rwlock_clockwrlock`.
    pub const TIMEDWRLOCK: u64 = 13;

    /// The operation that the calls of a function are summed by; `None` if it begins none.
    #[must_use]
    pub const fn via(function: u64) -> Option<super::Via> {
        Some(match function {
            LOCK => super::Via::Lock,
            TRYLOCK => super::Via::TryLock,
            TIMEDLOCK => super::Via::TimedLock,
            CLOCKLOCK => super::Via::ClockLock,
            RDLOCK => super::Via::ReadLock,
            WRLOCK => super::Via::WriteLock,
            TRYRDLOCK => super::Via::TryReadLock,
            TRYWRLOCK => super::Via::TryWriteLock,
            TIMEDRDLOCK => super::Via::TimedReadLock,
            TIMEDWRLOCK => super::Via::TimedWriteLock,
            _ => return None,
        })
    }
}

/// What glibc's read-write lock says in its first two words (glibc 2.25 and later, `nptl/pthread_rwlock_common.c`).
pub mod rwlock {
    /// Of `__readers`: writers have their turn.
    pub const WRITE_PHASE: u32 = 1;
    /// Of `__readers`: a writer has the lock, or has claimed it.
    pub const WRITE_LOCKED: u32 = 2;
    /// Of `__readers`: readers wait.
    pub const READERS_WAIT: u32 = 4;
    /// Of `__readers`: the number of readers begins here.
    pub const READERS: u32 = 3;
    /// Bytes from the lock to the word on which readers, and the first writer, wait for their turn.
    pub const PHASE_WORD: u64 = 8;
    /// Bytes from the lock to the word on which writers wait for each other.
    pub const WRITERS_WORD: u64 = 12;
    /// Bytes from the lock to the tid of the writer that holds it.
    pub const WRITER: u64 = 24;

    /// Whether who asks has to wait, by `__readers`.
    #[must_use]
    #[inline(always)]
    pub const fn is_taken(readers: u32, shared: bool) -> bool {
        if shared {
            readers & (WRITE_PHASE | WRITE_LOCKED) == WRITE_PHASE | WRITE_LOCKED
        } else {
            readers & WRITE_LOCKED != 0 || readers >> READERS != 0
        }
    }

    /// Whether somebody waits while a reader or the writer holds it, by `__readers` and `__writers`.
    #[must_use]
    #[inline(always)]
    pub const fn has_waiters(readers: u32, writers: u32, held_by_reader: bool) -> bool {
        if held_by_reader {
            writers != 0 || readers & WRITE_LOCKED != 0
        } else {
            writers != 0 || readers & READERS_WAIT != 0 || readers >> READERS != 0
        }
    }
}

/// How a section (or an attempt that never became one) ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Outcome {
    /// Acquired and released by an unlock.
    Released = 0,
    /// Acquired, and released by waiting on a condition variable.
    CondReleased = 1,
    /// Acquired, never released: the thread exited.
    ExitedHolding = 2,
    /// Not acquired: a trylock found it held.
    TryFailed = 3,
    /// Not acquired: the deadline passed.
    TimedOut = 4,
    /// Not acquired: the call returned an error (`EDEADLK`, `EINVAL`, …).
    Failed = 5,
}

impl Outcome {
    /// The outcome for a number read from a record; `None` for a number no version has written.
    #[must_use]
    pub const fn from_u8(raw: u8) -> Option<Self> {
        Some(match raw {
            0 => Self::Released,
            1 => Self::CondReleased,
            2 => Self::ExitedHolding,
            3 => Self::TryFailed,
            4 => Self::TimedOut,
            5 => Self::Failed,
            _ => return None,
        })
    }
}

/// Flags of a section record: 12 bits.
pub mod flag {
    /// The thread waited for a holder: the lock was held at the attempt, or the thread slept for it.
    pub const CONTENDED: u16 = 1;
    /// The thread slept in futex wait for the lock.
    pub const SLEPT: u16 = 1 << 1;
    /// At the release the lock word said that somebody (perhaps) waits, or the unlock woke whoever does.
    pub const WAITED_FOR: u16 = 1 << 2;
    /// While holding this lock the thread itself waited for another one.
    pub const OUTER: u16 = 1 << 3;
    /// The lock was re-acquired by its own holder in between (recursive mutex).
    pub const RECURSED: u16 = 1 << 4;
    /// The stack in the record is the holder's at release, not the requester's at the attempt.
    pub const STACK_AT_RELEASE: u16 = 1 << 5;
    /// All flags that exist.
    pub const ALL: u16 = (1 << 6) - 1;
}

/// Bits of glibc's `pthread_mutex_t.__data.__kind` that matter here (glibc 2.36 `nptl/pthreadP.h`).
pub mod mutex_kind {
    /// Type field: 0 normal, 1 recursive, 2 error-checking, 3 adaptive.
    pub const TYPE_MASK: u32 = 3;
    /// Type: recursive.
    pub const RECURSIVE: u32 = 1;
    /// Type: error-checking.
    pub const ERRORCHECK: u32 = 2;
    /// The bits of a mutex whose `lock` acquires it at once if its word is 0: any type, but neither robust, nor priority
    /// inheritance or protection.
    pub const NOT_PLAIN: u32 = 16 | 32 | 64;
    /// Robust: the lock word holds the owner's tid.
    pub const ROBUST: u32 = 16;
    /// Priority inheritance: the lock word holds the owner's tid.
    pub const PRIO_INHERIT: u32 = 32;
    /// Priority ceiling protocol.
    pub const PRIO_PROTECT: u32 = 64;
    /// Shared between processes.
    pub const SHARED: u32 = 128;
    /// Set in lockbpf's own sums for a lock of the kernel's (never by glibc); [`crate::kernel`] tells what else is in them.
    pub const IS_KERNEL: u32 = 1 << 28;
    /// Set in lockbpf's own sums for a read-write lock (never by glibc).
    pub const IS_RWLOCK: u32 = 1 << 29;
    /// Set in lockbpf's own sums for a condition variable (never by glibc).
    pub const IS_CONDVAR: u32 = 1 << 30;
    /// Set in lockbpf's own sums for a bare futex word (never by glibc).
    pub const IS_FUTEX: u32 = 1 << 31;
}

/// Bit of a lock word that carries the owner's tid: somebody waits (`FUTEX_WAITERS`).
pub const FUTEX_WAITERS: u32 = 0x8000_0000;

/// Bit of a robust mutex's lock word: its holder died.
pub const FUTEX_OWNER_DIED: u32 = 0x4000_0000;

/// Whether a glibc mutex's lock word says that somebody (perhaps) waits.
#[must_use]
#[inline]
pub const fn word_has_waiters(mutex_kind: u32, word: u32) -> bool {
    if mutex_kind & (mutex_kind::ROBUST | mutex_kind::PRIO_INHERIT) != 0 {
        word & FUTEX_WAITERS != 0
    } else {
        word & 0x7fff_ffff > 1
    }
}
