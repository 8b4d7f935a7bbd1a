//! Locks that are known by who sleeps there, since nothing else tells what they are: the C library's own (glibc's low-level ones), and
//! those of libraries whose fast paths are compiled into programs, in which even a slow path may be inlined.

use super::gather::Gathered;
use super::place::Places;
use super::schema::StackFrame;
use crate::graph::FutexWaits;
use crate::id::{Lock, StackId};
use crate::java;
use crate::methods;
use crate::names::Frame;
use lockbpf_common::gil;
use lockbpf_common::task::is_task;

/// What a futex word or a condition variable is for, where nothing tells.
pub(super) const UNKNOWN: &str = "unknown";
/// A word that belongs to a condition variable.
pub(super) const CONDITION: &str = "condition variable";
/// A semaphore: its permits may be a lock's, or stand for work that is waited for.
pub(super) const SEMAPHORE: &str = "semaphore";
/// A word on which the end of a thread is waited for.
pub(super) const JOIN: &str = "thread join";
/// A condition variable, or a word of one, in which a runtime or library parks threads, whatever for.
pub(super) const PARKING: &str = "parking";

/// A mutex, the lock at its own word.
const MUTEX: &str = "mutex";
/// A read-write lock, whose waiters sleep on words inside of it.
const RW_LOCK: &str = "rwlock";
/// What one thread initialises while others wait for that, at its own word.
const ONCE: &str = "once";
/// Where threads wait for one another: whoever comes last lets all of them go on.
const BARRIER: &str = "barrier";
/// An arena of the C library's allocator, and the lock of a stream: glibc's low-level locks.
const ARENA: &str = "malloc arena";
const STREAM: &str = "stdio lock";

/// In this function threads sleep for such locks, and for nothing else.
const SLEEPS: &str = "lll_lock_wait_private";
/// Frames looked at behind it, for the function that was called.
const FRAMES: usize = 4;

/// Beginnings of the names of functions that lock an arena, without leading underscores.
const MALLOC: &[&str] = &[
    "malloc",
    "int_malloc",
    "calloc",
    "realloc",
    "free",
    "int_free",
    "arena_get",
    "tcache_init",
    "memalign",
    "posix_memalign",
];
/// The same of those that lock a FILE.
const STDIO: &[&str] = &[
    "IO_",
    "fwrite",
    "fputs",
    "fputc",
    "puts",
    "putc",
    "printf",
    "fprintf",
    "vfprintf",
    "fflush",
    "fread",
    "fgets",
    "fgetc",
    "getc",
    "getline",
    "getdelim",
    "flockfile",
    "fseek",
    "ftell",
    "ungetc",
    "perror",
    "overflow",
    "new_file",
];

