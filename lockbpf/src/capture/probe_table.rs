//! Which functions are probed, and by which eBPF programs. Adding a function is adding a row.

/// A probed function of the C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Function {
    /// Symbol name.
    pub symbol: &'static str,
    /// How many leading argument registers the programs read: they must be intact at the probe's site.
    pub args: usize,
    /// Program at the entry.
    pub entry: &'static str,
    /// Program at the return.
    pub ret: Option<&'static str>,
    /// Whether lock tables are wrong without it (else only less complete).
    pub essential: bool,
}

/// Every probed function.
pub const FUNCTIONS: &[Function] = &[
    row("pthread_mutex_lock", 1, "mutex_lock", Some("mutex_acquired"), true),
    row("pthread_mutex_trylock", 1, "mutex_trylock", Some("mutex_trylock_done"), true),
    row("pthread_mutex_timedlock", 1, "mutex_timedlock", Some("mutex_acquired"), false),
    row("pthread_mutex_clocklock", 1, "mutex_clocklock", Some("mutex_acquired"), false),
    row("pthread_mutex_unlock", 1, "mutex_unlock", None, true),
    row("pthread_cond_wait", 2, "cond_wait", Some("cond_wait_done"), true),
    row("pthread_cond_timedwait", 2, "cond_wait", Some("cond_wait_done"), true),
    row("pthread_cond_clockwait", 2, "cond_wait", Some("cond_wait_done"), false),
];

const fn row(
    symbol: &'static str,
    args: usize,
    entry: &'static str,
    ret: Option<&'static str>,
    essential: bool,
) -> Function {
    Function { symbol, args, entry, ret, essential }
}
