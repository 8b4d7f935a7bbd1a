//! Every recorded wait and hold in time, and whom each wait is charged to. What viewers of timelines are fed with.

use super::divide::holder_place;
use super::doing;
use super::lock::Ranked;
use super::pictures::Stretch;
use super::place::Places;
use super::profile;
use super::schema::{Ns, Place, Report, StackFrame, ThreadId};
use super::word::elsewhere;
use crate::graph::findings::{Blamed, Cause, CriticalPath, Detail, DividedWait, Edge, Node, Who};
use crate::id::{Lock, Process, Site, StackId, Tid};
use crate::observation::Observation;
use crate::units::{Nanos, Time};
use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Everything that happened to the locks of a report, in time. Threads, locks, stacks and places are named by their indices in the lists.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// What was observed, in words.
    pub target: String,
    /// When the observation began, on the clock of all times.
    pub start_ns: Ns,
    /// When it ended.
    pub end_ns: Ns,
    /// When it began, ns since 1970 (UTC), if that is known.
    pub started_ns: Option<u64>,
    /// Whoever waited, held or is to blame.
    pub threads: Vec<Thread>,
    /// Locks that somebody waited for or held.
    pub locks: Vec<LockName>,
    /// Where locks were asked for.
    pub stacks: Vec<Stack>,
    /// Places of those to blame.
    pub places: Vec<Place>,
    /// Whoever woke a thread that waited.
    pub wakers: Vec<ThreadId>,
    /// By start.
    pub waits: Vec<Wait>,
    /// By start.
    pub holds: Vec<Hold>,
    /// Waiting that the report tells, but not wait by wait: what was only counted, and what recorded waits stand for.
    pub not_shown_ns: Ns,
}

impl Timeline {
    /// What a thread is called: its name, else its number.
    #[must_use]
    pub fn called(&self, thread: usize) -> String {
        let thread = &self.threads[thread];
        if thread.name.is_empty() { thread.tid.to_string() } else { thread.name.clone() }
    }

    /// The longest part of a wait of the thread that most of it is charged to.
    #[must_use]
    pub fn mostly<'a>(&self, wait: &'a Wait) -> Option<&'a Culprit> {
        let of_thread = |thread: usize| -> Ns {
            wait.culprits.iter().filter(|culprit| culprit.thread == thread).map(|culprit| culprit.wait_ns).sum()
        };
        wait.culprits.iter().max_by_key(|culprit| (of_thread(culprit.thread), culprit.wait_ns))
    }

    /// A part of a wait in words: `2.00 ms on flusher holding log_lock in flush (wal.c:210), blocked`.
    #[must_use]
    pub fn blamed(&self, culprit: &Culprit) -> String {
        let Culprit { wait_ns, .. } = culprit;
        let (thread, lock) = (self.called(culprit.thread), &self.locks[culprit.lock].name);
        let symbol = &self.places[culprit.place].symbol;
        let cause = culprit.cause.map(|cause| format!(", {cause}")).unwrap_or_default();
        let inferred = if culprit.inferred { " (inferred)" } else { "" };
        format!("{wait_ns} on {thread} holding {lock} in {symbol}{cause}{inferred}")
    }
}

/// Viewers that want a pid show this one for threads whose process is not known.
pub const NO_PID: u32 = 1;

/// A thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Thread {
    /// As the report calls it.
    pub tid: ThreadId,
    /// Its number, where it has one that an operating system could have given; else one that no other thread has.
    pub number: u32,
    /// Its name; empty if it is not known.
    pub name: String,
    /// Its process, if that is known.
    pub pid: Option<u32>,
    /// The name of that.
    pub process: String,
}

/// Where a lock was asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stack {
    /// The place as the report tells it.
    pub place: Place,
    /// Calls, innermost first; never empty.
    pub frames: Vec<StackFrame>,
}

/// A lock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LockName {
    /// Its name as the table shows it.
    pub name: String,
    /// Its kind; empty of a lock that the report does not list.
    pub kind: String,
    /// Which of the report's locks it is, from 0; `None` with several runs.
    pub entry: Option<usize>,
    /// In which of several runs, from 1.
    pub run: Option<usize>,
}

