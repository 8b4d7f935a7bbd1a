//! Semaphores by who gives the permits for which threads wait.
//!
//! A permit may stand for a lock, or for work: a queue's consumers wait until a producer posts. Those who give back what they have taken use
//! the semaphore as a lock; who posts without having taken anything hands out work, and nobody holds what is waited for.

use super::given::{Given, Threads};
use crate::event::{Section, Via};
use crate::id::Tid;
use crate::units::Nanos;
use rustc_hash::FxHashMap;

/// A semaphore's takers that are kept one by one.
const MAX_TAKERS: usize = 1_024;

/// Whether it is a call for a permit of one of the C library's semaphores.
#[must_use]
pub fn is_permit(via: Via) -> bool {
    matches!(via, Via::SemWait | Via::TrySemWait | Via::TimedSemWait)
}

/// Who took a semaphore's permits, and who gave those that were waited for.
#[derive(Clone, Debug, Default)]
pub struct Permits {
    /// How long each waited.
    takers: FxHashMap<Tid, Nanos>,
    givers: Threads,
    /// Whether threads took permits for which there was no room.
    crowded: bool,
}

impl Permits {
    /// Takes in a section of the semaphore's. A thread that takes its first permit is kept if there is `room`.
    pub(super) fn add(&mut self, section: &Section, room: bool) {
        if !section.acquired() {
            return;
        }
        let room = room && self.takers.len() < MAX_TAKERS;
        if room || self.takers.contains_key(&section.tid) {
            *self.takers.entry(section.tid).or_default() += section.wait;
        } else {
            self.crowded = true;
        }
        if let Some(giver) = section.waker.filter(|_| section.wait > Nanos(0)) {
            self.givers.add(giver, section.wait);
        }
    }

    /// Who gave the permits for which threads waited, as far as that is known.
    #[must_use]
    pub fn given(&self) -> Given {
        let given = Given::by(&self.givers, |giver| self.takers.contains_key(&giver));
        Given { crowded: given.crowded || self.crowded, ..given }
    }

    /// How many threads took permits.
    #[must_use]
    pub fn takers(&self) -> usize {
        self.takers.len()
    }

    /// How long each of them waited.
    pub(crate) fn waited(&self) -> impl Iterator<Item = (Tid, Nanos)> + '_ {
        self.takers.iter().map(|(&tid, &waited)| (tid, waited))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Outcome;
    use crate::id::{Lock, Process, Site};
    use crate::tally::Tally;
    use crate::units::Time;

    fn taken(tid: u32, waker: Option<u32>, wait: u64) -> Section {
        let process = Process(1);
        Section {
            end: Time(1_000_000),
            wait: Nanos(wait),
            hold: Nanos(0),
            lock: Lock { process, addr: 64 },
            site: Site { process, addr: 4_096 },
            tid: Tid(tid),
            process,
            owner: None,
            waker: waker.map(Tid),
            stack: None,
            flags: 0,
            via: Via::SemWait,
            outcome: Outcome::Unseen,
            mutex_kind: 0,
        }
    }

    #[test]
    fn who_posts_without_having_taken_gives_nothing_back() {
        let mut work = Permits::default();
        let mut lock = Permits::default();
        for round in 0..10 {
            work.add(&taken(1 + round % 3, Some(9), 100), true);
            lock.add(&taken(1 + round % 3, Some(1 + (round + 1) % 3), 100), true);
        }
        // Nobody waited for this one, and that one failed.
        lock.add(&taken(4, Some(9), 0), true);
        lock.add(&Section { outcome: Outcome::TimedOut, ..taken(4, Some(9), 100) }, true);
        let all = Tally { count: 10, time: Nanos(1_000) };
        assert_eq!(work.given(), Given { all, ..Given::default() });
        assert_eq!(lock.given(), Given { all, back: all, crowded: false });
        assert!(lock.given().is_back() && !work.given().is_back() && !Permits::default().given().is_back());
    }

    #[test]
    fn who_hands_work_on_gives_nothing_back() {
        let mut work = Permits::default();
        for round in 0..10 {
            // The producer ends short waits at once. Consumers end one another's long ones.
            work.add(&taken(1 + round % 3, Some(9), 10), true);
            work.add(&taken(1 + round % 3, Some(1 + (round + 1) % 3), 1_000), true);
        }
        assert!(!work.given().is_back() && work.given().is_work(), "{:?}", work.given());
    }

    #[test]
    fn of_few_waits_or_too_many_threads_nothing_is_certain() {
        let mut few = Permits::default();
        (0..7).for_each(|_| few.add(&taken(1, Some(9), 100), true));
        assert!(!few.given().is_work() && !few.given().is_back());
        few.add(&taken(1, Some(9), 100), true);
        assert!(few.given().is_work());
        let (mut crowd, mut elsewhere) = (few.clone(), few);
        (0..MAX_TAKERS as u32).for_each(|tid| crowd.add(&taken(10 + tid, None, 0), true));
        elsewhere.add(&taken(10, None, 0), false);
        assert!(!crowd.given().is_work() && !elsewhere.given().is_work(), "{:?}", crowd.given());
    }
}
