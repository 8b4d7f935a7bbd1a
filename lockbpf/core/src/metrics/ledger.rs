//! Sums over all that was ever observed, by workload.

use super::buckets::{Buckets, Peaks};
use super::labels;
use super::rise::{Divided, Peak};
use super::series::{Causes, CulpritLabels, LockLabels, LockSums, Top, add_causes};
use super::workload::Workload;
use crate::deadlock::Deadlock;
use crate::graph::findings::Who;
use crate::id::{Lock, Process, Tid};
use crate::quality::Quality;
use crate::report::measured::{Caused, MeasuredLock};
use crate::units::Nanos;
use lockbpf_common::counter::Class;
use std::collections::{BTreeMap, HashMap};

/// A deadlock that was not seen in so many snapshots is over: at the beginning of an observation it takes a moment until it is found.
const GONE: u32 = 3;
/// A workload whose locks did nothing in so many snapshots may make room for another.
const SILENT: u64 = 30;

/// How many series there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Locks of each workload told apart, those waited for most.
    pub locks: usize,
    /// Culprits of each workload told apart.
    pub culprits: usize,
    /// Workloads told apart.
    pub workloads: usize,
    /// Locks, and culprits, told apart in all.
    pub series: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { locks: 10, culprits: 10, workloads: 200, series: 500 }
    }
}

/// What was seen since an observation began.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// When, ns since 1970 (UTC).
    pub at_ns: u64,
    /// All locks.
    pub locks: &'a [MeasuredLock],
    /// Whose they are.
    pub workloads: &'a HashMap<Process, Workload>,
    /// What is missing.
    pub quality: &'a Quality,
    /// Threads that wait for one another in a circle.
    pub deadlocks: &'a [Deadlock],
    /// Part of the programs' work in which every lock operation was seen.
    pub observed: f64,
    /// What observing has cost the programs so far, of CPU time.
    pub overhead: Nanos,
}

/// Adds up snapshots. What it tells never falls, whatever the snapshots do.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    limits: Limits,
    round: Round,
    book: Book,
    /// Deadlocks that stand, by their threads, and in how many snapshots they were missing.
    standing: BTreeMap<Vec<Tid>, u32>,
}

/// What is told.
#[derive(Clone, Debug, Default)]
pub struct Book {
    pub(super) workloads: BTreeMap<Workload, Account>,
    pub(super) lost: BTreeMap<String, u64>,
    pub(super) overhead_ns: u64,
    pub(super) observed: f64,
    pub(super) deadlocks: u64,
    pub(super) standing: u64,
    /// Workloads that had no series of their own when it was looked last.
    pub(super) omitted: u64,
    pub(super) evicted: u64,
    /// When the last snapshot was taken, ns since 1970; 0 for never.
    at_ns: u64,
    pub(super) snapshots: u64,
    pub(super) rounds: u64,
}

/// One workload's sums.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    pub(super) locks: Top<LockLabels, LockSums>,
    pub(super) culprits: Top<CulpritLabels, Causes>,
    /// The snapshot in which it was seen last.
    seen: u64,
    /// When there was nothing of it last, ns since 1970; 0 for the beginning.
    pub(super) since_ns: u64,
}

/// How far the present observation has come.
#[derive(Clone, Debug, Default)]
struct Round {
    locks: HashMap<Lock, LockPeaks>,
    lost: BTreeMap<String, Peak>,
    overhead: Peak,
}