/// A wait.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wait {
    /// Who waited.
    pub thread: usize,
    /// For what.
    pub lock: usize,
    /// Where, and by which calls: in [`Timeline::stacks`].
    pub stack: usize,
    /// Since when.
    pub start_ns: Ns,
    /// How long.
    pub wait_ns: Ns,
    /// Who woke the thread at its end, if that was seen: in [`Timeline::wakers`].
    pub waker: Option<usize>,
    /// Whom it is charged to, in no particular order; what is missing is charged to nobody.
    pub culprits: Vec<Culprit>,
}

/// A part of a wait.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Culprit {
    /// Who made the other wait.
    pub thread: usize,
    /// Which lock it held: another one than is waited for if its holder waited for that.
    pub lock: usize,
    /// Where it had asked for it, or gave it back: in [`Timeline::places`].
    pub place: usize,
    /// For how much of the wait.
    pub wait_ns: Ns,
    /// What it was doing, as far as that is kept: of waits that only futex calls show.
    pub cause: Option<&'static str>,
    /// Whether that rests on something less than the recorded order of holders.
    pub inferred: bool,
}

/// A time for which a lock was held.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hold {
    /// By whom.
    pub thread: usize,
    /// Which.
    pub lock: usize,
    /// Where it was requested.
    pub stack: usize,
    /// From when on.
    pub start_ns: Ns,
    /// Until when: at the latest the end of the observation.
    pub end_ns: Ns,
}

