//! The tables of a recording.

use super::labels::Labels;
use super::{Column, Run, Table, Words};
use crate::diff::family;
use crate::render::name;
use crate::report::Report;
use crate::report::schema::{LockEntry, Ns};
use crate::report::timeline::{Culprit, LockName, Timeline, Wait};
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Arc;

/// Version of the tables: changes when a column changes its meaning or goes away.
pub const SCHEMA: &str = "lockbpf.tables/1";

/// The tables of a recording. Those of waits, holds and stacks are made of a timeline, or of one part of it after the other.
pub struct Tables<'a> {
    id: Bytes,
    report: &'a Report,
    started_ns: Option<u64>,
    labels: Labels,
}

/// Where a process runs.
const OWN: [&str; 3] = ["container_id", "pod", "unit"];
/// Where that of a holder does.
const HOLDERS: [&str; 3] = ["holder_container_id", "holder_pod", "holder_unit"];

fn whole<T>(rows: &[T], value: impl Fn(&T) -> Option<u64>) -> Column {
    Column::Whole(rows.iter().map(|row| value(row).map(signed)).collect())
}

pub(super) fn ns<T>(rows: &[T], value: impl Fn(&T) -> Option<Ns>) -> Column {
    whole(rows, |row| value(row).map(Ns::whole))
}

pub(super) fn text<T>(rows: &[T], value: impl Fn(&T) -> Option<String>) -> Column {
    Column::Text(rows.iter().map(|row| value(row).and_then(word)).collect())
}

/// The number of a thing, from 0.
pub(super) fn number<T>(rows: &[T], value: impl Fn(&T) -> Option<usize>) -> Column {
    whole(rows, |row| value(row).map(|number| number as u64))
}

/// Text of which there is one for many rows: by its index.
fn named<T>(rows: &[T], words: &List, index: impl Fn(&T) -> Option<usize>) -> Column {
    Column::Text(Words::of(words, rows.iter().map(index)))
}

/// A text; an empty one tells nothing.
fn word(text: String) -> Option<Bytes> {
    (!text.is_empty()).then(|| Bytes::from(text))
}

fn decimal<T>(rows: &[T], value: impl Fn(&T) -> Option<f64>) -> Column {
    Column::Decimal(rows.iter().map(value).collect())
}

/// Every engine reads signed numbers; what is larger is 292 years.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A lock's name on all machines: without the number that tells locks of one call site apart.
pub(super) fn key(lock: &LockEntry) -> String {
    if lock.pid.is_some() { family(&lock.name).to_owned() } else { lock.name.clone() }
}

/// Names by their indices.
type List = Arc<[Option<Bytes>]>;

/// Names in a timeline, as the tables have them, by their indices there.
struct Named {
    locks: List,
    /// What the processes of the locks are called.
    processes: List,
    tids: List,
    threads: List,
    /// What the processes of the threads are called, and their ids.
    programs: List,
    pids: Vec<Option<u32>>,
    wakers: List,
    sites: List,
    places: List,
}

impl<'a> Tables<'a> {
    /// Prepares the tables of a recording, which is called `id`. `started_ns` is its beginning in ns since 1970, if known.
    #[must_use]
    pub fn new(id: &str, run: &Run, report: &'a Report, started_ns: Option<u64>) -> Self {
        Self { id: Bytes::from(id.to_owned()), report, started_ns, labels: Labels::of(&run.cgroups) }
    }

    /// Those that the report alone tells: runs, locks, sites.
    #[must_use]
    pub fn of_report(&self, run: &Run) -> Vec<Table> {
        vec![self.runs(run), self.locks(), self.sites()]
    }

    pub(super) fn report(&self) -> &Report {
        self.report
    }

