//! Shares of waiting put together and corrected, when all of it has been divided.

use super::findings::{Causes, Findings, Holder, Shares, SiteBlame, Waiter, Who};
use crate::id::{Lock, Site, Tid};
use crate::units::Nanos;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

impl Findings {
    /// Counts what those who held a lock are blamed for as theirs, and as that of where they held it. With `of`, what was known by its
    /// futex word is waiting for this lock.
    pub(crate) fn adopt(&mut self, word: Lock, shares: &Shares, of: Option<Lock>) {
        shares.charge(word, of, &mut self.aplt, &mut self.sites);
        if let Some(lock) = of {
            let known = Arc::make_mut(self.locks.entry(lock).or_default());
            known.merge(shares, |who| match who {
                Who::Section { lock: held, site } if held == word => Who::Section { lock, site },
                Who::Released { lock: held, site, stack } if held == word => Who::Released { lock, site, stack },
                who => who,
            });
            known.attempt_unseen += shares.waits.time;
            for (&tid, turn) in &shares.turns.threads {
                *self.attempt_unseen.entry(tid).or_default() += turn.waits.time;
            }
        }
    }
}

impl Shares {
    /// Charges locks and sites with this waiting for a word, which is that of a lock `of` if there is one.
    pub(crate) fn charge(
        &self,
        word: Lock,
        of: Option<Lock>,
        aplt: &mut HashMap<Lock, Nanos>,
        sites: &mut BTreeMap<Site, SiteBlame>,
    ) {
        for holder in self.holders.iter().filter(|holder| holder.wait > Nanos(0)) {
            let held = holder.who.lock().filter(|&held| held != word).or(of).unwrap_or(word);
            *aplt.entry(held).or_default() += holder.wait;
            if let Some(site) = holder.who.site() {
                sites.entry(site).or_default().apwt += holder.wait;
            }
        }
    }

    /// Takes back what they were charged with, who made nobody wait for a lock.
    pub(crate) fn discharge(&self, word: Lock, aplt: &mut HashMap<Lock, Nanos>, sites: &mut BTreeMap<Site, SiteBlame>) {
        for holder in &self.holders {
            if let Some(caused) = aplt.get_mut(&holder.who.lock().unwrap_or(word)) {
                *caused = *caused - holder.wait.min(*caused);
            }
            if let Some(blame) = holder.who.site().and_then(|site| sites.get_mut(&site)) {
                blame.apwt = blame.apwt - holder.wait.min(blame.apwt);
                blame.cpwt = blame.cpwt.map(|critical| critical.min(blame.apwt));
            }
        }
    }

    /// The same, all of it inferred.
    #[must_use]
    pub(crate) fn inferred(&self) -> Self {
        let mut inferred = self.clone();
        inferred.holders.iter_mut().for_each(|holder| holder.inferred = holder.wait);
        inferred
    }

    /// The same with other names for holders, some of which may be one then.
    #[must_use]
    pub(crate) fn renamed(&self, name: impl Fn(Who) -> Who) -> Self {
        let mut renamed = Self::default();
        renamed.merge(self, name);
        renamed
    }

    /// Adds others, whose holders have other names here.
    pub(crate) fn merge(&mut self, other: &Self, name: impl Fn(Who) -> Who) {
        self.waits += other.waits;
        self.timed_out += other.timed_out;
        self.open += other.open;
        self.attempt_unseen += other.attempt_unseen;
        self.open_max = self.open_max.max(other.open_max);
        self.max = self.max.max(other.max);
        self.histogram.merge(&other.histogram);
        self.unattributed += other.unattributed;
        self.unpaired += other.unpaired;
        self.threads.extend(&other.threads);
        self.pairs.merge(&other.pairs);
        self.turns.merge(&other.turns);
        let rows: Vec<usize> = other.holders.iter().map(|holder| self.add_holder(holder, name(holder.who))).collect();
        for waiter in &other.waiters {
            let own = match self.waiters.iter_mut().position(|known| known.site == waiter.site) {
                Some(at) => at,
                None => {
                    self.waiters.push(Waiter { site: waiter.site, ..Waiter::default() });
                    self.waiters.len() - 1
                }
            };
            let own = &mut self.waiters[own];
            own.waits += waiter.waits;
            own.acquired += waiter.acquired;
            own.max = own.max.max(waiter.max);
            own.unattributed += waiter.unattributed;
            own.stacks.merge(&waiter.stacks);
            own.blamed.resize(self.holders.len(), Nanos(0));
            for (&row, &wait) in rows.iter().zip(&waiter.blamed) {
                own.blamed[row] += wait;
            }
        }
        self.chains.extend(other.chains.iter().cloned());
        self.chains.sort_by(|a, b| (b.wait, &a.links).cmp(&(a.wait, &b.links)));
    }

