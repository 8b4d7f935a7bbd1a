//! A pthread mutex as a C program has it, for lockbpf's own programs to be observed: `std::sync::Mutex` is none.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering};

/// Value of glibc's futex word of a lock that is perhaps waited for.
const WAITED_FOR: u32 = 2;

/// A pthread mutex with static storage, so that it has a symbol to be named by.
#[repr(transparent)]
pub struct Mutex(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: pthread mutexes may be used by several threads at once; the cell is only handed to pthread functions, beside the
// atomic use of its first word, which is how they use it.
unsafe impl Sync for Mutex {}

impl Mutex {
    /// A free one.
    pub(crate) const fn new() -> Self {
        Self(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    }

    /// Runs `section` holding the lock.
    #[inline(always)]
    pub(crate) fn with<T>(&self, section: impl FnOnce() -> T) -> T {
        // SAFETY: statically initialised, never moved or destroyed.
        unsafe { libc::pthread_mutex_lock(self.0.get()) };
        let result = section();
        // SAFETY: this thread has just locked it.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
        result
    }

    /// To be called by its holder: makes it look as if somebody waited for it, so that its release calls the kernel.
    pub(super) fn pretend_waited_for(&self) {
        self.word().store(WAITED_FOR, Ordering::Relaxed);
    }

    /// glibc's futex word, at the mutex's own address.
    pub(super) fn word(&self) -> &AtomicU32 {
        // SAFETY: glibc's mutex begins with this word, aligned, which it accesses atomically only.
        unsafe { &*self.0.get().cast::<AtomicU32>() }
    }

    /// Its address, by which sums and records name it.
    pub(super) fn addr(&self) -> u64 {
        self.0.get() as u64
    }
}