/// Functions of the C library and of other libraries in which threads sleep: parts of their names, and what the word is then. Those of conditions and
/// joins lock mutexes, too, so the innermost one tells.
const CALLS: &[(&str, &str)] = &[
    ("pthread_mutex_lock", MUTEX),
    ("pthread_mutex_timedlock", MUTEX),
    ("pthread_mutex_clocklock", MUTEX),
    ("pthread_mutex_cond_lock", MUTEX),
    ("mutex::futex::Mutex::lock_contended", MUTEX),
    ("mutex::futex::Mutex>::lock_contended", MUTEX),
    ("pthread_rwlock_rdlock", RW_LOCK),
    ("pthread_rwlock_wrlock", RW_LOCK),
    ("pthread_rwlock_timedrdlock", RW_LOCK),
    ("pthread_rwlock_timedwrlock", RW_LOCK),
    ("pthread_rwlock_clockrdlock", RW_LOCK),
    ("pthread_rwlock_clockwrlock", RW_LOCK),
    ("rwlock::futex::RwLock::read_contended", RW_LOCK),
    ("rwlock::futex::RwLock>::read_contended", RW_LOCK),
    ("rwlock::futex::RwLock::write_contended", RW_LOCK),
    ("rwlock::futex::RwLock>::write_contended", RW_LOCK),
    ("pthread_once", ONCE),
    ("cxa_guard_acquire", ONCE),
    ("once::futex::Once::", ONCE),
    ("once::futex::Once>::", ONCE),
    ("g_mutex_lock", MUTEX),
    ("QBasicMutex::lockInternal", MUTEX),
    ("sem_wait", SEMAPHORE),
    ("sem_timedwait", SEMAPHORE),
    ("sem_clockwait", SEMAPHORE),
    ("QSemaphore::", SEMAPHORE),
    ("std::counting_semaphore<", SEMAPHORE),
    ("std::__atomic_semaphore::", SEMAPHORE),
    ("g_cond_wait", CONDITION),
    ("pthread_cond_wait", CONDITION),
    ("pthread_cond_timedwait", CONDITION),
    ("pthread_cond_clockwait", CONDITION),
    ("condvar::futex::Condvar", CONDITION),
    ("pthread_clockjoin_ex", JOIN),
    ("pthread_timedjoin", JOIN),
    ("pthread_join", JOIN),
];
/// Functions by which runtimes and libraries park threads that wait for one of their own locks, or for nothing.
const PARKERS: &[&str] = &[
    "Parker::park",
    "PlatformEvent::park",
    "thread::park",
    "thread_parker::",
    "Baton<",
    "runtime.notesleep",
    "runtime.mPark",
    "rb_native_cond_",
    // V8 parks threads here that call JavaScript's `Atomics.wait`. Programs make their locks of that.
    "FutexEmulation::Wait",
    // Erlang's schedulers, GHC's runtime, and Guile, whose own functions have no names.
    "ethr_event_",
    "waitCondition",
    "libguile-",
];
/// Functions in which threads wait at barriers, which are made of other things that threads sleep for. At a latch threads wait for work of
/// others, as a rule, who do not wait themselves.
const BARRIERS: &[&str] =
    &["sync::barrier::Barrier::wait", "sync::barrier::Barrier>::wait", "std::barrier<", "std::__tree_barrier"];
/// parking_lot's read-write lock.
const PARKING_RW_LOCK: &str = "parking_lot::RwLock";
/// Functions in which threads wait for a lock of their runtime's, on words of their own, and what such locks are. Of Rust's two parts of
/// the name, one behind the other: what is between them depends on how it is mangled, or is that of a closure inlined there.
const RUNTIMES: &[(&str, &str, &str)] = &[
    ("parking_lot::raw_mutex::", "::lock_slow", "parking_lot::Mutex"),
    ("parking_lot::raw_rwlock::", "::lock_shared_slow", PARKING_RW_LOCK),
    ("parking_lot::raw_rwlock::", "::lock_exclusive_slow", PARKING_RW_LOCK),
    ("parking_lot::raw_rwlock::", "::wait_for_readers", PARKING_RW_LOCK),
    ("ObjectMonitor::EnterI", "", "Java monitor"),
    ("ObjectMonitor::enter_internal", "", "Java monitor"),
    ("ObjectMonitor::ReenterI", "", "Java monitor"),
    ("ObjectMonitor::reenter_internal", "", "Java monitor"),
];

/// A lock that the program makes of condition variables ([`super::in_turn`]).
pub(super) const OF_CONDITIONS: &str = "lock of conditions";
/// A lock of `java.util.concurrent`.
pub(super) const JAVA_LOCK: &str = "java.util.concurrent";
/// The same where virtual threads wait for it: no thread sleeps meanwhile.
pub(super) const VIRTUAL_LOCK: &str = "java.util.concurrent (virtual threads)";

/// A lock of CPython's own, from 3.13 on.
const PYTHON_LOCK: &str = "Python lock";
/// The function in which Python's threads wait for conditions, and so for what its library makes of them, and the end of its file's name.
const PYTHON_WAITS: (&str, &str) = ("Condition.wait", "/threading.py");

/// What is part of the names of functions in which threads sleep for other libraries' locks, and what these are called.
const LIBRARIES: &[(&str, &str)] = &[
    ("folly::SharedMutexImpl<", "folly::SharedMutex"),
    ("folly::MicroLock", "folly::MicroLock"),
    ("folly::detail::distributed_mutex::", "folly::DistributedMutex"),
];

