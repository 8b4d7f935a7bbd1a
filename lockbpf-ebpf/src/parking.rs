//! Locks whose waiters sleep each on a word of its own ([`lockbpf_common::parking`]): their futex calls count for the lock. The thread that
//! waits tells which one that is; whoever wakes it names only its word.

use crate::maps::FutexWord;
use crate::thread::Thread;
use aya_ebpf::btf_maps::{Array, LruHashMap};
use aya_ebpf::helpers::bpf_probe_read_user;
use aya_ebpf::macros::btf_map;
use lockbpf_common::config::MAX_WAITS;
use lockbpf_common::kind::Via;
use lockbpf_common::parking::{MAX_PROCESSES, PARKED, ThreadData, WORD, WaitEntry, is_waited_for, may_be_second_queue};

/// The numbers of the processes that have such locks, found by user space.
#[btf_map]
static PARKING: Array<u32, { MAX_PROCESSES as usize }> = Array::new();

/// The same for processes that run CPython 3.13 or later.
#[btf_map]
static PYTHON_PARKING: Array<u32, { MAX_PROCESSES as usize }> = Array::new();

/// By word: the lock for which its thread slept last. The oldest go first; then a wake counts for the word.
#[btf_map]
static PARKED_FOR: LruHashMap<FutexWord, u64, { MAX_WAITS as usize }> = LruHashMap::new();

/// The thread is about to sleep in a condition variable. Notes for which monitor, if it is for one: the word is the thread's own then, and whoever wakes it
/// there gives the monitor back. A function of its own, so that its instructions and stack are not repeated in every program.
#[inline(never)]
pub fn note_monitor(t: &Thread) -> u32 {
    if t.slow.via == Via::JavaMonitor as u32 {
        let word = FutexWord { addr: t.futex.word, process: u64::from(t.process) };
        // A failure only leaves the wake to the word.
        let _ = PARKED_FOR.insert(word, t.slow.lock, 0);
    }
    0
}

/// What a wake at this word has given back: the monitor for which the word's thread slept, or the word if there is none. The note is used up, since the
/// thread's next sleep may be for something else.
#[inline(never)]
pub fn given_back(t: &Thread, word: u64) -> u64 {
    let key = FutexWord { addr: word, process: u64::from(t.process) };
    // SAFETY: copied at once.
    let Some(lock) = unsafe { PARKED_FOR.get(key) }.copied() else { return word };
    let _ = PARKED_FOR.remove(key);
    lock
}

#[inline(always)]
fn is_among(processes: &Array<u32, { MAX_PROCESSES as usize }>, t: &Thread) -> bool {
    t.process != 0 && processes.get(t.process % MAX_PROCESSES).copied() == Some(t.process)
}

/// Whether the thread waits for one of CPython's own locks with this semaphore of the C library: what it waits for is that lock.
#[inline(always)]
pub fn is_of_python(t: &Thread, semaphore: u64) -> bool {
    is_among(&PYTHON_PARKING, t) && python_lock(semaphore) != 0
}

/// The lock of CPython's for which a thread waits with the semaphore that lies there; 0 if there is none. A function of its own, so that its stack
/// burdens no other.
#[inline(never)]
fn python_lock(semaphore: u64) -> u64 {
    // SAFETY: a faulting address is an error from the helper, not a fault. So below.
    let entry = unsafe { bpf_probe_read_user(semaphore.wrapping_sub(WaitEntry::WORD) as *const WaitEntry) };
    let Some(lock) = entry.ok().and_then(|entry| entry.parked_for(semaphore)) else { return 0 };
    let word = |at: u64| unsafe { bpf_probe_read_user(at as *const u64) }.unwrap_or(0);
    let name = word(word(lock.wrapping_sub(WaitEntry::TYPE)).wrapping_add(WaitEntry::TYPE_NAME));
    if word(name) == WaitEntry::QUEUE { 0 } else { lock }
}

/// What a futex call on this word is for: a lock, or the word itself. A function of its own, so that its stack burdens no other.
#[inline(never)]
pub fn lock_of(t: &Thread, word: u64, waits: bool, expected: u32) -> u64 {
    let is_python = is_among(&PYTHON_PARKING, t);
    if !is_python && !is_among(&PARKING, t) {
        return word;
    }
    let key = FutexWord { addr: word, process: u64::from(t.process) };
    if !waits {
        // SAFETY: copied at once.
        return unsafe { PARKED_FOR.get(key) }.copied().unwrap_or(word);
    }
    if is_python && expected == 0 {
        let lock = python_lock(word);
        if lock == 0 {
            // The word is on the thread's stack, where one of a lock may have been.
            let _ = PARKED_FOR.remove(key);
            return word;
        }
        let _ = PARKED_FOR.insert(key, lock, 0);
        return lock;
    }
    if expected != PARKED {
        return word;
    }
    // SAFETY: a faulting address is an error from the helper, not a fault.
    let beside = unsafe { bpf_probe_read_user(word.wrapping_sub(WORD) as *const ThreadData) };
    let Some(mut lock) = beside.ok().and_then(|beside| beside.parked_for()) else { return word };
    if may_be_second_queue(lock) {
        // SAFETY: as above.
        let byte = unsafe { bpf_probe_read_user(lock as *const u8) };
        // A mutex may lie there as well.
        if byte.is_ok_and(|byte| !is_waited_for(byte)) {
            lock -= 1;
        }
    }
    // A failure only leaves the wake to the word.
    let _ = PARKED_FOR.insert(key, lock, 0);
    lock
}