    /// Adds a holder to the row of `who`; which that is.
    fn add_holder(&mut self, other: &Holder, who: Who) -> usize {
        let Some(at) = self.holders.iter().position(|known| known.who == who) else {
            self.holders.push(Holder { who, ..other.clone() });
            return self.holders.len() - 1;
        };
        let own = &mut self.holders[at];
        own.wait += other.wait;
        own.nested += other.nested;
        own.causes.merge(&other.causes);
        own.victims += other.victims;
        own.inferred += other.inferred;
        own.sections += other.sections;
        own.stacks.merge(&other.stacks);
        own.off_stacks.merge(&other.off_stacks);
        at
    }

    /// Adds the waits that are still open of what else is known of the lock: for nobody's blame.
    pub(super) fn add_open(&mut self, known: &Self) {
        self.open += known.open;
        self.open_max = self.open_max.max(known.open_max);
        self.waits += known.open;
        self.unattributed += known.open.time;
        if known.open.count > 0 {
            let waits = known.open;
            self.waiters.push(Waiter { waits, max: known.open_max, unattributed: waits.time, ..Waiter::default() });
        }
    }

    /// What threads are blamed for that are none is nobody's.
    pub(crate) fn disown(&mut self, mut is_one: impl FnMut(Tid) -> bool) {
        for (row, holder) in self.holders.iter_mut().enumerate() {
            if matches!(holder.who, Who::Thread(tid) if !is_one(tid)) {
                self.unattributed += std::mem::take(&mut holder.wait);
                (holder.nested, holder.inferred, holder.causes) = (Nanos(0), Nanos(0), Causes::default());
                for waiter in &mut self.waiters {
                    waiter.unattributed += waiter.blamed.get_mut(row).map(std::mem::take).unwrap_or_default();
                }
            }
        }
    }

    /// These shares of everything, rounded down; what that leaves is nobody's.
    pub(crate) fn scale(&mut self, of_count: f64, of_time: f64) {
        let part = |time: &mut Nanos| time.0 = (time.0 as f64 * of_time) as u64;
        let tallies = [&mut self.waits, &mut self.timed_out, &mut self.open];
        tallies.into_iter().for_each(|tally| tally.scale(of_count, of_time));
        self.histogram.scale(of_count);
        self.pairs.scale(of_count, of_time);
        self.turns.threads.values_mut().for_each(|turn| turn.waits.scale(of_count, of_time));
        part(&mut self.unpaired);
        part(&mut self.attempt_unseen);
        self.chains.iter_mut().for_each(|chain| part(&mut chain.wait));
        for holder in &mut self.holders {
            part(&mut holder.wait);
            part(&mut holder.nested);
            part(&mut holder.inferred);
            holder.causes.0.iter_mut().for_each(part);
            holder.stacks.scale(of_count, of_time);
            holder.off_stacks.scale(of_count, of_time);
        }
        let mut held = Nanos(0);
        for waiter in &mut self.waiters {
            waiter.waits.scale(of_count, of_time);
            waiter.waits.settle(&mut waiter.max);
            waiter.stacks.scale(of_count, of_time);
            waiter.blamed.iter_mut().for_each(part);
            part(&mut waiter.acquired);
            let blamed: Nanos = waiter.blamed.iter().copied().sum();
            waiter.unattributed = waiter.waits.time - blamed;
            held += blamed;
        }
        self.keep_threads(self.waiters.iter().map(|waiter| waiter.waits.count).sum());
        for (row, holder) in self.holders.iter_mut().enumerate() {
            holder.wait = self.waiters.iter().filter_map(|waiter| waiter.blamed.get(row)).copied().sum();
            holder.nested = holder.nested.min(holder.wait);
            holder.inferred = holder.inferred.min(holder.wait);
            holder.causes.settle(holder.wait);
            // Whoever keeps a part of the waiting has held up somebody.
            let victims = (holder.victims as f64 * of_count) as u64;
            holder.victims = victims.max(u64::from(holder.victims > 0 && holder.wait > Nanos(0)));
        }
        self.unattributed = self.waits.time - held;
    }

