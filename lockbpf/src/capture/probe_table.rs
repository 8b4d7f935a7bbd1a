//! Which functions are probed, what they do, and whose they are. Adding a function is adding a row; adding a runtime is adding
//! a [`Runtime`] and its rows.

use lockbpf_common::function::{BARRIER_WAIT, COND_WAIT, RELEASE, SEM_POST, SPIN_RELEASE, SPIN_TRIED, WRAPPER};
use lockbpf_common::via::Via;

/// Whose functions these are: what decides the layout of the locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Runtime {
    /// glibc, shared or static.
    Glibc,
    /// musl, shared or static.
    Musl,
    /// Go's own library, in Go programs.
    Go,
    /// Libraries that are compiled into programs (Rust's, C++'s), known by mangled symbols ([`super::mangled`]).
    Compiled,
    /// Whoever has locks that the user has described ([`super::described`]).
    Described,
}

/// The programs that see a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum By {
    /// The one for entries.
    Entry,
    /// The one for entries of rarer functions.
    OtherEntry,
    /// The one for Go's library.
    Go,
    /// The one for tokio's semaphore.
    Tokio,
    /// The one for monitors that Java's virtual threads wait for.
    Virtual,
    /// The same of a function that is watched to its return.
    VirtualReturn,
    /// The same where virtual threads leave the threads that carry them, and go on: each time, whatever for.
    VirtualAbsence,
    /// Those that watch a function to its return: a session, or one for each half.
    Return,
    /// The one for calls of the C library whose ends are seen at their own instructions.
    Library,
    /// Those for calls of the C library that are watched to their return.
    LibraryReturn,
    /// The one for entries of functions that the user has described.
    Custom,
    /// Those for such functions that are watched to their return.
    CustomReturn,
    /// The one for points that tell what happens to such a lock.
    CustomPoint,
    /// Those for functions that only those call who have to wait for such a lock, watched to their return.
    CustomBlock,
    /// The one for functions that give such a lock to one who waits.
    CustomWake,
}

/// A probed function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Function {
    /// Symbol name.
    pub symbol: &'static str,
    /// Whose it is.
    pub runtime: Runtime,
    /// How many leading argument registers the programs read: they must be intact at the probe's site.
    pub args: usize,
    /// What it does ([`lockbpf_common::function`]).
    pub code: u64,
    /// What sees it.
    pub by: By,
    /// Whether lock tables are wrong without it (else only less complete).
    pub essential: bool,
}

