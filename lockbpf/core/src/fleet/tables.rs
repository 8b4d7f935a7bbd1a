//! The tables of a recording.

use super::{Column, Run, Table};
use crate::diff::family;
use crate::render::{Page, name};
use crate::report::Report;
use crate::report::schema::{LockEntry, Ns};
use crate::report::timeline::{Thread, Timeline, Wait};
use rustc_hash::FxHashMap;
use std::collections::HashMap;

/// Version of the tables: changes when a column changes its meaning or goes away.
pub const SCHEMA: &str = "lockbpf.tables/1";

/// All tables of a recording.
#[must_use]
pub fn tables(run: &Run, page: &Page) -> Vec<Table> {
    let made = Made { id: run.id(page), report: &page.report, timeline: &page.pictures.timeline, page };
    vec![made.runs(run), made.locks(), made.sites(), made.waits(), made.holds(), made.edges(), made.stacks()]
}

struct Made<'a> {
    id: String,
    report: &'a Report,
    timeline: &'a Timeline,
    page: &'a Page,
}

fn whole<T>(rows: &[T], value: impl Fn(&T) -> Option<u64>) -> Column {
    Column::Whole(rows.iter().map(|row| value(row).map(signed)).collect())
}

fn ns<T>(rows: &[T], value: impl Fn(&T) -> Option<Ns>) -> Column {
    whole(rows, |row| value(row).map(Ns::whole))
}

fn text<T>(rows: &[T], value: impl Fn(&T) -> Option<String>) -> Column {
    Column::Text(rows.iter().map(|row| value(row).filter(|text| !text.is_empty())).collect())
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

impl Made<'_> {
    fn table(&self, name: &'static str, columns: Vec<(&'static str, Column)>) -> Table {
        let rows = columns.first().map_or(0, |(_, column)| column.len());
        let id = Column::Text(vec![Some(self.id.clone()); rows]);
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
                ("started", Column::Moment(vec![self.page.started_ns.map(|ns| signed(ns / 1_000))])),
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

    /// Names of a timeline's locks and their processes, as the other tables have them.
    fn names(&self) -> Vec<(String, Option<String>)> {
        let by_label: FxHashMap<&str, &LockEntry> =
            self.report.locks.iter().rev().map(|lock| (lock.label.as_str(), lock)).collect();
        let named = |label: &str| by_label.get(label).map(|lock| (key(lock), lock.comm.clone()));
        self.timeline.locks.iter().map(|lock| named(&lock.name).unwrap_or_else(|| (lock.name.clone(), None))).collect()
    }

    fn thread(&self, thread: usize) -> &Thread {
        &self.timeline.threads[thread]
    }

    /// When something was, if it is known when the recording began.
    fn moment(&self, at: Ns) -> Option<i64> {
        let since = (at - self.timeline.start_ns).whole();
        self.page.started_ns.map(|started| signed(started.saturating_add(since) / 1_000))
    }

    fn waits(&self) -> Table {
        let (timeline, names) = (self.timeline, self.names());
        let waits = &timeline.waits;
        let mostly = |wait: &Wait| timeline.mostly(wait).cloned();
        self.table(
            "waits",
            vec![
                ("started", Column::Moment(waits.iter().map(|wait| self.moment(wait.start_ns)).collect())),
                ("t_ns", ns(waits, |wait| Some(wait.start_ns - timeline.start_ns))),
                ("wait_ns", ns(waits, |wait| Some(wait.wait_ns))),
                ("lock", text(waits, |wait| Some(names[wait.lock].0.clone()))),
                ("process", text(waits, |wait| names[wait.lock].1.clone())),
                ("pid", whole(waits, |wait| self.thread(wait.thread).pid.map(u64::from))),
                ("tid", text(waits, |wait| Some(self.thread(wait.thread).tid.to_string()))),
                ("thread", text(waits, |wait| Some(self.thread(wait.thread).name.clone()))),
                ("site", text(waits, |wait| Some(timeline.stacks[wait.stack].place.symbol.clone()))),
                ("stack_id", whole(waits, |wait| Some(wait.stack as u64))),
                ("holder_tid", text(waits, |wait| Some(self.thread(mostly(wait)?.thread).tid.to_string()))),
                ("holder_thread", text(waits, |wait| Some(self.thread(mostly(wait)?.thread).name.clone()))),
                ("holder_site", text(waits, |wait| Some(timeline.places[mostly(wait)?.place].symbol.clone()))),
                ("holder_lock", text(waits, |wait| Some(names[mostly(wait)?.lock].0.clone()))),
                ("cause", text(waits, |wait| mostly(wait)?.cause.map(str::to_owned))),
                ("blamed_ns", ns(waits, |wait| Some(wait.culprits.iter().map(|culprit| culprit.wait_ns).sum()))),
            ],
        )
    }

    fn holds(&self) -> Table {
        let (timeline, names) = (self.timeline, self.names());
        let holds = &timeline.holds;
        self.table(
            "holds",
            vec![
                ("started", Column::Moment(holds.iter().map(|hold| self.moment(hold.start_ns)).collect())),
                ("t_ns", ns(holds, |hold| Some(hold.start_ns - timeline.start_ns))),
                ("hold_ns", ns(holds, |hold| Some(hold.end_ns - hold.start_ns))),
                ("lock", text(holds, |hold| Some(names[hold.lock].0.clone()))),
                ("process", text(holds, |hold| names[hold.lock].1.clone())),
                ("pid", whole(holds, |hold| self.thread(hold.thread).pid.map(u64::from))),
                ("tid", text(holds, |hold| Some(self.thread(hold.thread).tid.to_string()))),
                ("thread", text(holds, |hold| Some(self.thread(hold.thread).name.clone()))),
                ("site", text(holds, |hold| Some(timeline.stacks[hold.stack].place.symbol.clone()))),
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

    fn stacks(&self) -> Table {
        let stacks = &self.timeline.stacks;
        let ids: Vec<u64> = (0..stacks.len() as u64).collect();
        let frames = stacks.iter().map(|stack| stack.frames.iter().map(name).collect());
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
