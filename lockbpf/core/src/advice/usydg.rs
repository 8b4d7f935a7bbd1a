//! The universal synchronization dependence graph (SyncProf, section 3.4): static critical sections by thread, with what all
//! their executions in all runs read and wrote, and who waited for whom.

use super::records::{Execution, Records};
use foldhash::fast::RandomState;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// A static critical section on one thread column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// The thread.
    pub thread: u32,
    /// The static critical section.
    pub site: u32,
    /// `TID:SITE`.
    pub id: String,
    /// The locks that it takes, ascending.
    pub locks: Vec<u32>,
    /// Locations read, ascending.
    pub reads: Vec<u32>,
    /// Locations written, ascending.
    pub writes: Vec<u32>,
}

/// Where edges come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EdgeSource {
    /// Waits that the records tell of.
    Records,
    /// Waits in a trace.
    Trace,
    /// No wait is known: who took the lock right after whom, as who would have waited for whom.
    Order,
}

/// A wait in a trace, by names: the one waited for, and who waited.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TracedWait {
    /// The thread waited for, as the records call it, if they know it; and the number of its site.
    pub from: (Option<u32>, u32),
    /// Who waited.
    pub to: (Option<u32>, u32),
}

/// The graph.
#[derive(Clone, Debug, Default)]
pub struct Usydg {
    /// By id.
    pub nodes: Vec<Node>,
    /// Pairs of nodes, the one waited for first; ascending, each once.
    pub edges: Vec<(u32, u32)>,
    /// By lock: where its edges come from.
    pub sources: BTreeMap<u32, EdgeSource>,
    by_key: HashMap<(u32, u32), u32, RandomState>,
}

/// What is shared by two sets, as far as it decides about a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// They have no location in common.
    Null,
    /// What they have in common neither writes.
    ReadOnly,
    /// One writes what the other reads or writes.
    Conflict,
}

/// What is shared by what two executions, or sections, read and wrote; all ascending.
#[must_use]
pub fn sharing((reads, writes): (&[u32], &[u32]), (other_reads, other_writes): (&[u32], &[u32])) -> Sharing {
    if meet(writes, other_writes) || meet(writes, other_reads) || meet(reads, other_writes) {
        Sharing::Conflict
    } else if meet(reads, other_reads) {
        Sharing::ReadOnly
    } else {
        Sharing::Null
    }
}

/// A sequence so many times as long as another one is searched for each of its members.
const MUCH_LONGER: usize = 4;

/// Whether two ascending sequences have a member in common.
fn meet<'a>(mut a: &'a [u32], mut b: &'a [u32]) -> bool {
    if a.len() > b.len() {
        (a, b) = (b, a);
    }
    if a.len() * MUCH_LONGER <= b.len() {
        return a.iter().any(|member| b.binary_search(member).is_ok());
    }
    while let (Some(x), Some(y)) = (a.first(), b.first()) {
        match x.cmp(y) {
            std::cmp::Ordering::Less => a = &a[1..],
            std::cmp::Ordering::Greater => b = &b[1..],
            std::cmp::Ordering::Equal => return true,
        }
    }
    false
}

impl Usydg {
    /// Merges all executions, and the waits between them.
    #[must_use]
    pub fn new(records: &Records, traced: &BTreeSet<TracedWait>) -> Self {
        let mut graph = Self::default();
        graph.merge(records);
        graph.connect(records, traced);
        graph
    }

    /// The node of a section on a thread.
    #[must_use]
    pub fn node(&self, thread: u32, site: u32) -> Option<u32> {
        self.by_key.get(&(thread, site)).copied()
    }

