//! One iterator of events in, one observation out: the same for live capture, trace files and synthetic events.
#![forbid(unsafe_code)]

use crate::barriers::Barriers;
use crate::deadlock::Deadlock;
use crate::estimate;
use crate::event::{Event, ProcessSeen, ThreadTotals};
use crate::graph::WaitGraph;
use crate::graph::findings::{Findings, Told};
use crate::id::{Lock, Process, Tid};
use crate::inside::Insides;
use crate::observation::{Harvest, Observation, OpenWait};
use crate::op::{Action, Attempt, Failure, LockKind, Op, Released};
pub use crate::options::Options;
use crate::order::Sorter;
use crate::owners::Owners;
use crate::state::{Instance, Observer};
use crate::sums::SiteSums;
use crate::tally::Tally;
use crate::totals::Totals;
use crate::units::{Nanos, Time};
use crate::wakeups::Returns;
use lockbpf_common::counter::Counter;
use lockbpf_common::custom;
use lockbpf_common::kind::{Via, mutex_kind};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Exited threads listed one by one; what later ones did is added up in one entry.
const MAX_EXITED: usize = 16_384;
/// Waits still open at the end that are listed.
const MAX_OPEN: usize = 16_384;

/// What is known of an observation besides its events.
#[derive(Clone, Debug, Default)]
pub struct Closing {
    /// What was observed, in words.
    pub target: String,
    /// When it began and ended; `None`: with the earliest beginning of an event, and the last event.
    pub period: Option<(Time, Time)>,
    /// Whether only the futex tier was on.
    pub futex_only: bool,
    /// Units of time per ns.
    pub ticks_per_ns: u64,
    /// Sums, threads, waits, stacks and losses, as far as somebody kept them.
    pub harvest: Harvest,
}

/// Turns events into an observation.
#[derive(Clone, Debug)]
pub struct Analyst {
    sorter: Sorter,
    graph: WaitGraph,
    sums: Sums,
    owners: Owners,
    processes: HashMap<Process, ProcessSeen>,
    exited: Vec<ThreadTotals>,
    events: u64,
    period: Option<(Time, Time)>,
}

/// What is added up from steps, if it is wanted.
#[derive(Clone, Debug, Default)]
struct Sums {
    totals: Option<Totals>,
    barriers: Barriers,
    returns: Returns,
    open: Vec<OpenWait>,
    /// Waits beyond those listed in `open`.
    unlisted: u64,
}

