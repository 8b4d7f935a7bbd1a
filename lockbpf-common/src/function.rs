//! What the probed functions do, as numbers in the attach cookies of their probes: seven bits. A function that requests a lock
//! goes by the number of its operation ([`crate::via::Via`]); the others have numbers beyond those.

use crate::via::Via;

/// Gives a lock back: `pthread_mutex_unlock`, `pthread_rwlock_unlock`.
pub const RELEASE: u64 = 64;
/// `pthread_cond_wait` and its timed forms.
pub const COND_WAIT: u64 = 65;
/// `pthread_barrier_wait`.
pub const BARRIER_WAIT: u64 = 66;
/// `pthread_spin_unlock`, which may be `pthread_spin_init` as well.
pub const SPIN_RELEASE: u64 = 67;
/// `sem_post`.
pub const SEM_POST: u64 = 68;
/// glibc's `pthread_spin_lock` on x86, right after the instruction that tries to take the lock, whose first it is.
pub const SPIN_TRIED: u64 = 70;
/// `sem_trywait`, where it finds no permit.
pub const SEM_BUSY: u64 = 71;
/// `sem_trywait`, where it has taken one.
pub const SEM_TAKEN: u64 = 72;
/// A function that does nothing but call one of the others, with the same first argument: C11's `mtx_lock`, `cnd_wait`, …
pub const WRAPPER: u64 = 69;
/// A function on a lock that the user has described ([`crate::custom`]): the attach cookie's detail is its number.
pub const CUSTOM: u64 = 73;
/// Go's `(*Mutex).lockSlow` begins.
pub const GO_LOCK_SLOW: u64 = 96;
/// It ends.
pub const GO_LOCKED: u64 = 97;
/// Go's `(*RWMutex).Lock` begins.
pub const GO_WRITE_LOCK: u64 = 98;
/// Go's wait of a reader for a writer begins.
pub const GO_WAIT_READ: u64 = 99;
/// Go's wait of a writer for readers begins.
pub const GO_WAIT_WRITE: u64 = 100;
/// Go's wait of a mutex's locker, a reader or a writer begins (until Go 1.19).
pub const GO_WAIT_ANY: u64 = 101;
/// Any of the three ends.
pub const GO_WAITED: u64 = 102;
/// Go wakes whoever waits.
pub const GO_WAKE: u64 = 103;
/// Go's `time.Sleep`.
pub const GO_SLEEP: u64 = 104;

/// tokio's `batch_semaphore::Acquire` is polled.
pub const TOKIO_POLL: u64 = 112;
/// tokio's `batch_semaphore::Semaphore::try_acquire`.
pub const TOKIO_TRY: u64 = 113;
/// tokio's `batch_semaphore::Semaphore::add_permits_locked`, by which all permits are given back.
pub const TOKIO_RELEASE: u64 = 114;

/// A function of tokio's that asks for a lock, or gives it back, for its caller: by one of the others.
pub const TOKIO_CALL: u64 = 115;

/// tokio's `batch_semaphore::Acquire` is dropped while it waits.
pub const TOKIO_DROP: u64 = 116;

/// HotSpot's function by which a virtual thread asks for a monitor that is taken.
pub const VIRTUAL_ENTER: u64 = 120;
/// A virtual thread that had to wait has the monitor.
pub const VIRTUAL_ENTERED: u64 = 121;
/// HotSpot's function that gives a monitor back to somebody who waits.
pub const VIRTUAL_EXIT: u64 = 122;
/// A virtual thread is about to leave the thread that carries it.
pub const VIRTUAL_LEAVES: u64 = 123;
/// A virtual thread goes on, in any thread.
pub const VIRTUAL_GOES_ON: u64 = 124;

/// The operation that a function's calls are summed by; `None` if it requests no lock.
#[must_use]
pub fn via(function: u64) -> Option<Via> {
    Via::from_u8(u8::try_from(function).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_functions_are_beyond_all_operations() {
        assert!(Via::ALL.iter().all(|&via| u64::from(via as u8) < RELEASE && self::via(via as u64) == Some(via)));
        assert_eq!(self::via(RELEASE), None);
    }
}