/// Every probed function.
pub const FUNCTIONS: &[Function] = &[
    // glibc. Only what may fail is watched to its return: a return probe replaces the return address, which breaks the
    // unwinding of a thread that is cancelled, and of an exception that an initialiser throws.
    essential(glibc("pthread_mutex_lock", Via::Lock as u64)),
    essential(watched(glibc("pthread_mutex_trylock", Via::TryLock as u64))),
    watched(glibc("pthread_mutex_timedlock", Via::TimedLock as u64)),
    watched(glibc("pthread_mutex_clocklock", Via::ClockLock as u64)),
    essential(glibc("pthread_mutex_unlock", RELEASE)),
    essential(glibc("pthread_cond_wait", COND_WAIT)),
    essential(glibc("pthread_cond_timedwait", COND_WAIT)),
    glibc("pthread_cond_clockwait", COND_WAIT),
    glibc("pthread_barrier_wait", BARRIER_WAIT),
    glibc("pthread_rwlock_rdlock", Via::ReadLock as u64),
    glibc("pthread_rwlock_wrlock", Via::WriteLock as u64),
    watched(glibc("pthread_rwlock_tryrdlock", Via::TryReadLock as u64)),
    watched(glibc("pthread_rwlock_trywrlock", Via::TryWriteLock as u64)),
    watched(glibc("pthread_rwlock_timedrdlock", Via::TimedReadLock as u64)),
    watched(glibc("pthread_rwlock_clockrdlock", Via::TimedReadLock as u64)),
    watched(glibc("pthread_rwlock_timedwrlock", Via::TimedWriteLock as u64)),
    watched(glibc("pthread_rwlock_clockwrlock", Via::TimedWriteLock as u64)),
    glibc("pthread_rwlock_unlock", RELEASE),
    SPIN_LOCK,
    watched(glibc("pthread_spin_trylock", Via::TrySpinLock as u64)),
    glibc("pthread_spin_unlock", SPIN_RELEASE),
    glibc("sem_wait", Via::SemWait as u64),
    watched(glibc("sem_trywait", Via::TrySemWait as u64)),
    glibc("sem_timedwait", Via::TimedSemWait as u64),
    glibc("sem_clockwait", Via::TimedSemWait as u64),
    glibc("sem_post", SEM_POST),
    glibc("pthread_once", Via::Once as u64),
    glibc("mtx_lock", WRAPPER),
    glibc("mtx_trylock", WRAPPER),
    glibc("mtx_timedlock", WRAPPER),
    glibc("cnd_wait", WRAPPER),
    glibc("cnd_timedwait", WRAPPER),
    glibc("call_once", WRAPPER),
    // musl. Its functions call one another, so most are watched to their return, to tell the calls inside from others; it ends
    // cancelled threads without unwinding them.
    essential(watched(musl("pthread_mutex_lock", Via::Lock as u64))),
    essential(watched(musl("pthread_mutex_trylock", Via::TryLock as u64))),
    watched(musl("pthread_mutex_timedlock", Via::TimedLock as u64)),
    essential(musl("pthread_mutex_unlock", RELEASE)),
    essential(watched(musl("pthread_cond_wait", COND_WAIT))),
    essential(watched(musl("pthread_cond_timedwait", COND_WAIT))),
    watched(musl("pthread_barrier_wait", BARRIER_WAIT)),
    watched(musl("pthread_rwlock_rdlock", Via::ReadLock as u64)),
    watched(musl("pthread_rwlock_wrlock", Via::WriteLock as u64)),
    watched(musl("pthread_rwlock_tryrdlock", Via::TryReadLock as u64)),
    watched(musl("pthread_rwlock_trywrlock", Via::TryWriteLock as u64)),
    watched(musl("pthread_rwlock_timedrdlock", Via::TimedReadLock as u64)),
    watched(musl("pthread_rwlock_timedwrlock", Via::TimedWriteLock as u64)),
    musl("pthread_rwlock_unlock", RELEASE),
    watched(musl("pthread_spin_lock", Via::SpinLock as u64)),
    watched(musl("pthread_spin_trylock", Via::TrySpinLock as u64)),
    musl("pthread_spin_unlock", SPIN_RELEASE),
    watched(musl("sem_wait", Via::SemWait as u64)),
    watched(musl("sem_trywait", Via::TrySemWait as u64)),
    watched(musl("sem_timedwait", Via::TimedSemWait as u64)),
    musl("sem_post", SEM_POST),
    musl("pthread_once", Via::Once as u64),
    // These take a free plain mutex by themselves.
    watched(musl("mtx_lock", Via::Lock as u64)),
    watched(musl("mtx_trylock", Via::TryLock as u64)),
    watched(musl("mtx_timedlock", Via::TimedLock as u64)),
    musl("cnd_wait", WRAPPER),
    musl("cnd_timedwait", WRAPPER),
    musl("call_once", WRAPPER),
];

/// On x86 it begins with a locked instruction, which the kernel lets nobody probe: the next one tells how that went.
#[cfg(target_arch = "x86_64")]
const SPIN_LOCK: Function = glibc("pthread_spin_lock", SPIN_TRIED);
#[cfg(not(target_arch = "x86_64"))]
const SPIN_LOCK: Function = watched(glibc("pthread_spin_lock", Via::SpinLock as u64));

const fn glibc(symbol: &'static str, code: u64) -> Function {
    let args = if code == COND_WAIT { 2 } else { 1 };
    Function { symbol, runtime: Runtime::Glibc, args, code, by: By::of(code), essential: false }
}

