//! Everything that an observation knows about one address, brought together and classed.

use super::durations::Total;
use crate::graph::findings::Shares;
use crate::graph::{FutexWaits, Permits, WaitsAtPlace, is_permit, plausible_owner};
use crate::id::{Lock, Site};
use crate::inside::Insides;
use crate::observation::{Observation, OpenWait};
use crate::sums::SiteSums;
use lockbpf_common::kind::{Via, mutex_kind};
use lockbpf_common::parking::is_for_lock;
use std::collections::BTreeMap;

/// Size of glibc's `pthread_cond_t`: the kernel sees futex words inside it.
pub(super) const CONDVAR_SIZE: u64 = 48;

/// What is known about one address.
#[derive(Debug, Default)]
pub(super) struct Gathered<'a> {
    pub(super) mutex: Vec<&'a SiteSums>,
    pub(super) condvar: Vec<&'a SiteSums>,
    /// Of a semaphore whose permits stand for work: those who wait for them are idle.
    pub(super) permits: Vec<&'a SiteSums>,
    /// How many threads took these, as far as that was recorded.
    pub(super) takers: usize,
    pub(super) futex: Vec<&'a SiteSums>,
    pub(super) shares: Option<&'a Shares>,
    /// The shares as the report tells them, where it puts holders together; `None` where it tells them as they are.
    pub(super) told: Option<&'a Shares>,
    pub(super) waits: Option<&'a FutexWaits>,
    /// What is known of a place at which threads wait for one another, as if it were a lock.
    pub(super) place: Option<&'a WaitsAtPlace>,
    /// Whom the waiting is charged to of a lock that is known by who sleeps there.
    pub(super) slept: Option<&'a Shares>,
    /// Waits for the lock or word that had not ended.
    pub(super) open: Vec<&'a OpenWait>,
    /// Waits for the condition that had not ended.
    pub(super) idle: Vec<&'a OpenWait>,
    /// Whether it is a condition variable that a lock is made of, or a word of one.
    pub(super) of_lock: bool,
}

impl Gathered<'_> {
    /// Whether lock calls were seen on it.
    pub(super) fn is_lock(&self) -> bool {
        let called = || self.open.iter().any(|w| w.via != Via::Futex);
        self.place.is_none() && (!self.mutex.is_empty() || self.shares.is_some() || called())
    }

    /// Whether threads were seen to wait on it for others to have done something.
    pub(super) fn is_condition(&self) -> bool {
        !self.condvar.is_empty() || !self.permits.is_empty() || !self.idle.is_empty()
    }

    /// Whether it is a semaphore of the C library whose permits others give than those who take them. In windows a thread that holds a lock for long
    /// is not seen to take it; but then those who wait for it are seen to give it back.
    fn is_for_work(&self, permits: Option<&Permits>) -> bool {
        if self.mutex.is_empty() || !self.mutex.iter().all(|s| is_permit(s.via)) {
            return false;
        }
        let mut given = permits.map(Permits::given).unwrap_or_default();
        given += self.waits.map(FutexWaits::given).unwrap_or_default();
        let total = Total::of(&self.mutex);
        given.is_work() && total.unseen.saturating_mul(5) > total.acquisitions
    }

    /// The sums of calls that ask for it: as for a lock, or for a permit.
    pub(super) fn sections(&self) -> impl Iterator<Item = &SiteSums> {
        self.mutex.iter().chain(&self.permits).copied()
    }

    /// Whether nothing is known.
    pub(super) fn is_nothing(&self) -> bool {
        let called = [&self.mutex, &self.condvar, &self.permits, &self.futex].into_iter().any(|sums| !sums.is_empty());
        !called && self.shares.is_none() && self.waits.is_none() && self.open.is_empty() && self.idle.is_empty()
    }

    /// Whether the waits that have not ended are for a lock whose waiters sleep each on a word of its own.
    pub(super) fn is_parked_now(&self) -> bool {
        !self.open.is_empty() && self.open.iter().all(|wait| wait.expected.is_some_and(is_for_lock))
    }

    /// Its waits, if some of them stand for others and nothing tells how many there were in all: waiters sleep on words of their own.
    pub(super) fn thinned(&self) -> Option<&FutexWaits> {
        self.waits.filter(|waits| !self.is_lock() && waits.is_parked() && waits.is_thinned())
    }

    /// Whether it is known as a futex word only, yet used as a lock.
    pub(super) fn is_inferred_lock(&self) -> bool {
        self.slept.is_some() || self.looks_like_mutex()
    }

    /// Whether it is known as a futex word only, yet used as glibc uses a mutex.
    fn looks_like_mutex(&self) -> bool {
        let open = || self.open.iter().any(|w| plausible_owner(w.expected.unwrap_or(0), w.owner, w.tid).is_some());
        let looks = |w: &FutexWaits| if w.waits.count > 0 { w.looks_like_mutex() } else { open() };
        !self.is_lock() && !self.is_condition() && self.waits.map_or_else(open, looks)
    }

    /// Whom its waiting is charged to.
    pub(super) fn blame(&self) -> Option<&'_ Shares> {
        let of_word = || self.waits.filter(|_| self.looks_like_mutex()).map(|waits| &waits.shares);
        self.told.or(self.shares).or(self.slept).or_else(of_word)
    }

    /// Where it was first used, as far as that was seen, and when.
    pub(super) fn first(&self) -> (u64, Option<Site>) {
        let sums = || self.mutex.iter().chain(&self.condvar).chain(&self.permits).chain(&self.futex);
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
    for (&at, place) in observation.findings.places.iter().filter(|(_, place)| place.is_taken_in_turn()) {
        let entry = all.entry(at).or_default();
        (entry.place, entry.waits) = (Some(place), Some(&place.waits));
    }
    for wait in &observation.open_waits {
        let entry = all.entry(wait.lock).or_default();
        if wait.via == Via::CondWait { entry.idle.push(wait) } else { entry.open.push(wait) }
    }
    fold_condition_words(&mut all);
    for (lock, g) in &mut all {
        let permits = observation.findings.permits.get(lock);
        if g.is_for_work(permits) {
            g.takers = permits.map_or(0, Permits::takers);
            g.permits = std::mem::take(&mut g.mutex);
            g.idle.append(&mut g.open);
            g.shares = None;
        }
    }
    all
}

/// The condition variables that were seen in use.
pub(super) fn conditions(all: &BTreeMap<Lock, Gathered<'_>>) -> Insides {
    let conditions = all.iter().filter(|(_, gathered)| gathered.is_condition() && gathered.permits.is_empty());
    Insides::sized(conditions.map(|(&lock, _)| (lock, CONDVAR_SIZE)))
}

/// Gives a condition variable the futex calls on the words inside it. In windows only some of its waits are known as such, and the kernel
/// counts all of them by their words.
fn fold_condition_words(all: &mut BTreeMap<Lock, Gathered<'_>>) {
    let conditions = conditions(all);
    let is_lock = |g: &Gathered<'_>| !g.mutex.is_empty() || g.shares.is_some() || g.is_condition();
    let words: Vec<(Lock, Lock)> = all
        .iter()
        .filter(|(_, g)| !is_lock(g))
        .filter_map(|(&word, _)| Some((word, conditions.lock_of(word)?)))
        .collect();
    for (word, condition) in words {
        let Some(g) = all.remove(&word) else { continue };
        let known = all.entry(condition).or_default();
        known.futex.extend(g.futex);
        known.idle.extend(g.open);
    }
}