#[derive(Clone, Debug, Default)]
struct LockPeaks {
    acquisitions: Peak,
    contentions: Peak,
    wait: Peaks,
    hold: Peaks,
    caused: Divided<(Lock, Option<Who>, &'static str)>,
}

/// What has come since the last snapshot, of one workload.
#[derive(Default)]
struct Risen {
    locks: BTreeMap<LockLabels, LockSums>,
    culprits: BTreeMap<CulpritLabels, Causes>,
}

impl Ledger {
    /// Nothing seen yet.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Other limits from now on. What has a series keeps it.
    pub fn limit(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// What is told.
    #[must_use]
    pub fn book(&self) -> &Book {
        &self.book
    }

    /// Takes a snapshot of the present observation.
    pub fn take(&mut self, snapshot: &Snapshot<'_>) {
        self.book.snapshots += 1;
        self.deadlocks(snapshot.deadlocks);
        self.lost(snapshot.quality);
        self.book.observed = snapshot.observed;
        self.book.overhead_ns += self.round.overhead.rise(snapshot.overhead.0);
        let mut risen: BTreeMap<Workload, Risen> = BTreeMap::new();
        let unknown = Workload { comm: "[unknown]".to_owned(), ..Workload::default() };
        let whose = |process: Process| match snapshot.workloads.get(&process) {
            Some(workload) => workload.clone(),
            None if process == Process::KERNEL => Workload { comm: "kernel".to_owned(), ..Workload::default() },
            None => unknown.clone(),
        };
        for lock in snapshot.locks {
            let peaks = self.round.locks.entry(lock.lock).or_default();
            let (sums, blame) = (peaks.rise(lock), peaks.blame(lock));
            if sums.is_nothing() && blame.is_empty() {
                continue;
            }
            let workload = risen.entry(whose(lock.process())).or_default();
            workload.locks.entry(labels_of(&lock.name, &lock.kind)).or_default().add(&sums);
            for (caused, wait) in blame {
                let labels =
                    CulpritLabels { held: labels_of(&caused.name, &caused.kind), site: labels::value(&caused.place) };
                let culprit = risen.entry(whose(caused.held.process)).or_default().culprits.entry(labels).or_default();
                add_causes(culprit, &Causes::from([(caused.cause, wait)]));
            }
        }
        self.enter(risen);
        self.book.at_ns = snapshot.at_ns;
    }

    /// The observation is over: the next one counts from nothing.
    pub fn end_round(&mut self) {
        self.round = Round::default();
        self.book.rounds += 1;
        self.book.observed = 0.0;
        self.book.workloads.values_mut().for_each(Account::forget_waiters);
    }

    fn enter(&mut self, risen: BTreeMap<Workload, Risen>) {
        let Limits { locks, culprits, series, .. } = self.limits;
        self.book.omitted = 0;
        self.book.workloads.values_mut().for_each(Account::forget_waiters);
        let mut elsewhere = Risen::default();
        for (workload, risen) in risen {
            if !self.has_room_for(&workload) {
                self.book.omitted += 1;
                elsewhere.add(risen);
                continue;
            }
            let (told_locks, told_culprits) = self.book.told();
            let (mut locks_left, mut culprits_left) =
                (series.saturating_sub(told_locks), series.saturating_sub(told_culprits));
            let account = self.book.account(workload);
            account.enter(risen, locks, &mut locks_left, culprits, &mut culprits_left);
        }
        if self.book.omitted > 0 {
            let other = self.book.account(Workload::other());
            // Nothing of them is told apart.
            other.enter(elsewhere, 0, &mut 0, 0, &mut 0);
        }
    }

    /// Whether a workload has an account, or may have one. One that was not heard of for long makes room.
    fn has_room_for(&mut self, workload: &Workload) -> bool {
        let Book { workloads, snapshots, evicted, .. } = &mut self.book;
        if workloads.contains_key(workload) || workloads.len() < self.limits.workloads {
            return true;
        }
        let silent = workloads.iter().filter(|(_, account)| *snapshots - account.seen >= SILENT);
        let Some(oldest) = silent.min_by_key(|(_, account)| account.seen).map(|(workload, _)| workload.clone()) else {
            return false;
        };
        workloads.remove(&oldest);
        *evicted += 1;
        true
    }

    fn lost(&mut self, quality: &Quality) {
        let undecodable = quality.undecodable.iter().map(|(&kind, &n)| (format!("undecodable: {kind}"), n));
        let late = [("late".to_owned(), quality.late)].into_iter().filter(|(_, n)| *n > 0);
        let lost = quality.of_class(Class::Lost).map(|(kind, n)| (kind.to_owned(), n));
        for (kind, n) in lost.chain(undecodable).chain(late) {
            let rise = self.round.lost.entry(kind.clone()).or_default().rise(n);
            *self.book.lost.entry(kind).or_default() += rise;
        }
    }

    fn deadlocks(&mut self, found: &[Deadlock]) {
        self.standing.values_mut().for_each(|missing| *missing += 1);
        for deadlock in found.iter().filter(|deadlock| deadlock.ended.is_none() && !deadlock.exited) {
            let mut threads: Vec<Tid> = deadlock.members.iter().map(|member| member.tid).collect();
            threads.sort_unstable();
            if self.standing.insert(threads, 0).is_none() {
                self.book.deadlocks += 1;
            }
        }
        self.standing.retain(|_, missing| *missing < GONE);
        self.book.standing = self.standing.len() as u64;
    }
}

impl Book {
    /// The account of a workload that is seen now. A new one counts what has come since the last snapshot.
    fn account(&mut self, workload: Workload) -> &mut Account {
        let since_ns = self.at_ns;
        let account = self.workloads.entry(workload).or_insert_with(|| Account { since_ns, ..Account::default() });
        account.seen = self.snapshots;
        account
    }

