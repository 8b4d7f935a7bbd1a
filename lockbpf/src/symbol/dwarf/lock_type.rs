//! Types at which the path to a lock ends: a reader wants `cache.lock`, not `cache.lock._M_mutex.__data.__lock`.

/// Names of types, without template arguments and without the namespaces that they are in. A runtime is added as a row.
const LOCKS: &[&[&str]] = &[
    // POSIX and C11
    &["pthread_mutex_t", "pthread_rwlock_t", "pthread_spinlock_t", "pthread_cond_t", "pthread_barrier_t"],
    &["pthread_once_t", "sem_t", "mtx_t", "cnd_t", "once_flag"],
    // the C library's own
    &["_IO_lock_t", "__libc_lock_t", "__libc_lock_recursive_t", "__rtld_lock_recursive_t"],
    // C++
    &["mutex", "timed_mutex", "recursive_mutex", "recursive_timed_mutex", "shared_mutex", "shared_timed_mutex"],
    &["condition_variable", "condition_variable_any", "counting_semaphore", "barrier", "latch"],
    // GLib, Qt
    &["GMutex", "_GMutex", "GRecMutex", "_GRecMutex", "GRWLock", "_GRWLock", "GCond", "_GCond"],
    &["QMutex", "QBasicMutex", "QRecursiveMutex", "QReadWriteLock", "QSemaphore", "QWaitCondition"],
    // abseil, folly
    &["Mutex", "CondVar", "SharedMutexImpl", "SharedMutex", "MicroSpinLock", "SpinLock"],
    // Rust: the standard library, parking_lot, lock_api, tokio
    &[
        "RwLock",
        "Semaphore",
        "Condvar",
        "Once",
        "ReentrantLock",
        "ReentrantMutex",
        "FairMutex",
        "RawMutex",
        "RawRwLock",
    ],
];

/// Types that hold exactly what their users mean by their name, so that the names of their own parts say nothing.
const WRAPPERS: &[&str] = &[
    "atomic",
    "__atomic_base",
    "UnsafeCell",
    "SyncUnsafeCell",
    "Cell",
    "LazyLock",
    "OnceLock",
    "OnceCell",
    "LazyCell",
    "Data",
    "MaybeUninit",
    "ManuallyDrop",
    "MaybeDangling",
    "CachePadded",
    "Lazy",
    "Pin",
];

/// What a lock that holds data calls it.
const PROTECTED: &str = "data";

fn stem(name: &str) -> &str {
    name.split_once('<').map_or(name, |(stem, _)| stem)
}

/// Whether a type is a lock, a condition variable or the like.
pub(super) fn is_lock(name: &str) -> bool {
    LOCKS.iter().any(|row| row.contains(&stem(name)))
}

/// Whether a lock's words are documented by their offsets: those inside a C library's lock.
pub(super) fn is_c(name: &str) -> bool {
    name.ends_with("_t")
}

/// Whether a lock's part is what the lock protects, where another lock may be.
pub(super) fn is_protected(part: &str) -> bool {
    part == PROTECTED
}

/// Whether the parts of a type go without names.
pub(super) fn is_wrapper(name: &str) -> bool {
    WRAPPERS.contains(&stem(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_and_without_arguments() {
        for name in ["pthread_mutex_t", "Mutex<alloc::vec::Vec<u8>>", "mutex", "RawMutex"] {
            assert!(is_lock(name), "{name}");
        }
        for name in ["pthread_t", "MutexGuard<u8>", "Shard", ""] {
            assert!(!is_lock(name), "{name}");
        }
        assert!(is_wrapper("UnsafeCell<u32>") && !is_wrapper("Shard"));
    }
}
