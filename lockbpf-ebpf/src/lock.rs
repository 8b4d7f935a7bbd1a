//! What a lock says of itself in the target's memory (glibc, musl): whether it is taken, by whom, whether somebody waits, and on which
//! futex words.

use crate::memory::read;
use crate::thread::own_tid;
use aya_ebpf::helpers::bpf_probe_read_user;
use lockbpf_common::layout::{
    FUTEX_OWNER_DIED, FUTEX_WAITERS, MutexHead, musl, mutex_head, mutex_kind, rwlock, word_has_waiters,
};
use lockbpf_common::via::{Via, is_custom, is_rwlock, is_semaphore, is_shared, is_spin};

/// The bits of a robust or priority-inheriting mutex's word that hold the owner's tid.
const OWNER: u32 = 0x3fff_ffff;

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
    /// Whether its holder may not lock it once more, though it is recursive: it has done so as often as can be counted.
    pub is_full: bool,
}

impl Seen {
    /// It is taken, and no more is known.
    pub const TAKEN: Self = Self { taken: true, ..Self::NOTHING };
    /// Nothing is known.
    const NOTHING: Self = Self { taken: false, owner: 0, kind: 0, plain: true, has_waiters: false, is_full: false };
}

/// Whether who has asked for a lock of this kind by `via` may have it by now: a call that may fail is believed only once the thread does
/// something else.
#[inline(always)]
pub fn may_have(via: u32, kind: u32) -> bool {
    via == Via::Lock as u32 && mutex_kind::may_fail(kind)
}

/// What the lock says that is, or was, asked for by `via`, in a process whose C library is musl or glibc.
#[inline(always)]
pub fn see(lock: u64, via: u32, musl: bool) -> Seen {
    if musl {
        see_musl(lock, via)
    } else if is_spin(via) || is_semaphore(via) {
        see_other(lock, via)
    } else {
        see_glibc(lock, via)
    }
}

/// The same of a mutex or read-write lock of glibc.
#[inline(always)]
pub fn see_glibc(lock: u64, via: u32) -> Seen {
    if is_rwlock(via) { see_rwlock(lock, is_shared(via)) } else { see_mutex(lock) }
}

/// Spin locks and semaphores.
#[inline(always)]
fn see_other(lock: u64, via: u32) -> Seen {
    if is_semaphore(via) {
        let Some([value, waiters]) = read::<[u32; 2]>(lock) else { return Seen::NOTHING };
        // musl has used the highest bit of the value for waiters since 1.2.4.
        let (taken, waited) = (value & 0x7fff_ffff == 0, value >> 31 != 0 || waiters != 0);
        return Seen { taken, has_waiters: waited, ..Seen::NOTHING };
    }
    let Some(word) = read::<i32>(lock) else { return Seen::NOTHING };
    Seen { taken: spin_is_taken(word), ..Seen::NOTHING }
}

/// glibc's spin lock on x86: 1 while it is free.
#[cfg(bpf_target_arch = "x86_64")]
#[inline(always)]
const fn spin_is_taken(word: i32) -> bool {
    word <= 0
}

/// glibc's spin lock elsewhere: 0 while it is free.
#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
const fn spin_is_taken(word: i32) -> bool {
    word != 0
}

/// A function of its own: musl's calls are watched to their return anyway, so this burdens no hot path.
#[inline(never)]
fn see_musl(lock: u64, via: u32) -> Seen {
    if is_semaphore(via) {
        return see_other(lock, via);
    }
    let Some([first, word, waiters]) = read::<[u32; 3]>(lock) else { return Seen::NOTHING };
    if is_spin(via) {
        return Seen { taken: first != 0, ..Seen::NOTHING };
    }
    if is_rwlock(via) {
        let shared = is_shared(via);
        let holders = first & musl::READERS;
        return Seen {
            taken: if shared { holders == musl::WRITE_LOCKED } else { holders != 0 },
            kind: if shared { mutex_kind::RECURSIVE } else { 0 },
            has_waiters: first >> 31 != 0 || word != 0,
            ..Seen::NOTHING
        };
    }
    let kind = musl::kind(first);
    Seen {
        taken: word != 0 && !(kind & mutex_kind::ROBUST != 0 && word & FUTEX_OWNER_DIED != 0),
        owner: musl::owner(first, word),
        kind,
        plain: kind & mutex_kind::NOT_PLAIN == 0,
        has_waiters: waiters != 0 || word & FUTEX_WAITERS != 0,
        is_full: false,
    }
}