/// Whether it is what the locks of a runtime's are called whose waiters sleep on words of their own.
pub(super) fn is_runtimes(purpose: &str) -> bool {
    [JAVA_LOCK, VIRTUAL_LOCK, PYTHON_LOCK].contains(&purpose) || RUNTIMES.iter().any(|(_, _, name)| *name == purpose)
}

/// Whether it is a lock whose waiters sleep on its own words.
pub(super) fn is_lock_at_word(purpose: &str) -> bool {
    [MUTEX, RW_LOCK, ONCE, BARRIER, ARENA, STREAM].contains(&purpose)
}

/// Whether it is certain that one thread at a time has such a lock.
pub(super) fn is_exclusive(purpose: &str) -> bool {
    ![RW_LOCK, PARKING_RW_LOCK, JAVA_LOCK, VIRTUAL_LOCK, OF_CONDITIONS].contains(&purpose)
}

/// Whether it says what one word is, so that it goes into that one's name.
pub(super) fn names(purpose: &str) -> bool {
    ![MUTEX, RW_LOCK, ONCE, BARRIER, SEMAPHORE, PARKING, OF_CONDITIONS].contains(&purpose) && !is_runtimes(purpose)
}

/// What such a word is called that has no name of its own: `once`, as in `once in main`.
pub(super) fn what(purpose: &str) -> &str {
    if [ONCE, BARRIER].contains(&purpose) { purpose } else { "lock" }
}

/// What the lock at a futex word is, if its sleepers tell.
pub(super) fn name(lock: Lock, gathered: &Gathered<'_>, places: &mut Places<'_>) -> Option<&'static str> {
    if gathered.place.is_some() {
        return Some(OF_CONDITIONS);
    }
    if gathered.is_lock() || gathered.is_condition() || is_interpreters(lock, places) {
        return None;
    }
    // A mutex is waited for in functions that wait for a condition, too.
    if gathered.waits.is_some_and(FutexWaits::names_owners) {
        return None;
    }
    let ended = gathered.waits.iter().flat_map(|waits| &waits.sites).flat_map(|site| site.stacks.top());
    let stacks = ended.map(|(stack, _)| stack).chain(gathered.open.iter().filter_map(|wait| wait.stack));
    let stacks: Vec<StackId> = stacks.collect();
    // Not every stack goes beyond the C library.
    let purpose = stacks.iter().find_map(|&stack| {
        let frames = places.off_stack(lock.process, stack);
        let functions: Vec<&str> = frames.iter().filter_map(|frame| frame.function.as_deref()).map(plain).collect();
        of(&functions)
    });
    // Nobody else is parked in semaphores.
    if purpose == Some(SEMAPHORE) && gathered.waits.map_or_else(|| gathered.is_parked_now(), FutexWaits::is_parked) {
        return of_python(lock, gathered, places);
    }
    let are_virtual = || gathered.waits.is_some_and(|waits| waits.threads.top().iter().all(|(tid, _)| is_task(tid.0)));
    purpose.map(|purpose| if purpose == JAVA_LOCK && are_virtual() { VIRTUAL_LOCK } else { purpose })
}

/// What a lock of CPython's is, by the Python functions in which threads wait for it for most of the time; `None` where these are not known: it may
/// be a condition's, which are made of such locks.
fn of_python(lock: Lock, gathered: &Gathered<'_>, places: &mut Places<'_>) -> Option<&'static str> {
    let sites = || gathered.waits.iter().flat_map(|waits| &waits.sites);
    let ended: Vec<(StackId, u64)> =
        sites().flat_map(|site| site.stacks.top()).map(|(stack, waits)| (stack, waits.time.0)).collect();
    let open = || gathered.open.iter().filter_map(|wait| Some((wait.stack?, 1))).collect();
    let (mut for_lock, mut for_condition) = (0, 0);
    for (stack, time) in if ended.is_empty() { open() } else { ended } {
        let frames = places.off_stack(lock.process, stack);
        match frames.iter().find(|frame| is_python(frame)) {
            Some(StackFrame { function, file, .. }) if waits_in_python(function.as_deref(), file.as_deref()) => {
                for_condition += time;
            }
            Some(_) => for_lock += time,
            None => {}
        }
    }
    match (for_lock, for_condition) {
        (0, 0) => None,
        _ if for_lock >= for_condition => Some(PYTHON_LOCK),
        _ => Some(CONDITION),
    }
}

