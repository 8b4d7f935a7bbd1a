//! Which functions are probed, and by which eBPF programs. Adding a function is adding a row.

use lockbpf_common::kind::cookie;

/// A probed function of the C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Function {
    /// Symbol name.
    pub symbol: &'static str,
    /// How many leading argument registers the programs read: they must be intact at the probe's site.
    pub args: usize,
    /// Its cookie in the session program ([`lockbpf_common::kind::cookie`]).
    pub cookie: u64,
    /// Plain program at the entry, where sessions are not to be had.
    pub entry: &'static str,
    /// Plain program at the return.
    pub ret: Option<&'static str>,
    /// Whether lock tables are wrong without it (else only less complete).
    pub essential: bool,
}

/// Every probed function.
pub const FUNCTIONS: &[Function] = &[
    row("pthread_mutex_lock", 1, cookie::LOCK, "mutex_lock", None, true),
    row("pthread_mutex_trylock", 1, cookie::TRYLOCK, "mutex_trylock", RETURNED, true),
    row("pthread_mutex_timedlock", 1, cookie::TIMEDLOCK, "mutex_timedlock", RETURNED, false),
    row("pthread_mutex_clocklock", 1, cookie::CLOCKLOCK, "mutex_clocklock", RETURNED, false),
    row("pthread_mutex_unlock", 1, cookie::UNLOCK, "unlock", None, true),
    row("pthread_cond_wait", 2, cookie::COND_WAIT, "cond_wait", None, true),
    row("pthread_cond_timedwait", 2, cookie::COND_WAIT, "cond_wait", None, true),
    row("pthread_cond_clockwait", 2, cookie::COND_WAIT, "cond_wait", None, false),
    row("pthread_barrier_wait", 1, cookie::BARRIER_WAIT, "barrier_wait", None, false),
    row("pthread_rwlock_rdlock", 1, cookie::RDLOCK, "rwlock_rdlock", None, false),
    row("pthread_rwlock_wrlock", 1, cookie::WRLOCK, "rwlock_wrlock", None, false),
    row("pthread_rwlock_tryrdlock", 1, cookie::TRYRDLOCK, "rwlock_tryrdlock", RETURNED, false),
    row("pthread_rwlock_trywrlock", 1, cookie::TRYWRLOCK, "rwlock_trywrlock", RETURNED, false),
    row("pthread_rwlock_timedrdlock", 1, cookie::TIMEDRDLOCK, "rwlock_timedrdlock", RETURNED, false),
    row("pthread_rwlock_clockrdlock", 1, cookie::TIMEDRDLOCK, "rwlock_timedrdlock", RETURNED, false),
    row("pthread_rwlock_timedwrlock", 1, cookie::TIMEDWRLOCK, "rwlock_timedwrlock", RETURNED, false),
    row("pthread_rwlock_clockwrlock", 1, cookie::TIMEDWRLOCK, "rwlock_timedwrlock", RETURNED, false),
    row("pthread_rwlock_unlock", 1, cookie::UNLOCK, "unlock", None, false),
];

/// The plain program at the return of the calls that may fail. No others are watched to their return: a return probe
/// replaces the return address, which breaks the unwinding of a cancelled thread.
const RETURNED: Option<&str> = Some("call_returned");

const fn row(
    symbol: &'static str,
    args: usize,
    cookie: u64,
    entry: &'static str,
    ret: Option<&'static str>,
    essential: bool,
) -> Function {
    Function { symbol, args, cookie, entry, ret, essential }
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

/// The futex system calls: `futex`, `futex_waitv` (5.16), `futex_wake` and `futex_wait` (6.7).
pub const TRACEPOINTS: &[Tracepoint] = &[
    Tracepoint { name: "sys_exit_futex", program: "futex_exit", optional: false },
    Tracepoint { name: "sys_enter_futex", program: "futex_enter", optional: false },
    Tracepoint { name: "sys_exit_futex_waitv", program: "futex_exit", optional: true },
    Tracepoint { name: "sys_enter_futex_waitv", program: "futex_waitv_enter", optional: true },
    Tracepoint { name: "sys_exit_futex_wake", program: "futex_exit", optional: true },
    Tracepoint { name: "sys_enter_futex_wake", program: "futex_wake_enter", optional: true },
    Tracepoint { name: "sys_exit_futex_wait", program: "futex_exit", optional: true },
    Tracepoint { name: "sys_enter_futex_wait", program: "futex_wait_enter", optional: true },
];

/// The scheduler's tracepoint, and the program of the same name: what a holder does instead of running.
pub const SCHED_SWITCH: &str = "sched_switch";