/// Everything in time of the locks of which there is a report.
pub(super) fn timeline(
    ranked: &[Ranked<'_>],
    report: &Report,
    observation: &Observation,
    places: &mut Places<'_>,
) -> Timeline {
    let mut timeline = empty(report, observation, places);
    let mut tables = Tables::new(ranked, report, observation, places);
    if let Some(detail) = &observation.findings.detail {
        let shown: HashSet<Lock> = ranked.iter().map(|r| r.lock).collect();
        tables.nodes(detail, &shown, (observation.start, observation.end), &mut timeline);
        for wait in detail.divided.iter().filter(|wait| shown.contains(&wait.lock)) {
            let wait = tables.divided(wait);
            timeline.waits.push(wait);
        }
    }
    timeline.waits.sort_by_key(|wait| (wait.start_ns, wait.thread));
    timeline.holds.sort_by_key(|hold| (hold.start_ns, hold.thread));
    timeline.not_shown_ns = all(report) - timeline.waits.iter().map(|wait| wait.wait_ns).sum();
    tables.name(&mut timeline);
    number(&mut timeline.threads);
    timeline
}

/// A timeline in which nothing happens.
pub(super) fn empty(report: &Report, observation: &Observation, places: &Places<'_>) -> Timeline {
    Timeline {
        target: report.quality.target.clone(),
        start_ns: places.at(observation.start),
        end_ns: places.at(observation.end),
        ..Timeline::default()
    }
}

/// All waiting that a report tells.
pub(super) fn all(report: &Report) -> Ns {
    report.totals.harm_ns.max(report.totals.recorded_wait_ns)
}

/// The critical path on the clock of a timeline, by its threads. Stretches of threads that neither waited, held nor are to blame are left out.
pub(super) fn stretches(path: &CriticalPath, timeline: &Timeline, places: &mut Places<'_>) -> Vec<Stretch> {
    let threads: BTreeMap<&ThreadId, usize> = timeline.threads.iter().enumerate().map(|(i, t)| (&t.tid, i)).collect();
    let on = path.on.iter().filter_map(|on| {
        let thread = *threads.get(&places.thread(on.tid))?;
        Some(Stretch { thread, from_ns: places.at(on.from), to_ns: places.at(on.to) })
    });
    on.collect()
}

/// Things by their numbers, in the order in which they were first asked for.
type Table<K> = IndexSet<K, FxBuildHasher>;

pub(super) struct Tables<'a, 'b> {
    places: &'a mut Places<'b>,
    /// Process and name of each thread.
    known: HashMap<Tid, (Process, &'a str)>,
    /// Which entry of the report each lock is, and its kind.
    entries: HashMap<Lock, (usize, &'a str)>,
    threads: Table<Tid>,
    /// Processes of threads that are not known otherwise: those of their locks.
    owners: HashMap<Tid, Process>,
    locks: Table<Lock>,
    stacks: Table<(Process, Option<Site>, Option<StackId>)>,
    culprits: Table<Who>,
    wakers: Table<Tid>,
}

impl<'a, 'b> Tables<'a, 'b> {
    pub(super) fn new(
        ranked: &[Ranked<'_>],
        report: &'a Report,
        observation: &'a Observation,
        places: &'a mut Places<'b>,
    ) -> Self {
        let entries = ranked.iter().zip(&report.locks).enumerate();
        Self {
            places,
            known: observation.threads.iter().map(|t| (t.tid, (t.process, t.comm.as_str()))).collect(),
            entries: entries.map(|(at, (r, entry))| (r.lock, (at, entry.kind.as_str()))).collect(),
            threads: Table::default(),
            owners: HashMap::new(),
            locks: Table::default(),
            stacks: Table::default(),
            culprits: Table::default(),
            wakers: Table::default(),
        }
    }

    /// Waits and holds that steps tell.
    fn nodes(&mut self, detail: &Detail, shown: &HashSet<Lock>, period: (Time, Time), timeline: &mut Timeline) {
        // Those are told below, with whom they are charged to.
        let divided: HashSet<Lock> = detail.divided.iter().filter(|w| w.of_runtime).map(|w| w.lock).collect();
        let mut edges = detail.edges.as_slice();
        for node in &detail.nodes {
            let (into, others) = edges.split_at(edges.iter().take_while(|edge| edge.to == node.number).count());
            edges = others;
            if !shown.contains(&node.lock) {
                continue;
            }
            if node.wait > Nanos(0) && !divided.contains(&node.lock) {
                let mut culprits = Vec::with_capacity(into.len());
                for edge in into {
                    let at = detail.nodes.binary_search_by_key(&edge.from, |node| node.number);
                    let from = at.ok().and_then(|at| detail.nodes.get(at));
                    culprits.extend(from.map(|from| self.culprit(edge, from)));
                }
                timeline.waits.push(self.wait(node, period.0, culprits));
            }
            timeline.holds.extend(self.hold(node, period));
        }
    }

    pub(super) fn wait(&mut self, node: &Node, start: Time, culprits: Vec<Culprit>) -> Wait {
        Wait {
            thread: self.thread(node.tid, node.lock),
            lock: self.lock(node.lock),
            stack: self.stack(node.lock, node.site, node.stack),
            start_ns: self.places.at(node.attempt.unwrap_or(start)),
            wait_ns: self.places.ns(node.wait),
            waker: self.waker(node.waker),
            culprits,
        }
    }

    pub(super) fn hold(&mut self, node: &Node, (start, end): (Time, Time)) -> Option<Hold> {
        // At a barrier it is the way to the next arrival.
        let is_barrier = self.entries.get(&node.lock).is_some_and(|&(_, kind)| kind == "barrier");
        let from = node.acquire.or((node.attempt.is_none() && node.release.is_some()).then_some(start))?;
        let until = node.release.unwrap_or(end);
        (!is_barrier && until > from).then(|| Hold {
            thread: self.thread(node.tid, node.lock),
            lock: self.lock(node.lock),
            stack: self.stack(node.lock, node.site, node.stack),
            start_ns: self.places.at(from),
            end_ns: self.places.at(until),
        })
    }

    fn culprit(&mut self, edge: &Edge, from: &Node) -> Culprit {
        let Node { tid, lock, site, .. } = *from;
        let who = site.map_or(Who::Thread(tid), |site| Who::Section { lock, site });
        self.blamed(&Blamed { who, tid, lock, wait: edge.cost, inferred: edge.inferred })
    }

    pub(super) fn blamed(&mut self, by: &Blamed) -> Culprit {
        Culprit {
            thread: self.thread(by.tid, by.lock),
            lock: self.lock(by.lock),
            place: self.place(by.who),
            wait_ns: self.places.ns(by.wait),
            cause: None,
            inferred: by.inferred,
        }
    }

    /// A wait that only futex calls show.
    pub(super) fn divided(&mut self, wait: &DividedWait) -> Wait {
        let mut culprits = Vec::new();
        for part in wait.parts.iter().filter(|part| part.wait > Nanos(0)) {
            let Some(who) = part.who else { continue };
            let held = who.lock().unwrap_or(wait.lock);
            culprits.push(Culprit {
                thread: self.thread(part.tid, held),
                lock: self.lock(held),
                place: self.place(who),
                wait_ns: self.places.ns(part.wait),
                cause: (part.cause != Cause::Unknown).then(|| doing::name(part.cause)),
                inferred: part.inferred,
            });
        }
        Wait {
            thread: self.thread(wait.tid, wait.lock),
            lock: self.lock(wait.lock),
            stack: self.stack(wait.lock, wait.site, wait.stack),
            start_ns: self.places.at(wait.end - wait.wait),
            wait_ns: self.places.ns(wait.wait),
            waker: self.waker(wait.waker),
            culprits,
        }
    }

    fn thread(&mut self, tid: Tid, lock: Lock) -> usize {
        self.owners.entry(tid).or_insert(lock.process);
        self.threads.insert_full(tid).0
    }

    fn lock(&mut self, lock: Lock) -> usize {
        self.locks.insert_full(lock).0
    }

    fn place(&mut self, who: Who) -> usize {
        self.culprits.insert_full(who).0
    }

    fn waker(&mut self, tid: Option<Tid>) -> Option<usize> {
        tid.map(|tid| self.wakers.insert_full(tid).0)
    }

    fn stack(&mut self, lock: Lock, site: Option<Site>, stack: Option<StackId>) -> usize {
        self.stacks.insert_full((lock.process, site, stack)).0
    }

    /// Gives everything its name that has none yet.
    pub(super) fn name(&mut self, timeline: &mut Timeline) {
        let Self { places, known, entries, threads, owners, locks, stacks, culprits, wakers } = self;
        for &tid in threads.iter().skip(timeline.threads.len()) {
            let (id, seen) = (places.thread(tid), known.get(&tid).copied());
            let process = seen.map(|(process, _)| process).or(owners.get(&tid).copied()).unwrap_or_default();
            let (pid, process) = places.process(process);
            let name = places.comm(tid, seen.map_or("", |(_, comm)| comm));
            timeline.threads.push(Thread { tid: id, number: 0, name, pid, process: process.unwrap_or_default() });
        }
        for &lock in locks.iter().skip(timeline.locks.len()) {
            let (entry, kind) = entries.get(&lock).copied().unzip();
            let kind = kind.unwrap_or_default().to_owned();
            timeline.locks.push(LockName { name: places.lock_label(lock), kind, entry, run: None });
        }
        for &(process, site, stack) in stacks.iter().skip(timeline.stacks.len()) {
            let unknown = || elsewhere("[place not seen]");
            let place = site.map_or_else(unknown, |site| places.place_of_wait(site, stack));
            let mut frames = places.stack(process, site.map(|site| site.addr), stack);
            if frames.is_empty() {
                frames.push(profile::frame(&place));
            }
            timeline.stacks.push(Stack { place, frames });
        }
        let new = wakers.iter().skip(timeline.wakers.len());
        timeline.wakers.extend(new.map(|&tid| places.thread(tid)));
        let new = culprits.iter().skip(timeline.places.len());
        timeline.places.extend(new.map(|&who| holder_place(who, places).0));
    }
}

/// Gives threads numbers: their own, as far as an operating system could have given them.
fn number(threads: &mut [Thread]) {
    let own = |thread: &Thread| match thread.tid {
        ThreadId::Number(number) => u32::try_from(number).ok().filter(|&number| (1..=MAX_TID).contains(&number)),
        ThreadId::Name(_) => None,
    };
    let taken: HashSet<u32> = threads.iter().filter_map(own).collect();
    let mut free = (1..).filter(|number| !taken.contains(number));
    for thread in threads {
        thread.number = own(thread).or_else(|| free.next()).unwrap_or(u32::MAX);
    }
}

/// Largest number that Linux gives a thread.
const MAX_TID: u32 = 1 << 22;