/// Whether a frame is a Python function.
fn is_python(frame: &StackFrame) -> bool {
    frame.file.as_ref().is_some_and(|file| file.ends_with(".py") || file.starts_with('<'))
}

/// Whether threads of Python's wait for conditions in this function of this file. When they have been told, they wait for the condition's lock in
/// others.
pub(super) fn waits_in_python(function: Option<&str>, file: Option<&str>) -> bool {
    let (waits, of) = PYTHON_WAITS;
    function == Some(waits) && file.is_some_and(|file| file.ends_with(of))
}

/// Whether a word is that of an interpreter's own lock, which is waited for by a condition variable.
pub(super) fn is_interpreters(word: Lock, places: &mut Places<'_>) -> bool {
    places.global(word).is_some_and(|name| [gil::NAME, gil::MUTEX_NAME].contains(&name.as_str()))
}

/// Whether a thread waits for a condition of the program's, by the functions that it is in, innermost first.
pub(super) fn is_for_condition<'a>(functions: impl IntoIterator<Item = &'a str>) -> bool {
    let functions: Vec<&str> = functions.into_iter().map(plain).collect();
    of(&functions) == Some(CONDITION)
}

/// What a thread waits for that sleeps on a word, by the functions that it is in, innermost first; `None` if they do not tell.
#[must_use]
pub fn sleeps_for<'a>(functions: impl IntoIterator<Item = &'a str>) -> Option<Sleeps> {
    let functions: Vec<&str> = functions.into_iter().map(plain).collect();
    let what = of(&functions)?;
    let lock = ![CONDITION, JOIN, PARKING, SEMAPHORE].contains(&what);
    let name = if names(what) || is_runtimes(what) { what } else { "lock" };
    Some(if lock { Sleeps::ForLock(name) } else { Sleeps::Otherwise })
}

/// What a thread sleeps for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleeps {
    /// A lock, which is called that.
    ForLock(&'static str),
    /// Something that is no lock, or is not known to be one.
    Otherwise,
}

/// [`PARKING`] if a runtime or library parks threads in a condition variable.
pub(super) fn parking(lock: Lock, gathered: &Gathered<'_>, places: &mut Places<'_>) -> Option<&'static str> {
    let sites: Vec<_> =
        gathered.condvar.iter().map(|s| s.site).chain(gathered.idle.iter().filter_map(|w| w.site)).collect();
    // Or the library makes a lock of them.
    let parks = |function: &str| parks(function) || methods::takes_a_lock(function);
    // Inlined functions are looked at, too, which the place leaves out where they lock. Some libraries' functions have no names.
    let within = |frame: &Frame| parks(frame.function.as_deref().unwrap_or(&frame.symbol()));
    let called = sites.into_iter().any(|site| places.frames_at(site).iter().any(within));
    let stacks: Vec<_> =
        gathered.condvar.iter().filter_map(|s| s.stack).chain(gathered.idle.iter().filter_map(|w| w.stack)).collect();
    let above = |stack| places.off_stack(lock.process, stack).iter().filter_map(|f| f.function.as_deref()).any(parks);
    (called || stacks.into_iter().any(above)).then_some(PARKING)
}

/// Whether threads that wait for a lock of a runtime's, or for nothing, sleep in a function.
pub(super) fn parks(function: &str) -> bool {
    PARKERS.iter().any(|part| function.contains(part))
}

