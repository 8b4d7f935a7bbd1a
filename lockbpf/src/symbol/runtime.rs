//! Which files are the C library, and which functions are part of locking.

use crate::methods;

/// Whether a file is the C library, its thread library or its dynamic linker, by its base name.
pub(super) fn is_libc(module: &str) -> bool {
    let versioned = |stem| module.strip_prefix(stem).is_some_and(|v: &str| v.starts_with(|c: char| c.is_ascii_digit()));
    ["libc.so", "libpthread.so", "ld-linux", "ld-musl", "libc.musl", "ld.so", "ld64.so"]
        .iter()
        .any(|stem| module.starts_with(stem))
        || ["libc-", "libpthread-", "ld-"].into_iter().any(versioned)
}

/// Beginnings of the names of locking functions, without leading underscores. A runtime is added as a row.
const LOCKING: &[&[&str]] = &[
    // glibc and musl, also linked statically
    &["pthread_mutex_", "pthread_cond_", "pthread_rwlock_", "pthread_spin_", "pthread_barrier_", "pthread_once"],
    &["lll_", "futex_", "sem_wait", "sem_timedwait", "sem_clockwait"],
    &["mtx_lock", "mtx_timedlock", "mtx_trylock", "cnd_wait", "cnd_timedwait"],
    // libstdc++
    &["gthread_", "std::mutex::", "std::timed_mutex::", "std::recursive_mutex::", "std::recursive_timed_mutex::"],
    &["std::shared_mutex::", "std::shared_timed_mutex::", "std::__shared_mutex_", "std::condition_variable"],
    &["std::__condvar::", "std::__atomic_", "std::unique_lock<", "std::shared_lock<", "std::scoped_lock<"],
    &["std::lock_guard<", "std::lock<", "std::_V2::condition_variable", "std::call_once<", "cxa_guard_"],
    // libc++
    &["std::__1::mutex::", "std::__1::recursive_mutex::", "std::__1::shared_mutex::", "std::__1::unique_lock<"],
    &["std::__1::lock_guard<", "std::__1::condition_variable", "std::__1::__libcpp_"],
    // and what waits for an atomic variable
    &[
        "std::__detail::__platform_",
        "std::__detail::__waiter",
        "std::__detail::__bare_wait",
        "std::counting_semaphore<",
        "std::barrier<",
        "std::__tree_barrier",
        "std::latch::",
    ],
    // GLib and Qt
    &["g_mutex_", "g_rec_mutex_", "g_rw_lock_", "g_cond_", "QBasicMutex::", "QMutex::", "QRecursiveMutex::"],
    &["QMutexLocker", "QReadWriteLock::", "QReadLocker", "QWriteLocker", "QSemaphore::", "QWaitCondition::"],
    // Ruby
    &["rb_native_mutex_", "rb_native_cond_"],
    // Rust
    &["std::sys::", "std::sync::", "std::thread::park", "std::thread::Thread::park", "parking_lot", "lock_api::"],
    &["core::mem::drop", "core::ptr::drop_in_place<", "tokio::sync::"],
    // CPython
    &["take_gil", "drop_gil", "PyEval_RestoreThread", "PyEval_SaveThread", "PyEval_AcquireThread"],
    &["PyThread_acquire_lock", "PyThread_release_lock"],
    // HotSpot
    &["ObjectMonitor::", "ObjectSynchronizer::", "SharedRuntime::monitor_enter", "SharedRuntime::complete_monitor"],
    &["LightweightSynchronizer::", "PlatformEvent::"],
    &["os::PlatformEvent::", "os::PlatformMonitor::", "InterpreterRuntime::monitorenter", "Runtime1::monitorenter"],
    &["SharedRuntime::monitor_exit", "InterpreterRuntime::monitorexit", "Runtime1::monitorexit", "Parker::"],
    &["Unsafe_Park", "Unsafe_Unpark", "jdk.internal.misc.Unsafe.", "sun.misc.Unsafe.", "java.util.concurrent.locks."],
    // and its stubs, by their names in perf maps; virtual threads go on in one where they left off
    &["complete_monitor_locking", "monitorenter", "monitorexit", "StubRoutines (continuation"],
    // Go
    &["runtime.", "sync.(*", "internal/sync.(*", "internal/runtime/"],
];

/// In this function of Rust's library threads begin what they are for, which is often inlined there.
const RUST_THREAD: &str = "std::sys::backtrace::__rust_begin_short_backtrace";

/// Whole names that are too short to be beginnings: musl's internals, parking_lot's slow paths where line tables alone name them, and the way
/// into the kernel.
const LOCKING_WHOLE: &[&str] = &[
    "__lock",
    "__wait",
    "__timedwait",
    "__timedwait_cp",
    "syscall",
    "__syscall_cp",
    "futex",
    "lock_slow",
    "unlock_slow",
    "lock_shared_slow",
    "lock_exclusive_slow",
];

/// Files of libraries, as distributions strip them, by the beginnings of their names: functions in which these sleep for locks have no names.
const NAMELESS: &[&str] = &["libglib-2.0.so", "libruby"];

/// Whether code of a file that has no name is taken for a part of locking.
pub(super) fn is_nameless_locking(module: &str) -> bool {
    NAMELESS.iter().any(|start| module.starts_with(start))
}

/// Functions of the C library that sleep in others, to which they jump and which have no symbols where the library is stripped.
pub(super) const IN_PARTS: &[&str] = &["sem_wait", "sem_timedwait", "sem_clockwait"];