    fn merge(&mut self, records: &Records) {
        // Executions are many; what they did differently is little.
        let alike = |e: &Execution| (e.thread, e.site, e.sets, e.lock);
        let mut all: Vec<(u32, u32, u32, u32)> = records.executions.iter().map(alike).collect();
        all.sort_unstable();
        all.dedup();
        // By location: the last join that it was added to.
        let mut added = vec![0_u32; records.locations.len()];
        let mut joins = 0;
        let mut join = |of: &[(u32, u32, u32, u32)], writes: bool| {
            joins += 1;
            let mut all: Vec<u32> = Vec::new();
            for &(_, _, number, _) in of {
                let sets = records.sets(number);
                for &location in if writes { sets.writes } else { sets.reads } {
                    if std::mem::replace(&mut added[location as usize], joins) != joins {
                        all.push(location);
                    }
                }
            }
            all.sort_unstable();
            all
        };
        for of in all.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let (thread, site, ..) = of[0];
            let mut locks: Vec<u32> = of.iter().map(|&(.., lock)| lock).collect();
            locks.sort_unstable();
            locks.dedup();
            let id = format!("{}:{}", records.threads.text(thread), records.sites.text(site));
            self.nodes.push(Node { thread, site, id, locks, reads: join(of, false), writes: join(of, true) });
        }
        self.nodes.sort_by(|a, b| a.id.cmp(&b.id).then_with(|| (a.thread, a.site).cmp(&(b.thread, b.site))));
        self.by_key = (0..).zip(&self.nodes).map(|(i, node)| ((node.thread, node.site), i)).collect();
    }

    fn connect(&mut self, records: &Records, traced: &BTreeSet<TracedWait>) {
        let mut edges: BTreeSet<(u32, u32)> = BTreeSet::new();
        let of = |graph: &Self, execution: u32| {
            let execution = records.executions.get(execution as usize)?;
            graph.node(execution.thread, execution.site)
        };
        let seen: HashSet<(u32, u32), RandomState> = records.edges.iter().copied().collect();
        for (from, to) in seen {
            edges.extend(of(self, from).zip(of(self, to)));
        }
        self.note(&edges, EdgeSource::Records);
        let from_trace = self.traced(traced);
        self.note(&from_trace, EdgeSource::Trace);
        edges.extend(from_trace);
        let mut last: HashMap<(u32, u32), u32, RandomState> = HashMap::default();
        let mut order: BTreeSet<(u32, u32)> = BTreeSet::new();
        let mut fresh: HashSet<(u32, u32), RandomState> = HashSet::default();
        for execution in &records.executions {
            if self.sources.contains_key(&execution.lock) {
                continue;
            }
            let Some(node) = self.node(execution.thread, execution.site) else { continue };
            if let Some(before) = last.insert((execution.run, execution.lock), node)
                && self.nodes[before as usize].thread != execution.thread
                && fresh.insert((before, node))
            {
                order.insert((before, node));
            }
        }
        self.note(&order, EdgeSource::Order);
        edges.extend(order);
        self.edges = edges.into_iter().collect();
    }

    /// Edges for waits in a trace. Where its threads are not those of the records, a wait stands for all of them.
    fn traced(&self, waits: &BTreeSet<TracedWait>) -> BTreeSet<(u32, u32)> {
        let mut by_site: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (i, node) in (0..).zip(&self.nodes) {
            by_site.entry(node.site).or_default().push(i);
        }
        let places = |(thread, site): (Option<u32>, u32)| match thread.and_then(|thread| self.node(thread, site)) {
            Some(node) => vec![node],
            None => by_site.get(&site).cloned().unwrap_or_default(),
        };
        let mut edges = BTreeSet::new();
        for wait in waits {
            let to = places(wait.to);
            for from in places(wait.from) {
                let apart = |&&to: &&u32| self.nodes[from as usize].thread != self.nodes[to as usize].thread;
                edges.extend(to.iter().filter(apart).map(|&to| (from, to)));
            }
        }
        edges
    }

    /// Remembers where edges of locks come from: the first source that has any.
    fn note(&mut self, edges: &BTreeSet<(u32, u32)>, source: EdgeSource) {
        for &(from, to) in edges {
            let (from, to) = (&self.nodes[from as usize], &self.nodes[to as usize]);
            for lock in from.locks.iter().filter(|lock| to.locks.contains(lock)) {
                self.sources.entry(*lock).or_insert(source);
            }
        }
    }
}