const fn musl(symbol: &'static str, code: u64) -> Function {
    Function { runtime: Runtime::Musl, by: By::OtherEntry, ..glibc(symbol, code) }
}

const fn watched(function: Function) -> Function {
    Function { by: By::Return, ..function }
}

const fn essential(function: Function) -> Function {
    Function { essential: true, ..function }
}

impl By {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Entry,
        Self::OtherEntry,
        Self::Go,
        Self::Tokio,
        Self::Virtual,
        Self::VirtualReturn,
        Self::VirtualAbsence,
        Self::Return,
        Self::Library,
        Self::LibraryReturn,
        Self::Custom,
        Self::CustomReturn,
        Self::CustomPoint,
        Self::CustomBlock,
        Self::CustomWake,
    ];

    /// What sees a function that is not watched to its return.
    const fn of(code: u64) -> Self {
        const ONCE: u64 = Via::Once as u64;
        const SEM_WAIT: u64 = Via::SemWait as u64;
        const TIMED_SEM_WAIT: u64 = Via::TimedSemWait as u64;
        match code {
            SPIN_TRIED | SPIN_RELEASE | SEM_POST | WRAPPER | ONCE | SEM_WAIT | TIMED_SEM_WAIT => Self::OtherEntry,
            _ => Self::Entry,
        }
    }

    /// The plain programs, where sessions are not to be had: the return half first, since an entry without its return would
    /// leave an attempt open.
    #[must_use]
    pub const fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Entry => &["entries"],
            Self::OtherEntry => &["others"],
            Self::Go => &["go_lock"],
            Self::Tokio => &["tokio"],
            Self::Virtual => &["virtual_monitor"],
            Self::VirtualReturn => &["virtual_entered", "virtual_enters"],
            Self::VirtualAbsence => &["virtual_absence"],
            Self::Return => &["call_returned", "call_entered"],
            Self::Library => &["library"],
            Self::LibraryReturn => &["library_returned", "library_called"],
            Self::Custom => &["custom"],
            Self::CustomReturn => &["custom_returned", "custom_called"],
            Self::CustomPoint => &["custom_point"],
            Self::CustomBlock => &["custom_blocked", "custom_blocks"],
            Self::CustomWake => &["custom_wakes"],
        }
    }
}

/// Whether one of [`By::programs`] goes to the function's return.
#[must_use]
pub fn is_return_half(program: &str) -> bool {
    matches!(program, "call_returned" | "library_returned" | "custom_returned" | "custom_blocked" | "virtual_entered")
}

/// A system call's tracepoint and the program on it.
#[derive(Clone, Copy, Debug)]
pub struct Tracepoint {
    /// Name in the category `syscalls`.
    pub name: &'static str,
    /// Program.
    pub program: &'static str,
    /// Whether older supported kernels lack it.
    pub optional: bool,
}

/// The futex system calls: `futex`, `futex_waitv` (5.16), `futex_wake` and `futex_wait` (6.7). And how signal handlers are left.
pub const TRACEPOINTS: &[Tracepoint] = &[
    Tracepoint { name: "sys_exit_futex", program: "futex_exit", optional: false },
    Tracepoint { name: "sys_enter_futex", program: "futex_enter", optional: false },
    Tracepoint { name: "sys_exit_futex_waitv", program: "futex_exit", optional: true },
    Tracepoint { name: "sys_enter_futex_waitv", program: "futex_enter", optional: true },
    Tracepoint { name: "sys_exit_futex_wake", program: "futex_exit", optional: true },
    Tracepoint { name: "sys_enter_futex_wake", program: "futex_enter", optional: true },
    Tracepoint { name: "sys_exit_futex_wait", program: "futex_exit", optional: true },
    Tracepoint { name: "sys_enter_futex_wait", program: "futex_enter", optional: true },
    Tracepoint { name: "sys_enter_rt_sigreturn", program: "sigreturn_enter", optional: false },
];

/// The scheduler's tracepoint, and the program of the same name: what a holder does instead of running.
pub const SCHED_SWITCH: &str = "sched_switch";