/// Whether a function's first argument is the lock that it takes: none of those that wait for conditions.
pub(super) fn takes_lock_first(function: &str) -> bool {
    let name = function.trim_start_matches('_');
    let name = name.strip_prefix("gthrw_").unwrap_or(name).trim_start_matches('_');
    ["pthread_mutex_", "pthread_rwlock_", "pthread_spin_", "mtx_"]
        .into_iter()
        .find_map(|start| name.strip_prefix(start))
        .is_some_and(|call| call.contains("lock"))
}

/// Python's modules of locks, by the ends of their files' names.
const PYTHON: &[&str] = &["/threading.py", "/multiprocessing/synchronize.py"];

/// Whether a Python function is part of locking, by its qualified name and its file.
pub(super) fn is_python_locking(function: &str, file: &str) -> bool {
    PYTHON.iter().any(|end| file.ends_with(end))
        || file == "<frozen importlib._bootstrap>" && function.starts_with("_ModuleLock")
}

/// Functions in which threads and programs begin: of C, musl, C libraries linked statically, Go.
const STARTS: &[&str] = &[
    "main",
    "_start",
    "start",
    "start_c",
    "__clone",
    "__clone3",
    "clone3",
    "start_thread",
    "__libc_start_main",
    "__libc_start_call_main",
    "__libc_start_main_impl",
    "libc_start_main_stage2",
    "runtime.goexit",
    "runtime.goexit.abi0",
    "runtime.mstart",
    "runtime.mstart.abi0",
    "runtime.rt0_go.abi0",
];

/// Whether a thread or program begins in a function, by its demangled name.
pub(super) fn is_start(function: &str) -> bool {
    STARTS.contains(&function)
}

/// Whether a function is part of locking, by its demangled name.
pub(super) fn is_locking(function: &str) -> bool {
    // Templates are demangled with what they return; HotSpot's stubs have the compiler's name in front from JDK 23 on.
    let name = ["void ", "bool ", "C1 Runtime ", "C2 Runtime "]
        .iter()
        .find_map(|returned| function.strip_prefix(returned))
        .unwrap_or(function);
    let name = name.trim_start_matches(['_', '<']);
    let name = name.strip_prefix("GI_").unwrap_or(name).trim_start_matches('_');
    let name = name.strip_prefix("new_").unwrap_or(name);
    if name.starts_with(RUST_THREAD) {
        return false;
    }
    LOCKING_WHOLE.contains(&function)
        || LOCKING.iter().flat_map(|row| *row).any(|&start| name.starts_with(start))
        || methods::takes_a_lock(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_of_the_c_library() {
        for name in [
            "libc.so.6",
            "libc-2.31.so",
            "libpthread.so.0",
            "ld-linux-x86-64.so.2",
            "ld-2.31.so",
            "libc.musl-x86_64.so.1",
        ] {
            assert!(is_libc(name), "{name}");
        }
        for name in ["libc-client.so.2007e", "libcrypto.so.3", "ld-tool", "memcached", ""] {
            assert!(!is_libc(name), "{name}");
        }
    }

    #[test]
    fn functions_of_python_that_lock() {
        assert!(is_python_locking("Condition.wait", "/usr/lib/python3.11/threading.py"));
        assert!(is_python_locking("_ModuleLockManager.__enter__", "<frozen importlib._bootstrap>"));
        for (function, file) in [
            ("_load_unlocked", "<frozen importlib._bootstrap>"),
            ("Condition.wait", "mythreading.py"),
            ("Queue.get", "/usr/lib/python3.11/queue.py"),
        ] {
            assert!(!is_python_locking(function, file), "{function} {file}");
        }
    }

    #[test]
    fn arguments_of_lock_functions() {
        for name in ["pthread_mutex_lock", "__gthrw_pthread_mutex_lock", "pthread_rwlock_tryrdlock", "mtx_timedlock"] {
            assert!(takes_lock_first(name), "{name}");
        }
        for name in ["pthread_cond_clockwait", "pthread_mutex_init", "my_lock", "pthread_create", ""] {
            assert!(!takes_lock_first(name), "{name}");
        }
    }

    #[test]
    fn functions_that_lock() {
        for name in [
            "___pthread_mutex_lock",
            "__GI___pthread_mutex_lock",
            "__pthread_mutex_lock_full",
            "__lll_lock_wait_private",
            "__futex_abstimed_wait_common64",
            "__new_sem_wait_slow64.constprop.0",
            "std::mutex::lock",
            "<parking_lot::raw_mutex::RawMutex>::lock_slow",
            "lock_slow",
            "std::sys::sync::mutex::futex::Mutex::lock_contended",
            "runtime.futex",
            "__lock",
            "kyotocabinet::RWLock::lock_writer",
            "Mutex::lock_without_safepoint_check",
            "base::Lock::Acquire(int)",
            "QBasicMutex::lockInternal()",
            "g_mutex_lock",
            "void std::__detail::__platform_wait<int>(int const*, int)",
            "__cxa_guard_acquire",
            "void std::call_once<main::{lambda()#1}>",
        ] {
            assert!(is_locking(name), "{name}");
        }
        for name in [
            "lock",
            "main",
            "pthread_pool_run",
            "std::vector<int>::push_back",
            "mtx_table_find",
            "syscalls",
            "Door::lock",
            "Blocks::enter",
            "std::sys::backtrace::__rust_begin_short_backtrace::<program::main::{closure#0}, ()>",
        ] {
            assert!(!is_locking(name), "{name}");
        }
    }
}
