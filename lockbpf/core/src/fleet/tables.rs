//! The tables of a recording.

use super::{Column, Run, Table, Words};
use crate::diff::family;
use crate::render::name;
use crate::report::Report;
use crate::report::schema::{LockEntry, Ns};
use crate::report::timeline::{Culprit, Timeline, Wait};
use bytes::Bytes;
use rustc_hash::FxHashMap;
use std::collections::HashMap;
use std::sync::Arc;

/// Version of the tables: changes when a column changes its meaning or goes away.
pub const SCHEMA: &str = "lockbpf.tables/1";

/// The tables of a recording. Those of waits, holds and stacks are made of a timeline, or of one part of it after the other.
pub struct Tables<'a> {
    id: Bytes,
    report: &'a Report,
    started_ns: Option<u64>,
}

fn whole<T>(rows: &[T], value: impl Fn(&T) -> Option<u64>) -> Column {
    Column::Whole(rows.iter().map(|row| value(row).map(signed)).collect())
}

fn ns<T>(rows: &[T], value: impl Fn(&T) -> Option<Ns>) -> Column {
    whole(rows, |row| value(row).map(Ns::whole))
}

fn text<T>(rows: &[T], value: impl Fn(&T) -> Option<String>) -> Column {
    Column::Text(rows.iter().map(|row| value(row).and_then(word)).collect())
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
fn key(lock: &LockEntry) -> String {
    if lock.pid.is_some() { family(&lock.name).to_owned() } else { lock.name.clone() }
}

/// A part of the waiting for a lock.
struct Edge<'a> {
    lock: &'a LockEntry,
    waiter: &'a str,
    holder: Option<&'a str>,
    wait_ns: Ns,
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
    sites: List,
    places: List,
}

impl<'a> Tables<'a> {
    /// Prepares the tables of a recording. `started_ns` is its beginning in ns since 1970, if known.
    #[must_use]
    pub fn new(id: &str, report: &'a Report, started_ns: Option<u64>) -> Self {
        Self { id: Bytes::from(id.to_owned()), report, started_ns }
    }

    /// Those that the report tells: runs, locks, sites, edges.
    #[must_use]
    pub fn of_report(&self, run: &Run) -> Vec<Table> {
        vec![self.runs(run), self.locks(), self.sites(), self.edges()]
    }

