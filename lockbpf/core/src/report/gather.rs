//! Everything that an observation knows about one address, brought together and classed.

use crate::graph::findings::Shares;
use crate::graph::{FutexWaits, plausible_owner};
use crate::id::{Lock, Site};
use crate::inside::Insides;
use crate::observation::{Observation, OpenWait};
use crate::sums::SiteSums;
use lockbpf_common::kind::{Via, mutex_kind};
use std::collections::BTreeMap;

/// Size of glibc's `pthread_cond_t`: the kernel sees futex words inside it.
pub(super) const CONDVAR_SIZE: u64 = 48;

/// What is known about one address.
#[derive(Debug, Default)]
pub(super) struct Gathered<'a> {
    pub(super) mutex: Vec<&'a SiteSums>,
    pub(super) condvar: Vec<&'a SiteSums>,
    pub(super) futex: Vec<&'a SiteSums>,
    pub(super) shares: Option<&'a Shares>,
    /// The shares as the report tells them, where it puts holders together; `None` where it tells them as they are.
    pub(super) told: Option<&'a Shares>,
    pub(super) waits: Option<&'a FutexWaits>,
    /// Whom the waiting is charged to of a lock that is known by who sleeps there.
    pub(super) slept: Option<&'a Shares>,
    /// Waits for the lock or word that had not ended.
    pub(super) open: Vec<&'a OpenWait>,
    /// Waits for the condition that had not ended.
    pub(super) idle: Vec<&'a OpenWait>,
    /// Whether it is a word of a condition variable that was seen in use.
    pub(super) of_condition: bool,
}

impl Gathered<'_> {
    /// Whether lock calls were seen on it.
    pub(super) fn is_lock(&self) -> bool {
        !self.mutex.is_empty() || self.shares.is_some() || self.open.iter().any(|w| w.via != Via::Futex)
    }

    /// Whether condition waits were seen on it.
    pub(super) fn is_condition(&self) -> bool {
        !self.condvar.is_empty() || !self.idle.is_empty()
    }

    /// Whether it is known as a futex word only, yet used as a lock.
    pub(super) fn is_inferred_lock(&self) -> bool {
        self.slept.is_some() || self.looks_like_mutex()
    }

    /// Whether it is known as a futex word only, yet used as glibc uses a mutex.
    fn looks_like_mutex(&self) -> bool {
        let open = || self.open.iter().any(|w| plausible_owner(w.expected.unwrap_or(0), w.owner, w.tid).is_some());
        let looks = |w: &FutexWaits| if w.waits.count > 0 { w.looks_like_mutex() } else { open() };
        !self.is_lock() && !self.is_condition() && !self.of_condition && self.waits.map_or_else(open, looks)
    }

    /// Whom its waiting is charged to.
    pub(super) fn blame(&self) -> Option<&'_ Shares> {
        let of_word = || self.waits.filter(|_| self.looks_like_mutex()).map(|waits| &waits.shares);
        self.told.or(self.shares).or(self.slept).or_else(of_word)
    }

    /// Where it was first used, as far as that was seen, and when.
    pub(super) fn first(&self) -> (u64, Option<Site>) {
        let sums = || self.mutex.iter().chain(&self.condvar).chain(&self.futex);
        let time = sums().map(|s| s.first.0).min().unwrap_or(u64::MAX);
        let called = sums().filter(|s| s.site.addr != 0).min_by_key(|s| (s.first, s.site)).map(|s| s.site);
        let recorded = || self.shares.iter().flat_map(|s| &s.waiters).find_map(|w| w.site);
        let slept = || self.waits.iter().flat_map(|w| &w.sites).find_map(|s| s.site);
        let waiting = || self.open.iter().find_map(|w| w.site);
        (time, called.or_else(recorded).or_else(slept).or_else(waiting))
    }
}

/// Brings an observation together by address.
pub(super) fn gather(observation: &Observation) -> BTreeMap<Lock, Gathered<'_>> {
    let mut all: BTreeMap<Lock, Gathered<'_>> = BTreeMap::new();
    for s in &observation.sums {
        let entry = all.entry(s.lock).or_default();
        if s.via == Via::CondWait || s.mutex_kind & mutex_kind::IS_CONDVAR != 0 {
            entry.condvar.push(s);
        } else if s.via == Via::Futex || s.mutex_kind & mutex_kind::IS_FUTEX != 0 {
            entry.futex.push(s);
        } else {
            entry.mutex.push(s);
        }
    }
    for (&lock, shares) in &observation.findings.locks {
        all.entry(lock).or_default().shares = Some(shares);
    }
    for (&word, waits) in &observation.findings.words {
        all.entry(word).or_default().waits = Some(waits);
    }
    for wait in &observation.open_waits {
        let entry = all.entry(wait.lock).or_default();
        if wait.via == Via::CondWait { entry.idle.push(wait) } else { entry.open.push(wait) }
    }
    fold_condition_words(&mut all);
    all
}

/// Gives a condition variable the wake-ups on the futex words inside it.
fn fold_condition_words(all: &mut BTreeMap<Lock, Gathered<'_>>) {
    let conditions = all.iter().filter(|(_, gathered)| gathered.is_condition());
    let conditions = Insides::sized(conditions.map(|(&lock, _)| (lock, CONDVAR_SIZE)));
    let only_woken = |g: &Gathered<'_>| {
        g.mutex.is_empty() && g.condvar.is_empty() && g.shares.is_none() && g.waits.is_none() && g.open.is_empty()
    };
    // In windows only some of its waits are known as such.
    for (&word, gathered) in all.iter_mut() {
        gathered.of_condition = conditions.lock_of(word).is_some();
    }
    let words: Vec<(Lock, Lock)> = all
        .iter()
        .filter(|(_, g)| only_woken(g) && g.idle.is_empty())
        .filter_map(|(&word, _)| Some((word, conditions.lock_of(word)?)))
        .collect();
    for (word, condition) in words {
        let futex = all.remove(&word).map(|g| g.futex).unwrap_or_default();
        all.entry(condition).or_default().futex.extend(futex);
    }
}