    /// Keeps as many threads as there are waits at most: each of them has waited.
    fn keep_threads(&mut self, waits: u64) {
        if self.threads.len() as u64 > waits {
            let mut threads: Vec<_> = self.threads.drain().collect();
            threads.sort_unstable();
            self.threads.extend(threads.into_iter().take(waits as usize));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::shares::{Charge, Ended, LockShares, Waited};
    use super::*;
    use crate::graph::findings::Cause;
    use crate::id::{Process, Site};

    const WORD: Lock = Lock { process: Process(1), addr: 0x108 };
    const LOCK: Lock = Lock { process: Process(1), addr: 0x100 };

    fn site(addr: u64) -> Site {
        Site { process: Process(1), addr }
    }

    /// A wait of 100, of which `who` is blamed for 70.
    fn shares(who: Who) -> Shares {
        let mut shares = LockShares::new(WORD);
        let waited = Waited {
            site: Some(site(1)),
            tid: Tid(9),
            wait: Nanos(100),
            count: 1,
            stack: None,
            how: Ended::Acquired,
            overtaken: None,
        };
        let row = shares.add_wait(&waited);
        shares.charge(row, &Charge { who, cause: Cause::Unknown, nested: false, inferred: false, wait: Nanos(70) });
        shares.leave(row, Nanos(30));
        Arc::unwrap_or_clone(shares.finish(false).2)
    }

    fn sums(shares: &Shares) -> (u64, u64, u64) {
        let held = shares.holders.iter().map(|holder| holder.wait).sum::<Nanos>();
        assert_eq!(held + shares.unattributed, shares.waits.time);
        assert!(shares.holders.iter().all(|holder| holder.causes.0.iter().copied().sum::<Nanos>() == holder.wait));
        for (at, waiter) in shares.waiters.iter().enumerate() {
            let blamed = (0..shares.holders.len()).map(|holder| shares.blamed(at, holder)).sum::<Nanos>();
            assert_eq!(blamed + waiter.unattributed, waiter.waits.time);
        }
        (shares.waits.time.0, held.0, shares.unattributed.0)
    }

    #[test]
    fn what_was_known_by_a_word_is_its_locks() {
        let mut findings = Findings::default();
        let released = |lock| Who::Released { lock, site: site(5), stack: None };
        findings.adopt(WORD, &shares(released(WORD)), Some(LOCK));
        findings.adopt(WORD, &shares(Who::Thread(Tid(3))), Some(LOCK));
        let lock = &findings.locks[&LOCK];
        assert_eq!(sums(lock), (200, 140, 60));
        assert_eq!(lock.holders.iter().map(|h| h.who).collect::<Vec<_>>(), [released(LOCK), Who::Thread(Tid(3))]);
        assert_eq!((findings.aplt[&LOCK], findings.sites[&site(5)].apwt), (Nanos(140), Nanos(70)));
    }

    #[test]
    fn whoever_keeps_waiting_keeps_a_victim() {
        for (of_count, of_time, wanted) in [(0.6, 0.6, 1), (0.6, 0.0, 0), (3.9, 3.9, 3)] {
            let mut shares = shares(Who::Thread(Tid(3)));
            shares.scale(of_count, of_time);
            sums(&shares);
            assert_eq!(shares.holders[0].victims, wanted, "{of_count} of the waits, {of_time} of their time");
        }
    }

    #[test]
    fn threads_are_no_more_than_the_waits_that_are_left() {
        for (of_count, of_time, wanted) in [(0.6, 0.6, 1), (0.6, 0.0, 0), (3.9, 3.9, 1)] {
            let mut shares = shares(Who::Thread(Tid(3)));
            shares.scale(of_count, of_time);
            assert_eq!(shares.threads.len(), wanted, "{of_count} of the waits, {of_time} of their time");
        }
    }

    #[test]
    fn waits_that_go_on_keep_their_longest() {
        let mut known = LockShares::new(WORD);
        for wait in [Nanos(30), Nanos(70)] {
            known.add_wait(&Waited {
                site: None,
                tid: Tid(4),
                wait,
                count: 1,
                stack: None,
                how: Ended::Open,
                overtaken: None,
            });
        }
        known.add_wait(&Waited {
            site: None,
            tid: Tid(4),
            wait: Nanos(500),
            count: 1,
            stack: None,
            how: Ended::Acquired,
            overtaken: None,
        });
        let mut shares = shares(Who::Thread(Tid(3)));
        shares.add_open(&known.finish(true).2);
        let open = shares.waiters.last().unwrap();
        assert_eq!((open.waits.count, open.waits.time, open.max), (2, Nanos(100), Nanos(70)));
        assert_eq!(sums(&shares), (200, 70, 130));
    }

    #[test]
    fn threads_that_are_none_are_blamed_for_nothing() {
        let mut shares = shares(Who::Thread(Tid(3)));
        shares.disown(|_| true);
        assert_eq!(sums(&shares), (100, 70, 30));
        shares.disown(|tid| tid != Tid(3));
        assert_eq!(sums(&shares), (100, 0, 100));
    }

    #[test]
    fn parts_add_up() {
        let mut shares = shares(Who::Thread(Tid(3)));
        shares.scale(0.5, 1.0 / 3.0);
        assert_eq!(sums(&shares), (33, 23, 10));
    }
}
