//! What a lock says of itself in the target's memory (glibc): whether it is taken, by whom, whether somebody waits, and on which
//! futex words.

use crate::maps::count;
use aya_ebpf::helpers::bpf_probe_read_user;
use lockbpf_common::counter::Counter;
use lockbpf_common::kind::{FUTEX_OWNER_DIED, Via, mutex_kind, rwlock, word_has_waiters};

/// Bytes from a mutex to its owner's tid.
const MUTEX_OWNER: u64 = 8;

/// The head of glibc's `pthread_mutex_t` on 64-bit machines (glibc 2.36 `struct_mutex.h`).
#[derive(Clone, Copy)]
#[repr(C)]
struct Mutex {
    word: u32,
    count: u32,
    owner: u32,
    users: u32,
    kind: u32,
}

/// The head of glibc's `pthread_rwlock_t` on 64-bit machines (glibc 2.36 `struct_rwlock.h`).
#[derive(Clone, Copy)]
#[repr(C)]
struct Rwlock {
    readers: u32,
    writers: u32,
    phase_word: u32,
    writers_word: u32,
    padding: [u32; 2],
    writer: u32,
}

/// A lock at an attempt.
#[derive(Clone, Copy)]
pub struct Seen {
    /// Whether whoever asks has to wait.
    pub taken: bool,
    /// The holder's tid in its own pid namespace; 0 if it is not said.
    pub owner: u32,
    /// [`mutex_kind`].
    pub kind: u32,
    /// Whether a blocking call gets it at once if it is not taken.
    pub plain: bool,
    /// Whether somebody (perhaps) waits for it.
    pub has_waiters: bool,
}

impl Seen {
    /// Nothing is known.
    const NOTHING: Self = Self { taken: false, owner: 0, kind: 0, plain: true, has_waiters: false };
}

/// Whether the call is one on a read-write lock.
#[inline(always)]
pub const fn is_rwlock(via: u32) -> bool {
    via >= Via::ReadLock as u32
}

/// Whether the lock may have several holders at a time.
#[inline(always)]
pub const fn is_shared(via: u32) -> bool {
    via == Via::ReadLock as u32 || via == Via::TryReadLock as u32 || via == Via::TimedReadLock as u32
}

/// Whether the call never waits.
#[inline(always)]
pub const fn is_try(via: u32) -> bool {
    via == Via::TryLock as u32 || via == Via::TryReadLock as u32 || via == Via::TryWriteLock as u32
}

/// What the lock says that is, or was, asked for by `via`.
#[inline(always)]
pub fn see(lock: u64, via: u32) -> Seen {
    if is_rwlock(via) { see_rwlock(lock, is_shared(via)) } else { see_mutex(lock) }
}

#[inline(always)]
fn see_mutex(lock: u64) -> Seen {
    let Some(m) = read::<Mutex>(lock) else { return Seen::NOTHING };
    let in_word = m.kind & (mutex_kind::ROBUST | mutex_kind::PRIO_INHERIT) != 0;
    Seen {
        // A robust mutex whose holder died still has that holder's word, but is to be had.
        taken: m.word != 0 && !(m.kind & mutex_kind::ROBUST != 0 && m.word & FUTEX_OWNER_DIED != 0),
        owner: if in_word { m.word & 0x3fff_ffff } else { m.owner },
        kind: m.kind,
        plain: m.kind & mutex_kind::NOT_PLAIN == 0,
        has_waiters: word_has_waiters(m.kind, m.word),
    }
}

#[inline(always)]
fn see_rwlock(lock: u64, shared: bool) -> Seen {
    let Some(l) = read::<Rwlock>(lock) else { return Seen { kind: mutex_kind::IS_RWLOCK, ..Seen::NOTHING } };
    Seen {
        taken: rwlock::is_taken(l.readers, shared),
        owner: l.writer,
        // Who reads already may read once more.
        kind: mutex_kind::IS_RWLOCK | if shared { mutex_kind::RECURSIVE } else { 0 },
        plain: true,
        has_waiters: rwlock::has_waiters(l.readers, l.writers, shared),
    }
}

#[inline(always)]
fn read<T: Copy>(addr: u64) -> Option<T> {
    // SAFETY: a faulting address is an error from the helper, not a fault.
    let lock = unsafe { bpf_probe_read_user(addr as *const T) }.ok();
    if lock.is_none() {
        count(Counter::ReadFault);
    }
    lock
}

/// Whether a thread that sleeps on this word sleeps for this lock.
#[inline(always)]
pub const fn has_word(lock: u64, via: u32, word: u64) -> bool {
    let offset = word.wrapping_sub(lock);
    if is_rwlock(via) { offset == rwlock::PHASE_WORD || offset == rwlock::WRITERS_WORD } else { offset == 0 }
}

/// The holder's tid, in its own pid namespace, of a lock that a thread is about to sleep for; 0 if it is not said.
#[inline(always)]
pub fn owner(lock: u64, via: u32) -> u32 {
    let offset = if is_rwlock(via) { rwlock::WRITER } else { MUTEX_OWNER };
    // SAFETY: a faulting address is an error from the helper, not a fault.
    unsafe { bpf_probe_read_user((lock + offset) as *const u32) }.unwrap_or(0)
}
