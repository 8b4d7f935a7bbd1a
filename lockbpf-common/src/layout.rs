//! What locks of the C libraries say of themselves in memory, on 64-bit machines.

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
    /// Whether `lock` may fail though the caller does not hold it, or a condition wait return without it.
    #[must_use]
    #[inline(always)]
    pub const fn may_fail(kind: u32) -> bool {
        kind & NOT_PLAIN != 0 || kind & TYPE_MASK == ERRORCHECK
    }

    /// Shared between processes.
    pub const SHARED: u32 = 128;
    /// Set in lockbpf's own sums for a lock of the kernel's (never by glibc); [`crate::kernel`] tells what else is in them.
    pub const IS_KERNEL: u32 = 1 << 28;
    /// Set in lockbpf's own sums for a condition variable (never by glibc).
    pub const IS_CONDVAR: u32 = 1 << 30;
    /// Set in lockbpf's own sums for a bare futex word (never by glibc).
    pub const IS_FUTEX: u32 = 1 << 31;
}

/// Bit of a lock word that carries the owner's tid: somebody waits (`FUTEX_WAITERS`).
pub const FUTEX_WAITERS: u32 = 0x8000_0000;

/// Bit of a robust mutex's lock word: its holder died.
pub const FUTEX_OWNER_DIED: u32 = 0x4000_0000;

/// What glibc's low-level lock holds while it is locked and waited for; Rust's mutex and others do likewise. Stands for the word of
/// the kernel's own locks, too, which are only asked for in that case.
pub const CONTENDED_VALUE: u32 = 2;

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

/// Where the fields of glibc's `pthread_mutex_t` are (`struct __pthread_mutex_s`, glibc 2.0 and later), bytes from its lock word.
pub mod mutex_head {
    /// How often a recursive mutex is held by its holder.
    pub const COUNT: u64 = 4;
    /// The holder's tid.
    pub const OWNER: u64 = 8;
    /// Who holds it, and who waits for a condition with it.
    pub const USERS: u64 = 12;
    /// [`super::mutex_kind`].
    pub const KIND: u64 = 16;
}

/// What may be the head of a glibc mutex.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct MutexHead {
    /// The lock word.
    pub word: u32,
    /// [`mutex_head::COUNT`].
    pub count: u32,
    /// [`mutex_head::OWNER`].
    pub owner: u32,
    /// [`mutex_head::USERS`].
    pub users: u32,
    /// [`mutex_head::KIND`].
    pub kind: u32,
}

impl MutexHead {
    /// Users of a mutex beyond which it is taken for something else; pointers have more in their upper half.
    const MAX_USERS: u32 = 16_384;
    /// Largest tid that a kernel gives (`PID_MAX_LIMIT`).
    const MAX_TID: u32 = 1 << 22;

    /// Whether all around the lock word is as in a mutex that is held by [`Self::owner`]. Of other locks, what stands there is data:
    /// the capacity of a vector beside a lock has no user after it.
    #[must_use]
    #[inline(always)]
    pub const fn looks_held(&self) -> bool {
        let recursive = self.kind & mutex_kind::TYPE_MASK == mutex_kind::RECURSIVE;
        // Bit 256 and above tell whether the hardware may elide it.
        let in_word = self.kind & (mutex_kind::ROBUST | mutex_kind::PRIO_INHERIT) != 0;
        let tid_in_word = self.word & !(FUTEX_WAITERS | FUTEX_OWNER_DIED);
        self.kind & !(mutex_kind::TYPE_MASK | mutex_kind::NOT_PLAIN | mutex_kind::SHARED | 0x300) == 0
            && (!in_word || tid_in_word == self.owner)
            && recursive == (self.count != 0)
            && self.users.wrapping_sub(1) < Self::MAX_USERS
            && self.owner.wrapping_sub(1) < Self::MAX_TID
    }
}

/// What glibc's read-write lock says in its first two words (glibc 2.25 and later, `nptl/pthread_rwlock_common.c`).
pub mod rwlock {
    /// Bit of `__readers`: writers have their turn.
    pub const WRITE_PHASE: u32 = 1;
    /// Bit of `__readers`: a writer has the lock, or has claimed it.
    pub const WRITE_LOCKED: u32 = 2;
    /// Bit of `__readers`: readers wait.
    pub const READERS_WAIT: u32 = 4;
    /// Where in `__readers` the number of readers begins.
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

/// What musl's locks say, and how (musl 1.1 and later, `src/internal/pthread_impl.h`).
pub mod musl {
    use super::mutex_kind;

    /// Bytes from a mutex to its lock word, which is also its futex word.
    pub const MUTEX_WORD: u64 = 4;
    /// What the lock word of a plain mutex is while it is locked (`EBUSY`): no thread's id.
    const BUSY: u32 = 16;
    /// Bits of the lock word: the owner's tid, or [`BUSY`].
    const OWNER: u32 = 0x3fff_ffff;
    /// Bit of `_m_type`: robust.
    const ROBUST: u32 = 4;
    /// Bit of `_m_type`: priority inheritance.
    const PRIO_INHERIT: u32 = 8;

    /// [`mutex_kind`] by musl's `_m_type`.
    #[must_use]
    #[inline(always)]
    pub const fn kind(of_type: u32) -> u32 {
        of_type & (mutex_kind::TYPE_MASK | mutex_kind::SHARED)
            | if of_type & ROBUST != 0 { mutex_kind::ROBUST } else { 0 }
            | if of_type & PRIO_INHERIT != 0 { mutex_kind::PRIO_INHERIT } else { 0 }
    }

    /// The owner's tid by the lock word; 0 if it does not say.
    #[must_use]
    #[inline(always)]
    pub const fn owner(of_type: u32, word: u32) -> u32 {
        let owner = word & OWNER;
        if of_type & 15 == 0 && owner == BUSY { 0 } else { owner }
    }

    /// Bits of a read-write lock's word: the number of readers.
    pub const READERS: u32 = 0x7fff_ffff;
    /// The number of readers that stands for a writer.
    pub const WRITE_LOCKED: u32 = 0x7fff_ffff;
}
