//! Waiting of one place for another.

use super::tables::{key, ns, number, text};
use super::{Table, Tables};
use crate::report::schema::{BlameEntry, LockEntry, Ns, WaiterEntry};
use crate::report::timeline::Timeline;
use rustc_hash::FxHashMap;

/// Threads that waited and threads that made them wait, by lock, place of the waiter and place of the holder. Only waits that a timeline lists are
/// in it.
#[derive(Clone, Debug, Default)]
pub struct Threads {
    /// By indices of the timeline; without a place what nobody is to blame for.
    by: FxHashMap<(usize, usize, Option<usize>), Pair>,
}

/// Threads of which all others that are counted as one with them have the program, or the name.
#[derive(Clone, Copy, Debug)]
struct Pair {
    waiter: Option<usize>,
    holder: Option<usize>,
    holder_named: Option<usize>,
}

impl Threads {
    /// Takes note of a timeline's waits, before they are forgotten.
    pub fn take(&mut self, timeline: &Timeline) {
        let threads = &timeline.threads;
        let is_same_program = |a: usize, b: usize| a == b || threads[a].process == threads[b].process;
        let is_namesake = |a: usize, b: usize| a == b || threads[a].name == threads[b].name;
        for wait in &timeline.waits {
            let mut take = |place, holder: Option<usize>| {
                let new = Pair { waiter: Some(wait.thread), holder, holder_named: holder };
                let pair = self.by.entry((wait.lock, wait.stack, place)).or_insert(new);
                pair.waiter.take_if(|known| !is_same_program(*known, wait.thread));
                pair.holder.take_if(|known| holder.is_some_and(|holder| !is_same_program(*known, holder)));
                pair.holder_named.take_if(|known| holder.is_some_and(|holder| !is_namesake(*known, holder)));
            };
            wait.culprits.iter().for_each(|culprit| take(Some(culprit.place), Some(culprit.thread)));
            if wait.culprits.is_empty() {
                take(None, None);
            }
        }
    }

    /// Their names by the lock's number in the report and the two places.
    fn names<'a>(&self, timeline: &'a Timeline) -> FxHashMap<(usize, &'a str, Option<&'a str>), Names<'a>> {
        let mut names = FxHashMap::default();
        for (&(lock, stack, place), &pair) in &self.by {
            let Some(entry) = timeline.locks[lock].entry else { continue };
            let thread = |at: Option<usize>| at.and_then(|at| timeline.threads.get(at));
            let program = |at| thread(at).map_or("", |thread| thread.process.as_str());
            let name = thread(pair.holder_named).map_or("", |thread| thread.name.as_str());
            let new =
                Names { waiter_process: program(pair.waiter), holder_process: program(pair.holder), holder: name };
            let waiter = timeline.stacks[stack].place.symbol.as_str();
            let holder = place.map(|place| timeline.places[place].symbol.as_str());
            names.entry((entry, waiter, holder)).and_modify(|known: &mut Names<'a>| known.agree(new)).or_insert(new);
            // Whoever waits there is the same, also as far as nobody is to blame.
            let new = Names { waiter_process: new.waiter_process, ..Names::default() };
            names.entry((entry, waiter, None)).and_modify(|known| known.agree(new)).or_insert(new);
        }
        names
    }
}

/// What those are called who wait somewhere, and who make them wait; empty where that is not known, or differs.
#[derive(Clone, Copy, Debug, Default)]
struct Names<'a> {
    waiter_process: &'a str,
    holder_process: &'a str,
    holder: &'a str,
}

impl<'a> Names<'a> {
    /// Keeps what is the same in both.
    fn agree(&mut self, other: Self) {
        let Names { waiter_process, holder_process, holder } = other;
        let keep = |ours: &mut &'a str, theirs| {
            if *ours != theirs {
                *ours = "";
            }
        };
        keep(&mut self.waiter_process, waiter_process);
        keep(&mut self.holder_process, holder_process);
        keep(&mut self.holder, holder);
    }
}

/// A part of the waiting for a lock.
struct Edge<'a> {
    /// Number of the lock in the report.
    number: usize,
    lock: &'a LockEntry,
    waiter: &'a WaiterEntry,
    holder: Option<&'a BlameEntry>,
    wait_ns: Ns,
}

impl Edge<'_> {
    fn waiter_process(&self, names: &Names<'_>) -> Option<String> {
        let seen = || Some(names.waiter_process.to_owned()).filter(|name| !name.is_empty());
        let own = || self.lock.comm.clone().filter(|_| self.waiter.place.site.is_some());
        self.waiter.process.clone().or_else(seen).or_else(own)
    }

    fn holder_process(&self, names: &Names<'_>) -> Option<String> {
        let holder = self.holder?;
        let seen = || Some(names.holder_process.to_owned()).filter(|name| !name.is_empty());
        let is_own = holder.place.site.is_some() || (holder.tid.is_some() && self.lock.shared != Some(true));
        let own = || self.lock.comm.clone().filter(|_| is_own);
        holder.process.clone().or_else(seen).or_else(own)
    }
}

impl Tables<'_> {
    /// Who waits where for whom: all recorded waiting for each lock, what nobody is to blame for without a holder.
    #[must_use]
    pub fn edges(&self, timeline: &Timeline, threads: &Threads) -> Table {
        let mut edges = Vec::new();
        for (number, lock) in self.report().locks.iter().enumerate() {
            for waiter in &lock.waiters {
                let edge = |holder, wait_ns| Edge { number, lock, waiter, holder, wait_ns };
                edges.extend(waiter.blamed.iter().map(|blame| edge(Some(blame), blame.wait_ns)));
                edges.push(edge(None, waiter.unattributed_ns));
            }
        }
        edges.retain(|edge| edge.wait_ns > Ns::default());
        let names = threads.names(timeline);
        let seen = |edge: &Edge<'_>| {
            let holder = edge.holder.map(|holder| holder.place.symbol.as_str());
            names.get(&(edge.number, edge.waiter.place.symbol.as_str(), holder)).copied().unwrap_or_default()
        };
        self.table(
            "edges",
            vec![
                ("lock", text(&edges, |edge| Some(key(edge.lock)))),
                ("lock_id", number(&edges, |edge| Some(edge.number))),
                ("process", text(&edges, |edge| edge.lock.comm.clone())),
                ("waiter_process", text(&edges, |edge| edge.waiter_process(&seen(edge)))),
                ("waiter_site", text(&edges, |edge| Some(edge.waiter.place.symbol.clone()))),
                ("holder_process", text(&edges, |edge| edge.holder_process(&seen(edge)))),
                ("holder_thread", text(&edges, |edge| Some(seen(edge).holder.to_owned()))),
                ("holder_site", text(&edges, |edge| edge.holder.map(|holder| holder.place.symbol.clone()))),
                ("wait_ns", ns(&edges, |edge| Some(edge.wait_ns))),
            ],
        )
    }
}