    pub(super) fn table(&self, name: &'static str, columns: Vec<(&'static str, Column)>) -> Table {
        let rows = columns.first().map_or(0, |(_, column)| column.len());
        let id = Column::Text(Words::of(&Arc::from([Some(self.id.clone())]), std::iter::repeat_n(Some(0), rows)));
        Table { name, columns: std::iter::once(("run_id", id)).chain(columns).collect() }
    }

    fn runs(&self, run: &Run) -> Table {
        let quality = &self.report.quality;
        let one = [()];
        let known = |value: &str| text(&one, |()| Some(value.to_owned()));
        let mut columns = vec![
            ("host", known(&run.host)),
            ("kernel", known(&run.kernel)),
            ("arch", known(&run.arch)),
            ("target", known(&quality.target)),
            ("version", text(&one, |()| run.version.clone())),
            ("started", Column::Moment(vec![self.started_ns.map(|ns| signed(ns / 1_000))])),
            ("duration_ns", ns(&one, |()| Some(quality.duration_ns))),
            ("observed_share", decimal(&one, |()| Some(quality.observed_share))),
            ("wait_ns", ns(&one, |()| Some(self.report.totals.harm_ns))),
            ("events", whole(&one, |()| Some(quality.events))),
            ("lost", whole(&one, |()| Some(quality.lost.values().sum()))),
            ("incomplete", Column::Flag(vec![Some(quality.incomplete)])),
            ("lockbpf", known(env!("CARGO_PKG_VERSION"))),
        ];
        columns.extend(self.labels.common(OWN));
        self.table("runs", columns)
    }

    fn locks(&self) -> Table {
        let locks = &self.report.locks;
        let (numbers, pids): (Vec<_>, Vec<_>) = locks.iter().enumerate().map(|(at, lock)| (at, lock.pid)).unzip();
        let mut columns = vec![
            ("lock", text(locks, |lock| Some(key(lock)))),
            ("lock_id", number(&numbers, |&at| Some(at))),
            ("process", text(locks, |lock| lock.comm.clone())),
            ("kind", text(locks, |lock| Some(lock.kind.clone()))),
            ("first_site", text(locks, |lock| lock.first_site.clone())),
            ("acquisitions", whole(locks, |lock| lock.acquisitions)),
            ("contended", whole(locks, |lock| Some(lock.contended))),
            ("wait_ns", ns(locks, |lock| Some(lock.harm_ns))),
            ("recorded_wait_ns", ns(locks, |lock| Some(lock.recorded_wait_ns))),
            ("caused_wait_ns", ns(locks, |lock| Some(lock.aplt_ns))),
            ("wait_p99_ns", ns(locks, |lock| Some(lock.contended_wait_ns.p99))),
            ("wait_max_ns", ns(locks, |lock| Some(lock.contended_wait_ns.max))),
            ("hold_ns", ns(locks, |lock| lock.hold_ns.map(|hold| hold.sum))),
            ("hold_p99_ns", ns(locks, |lock| lock.hold_ns.map(|hold| hold.p99))),
            ("hold_max_ns", ns(locks, |lock| lock.hold_ns.map(|hold| hold.max))),
            ("wait_low_ns", decimal(locks, |lock| lock.wait_estimate.map(|wait| wait.low))),
            ("wait_high_ns", decimal(locks, |lock| lock.wait_estimate.map(|wait| wait.high))),
        ];
        columns.extend(self.labels.of_rows(OWN, &pids, numbers.iter().copied().map(Some)));
        self.table("locks", columns)
    }

    fn sites(&self) -> Table {
        let locks = self.report.locks.iter().enumerate();
        let by_id: HashMap<&str, (usize, &LockEntry)> =
            locks.map(|(at, lock)| (lock.lock.as_str(), (at, lock))).collect();
        let sites = &self.report.sites;
        self.table(
            "sites",
            vec![
                ("site", text(sites, |site| Some(site.symbol.clone()))),
                ("lock", text(sites, |site| by_id.get(site.lock.as_str()).map(|(_, lock)| key(lock)))),
                ("lock_id", number(sites, |site| by_id.get(site.lock.as_str()).map(|&(at, _)| at))),
                ("process", text(sites, |site| by_id.get(site.lock.as_str())?.1.comm.clone())),
                ("sections", whole(sites, |site| Some(site.instances))),
                ("wait_ns", ns(sites, |site| Some(site.wait_ns))),
                ("hold_ns", ns(sites, |site| site.hold_ns)),
                ("caused_wait_ns", ns(sites, |site| Some(site.apwt_ns))),
            ],
        )
    }

    fn named(&self, timeline: &Timeline) -> Named {
        let entry = |at: Option<usize>| at.and_then(|at| self.report.locks.get(at));
        let lock = |known: &LockName| entry(known.entry).map_or_else(|| known.name.clone(), key);
        let process = |known: &LockName| entry(known.entry).and_then(|lock| lock.comm.clone()).and_then(word);
        Named {
            locks: timeline.locks.iter().map(|known| word(lock(known))).collect(),
            processes: timeline.locks.iter().map(process).collect(),
            tids: timeline.threads.iter().map(|thread| word(thread.tid.to_string())).collect(),
            threads: timeline.threads.iter().map(|thread| word(thread.name.clone())).collect(),
            programs: timeline.threads.iter().map(|thread| word(thread.process.clone())).collect(),
            pids: timeline.threads.iter().map(|thread| thread.pid).collect(),
            wakers: timeline.wakers.iter().map(|waker| word(waker.to_string())).collect(),
            sites: timeline.stacks.iter().map(|stack| word(stack.place.symbol.clone())).collect(),
            places: timeline.places.iter().map(|place| word(place.symbol.clone())).collect(),
        }
    }

    /// When something was, if it is known when the recording began.
    fn moment(&self, timeline: &Timeline, at: Ns) -> Option<i64> {
        let since = (at - timeline.start_ns).whole();
        self.started_ns.map(|started| signed(started.saturating_add(since) / 1_000))
    }

    /// The waits of a timeline.
    #[must_use]
    pub fn waits(&self, timeline: &Timeline) -> Table {
        let names = self.named(timeline);
        let rows: Vec<(&Wait, Option<&Culprit>)> =
            timeline.waits.iter().map(|wait| (wait, timeline.mostly(wait))).collect();
        let mut causes: Vec<&'static str> =
            rows.iter().filter_map(|(_, most)| most.and_then(|most| most.cause)).collect();
        causes.sort_unstable();
        causes.dedup();
        let cause_words: List = causes.iter().map(|cause| Some(Bytes::from_static(cause.as_bytes()))).collect();
        let pid = |thread: usize| timeline.threads[thread].pid.map(u64::from);
        let blamed = |wait: &Wait| wait.culprits.iter().map(|culprit| culprit.wait_ns).sum();
        let mut columns = vec![
            ("started", Column::Moment(rows.iter().map(|(w, _)| self.moment(timeline, w.start_ns)).collect())),
            ("t_ns", ns(&rows, |(wait, _)| Some(wait.start_ns - timeline.start_ns))),
            ("wait_ns", ns(&rows, |(wait, _)| Some(wait.wait_ns))),
            ("lock", named(&rows, &names.locks, |(wait, _)| Some(wait.lock))),
            ("lock_id", number(&rows, |(wait, _)| timeline.locks[wait.lock].entry)),
            ("process", named(&rows, &names.processes, |(wait, _)| Some(wait.lock))),
            ("waiter_process", named(&rows, &names.programs, |(wait, _)| Some(wait.thread))),
            ("pid", whole(&rows, |(wait, _)| pid(wait.thread))),
            ("tid", named(&rows, &names.tids, |(wait, _)| Some(wait.thread))),
            ("thread", named(&rows, &names.threads, |(wait, _)| Some(wait.thread))),
            ("site", named(&rows, &names.sites, |(wait, _)| Some(wait.stack))),
            ("stack_id", number(&rows, |(wait, _)| Some(wait.stack))),
            ("holder_process", named(&rows, &names.programs, |(_, most)| Some((*most)?.thread))),
            ("holder_tid", named(&rows, &names.tids, |(_, most)| Some((*most)?.thread))),
            ("holder_thread", named(&rows, &names.threads, |(_, most)| Some((*most)?.thread))),
            ("holder_site", named(&rows, &names.places, |(_, most)| Some((*most)?.place))),
            ("holder_lock", named(&rows, &names.locks, |(_, most)| Some((*most)?.lock))),
            ("holder_lock_id", number(&rows, |(_, most)| timeline.locks[(*most)?.lock].entry)),
            ("cause", named(&rows, &cause_words, |(_, most)| causes.binary_search(&(*most)?.cause?).ok())),
            ("blamed_ns", ns(&rows, |(wait, _)| Some(blamed(wait)))),
            ("waker_tid", named(&rows, &names.wakers, |(wait, _)| wait.waker)),
        ];
        let holders = rows.iter().map(|(_, most)| most.map(|most| most.thread));
        columns.extend(self.labels.of_rows(OWN, &names.pids, rows.iter().map(|(wait, _)| Some(wait.thread))));
        columns.extend(self.labels.of_rows(HOLDERS, &names.pids, holders));
        self.table("waits", columns)
    }

    /// The holds of a timeline.
    #[must_use]
    pub fn holds(&self, timeline: &Timeline) -> Table {
        let (names, holds) = (self.named(timeline), &timeline.holds);
        let pid = |thread: usize| timeline.threads[thread].pid.map(u64::from);
        let mut columns = vec![
            ("started", Column::Moment(holds.iter().map(|h| self.moment(timeline, h.start_ns)).collect())),
            ("t_ns", ns(holds, |hold| Some(hold.start_ns - timeline.start_ns))),
            ("hold_ns", ns(holds, |hold| Some(hold.end_ns - hold.start_ns))),
            ("lock", named(holds, &names.locks, |hold| Some(hold.lock))),
            ("lock_id", number(holds, |hold| timeline.locks[hold.lock].entry)),
            ("process", named(holds, &names.processes, |hold| Some(hold.lock))),
            ("holder_process", named(holds, &names.programs, |hold| Some(hold.thread))),
            ("pid", whole(holds, |hold| pid(hold.thread))),
            ("tid", named(holds, &names.tids, |hold| Some(hold.thread))),
            ("thread", named(holds, &names.threads, |hold| Some(hold.thread))),
            ("site", named(holds, &names.sites, |hold| Some(hold.stack))),
            ("stack_id", number(holds, |hold| Some(hold.stack))),
        ];
        columns.extend(self.labels.of_rows(OWN, &names.pids, holds.iter().map(|hold| Some(hold.thread))));
        self.table("holds", columns)
    }

    /// The stacks of a timeline, all of which it has at its end.
    #[must_use]
    pub fn stacks(&self, timeline: &Timeline) -> Table {
        let stacks = &timeline.stacks;
        let ids: Vec<u64> = (0..stacks.len() as u64).collect();
        let frames = stacks.iter().map(|stack| stack.frames.iter().map(|frame| Bytes::from(name(frame))).collect());
        self.table(
            "stacks",
            vec![
                ("stack_id", whole(&ids, |&id| Some(id))),
                ("site", text(stacks, |stack| Some(stack.place.symbol.clone()))),
                ("frames", Column::Texts(frames.collect())),
            ],
        )
    }
}
