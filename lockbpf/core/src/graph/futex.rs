//! Waits that only the kernel's futex calls show: the futex tier alone, or locks that are not pthread mutexes.

use super::findings::{Shares, Stacks};
use super::given::{Given, Threads};
use super::spread::Spread;
use crate::event::{FutexResult, FutexWait};
use crate::histogram::Histogram;
use crate::id::{Lock, Site, Tid};
use crate::tally::Tally;
use crate::units::Nanos;
use lockbpf_common::layout::CONTENDED_VALUE;
use lockbpf_common::parking::{FOR_LOCK, is_for_lock};
use lockbpf_common::task::is_task;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Largest tid that a kernel gives (`PID_MAX_LIMIT`).
const MAX_TID: u32 = 1 << 22;
/// Sites told apart per word; further ones share one row.
const MAX_SITES: usize = 64;
/// Records from which on they may stand for somewhat more than they should by chance alone, and how much more.
const ENOUGH: u64 = 16;
const MOST: f64 = 3.0;

/// Words told apart per place.
const MAX_WORDS: usize = 4_096;
/// Threads take turns at a place if this part of their waits, and of the waiting, was ended in turn, of at least so many. If anyone who does not
/// wait could end a wait, it would be 0.63 at most.
const IN_TURN: (f64, u64) = (0.75, 32);
/// The same where only some waits were recorded. It would be 0.5 then.
const SOME_IN_TURN: (f64, u64) = (0.6, 128);

/// The owner of the lock that a thread waited for, if it may be one: what stands where a mutex of glibc's has its owner, and the word looks like that of
/// such a mutex; or the virtual thread of Java's that another one's lock names.
#[must_use]
pub fn plausible_owner(expected: u32, owner: Option<Tid>, waiter: Tid) -> Option<Tid> {
    let are_tasks = |o: Tid| expected == FOR_LOCK && is_task(waiter.0) && is_task(o.0);
    let is_thread = |o: Tid| expected == CONTENDED_VALUE && (1..=MAX_TID).contains(&o.0);
    owner.filter(|&o| (is_thread(o) || are_tasks(o)) && o != waiter)
}

/// Waiting for a futex word at one call site.
#[derive(Clone, Debug, Default)]
pub struct FutexSite {
    /// The site; `None` if unknown, or beyond the number that is told apart.
    pub site: Option<Site>,
    /// Waits and their sum.
    pub waits: Tally,
    /// The longest.
    pub max: Nanos,
    /// Stacks, and the waits of each.
    pub stacks: Stacks,
}

/// All recorded waiting for one futex word.
#[derive(Clone, Debug, Default)]
pub struct FutexWaits {
    /// Waits that slept and were woken.
    pub slept: u64,
    /// Waits that returned at once because the word had changed.
    pub again: u64,
    /// Waits that timed out.
    pub timed_out: u64,
    /// Waits that a signal interrupted.
    pub interrupted: u64,
    /// Waits that failed otherwise.
    pub failed: u64,
    /// The waits that took time: woken, timed out or interrupted.
    pub waits: Tally,
    /// How far their sum may be off, where none is known beside them (see `settle`).
    pub spread: Spread,
    /// The longest.
    pub max: Nanos,
    /// How long they took.
    pub histogram: Histogram,
    /// Those that expected [`CONTENDED_VALUE`].
    pub contended: Tally,
    /// Those for a lock whose waiters sleep each on a word of its own: the address is the lock's.
    pub parked: Tally,
    /// Contended waits by the thread that the owner word names, where that is plausible.
    pub owners: Threads,
    /// By the thread that woke the waiter.
    pub wakers: Threads,
    /// By the waiting thread.
    pub threads: Threads,
    /// By site, in the order in which they were first seen.
    pub sites: Vec<FutexSite>,
    /// Records of which all this was made.
    pub records: u64,
    /// Whom the waits that took time are charged to.
    pub shares: Shares,
}

impl FutexWaits {
    /// Whether the word behaves like a lock: most waits expect the value that glibc, Rust's library and others give one that is waited
    /// for, and most of those found a thread id where glibc keeps the owner; or there are several such waits, and others ended most of them.
    #[must_use]
    pub fn looks_like_mutex(&self) -> bool {
        let handed = self.wakers.total().count;
        self.names_owners() || self.expects_contended() && self.contended.count > 1 && handed * 2 > self.waits.count
    }

    /// Whether most waits expect that value, and most of those found a thread id where glibc keeps the owner.
    #[must_use]
    pub fn names_owners(&self) -> bool {
        self.expects_contended() && self.owners.total().count * 2 > self.contended.count
    }

    /// Whether the address is that of a lock whose waiters sleep each on a word of its own.
    #[must_use]
    pub fn is_parked(&self) -> bool {
        self.parked.count * 2 > self.waits.count
    }

    fn expects_contended(&self) -> bool {
        self.contended.count * 2 > self.waits.count
    }

    /// Whether those who let waiters go on are, nearly always, threads that have waited there, too: they give back what they have
    /// taken, as with a lock. Whoever hands out work waits for something else.
    #[must_use]
    pub fn is_given_back(&self) -> bool {
        let given = self.given();
        given.is_back() && given.all.time.0 > self.waits.time.0 / 2
    }

    /// Who let waiters go on, as far as that is known.
    #[must_use]
    pub fn given(&self) -> Given {
        let known: HashSet<Tid> = self.threads.top().into_iter().map(|(tid, _)| tid).collect();
        let given = Given::by(&self.wakers, |waker| known.contains(&waker));
        Given { crowded: given.crowded || self.threads.rest().count > 0, ..given }
    }

