//! Locks that only futex calls show, known by the functions in which threads sleep for them.
//!
//! * **Semaphores**: one is a lock if those who post have waited for it, too: they give back what they had. Else permits stand for work, and
//!   nobody is to blame.
//! * **Mutexes**, and the C library's own locks: their waiters sleep at the lock's word.
//! * **Read-write locks**: writers sleep on another word of the lock than readers, so one may be told as two.
//! * **Locks made of conditions** ([`super::in_turn`]).
//! * **Runtimes' locks** whose waiters sleep each on a word of its own, where the kernel side knows the lock behind the word: whoever
//!   wakes a waiter gives the lock back.

use super::gather::Gathered;
use super::place::Places;
use super::sleepers::{self, OF_CONDITIONS, SEMAPHORE};
use crate::graph::FutexWaits;
use crate::graph::findings::Shares;
use crate::id::Lock;
use std::collections::BTreeMap;

/// Those that are used as locks, and whom their waiting is charged to.
pub(super) fn find(all: &BTreeMap<Lock, Gathered<'_>>, places: &mut Places<'_>) -> BTreeMap<Lock, Shares> {
    let mut found = BTreeMap::new();
    for (&lock, g) in all.iter().filter(|(_, g)| !g.is_inferred_lock()) {
        if g.open.is_empty() && g.waits.is_none_or(|waits| waits.waits.count == 0) {
            continue;
        }
        let name = sleepers::name(lock, g, places);
        // Waits that have not ended have no shares: nobody is known to be to blame.
        if let Some(own) = name.filter(|own| sleepers::is_lock_at_word(own)) {
            let of = |waits: &FutexWaits| of_one_of(own, &waits.shares);
            found.insert(lock, g.waits.map(of).unwrap_or_default());
            continue;
        }
        let Some(waits) = g.waits else {
            if g.is_parked_now() && name.is_some_and(sleepers::is_runtimes) {
                found.insert(lock, Shares::default());
            }
            continue;
        };
        let shares = match name {
            // Nothing says which of several permits a thread waits for. That another one had a permit follows from its post.
            Some(SEMAPHORE) if !waits.is_parked() && waits.is_given_back() => waits.shares.inferred(),
            Some(OF_CONDITIONS) => waits.shares.inferred(),
            Some(own) if waits.is_parked() && sleepers::is_runtimes(own) => of_one_of(own, &waits.shares),
            _ => continue,
        };
        found.insert(lock, shares);
    }
    found
}

/// Whom the waiting for a lock of this kind is charged to. Of several readers, whoever ended a wait need not be the one that caused all of it.
fn of_one_of(kind: &str, shares: &Shares) -> Shares {
    if sleepers::is_exclusive(kind) { shares.clone() } else { shares.inferred() }
}
