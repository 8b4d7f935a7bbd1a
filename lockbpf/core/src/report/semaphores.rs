//! Semaphores that only futex calls show: the functions in which threads sleep for them tell that they are some. Whether one is a lock is
//! told by who posts: a thread that has waited for it, too, gives back what it had. Else permits stand for work, and nobody is to blame.

use super::gather::Gathered;
use super::place::Places;
use super::sleepers;
use crate::graph::findings::Shares;
use crate::id::Lock;
use std::collections::BTreeMap;

/// Those that are used as locks, and whom their waiting is charged to. Of several permits nothing tells whose is waited for, and that a
/// thread had one at all follows from its giving one back: so all of that is inferred.
pub(super) fn find(all: &BTreeMap<Lock, Gathered<'_>>, places: &mut Places<'_>) -> BTreeMap<Lock, Shares> {
    let known = all.iter().filter(|(_, g)| !g.is_inferred_lock());
    let used = known.filter_map(|(&lock, g)| Some((lock, g, g.waits.filter(|waits| waits.is_given_back())?)));
    used.filter(|&(lock, g, _)| sleepers::name(lock, g, places) == Some(sleepers::SEMAPHORE))
        .map(|(lock, _, waits)| (lock, waits.shares.inferred()))
        .collect()
}
