//! How kernel locks are called: by their symbol, by what every process has one of, by who asks for them.

use super::gather::Gathered;
use super::place::Places;
use crate::id::Lock;
use lockbpf_common::kernel;
use std::collections::BTreeMap;

/// Bytes from a mutex or semaphore to the spin lock in it, at most.
const LARGEST: u64 = 32;

/// What stands before the name of a kernel lock.
const MARK: &str = "kernel:";

/// Locks that are known by those who ask for them: no other lock of that kind is asked for there. Functions as kernels from
/// 5.19 on have them.
const BY_CALLER: &[(&str, &[&str], &str)] = &[
    (
        "rwsem",
        &[
            "lookup_slow",
            "__lookup_slow",
            "filename_create",
            "start_dirop",
            "__start_dirop",
            "do_unlinkat",
            "do_rmdir",
            "lock_rename",
            "lock_two_directories",
            "open_last_lookups",
            "path_openat",
            "iterate_dir",
        ],
        "directory i_rwsem",
    ),
    ("mutex", &["pipe_write", "anon_pipe_write", "pipe_read", "anon_pipe_read", "pipe_lock"], "pipe->mutex"),
    (
        "spin",
        &["__pte_offset_map_lock", "pte_offset_map_lock", "__pmd_lock", "do_anonymous_page", "finish_fault"],
        "page table lock",
    ),
    ("spin", &["futex_wait_setup", "futex_wake", "futex_q_lock", "futex_wait_requeue_pi"], "futex hash bucket"),
    ("spin", &["raw_spin_rq_lock_nested", "__task_rq_lock", "task_rq_lock", "__schedule"], "run queue"),
];

/// The name of a kernel lock.
pub(super) fn name(lock: Lock, gathered: &Gathered<'_>, places: &mut Places<'_>) -> String {
    if let Some(symbol) = places.global(lock) {
        return format!("{MARK}{symbol}");
    }
    // A thread of another process may have been the first, for which it is nothing well-known.
    if let Some(name) = gathered.mutex.iter().find_map(|s| kernel::known_name(s.mutex_kind)) {
        return format!("{MARK}{name}");
    }
    let kind = kind(gathered);
    for s in &gathered.mutex {
        let place = places.place(s.site);
        let function = place.function.as_deref().unwrap_or_default();
        if let Some((.., name)) = BY_CALLER.iter().find(|(of, callers, _)| *of == kind && callers.contains(&function)) {
            return format!("{MARK}{name}");
        }
    }
    match gathered.first().1 {
        Some(site) => format!("{MARK}{kind} in {}", places.place(site).symbol),
        None => format!("{MARK}{kind} {:#x}", lock.addr),
    }
}

/// The mutex or semaphore whose own spin lock this is: the kernel takes that to put a thread on its list of waiters.
pub(super) fn owner<'a>(lock: Lock, gathered: &Gathered<'_>, all: &'a BTreeMap<Lock, Gathered<'a>>) -> Option<Lock> {
    let nearby = Lock { addr: lock.addr.saturating_sub(LARGEST), ..lock }..lock;
    let sleeps = |g: &Gathered<'_>| g.mutex.iter().any(|s| !kernel::is_spinning(s.mutex_kind));
    let candidates = all.range(nearby).rev().filter(|_| kind(gathered) == "spin");
    candidates.filter(|(_, g)| sleeps(g)).map(|(&owner, _)| owner).next()
}

/// What sort of lock the kernel calls it; of several beginnings the first says it.
pub(super) fn kind(gathered: &Gathered<'_>) -> &'static str {
    let first = gathered.mutex.iter().min_by_key(|s| (s.first, s.site));
    first.map_or("lock", |s| kernel::name(s.mutex_kind))
}