fn of(functions: &[&str]) -> Option<&'static str> {
    let known = |function: &str| LIBRARIES.iter().find(|(part, _)| function.contains(part)).map(|&(_, name)| name);
    let called = |function: &str| CALLS.iter().find(|(part, _)| function.contains(part)).map(|&(_, what)| what);
    let at_barrier = || functions.iter().any(|function| BARRIERS.iter().any(|part| function.contains(part)));
    // It has a mutex, too.
    let innermost = || match functions.iter().find_map(|function| called(function)) {
        None | Some(CONDITION) if at_barrier() => Some(BARRIER),
        called => called,
    };
    let runtimes = || functions.iter().find_map(|function| of_runtime(function));
    let java = || java::asker(functions.iter().copied()).map(|_| JAVA_LOCK);
    let parked = || functions.iter().any(|function| parks(function)).then_some(PARKING);
    of_libc(functions)
        .or_else(runtimes)
        .or_else(java)
        .or_else(parked)
        .or_else(innermost)
        .or_else(|| functions.iter().find_map(|function| known(function)))
}

/// What the lock is that a thread waits for in this function of a runtime's.
fn of_runtime(function: &str) -> Option<&'static str> {
    let is = |module: &str, method: &str| function.split_once(module).is_some_and(|(_, rest)| rest.contains(method));
    RUNTIMES.iter().find(|(module, method, _)| is(module, method)).map(|&(_, _, name)| name)
}

fn of_libc(functions: &[&str]) -> Option<&'static str> {
    let sleeps = functions.iter().position(|&function| function.starts_with(SLEEPS))?;
    let callers = functions.get(sleeps + 1..)?;
    callers.iter().take(FRAMES).find_map(|function| {
        let begins = |names: &[&str]| names.iter().any(|name| function.starts_with(name));
        if begins(MALLOC) {
            Some(ARENA)
        } else if begins(STDIO) {
            Some(STREAM)
        } else {
            None
        }
    })
}