    /// Locks and culprits that have series of their own.
    pub(super) fn told(&self) -> (usize, usize) {
        let accounts = || self.workloads.values();
        (
            accounts().map(|account| account.locks.own.len()).sum(),
            accounts().map(|account| account.culprits.own.len()).sum(),
        )
    }
}

impl Account {
    fn enter(
        &mut self,
        risen: Risen,
        locks: usize,
        locks_left: &mut usize,
        culprits: usize,
        culprits_left: &mut usize,
    ) {
        self.locks.take(risen.locks.into_iter().collect(), locks, locks_left, LockSums::harm, LockSums::add);
        let harm = |causes: &Causes| causes.values().fold(0, |sum: u64, &wait| sum.saturating_add(wait));
        self.culprits.take(risen.culprits.into_iter().collect(), culprits, culprits_left, harm, add_causes);
    }

    fn forget_waiters(&mut self) {
        self.locks.own.values_mut().for_each(|sums| sums.waiters = 0);
        self.locks.other.waiters = 0;
    }
}

impl Risen {
    fn add(&mut self, other: Self) {
        for (labels, sums) in other.locks {
            self.locks.entry(labels).or_default().add(&sums);
        }
        for (labels, causes) in other.culprits {
            add_causes(self.culprits.entry(labels).or_default(), &causes);
        }
    }
}

impl LockPeaks {
    fn rise(&mut self, now: &MeasuredLock) -> LockSums {
        LockSums {
            acquisitions: now.acquisitions.map(|n| self.acquisitions.rise(n)),
            contentions: self.contentions.rise(now.contended),
            wait: self.wait.rise(&Buckets::of(&now.wait)),
            hold: now.hold.as_ref().map(|hold| self.hold.rise(&Buckets::of(hold))),
            waiters: now.waiting,
        }
    }

    /// What culprits have caused since, with what is told of them.
    fn blame<'a>(&mut self, now: &'a MeasuredLock) -> Vec<(&'a Caused, u64)> {
        let key = |caused: &Caused| (caused.held, caused.who, caused.cause);
        let told: HashMap<_, &Caused> = now.caused.iter().map(|caused| (key(caused), caused)).collect();
        let parts = now.caused.iter().map(|caused| (key(caused), caused.wait.0));
        let risen = self.caused.rise(now.recorded.0, parts);
        risen.into_iter().filter_map(|(key, wait)| Some((*told.get(&key)?, wait))).collect()
    }
}

fn labels_of(name: &str, kind: &str) -> LockLabels {
    LockLabels { lock: labels::value(labels::without_number(name)), kind: labels::value(kind) }
}