impl Analyst {
    /// Nothing analysed yet.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            sorter: Sorter::new(options.hold_back),
            graph: WaitGraph::new(options),
            sums: Sums { totals: options.totals.then(Totals::default), ..Sums::default() },
            owners: Owners::default(),
            processes: HashMap::new(),
            exited: Vec::new(),
            events: 0,
            period: None,
        }
    }

    /// Takes one event.
    pub fn take(&mut self, event: Event) {
        self.events += 1;
        let event = event.from_time_0();
        let (began, time) = (event.began(), event.time());
        let (from, to) = self.period.get_or_insert((began, time));
        (*from, *to) = ((*from).min(began), (*to).max(time));
        self.sorter.push(&event);
        self.owners.see(&event);
        self.graph.event(&event);
        match event {
            Event::Process(seen) => drop(self.processes.insert(seen.process, seen)),
            Event::ThreadExit(totals) => list_exited(&mut self.exited, totals),
            _ => {}
        }
        self.pass_on();
    }

    /// Analyses everything before `watermark`: the source knows of no event that is still to come with a step of an earlier time
    /// ([`Sorter::advance`]). A snapshot has that much less to do, and less memory is held.
    pub fn advance(&mut self, watermark: Time) {
        self.sorter.advance(watermark);
        self.pass_on();
    }

    /// What the sorter has ready goes on.
    fn pass_on(&mut self) {
        for op in self.sorter.pop_ready() {
            step(&mut self.graph, &mut self.sums, &self.owners.check(op));
        }
    }

    /// What has come to be complete since the last call ([`Options::told`]). What is complete at the end only, the observation has.
    #[must_use]
    pub fn told(&mut self) -> Vec<Told> {
        self.graph.told()
    }

    /// Events so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Knows a process that no event tells of.
    pub fn meet(&mut self, seen: ProcessSeen) {
        self.processes.insert(seen.process, seen);
    }

    /// The observation as of now: what [`Self::finish`] would yield if it ended with the last event, waits and holds in progress
    /// included. What is taken later is not touched by it.
    #[must_use]
    pub fn snapshot(&self, closing: Closing) -> Observation {
        self.clone().finish(closing)
    }

    /// Ends the observation: its last snapshot.
    #[must_use]
    pub fn finish(mut self, closing: Closing) -> Observation {
        let Closing { target, period, futex_only, ticks_per_ns, harvest } = closing;
        let (start, end) = period.or(self.period).unwrap_or_default();
        harvest.threads.iter().for_each(|thread| self.owners.meet(thread.process, thread.tid));
        harvest.bystanders.iter().for_each(|&(process, tid)| self.owners.meet(process, tid));
        // Found in the process; of a lock that is known by numbers it may be in any.
        let of_process = |wait: &&OpenWait| wait.before_start && custom::numbers(wait.lock.addr).is_none();
        for wait in harvest.open_waits.iter().filter(of_process) {
            wait.owner.iter().for_each(|&owner| self.owners.meet(wait.lock.process, owner));
        }
        // A wait that goes on has no record yet, but whom it blames is known as for any other.
        for wait in &harvest.open_waits {
            if let Some(op) = attempt(wait) {
                self.sorter.push(&Event::Step(op));
            }
        }
        for op in self.sorter.finish() {
            step(&mut self.graph, &mut self.sums, &self.owners.check(op));
        }
        let mut deadlocks = harvest.deadlocks;
        // They stood at the last step.
        for found in self.graph.deadlocks() {
            if !deadlocks.iter().any(|known| same(known, found)) {
                deadlocks.push(Deadlock { seen: end.max(found.found), ..found.clone() });
            }
        }
        let orders = if harvest.orders.is_empty() { self.graph.orders() } else { harvest.orders };
        let mut findings = self.graph.finish(end, &mut self.sums);
        for (&word, waits) in &mut findings.words {
            self.owners.waited(word, waits.threads.top().into_iter().map(|(tid, _)| tid));
            waits.owners.retain(|owner| self.owners.believes(word, word.process, owner));
            waits.shares.disown(|tid| self.owners.believes(word, word.process, tid));
        }
        let Sums { totals, barriers, returns, open, unlisted } = self.sums;
        let mut quality = harvest.quality;
        quality.events = self.events;
        // A recording's own figures may be anything.
        quality.late = quality.late.saturating_add(self.sorter.late());
        let mut threads = self.exited;
        threads.extend(harvest.threads);
        let mut sums: Vec<SiteSums> = harvest.sums.iter().map(SiteSums::from).collect();
        let mut lost = |cause: Counter, n: u64| {
            if n > 0 {
                let count = quality.counters.entry(cause.name()).or_default();
                *count = count.saturating_add(n);
            }
        };
        let mut open_waits = if harvest.open_waits.is_empty() {
            lost(Counter::WaitsFull, unlisted);
            open
        } else {
            harvest.open_waits
        };
        for wait in &mut open_waits {
            let believed = |&owner: &Tid| self.owners.believes(wait.lock, wait.lock.process, owner);
            wait.owner = wait.owner.filter(believed);
        }
        findings.disbelieved = self.owners.disbelieved();
        let mut beyond = barriers.beyond().count;
        if let Some(totals) = totals.filter(|_| sums.is_empty()) {
            sums = totals.sites();
            threads = totals.threads();
            beyond += totals.beyond().count;
            lost(Counter::ThreadsFull, totals.of_other_threads());
        }
        lost(Counter::SumsFull, beyond);
        sums.extend(barriers.sums());
        settle(&mut findings, &sums);
        let insides = Insides::of(&sums);
        adopt(&mut findings, &sums, &insides);
        insides.fold_sums(&mut sums);
        insides.fold_waits(&mut findings.words, &mut open_waits);
        for wait in findings.detail.iter_mut().flat_map(|detail| &mut detail.divided) {
            wait.rename_locks(|lock| insides.lock_of(lock).unwrap_or(lock));
        }
        if let Some(estimates) = &harvest.estimates {
            let recorded = |lock| {
                let mut recorded = BTreeMap::new();
                for waiter in findings.locks.get(&lock).into_iter().flat_map(|shares| &shares.waiters) {
                    waiter.site.into_iter().for_each(|site| *recorded.entry(site).or_default() += waiter.acquired);
                }
                recorded
            };
            estimate::apply(estimates, &mut sums, &mut threads, &recorded);
        }
        Observation {
            target,
            start,
            end,
            futex_only,
            processes: self.processes,
            sums,
            counted: harvest.counted,
            library: harvest.library,
            threads,
            findings,
            wakeups: returns.sites(),
            deadlocks,
            orders,
            open_waits,
            stacks: harvest.stacks,
            quality,
            estimates: harvest.estimates,
            ticks_per_ns,
        }
    }
}