/// A name without what the C library puts in front of its own.
fn plain(function: &str) -> &str {
    let name = function.trim_start_matches('_');
    let name = name.strip_prefix("GI_").unwrap_or(name).trim_start_matches('_');
    name.strip_prefix("libc_").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_known_by_who_sleeps_there() {
        for (functions, name) in [
            (&["__GI___lll_lock_wait_private", "__GI__IO_fwrite", "main"][..], Some("stdio lock")),
            (&["syscall", "QBasicMutex::lockInternal()", "reader"], Some(MUTEX)),
            (&["syscall", "g_cond_wait", "g_async_queue_pop"], Some(CONDITION)),
            (&["___pthread_cond_wait", "rb_native_cond_wait", "rb_mutex_lock"], Some(PARKING)),
            (&["__lll_lock_wait_private", "_int_free", "__libc_free", "main"], Some("malloc arena")),
            (&["__lll_lock_wait_private", "__GI___libc_malloc", "main"], Some("malloc arena")),
            (&["__lll_lock_wait_private", "__GI_exit"], None),
            (&["__lll_lock_wait", "___pthread_mutex_lock", "malloc"], Some(MUTEX)),
            (&["syscall", "std::sys::sync::mutex::futex::Mutex::lock_contended", "search"], Some(MUTEX)),
            (&["__futex_abstimed_wait64", "___pthread_rwlock_wrlock", "writer"], Some(RW_LOCK)),
            (&["syscall", "std::sys::sync::rwlock::futex::RwLock::read_contended", "reader"], Some(RW_LOCK)),
            (&["syscall", "__cxa_guard_acquire", "config()"], Some(ONCE)),
            (&["futex_wait_simple", "__pthread_once_slow.isra.0", "setup"], Some(ONCE)),
            (&["syscall", "std::sys::sync::once::futex::Once::call", "get_or_init"], Some(ONCE)),
            (
                &[
                    "___pthread_cond_wait",
                    "v8::base::ConditionVariable::Wait",
                    "v8::internal::FutexEmulation::WaitSync<int>",
                ],
                Some(PARKING),
            ),
            (
                &[
                    "syscall",
                    "std::sys::sync::condvar::futex::Condvar::wait",
                    "<std::sync::barrier::Barrier>::wait",
                    "row",
                ],
                Some(BARRIER),
            ),
            (
                &[
                    "syscall",
                    "std::sys::sync::mutex::futex::Mutex::lock_contended",
                    "std::sync::barrier::Barrier::wait",
                ],
                Some(MUTEX),
            ),
            (
                &[
                    "syscall",
                    "std::__detail::__platform_wait<int>",
                    "std::barrier<std::__empty_completion>::wait",
                    "row",
                ],
                Some(BARRIER),
            ),
            (&["syscall", "std::__detail::__platform_wait<int>", "std::latch::wait", "main"], None),
            (&["malloc"], None),
            (&["__futex_abstimed_wait_common", "___pthread_cond_wait", "worker"], Some(CONDITION)),
            (&["__pthread_clockjoin_ex", "main"], Some(JOIN)),
            (
                &["___pthread_cond_wait", "os::PlatformEvent::park", "ObjectMonitor::EnterI", "Ledger.book"],
                Some("Java monitor"),
            ),
            (&["___pthread_cond_wait", "os::PlatformEvent::park", "ObjectMonitor::wait"], Some(PARKING)),
            (
                &["Parker::park", "java.util.concurrent.locks.AbstractQueuedSynchronizer.acquire", "Ledger.book"],
                Some(JAVA_LOCK),
            ),
            (&["Parker::park", "java.util.concurrent.locks.LockSupport.park", "Ledger.await"], Some(PARKING)),
            (&["park", "<parking_lot::raw_mutex::RawMutex>::lock_slow", "search"], Some("parking_lot::Mutex")),
            (
                &[
                    "park",
                    "{closure#0}<parking_lot::raw_rwlock::{impl#10}::wait_for_readers::{closure_env#0}>",
                    "lock_slow",
                ],
                Some("parking_lot::RwLock"),
            ),
            (
                &["parking_lot::raw_mutex::RawMutex::unlock_slow", "parking_lot_core::word_lock::WordLock::lock_slow"],
                None,
            ),
            (&["runtime.futexsleep", "runtime.notesleep", "runtime.mPark"], Some(PARKING)),
            (&["syscall", "QBasicMutex::lockInternal()", "QBasicMutex::lock()", "reader"], Some(MUTEX)),
            (&["syscall", "ethr_event_twait", "erts_tse_twait"], Some(PARKING)),
            (&["do_futex_wait.constprop.0", "__new_sem_wait_slow64", "worker"], Some(SEMAPHORE)),
            (&["__lll_lock_wait", "__pthread_mutex_cond_lock", "___pthread_cond_wait", "worker"], Some(MUTEX)),
            (
                &["syscall", "bool folly::SharedMutexImpl<false>::futexWaitForZeroBits<W>", "f"],
                Some("folly::SharedMutex"),
            ),
            (&["syscall", "folly::MicroLockCore::lockSlowPath", "main"], Some("folly::MicroLock")),
            (&[], None),
        ] {
            let functions: Vec<&str> = functions.iter().map(|function| plain(function)).collect();
            assert_eq!(of(&functions), name, "{functions:?}");
        }
        assert_eq!(sleeps_for(["__GI___lll_lock_wait_private", "free"]), Some(Sleeps::ForLock("malloc arena")));
        assert_eq!(sleeps_for(["___pthread_cond_wait", "worker"]), Some(Sleeps::Otherwise));
        let rust = ["syscall", "std::sys::sync::condvar::futex::Condvar::wait_optional_timeout", "worker"];
        assert_eq!(sleeps_for(rust), Some(Sleeps::Otherwise));
        assert_eq!(sleeps_for(["std::sys::sync::mutex::futex::Mutex::lock_contended"]), Some(Sleeps::ForLock("lock")));
        assert_eq!(sleeps_for(["___pthread_rwlock_rdlock", "reader"]), Some(Sleeps::ForLock("lock")));
        assert_eq!(sleeps_for(["main"]), None);
    }
}