    pub(crate) fn add(&mut self, w: &FutexWait) {
        let outcome = match w.result {
            FutexResult::Slept => &mut self.slept,
            FutexResult::Again => &mut self.again,
            FutexResult::TimedOut => &mut self.timed_out,
            FutexResult::Interrupted => &mut self.interrupted,
            FutexResult::Failed => &mut self.failed,
        };
        let count = w.weight.of_waits();
        *outcome += count;
        self.records += 1;
        if !w.took_time() {
            return;
        }
        self.waits.add_for(count, w.wait);
        self.spread.add(w.end, count, w.wait);
        self.max = self.max.max(w.wait);
        self.histogram.add_for(count, w.wait);
        self.threads.add_for(w.tid, count, w.wait);
        if w.expected == CONTENDED_VALUE {
            self.contended.add_for(count, w.wait);
        }
        if is_for_lock(w.expected) {
            self.parked.add_for(count, w.wait);
        }
        if let Some(owner) = plausible_owner(w.expected, w.owner, w.tid) {
            self.owners.add_for(owner, count, w.wait);
        }
        if let Some(waker) = w.waker {
            self.wakers.add_for(waker, count, w.wait);
        }
        let site = self.site(w.site);
        site.waits.add_for(count, w.wait);
        site.max = site.max.max(w.wait);
        if let Some(stack) = w.stack {
            site.stacks.add_for(stack, w.weight.of_stacks(), w.wait);
        }
    }

    /// Whether some of the records stand for waits that were not recorded.
    #[must_use]
    pub fn is_thinned(&self) -> bool {
        self.slept + self.again + self.timed_out + self.interrupted + self.failed > self.records
    }

    /// Lets what stands for others add up to what is known to be true: the number and time of waits that slept. Where few were recorded, or
    /// much is missing, to no more than that.
    pub(crate) fn settle(&mut self, slept: Tally) {
        if !self.is_thinned() || self.waits.count == 0 || self.waits.time == Nanos(0) {
            return;
        }
        let share = |true_sum: u64, sum: u64| {
            let share = true_sum as f64 / sum as f64;
            if self.records >= ENOUGH && share <= MOST { share } else { share.min(1.0) }
        };
        let of_count = share(slept.count, self.waits.count);
        let of_time = share(slept.time.0, self.waits.time.0);
        self.spread = Spread::default();
        self.slept = self.slept.min(slept.count);
        self.waits.scale(of_count, of_time);
        self.contended.scale(of_count, of_time);
        self.parked.scale(of_count, of_time);
        self.shares.scale(of_count, of_time);
        for threads in [&mut self.owners, &mut self.wakers, &mut self.threads] {
            threads.scale(of_count, of_time);
        }
        for site in &mut self.sites {
            site.waits.scale(of_count, of_time);
            site.waits.settle(&mut site.max);
            site.stacks.scale(of_count, of_time);
        }
    }

    fn site(&mut self, site: Option<Site>) -> &mut FutexSite {
        let full = self.sites.len() >= MAX_SITES;
        let row = self.sites.iter().position(|s| s.site == site);
        let row = row.or_else(|| self.sites.iter().position(|s| full && s.site.is_none()));
        let row = row.unwrap_or_else(|| {
            self.sites.push(FutexSite { site: site.filter(|_| !full), ..FutexSite::default() });
            self.sites.len() - 1
        });
        &mut self.sites[row]
    }
}

/// Waits of one place, those for what is known to be a lock left out, that other threads ended: as if all of them were for one lock. Programs make
/// locks of condition variables (a database its row locks, a pool its connections), and each waiter may have a condition of its own.
#[derive(Clone, Debug, Default)]
pub struct WaitsAtPlace {
    /// The waits, divided among those who woke others that waited there.
    pub waits: FutexWaits,
    /// The words that threads slept on: the first 4,096.
    pub words: BTreeSet<Lock>,
    /// The waits that were recorded, without those for which they stand.
    pub recorded: Tally,
    /// Those of them that were ended in turn: by a thread which had waited there itself, and had woken nobody there since.
    pub in_turn: Tally,
}

impl WaitsAtPlace {
    /// Whether threads take turns there, as with a lock that all of them want: whoever is let go on lets another one go on, and has to wait
    /// anew. Whoever hands out work wakes several in a row, or waits elsewhere.
    #[must_use]
    pub fn is_taken_in_turn(&self) -> bool {
        let (part, count) = if self.waits.is_thinned() { SOME_IN_TURN } else { IN_TURN };
        self.recorded.count >= count && self.share_in_turn() >= part
    }

    /// The part of the recorded waits, or of their time if that is less, that was ended in turn.
    #[must_use]
    pub fn share_in_turn(&self) -> f64 {
        let share = |part: u64, all: u64| part as f64 / all.max(1) as f64;
        let Self { in_turn, recorded, .. } = self;
        share(in_turn.count, recorded.count).min(share(in_turn.time.0, recorded.time.0))
    }

    pub(super) fn add(&mut self, w: &FutexWait, word: Lock, in_turn: bool) {
        self.waits.add(w);
        if self.words.len() < MAX_WORDS {
            self.words.insert(word);
        }
        self.recorded.add(w.wait);
        if in_turn {
            self.in_turn.add(w.wait);
        }
    }

    /// Lets what stands for others add up to no more than what is known to be true of each word: the number and time of waits that slept.
    pub(crate) fn settle(&mut self, slept: &HashMap<Lock, Tally>) {
        if self.words.len() < MAX_WORDS {
            let mut all = Tally::default();
            self.words.iter().filter_map(|word| slept.get(word)).for_each(|&of_word| all += of_word);
            self.waits.settle(all);
        }
    }
}