#[inline(always)]
pub fn see_mutex(lock: u64) -> Seen {
    let Some(m) = read::<MutexHead>(lock) else { return Seen::NOTHING };
    Seen {
        // A robust mutex whose holder died still has that holder's word, but is to be had.
        taken: m.word != 0 && !(m.kind & mutex_kind::ROBUST != 0 && m.word & FUTEX_OWNER_DIED != 0),
        owner: owner_of(&m),
        kind: m.kind,
        plain: m.kind & mutex_kind::NOT_PLAIN == 0,
        has_waiters: word_has_waiters(m.kind, m.word),
        is_full: m.kind & mutex_kind::TYPE_MASK == mutex_kind::RECURSIVE && m.count == u32::MAX,
    }
}

#[inline(always)]
fn see_rwlock(lock: u64, shared: bool) -> Seen {
    let Some(l) = read::<Rwlock>(lock) else { return Seen::NOTHING };
    Seen {
        taken: rwlock::is_taken(l.readers, shared),
        owner: l.writer,
        // Who reads already may read once more.
        kind: if shared { mutex_kind::RECURSIVE } else { 0 },
        plain: true,
        has_waiters: rwlock::has_waiters(l.readers, l.writers, shared),
        is_full: false,
    }
}

/// Whether a thread that sleeps on this word sleeps for this lock.
#[inline(always)]
pub const fn has_word(lock: u64, via: u32, musl: bool, word: u64) -> bool {
    let offset = word.wrapping_sub(lock);
    if is_custom(via) {
        return offset == 0;
    }
    if musl {
        return offset == if is_mutex(via) { musl::MUTEX_WORD } else { 0 };
    }
    if is_rwlock(via) { offset == rwlock::PHASE_WORD || offset == rwlock::WRITERS_WORD } else { offset == 0 }
}

/// Whether the call is one on a mutex of the C library.
#[inline(always)]
const fn is_mutex(via: u32) -> bool {
    via <= Via::CondReacquire as u32
}

/// The holder's tid, in its own pid namespace, of a lock that a thread is about to sleep for; 0 if it is not said. Only mutexes and
/// read-write locks of the C library say it: where glibc keeps it, other locks have what they guard.
#[inline(always)]
pub fn owner(lock: u64, via: u32, musl: bool) -> u32 {
    if !is_mutex(via) && (!is_rwlock(via) || via >= Via::CustomLock as u32) {
        return 0;
    }
    if musl {
        return see_musl(lock, via).owner;
    }
    let offset = if is_rwlock(via) { rwlock::WRITER } else { mutex_head::OWNER };
    // SAFETY: a faulting address is an error from the helper, not a fault.
    unsafe { bpf_probe_read_user((lock + offset) as *const u32) }.unwrap_or(0)
}

/// Whether a mutex that the current thread tried to lock by `via` names another owner, or none: not 0 if so. It is 0, too, if the mutex
/// cannot be read, or if the number by which it would name the thread is not known. Global, so that the verifier follows it once.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn is_others(lock: u64, via: u32, musl: u32) -> u32 {
    let own = own_tid();
    let owner = if musl != 0 {
        // SAFETY: a faulting address is an error from the helper, not a fault.
        unsafe { bpf_probe_read_user(lock as *const [u32; 2]) }.map(|[first, word]| musl::owner(first, word))
    } else {
        // SAFETY: as above.
        unsafe { bpf_probe_read_user(lock as *const MutexHead) }.map(|m| owner_of(&m))
    };
    u32::from(is_mutex(via) && own != 0 && owner.is_ok_and(|owner| owner != own))
}

/// Who holds a mutex of glibc, as far as it says.
#[inline(always)]
fn owner_of(m: &MutexHead) -> u32 {
    if m.kind & (mutex_kind::ROBUST | mutex_kind::PRIO_INHERIT) != 0 { m.word & OWNER } else { m.owner }
}

/// The holder's tid, in its own pid namespace, by a futex word of which no lock call tells what it is; 0 unless all around it is as
/// glibc has it in a mutex that is held and waited for.
#[inline(always)]
pub fn owner_by_word(word: u64) -> u32 {
    // SAFETY: a faulting address is an error from the helper, not a fault.
    match unsafe { bpf_probe_read_user(word as *const MutexHead) } {
        Ok(head) if head.looks_held() && word_has_waiters(head.kind, head.word) => head.owner,
        _ => 0,
    }
}
