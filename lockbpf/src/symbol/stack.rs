//! Call stacks as a person reads them.
//!
//! The kernel collects a stack by following frame pointers from the interrupted instruction. At the entry of a lock
//! function no frame has been set up, so the frame pointer is still the caller's: the stack lists the lock function and
//! then its caller's *caller*. The caller itself is known from the return address (the site). And since the C library
//! is mostly built without frame pointers, a stack taken deeper inside it may begin anywhere.

/// What a frame is to a reader who asks where a lock was requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The program's own code, or a library's.
    Program,
    /// A function that is part of locking: of the C library, or of a language's runtime.
    Locking,
    /// Any other code of the C library.
    Libc,
    /// Not code: the frame pointer led astray.
    Nothing,
}

/// The call stack from the place that requested a lock outwards.
///
/// `raw` is the kernel's stack, innermost first, beginning with the interrupted instruction. `site` is the return
/// address of the lock call if it is known; it then comes first, wherever the lock function's own frames were. Without
/// it, leading frames of the C library and of locking functions are left out; if no others are left, all stay.
/// The stack ends where it leaves code.
pub fn call_stack(raw: &[u64], site: Option<u64>, mut role: impl FnMut(u64) -> Role) -> Vec<u64> {
    let Some(site) = site else {
        let code: Vec<_> = raw.iter().copied().take_while(|&addr| role(addr) != Role::Nothing).collect();
        let own = code.iter().position(|&addr| role(addr) == Role::Program).unwrap_or(0);
        return code.get(own..).unwrap_or_default().to_vec();
    };
    // The lock function had set up a frame, or was not yet entered at all: the site is in its place already.
    let callers = match raw.iter().position(|&addr| addr == site) {
        Some(at) => raw.get(at + 1..).unwrap_or_default(),
        None => {
            let outer = raw.get(1..).unwrap_or_default();
            let locking = outer.iter().take_while(|&&addr| role(addr) == Role::Locking).count();
            outer.get(locking..).unwrap_or_default()
        }
    };
    std::iter::once(site).chain(callers.iter().copied().take_while(|&addr| role(addr) != Role::Nothing)).collect()
}

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
    &["std::lock_guard<", "std::lock<", "std::_V2::condition_variable"],
    // libc++
    &["std::__1::mutex::", "std::__1::recursive_mutex::", "std::__1::shared_mutex::", "std::__1::unique_lock<"],
    &["std::__1::lock_guard<", "std::__1::condition_variable", "std::__1::__libcpp_"],
    // Rust
    &["std::sys::", "std::sync::", "std::thread::park", "std::thread::Thread::park", "parking_lot", "lock_api::"],
    // Go
    &["runtime.", "sync.(*", "internal/sync.(*", "internal/runtime/"],
];

/// Whole names that are too short to be beginnings: musl's internals, and the way into the kernel.
const LOCKING_WHOLE: &[&str] =
    &["__lock", "__wait", "__timedwait", "__timedwait_cp", "syscall", "__syscall_cp", "futex"];

/// Whether a function is part of locking, by its demangled name.
pub(super) fn is_locking(function: &str) -> bool {
    let name = function.trim_start_matches(['_', '<']);
    let name = name.strip_prefix("GI_").unwrap_or(name).trim_start_matches('_');
    let name = name.strip_prefix("new_").unwrap_or(name);
    LOCKING_WHOLE.contains(&function) || LOCKING.iter().flat_map(|row| *row).any(|&start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Addresses by hundreds: 1xx the program, 2xx locking functions, 3xx the C library, the rest no code.
    fn role(addr: u64) -> Role {
        match addr / 100 {
            1 => Role::Program,
            2 => Role::Locking,
            3 => Role::Libc,
            _ => Role::Nothing,
        }
    }

    #[track_caller]
    fn check(raw: &[u64], site: Option<u64>, expected: &[u64]) {
        assert_eq!(call_stack(raw, site, role), expected);
    }

    #[test]
    fn entry_of_a_lock_function_misses_the_caller() {
        check(&[200, 111, 112, 301], Some(110), &[110, 111, 112, 301]);
        // the caller is a thread's start function
        check(&[200, 301, 302], Some(110), &[110, 301, 302]);
        // a frame pointer that is no such thing: nothing but the site is certain
        check(&[200, 999, 111], Some(110), &[110]);
        check(&[200], Some(110), &[110]);
        check(&[], Some(110), &[110]);
    }

    #[test]
    fn deeper_inside_the_caller_is_listed_already() {
        check(&[200, 110, 111], Some(110), &[110, 111]);
        check(&[300, 201, 202, 110, 111], Some(110), &[110, 111]);
        check(&[110, 111], Some(110), &[110, 111]);
        // the lock function kept no frame but its helper did: the helper's frames are no callers
        check(&[300, 201, 111], Some(110), &[110, 111]);
        // recursion: the same place in two callers stays twice
        check(&[200, 111, 111, 112], Some(110), &[110, 111, 111, 112]);
    }

    #[test]
    fn without_a_site_the_first_own_frame_leads() {
        check(&[300, 201, 301, 110, 302], None, &[110, 302]);
        // a system call in the program itself
        check(&[110, 111], None, &[110, 111]);
        // nothing but the C library: better than nothing
        check(&[300, 201], None, &[300, 201]);
        check(&[300, 999, 110], None, &[300]);
        check(&[], None, &[]);
    }

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
            "std::sys::sync::mutex::futex::Mutex::lock_contended",
            "runtime.futex",
            "__lock",
        ] {
            assert!(is_locking(name), "{name}");
        }
        for name in ["lock", "main", "pthread_pool_run", "std::vector<int>::push_back", "mtx_table_find", "syscalls"] {
            assert!(!is_locking(name), "{name}");
        }
    }

    proptest! {
        #[test]
        fn the_site_leads_and_only_code_follows(raw in prop::collection::vec(50u64..450, 0..12), site in prop::option::of(100u64..200)) {
            let stack = call_stack(&raw, site, role);
            prop_assert!(site.is_none() || stack.first().copied() == site);
            prop_assert!(stack.iter().all(|&a| role(a) != Role::Nothing));
            prop_assert!(stack.len() <= raw.len() + 1);
        }
    }
}