fn step(graph: &mut WaitGraph, sums: &mut Sums, op: &Op) {
    if let Action::Barrier(arrival) = &op.action {
        sums.barriers.arrive(arrival);
    }
    if let Some(totals) = &mut sums.totals {
        totals.step(op);
    }
    graph.op(op, sums);
}

impl Observer for Sums {
    fn acquired(&mut self, instance: &Instance) {
        if let Some(totals) = &mut self.totals {
            totals.acquired(instance);
        }
    }

    fn released(&mut self, instance: &Instance, at: Time, how: Released) {
        self.returns.released(instance, at, how);
        if let Some(totals) = &mut self.totals {
            totals.released(instance, at, how);
        }
    }

    fn failed(&mut self, instance: &Instance, at: Time, how: Failure) {
        if let Some(totals) = &mut self.totals {
            totals.failed(instance, at, how);
        }
    }

    fn passed(&mut self, region: &Instance, successor: &Instance) {
        self.barriers.passed(region, successor);
        if let Some(totals) = &mut self.totals {
            totals.passed(region, successor);
        }
    }

    fn open(&mut self, instance: &Instance, end: Time) {
        if instance.acquire.is_none() && self.open.len() >= MAX_OPEN {
            self.unlisted += 1;
        } else if instance.acquire.is_none() {
            self.open.push(OpenWait {
                tid: instance.tid,
                lock: instance.lock,
                site: instance.site,
                since: instance.attempt.unwrap_or(end),
                owner: None,
                stack: instance.stack,
                via: Via::Lock,
                expected: None,
                before_start: instance.attempt.is_none(),
            });
        }
        if let Some(totals) = &mut self.totals {
            totals.open(instance, end);
        }
    }
}

/// What is estimated from the records of words whose waits were thinned is no more than what was counted.
fn settle(findings: &mut Findings, sums: &[SiteSums]) {
    let rows = sums.iter().filter(|row| row.via == Via::Futex);
    let slept: HashMap<Lock, Tally> =
        rows.map(|row| (row.lock, Tally { count: row.acquisitions, time: row.wait.sum })).collect();
    for (word, waits) in &mut findings.words {
        if let Some(&slept) = slept.get(word) {
            waits.settle(slept);
        }
    }
    findings.places.values_mut().for_each(|place| place.settle(&slept));
}