    fn table(&self, name: &'static str, columns: Vec<(&'static str, Column)>) -> Table {
        let rows = columns.first().map_or(0, |(_, column)| column.len());
        let id = Column::Text(Words::of(&Arc::from([Some(self.id.clone())]), std::iter::repeat_n(Some(0), rows)));
        Table { name, columns: std::iter::once(("run_id", id)).chain(columns).collect() }
    }

    fn runs(&self, run: &Run) -> Table {
        let quality = &self.report.quality;
        let one = [()];
        let known = |value: &str| text(&one, |()| Some(value.to_owned()));
        self.table(
            "runs",
            vec![
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
            ],
        )
    }

    fn locks(&self) -> Table {
        let locks = &self.report.locks;
        self.table(
            "locks",
            vec![
                ("lock", text(locks, |lock| Some(key(lock)))),
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
            ],
        )
    }

    fn sites(&self) -> Table {
        let by_id: HashMap<&str, &LockEntry> =
            self.report.locks.iter().map(|lock| (lock.lock.as_str(), lock)).collect();
        let sites = &self.report.sites;
        self.table(
            "sites",
            vec![
                ("site", text(sites, |site| Some(site.symbol.clone()))),
                ("lock", text(sites, |site| by_id.get(site.lock.as_str()).map(|lock| key(lock)))),
                ("process", text(sites, |site| by_id.get(site.lock.as_str())?.comm.clone())),
                ("sections", whole(sites, |site| Some(site.instances))),
                ("wait_ns", ns(sites, |site| Some(site.wait_ns))),
                ("hold_ns", ns(sites, |site| site.hold_ns)),
                ("caused_wait_ns", ns(sites, |site| Some(site.apwt_ns))),
            ],
        )
    }

    fn named(&self, timeline: &Timeline) -> Named {
        let by_label: FxHashMap<&str, &LockEntry> =
            self.report.locks.iter().rev().map(|lock| (lock.label.as_str(), lock)).collect();
        let lock = |label: &str| by_label.get(label).map_or_else(|| label.to_owned(), |lock| key(lock));
        let process = |label: &str| by_label.get(label).and_then(|lock| lock.comm.clone());
        Named {
            locks: timeline.locks.iter().map(|lock_name| word(lock(&lock_name.name))).collect(),
            processes: timeline.locks.iter().map(|lock_name| process(&lock_name.name).and_then(word)).collect(),
            tids: timeline.threads.iter().map(|thread| word(thread.tid.to_string())).collect(),
            threads: timeline.threads.iter().map(|thread| word(thread.name.clone())).collect(),
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
        self.table(
            "waits",
            vec![
                ("started", Column::Moment(rows.iter().map(|(w, _)| self.moment(timeline, w.start_ns)).collect())),
                ("t_ns", ns(&rows, |(wait, _)| Some(wait.start_ns - timeline.start_ns))),
                ("wait_ns", ns(&rows, |(wait, _)| Some(wait.wait_ns))),
                ("lock", named(&rows, &names.locks, |(wait, _)| Some(wait.lock))),
                ("process", named(&rows, &names.processes, |(wait, _)| Some(wait.lock))),
                ("pid", whole(&rows, |(wait, _)| pid(wait.thread))),
                ("tid", named(&rows, &names.tids, |(wait, _)| Some(wait.thread))),
                ("thread", named(&rows, &names.threads, |(wait, _)| Some(wait.thread))),
                ("site", named(&rows, &names.sites, |(wait, _)| Some(wait.stack))),
                ("stack_id", whole(&rows, |(wait, _)| Some(wait.stack as u64))),
                ("holder_tid", named(&rows, &names.tids, |(_, most)| Some((*most)?.thread))),
                ("holder_thread", named(&rows, &names.threads, |(_, most)| Some((*most)?.thread))),
                ("holder_site", named(&rows, &names.places, |(_, most)| Some((*most)?.place))),
                ("holder_lock", named(&rows, &names.locks, |(_, most)| Some((*most)?.lock))),
                ("cause", named(&rows, &cause_words, |(_, most)| causes.binary_search(&(*most)?.cause?).ok())),
                ("blamed_ns", ns(&rows, |(wait, _)| Some(blamed(wait)))),
            ],
        )
    }

    /// The holds of a timeline.
    #[must_use]
    pub fn holds(&self, timeline: &Timeline) -> Table {
        let (names, holds) = (self.named(timeline), &timeline.holds);
        let pid = |thread: usize| timeline.threads[thread].pid.map(u64::from);
        self.table(
            "holds",
            vec![
                ("started", Column::Moment(holds.iter().map(|h| self.moment(timeline, h.start_ns)).collect())),
                ("t_ns", ns(holds, |hold| Some(hold.start_ns - timeline.start_ns))),
                ("hold_ns", ns(holds, |hold| Some(hold.end_ns - hold.start_ns))),
                ("lock", named(holds, &names.locks, |hold| Some(hold.lock))),
                ("process", named(holds, &names.processes, |hold| Some(hold.lock))),
                ("pid", whole(holds, |hold| pid(hold.thread))),
                ("tid", named(holds, &names.tids, |hold| Some(hold.thread))),
                ("thread", named(holds, &names.threads, |hold| Some(hold.thread))),
                ("site", named(holds, &names.sites, |hold| Some(hold.stack))),
                ("stack_id", whole(holds, |hold| Some(hold.stack as u64))),
            ],
        )
    }

    /// Who waits where for whom: all recorded waiting for each lock, what nobody is to blame for without a holder.
    fn edges(&self) -> Table {
        let mut edges = Vec::new();
        for lock in &self.report.locks {
            for waiter in &lock.waiters {
                let edge = |holder, wait_ns| Edge { lock, waiter: waiter.place.symbol.as_str(), holder, wait_ns };
                edges.extend(waiter.blamed.iter().map(|blame| edge(Some(blame.place.symbol.as_str()), blame.wait_ns)));
                edges.push(edge(None, waiter.unattributed_ns));
            }
        }
        edges.retain(|edge| edge.wait_ns > Ns::default());
        self.table(
            "edges",
            vec![
                ("lock", text(&edges, |edge| Some(key(edge.lock)))),
                ("process", text(&edges, |edge| edge.lock.comm.clone())),
                ("waiter_site", text(&edges, |edge| Some(edge.waiter.to_owned()))),
                ("holder_site", text(&edges, |edge| edge.holder.map(str::to_owned))),
                ("wait_ns", ns(&edges, |edge| Some(edge.wait_ns))),
            ],
        )
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