/// Waits that only futex calls show are waits for a lock, if their word is that of one, or looks like it.
fn adopt(findings: &mut Findings, sums: &[SiteSums], insides: &Insides) {
    let of_lock =
        |s: &&SiteSums| !matches!(s.via, Via::Futex | Via::CondWait) && s.mutex_kind & mutex_kind::IS_CONDVAR == 0;
    let called: HashSet<Lock> = sums.iter().filter(of_lock).map(|s| s.lock).collect();
    let words: Vec<Lock> = findings.words.keys().copied().collect();
    for word in words {
        let lock = insides.lock_of(word).unwrap_or(word);
        let lock = (called.contains(&lock) || findings.locks.contains_key(&lock)).then_some(lock);
        let Some(waits) = findings.words.get_mut(&word) else { continue };
        if lock.is_some() || waits.looks_like_mutex() {
            let shares = std::mem::take(&mut waits.shares);
            findings.adopt(word, &shares, lock);
            if lock.is_none()
                && let Some(waits) = findings.words.get_mut(&word)
            {
                waits.shares = shares;
            }
        }
    }
}

/// The attempt of a wait that goes on, if it is for a lock.
fn attempt(wait: &OpenWait) -> Option<Op> {
    if matches!(wait.via, Via::Futex | Via::CondWait) {
        return None;
    }
    let attempt = Attempt {
        lock: wait.lock,
        site: wait.site?,
        shared: false,
        kind: LockKind::Mutex,
        owner: wait.owner,
        stack: wait.stack,
        contended: Some(true),
    };
    Some(Op { time: wait.since, tid: wait.tid, process: wait.lock.process, action: Action::Attempt(attempt) })
}

/// Whether two deadlocks are of the same threads.
fn same(a: &Deadlock, b: &Deadlock) -> bool {
    let tids = |d: &Deadlock| {
        let mut tids: Vec<Tid> = d.members.iter().map(|m| m.tid).collect();
        tids.sort_unstable();
        tids
    };
    tids(a) == tids(b)
}

fn list_exited(exited: &mut Vec<ThreadTotals>, totals: ThreadTotals) {
    if exited.len() < MAX_EXITED {
        exited.push(totals);
    } else if let Some(last) = exited.last_mut() {
        last.tid = Tid(0);
        last.comm = "(more that exited)".to_owned();
        last.acquisitions += totals.acquisitions;
        for (sum, add) in [
            (&mut last.wait, totals.wait),
            (&mut last.kernel_wait, totals.kernel_wait),
            (&mut last.held_sum, totals.held_sum),
            (&mut last.held_union, totals.held_union),
        ] {
            *sum = Nanos(sum.0.saturating_add(add.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::OffCpu;
    use crate::id::Site;
    use crate::op::OffReason;

    /// Found by fuzzing: it was told that a thread had held a lock for longer than the observation.
    #[test]
    fn an_observation_begins_with_what_its_first_events_tell_of() {
        let (process, tid, runnable) = (Process(1), Tid(1), Nanos(0));
        let off = |end, off| {
            let (end, off, reason, stack) = (Time(end), Nanos(off), OffReason::Sleeping, None);
            Event::OffCpu(OffCpu { end, off, runnable, process, tid, reason, stack })
        };
        let mut analyst = Analyst::new(Options::default());
        [off(3, 1), off(4, 7), off(5, 0)].into_iter().for_each(|event| analyst.take(event));
        let observation = analyst.finish(Closing::default());
        assert_eq!((observation.start, observation.end), (Time(0), Time(5)));
    }

    #[test]
    fn open_waits_beyond_those_listed_are_counted() {
        let mut analyst = Analyst::new(Options::default());
        for n in 0..MAX_OPEN as u32 + 5 {
            let process = Process(0);
            let attempt = Attempt {
                lock: Lock { process, addr: u64::from(n) },
                site: Site { process, addr: 9 },
                shared: false,
                kind: LockKind::Mutex,
                owner: None,
                stack: None,
                contended: Some(true),
            };
            let (time, tid) = (Time(u64::from(n)), Tid(n + 1));
            analyst.take(Event::Step(Op { time, tid, process, action: Action::Attempt(attempt) }));
        }
        let observation = analyst.finish(Closing::default());
        assert_eq!(observation.open_waits.len(), MAX_OPEN);
        assert_eq!(observation.quality.counters.get(Counter::WaitsFull.name()), Some(&5));
    }
}
