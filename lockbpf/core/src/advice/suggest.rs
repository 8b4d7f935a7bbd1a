//! Suggestions from the graph and the patterns (SyncProf, section 3.4.2), and what makes them unsound.

use super::patterns::{LONG, Pattern, Patterns, Window};
use super::records::Records;
use super::usydg::{Sharing, Usydg, sharing};
use std::collections::{BTreeMap, BTreeSet};

/// What could be done. Sites and locks are numbers of the records, new locks are counted from 0.
#[derive(Clone, Debug, Default)]
pub struct Suggestions {
    /// Edges of pairs of nodes that need no lock between them, ascending.
    pub removed_edges: Vec<(u32, u32)>,
    /// Sites that need no lock.
    pub remove: BTreeSet<u32>,
    /// The new locks of each site that keeps edges.
    pub split: BTreeMap<u32, BTreeSet<u32>>,
    /// How many new locks there are.
    pub new_locks: u32,
    /// Pairs of sites that conflict by what they read and wrote, but would end without a common lock; the lower number
    /// first.
    pub unsafe_pairs: BTreeSet<(u32, u32)>,
    /// The sites that only read what a site writes, by that one.
    pub readers: BTreeMap<u32, BTreeSet<u32>>,
    /// Sites that write what more than one thread uses.
    pub writing: BTreeSet<u32>,
    /// Sites whose section is longer than what conflicts in it.
    pub shorten: BTreeMap<u32, Window>,
    /// By lock: its sites in groups that conflict within themselves only, and sites that conflict with nothing.
    pub independent: BTreeMap<u32, Independent>,
}

/// The sites of a lock, taken apart by conflicts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Independent {
    /// Groups that conflict within themselves only.
    pub groups: Vec<BTreeSet<u32>>,
    /// Sites that conflict with nothing, not with themselves on other threads either.
    pub free: BTreeSet<u32>,
    /// Threads that were seen at the lock.
    pub threads: usize,
}

/// Who accesses a location over all records.
#[derive(Clone, Debug, Default)]
struct Location {
    several: bool,
    thread: Option<u32>,
    readers: Vec<u32>,
    writers: Vec<u32>,
}

/// Makes suggestions.
#[must_use]
pub fn suggest(records: &Records, graph: &Usydg, patterns: &Patterns) -> Suggestions {
    let mut found = Suggestions::default();
    let shared = shared_locations(graph);
    let conflicts = conflicts(&shared);
    let locks = locks_of_sites(graph);
    let edges = remaining(graph, &mut found.removed_edges);
    found.remove = free_of_edges(graph, &edges, &conflicts, &locks);
    split(records, graph, &edges, &mut found);
    found.unsafe_pairs = unsound(&conflicts, &locks, &found);
    found.writing = shared.iter().flat_map(|location| location.writers.iter().copied()).collect();
    found.readers = readers(graph, &edges, &found.writing);
    let long = |site: u32| {
        patterns.pairs.iter().any(|(&(a, b), pair)| {
            let long = matches!(pair.pattern, Some((Pattern::LongCriticalSection, _)));
            long && (a == site || b == site)
        })
    };
    let shorter = |(&site, window): (&u32, &Window)| {
        (long(site) && window.outside_share().is_some_and(|share| share > LONG)).then_some((site, *window))
    };
    found.shorten = patterns.windows.iter().filter_map(shorter).collect();
    found.independent = independent(graph, &conflicts);
    found
}

/// Locations that more than one thread uses, with the sites that do.
fn shared_locations(graph: &Usydg) -> Vec<Location> {
    let numbers = graph.nodes.iter().flat_map(|node| node.reads.last().into_iter().chain(node.writes.last()));
    let mut all = vec![Location::default(); numbers.max().map_or(0, |&last| last as usize + 1)];
    for node in &graph.nodes {
        for (locations, write) in [(&node.reads, false), (&node.writes, true)] {
            for &location in locations {
                let of = &mut all[location as usize];
                of.several |= of.thread.replace(node.thread).is_some_and(|thread| thread != node.thread);
                let sites = if write { &mut of.writers } else { &mut of.readers };
                if !sites.contains(&node.site) {
                    sites.push(node.site);
                }
            }
        }
    }
    all.retain(|location| location.several);
    all
}

/// Pairs of sites of which one writes what the other accesses, where more than one thread does; the lower number first.
fn conflicts(shared: &[Location]) -> BTreeSet<(u32, u32)> {
    let mut pairs = BTreeSet::new();
    for location in shared {
        for &writer in &location.writers {
            let others = location.readers.iter().chain(&location.writers);
            pairs.extend(others.map(|&other| (writer.min(other), writer.max(other))));
        }
    }
    pairs
}

fn locks_of_sites(graph: &Usydg) -> BTreeMap<u32, BTreeSet<u32>> {
    let mut all: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for node in &graph.nodes {
        all.entry(node.site).or_default().extend(&node.locks);
    }
    all
}

/// The edges that are left when those of pairs without a conflict are removed: first between different sites, then between
/// equal ones where neither node has an edge to another site.
fn remaining(graph: &Usydg, removed: &mut Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    let site = |node: u32| graph.nodes[node as usize].site;
    let harmless = |from: u32, to: u32| {
        let (from, to) = (&graph.nodes[from as usize], &graph.nodes[to as usize]);
        sharing((&from.reads, &from.writes), (&to.reads, &to.writes)) != Sharing::Conflict
    };
    let (gone, left): (Vec<_>, Vec<_>) =
        graph.edges.iter().partition(|&&(from, to)| site(from) != site(to) && harmless(from, to));
    let abroad: BTreeSet<u32> =
        left.iter().filter(|&&(from, to)| site(from) != site(to)).flat_map(|&(from, to)| [from, to]).collect();
    let (more, left): (Vec<_>, Vec<_>) = left.into_iter().partition(|&(from, to)| {
        site(from) == site(to) && !abroad.contains(&from) && !abroad.contains(&to) && harmless(from, to)
    });
    removed.extend(gone.into_iter().chain(more));
    removed.sort_unstable();
    left
}

/// Sites without an edge. One that never had any is among them only if it conflicts with nothing, and others were there to
/// conflict with.
fn free_of_edges(
    graph: &Usydg,
    edges: &[(u32, u32)],
    conflicts: &BTreeSet<(u32, u32)>,
    locks: &BTreeMap<u32, BTreeSet<u32>>,
) -> BTreeSet<u32> {
    let sites = |edges: &[(u32, u32)]| -> BTreeSet<u32> {
        edges.iter().flat_map(|&(from, to)| [from, to]).map(|node| graph.nodes[node as usize].site).collect()
    };
    let (before, after) = (sites(&graph.edges), sites(edges));
    let crowded = |site: u32| {
        let locks = locks.get(&site);
        let beside =
            graph.nodes.iter().filter(|node| locks.is_some_and(|l| node.locks.iter().any(|lock| l.contains(lock))));
        beside.map(|node| node.thread).collect::<BTreeSet<_>>().len() > 1
    };
    let harmless = |site: u32| !conflicts.iter().any(|&(a, b)| a == site || b == site);
    let free = |&site: &u32| !after.contains(&site) && (before.contains(&site) || harmless(site) && crowded(site));
    locks.keys().copied().filter(free).collect()
}

/// New locks: one for the sites of each node that nobody precedes, handed on along the edges; and one for each circle that
/// nothing leads into. Equal sites have equal locks.
fn split(records: &Records, graph: &Usydg, edges: &[(u32, u32)], found: &mut Suggestions) {
    let site = |node: u32| graph.nodes[node as usize].site;
    let preceded: BTreeSet<u32> = edges.iter().map(|&(_, to)| to).collect();
    let by_name = |sites: BTreeSet<u32>| {
        let mut sites: Vec<u32> = sites.into_iter().collect();
        sites.sort_by(|&a, &b| records.sites.text(a).cmp(records.sites.text(b)));
        sites
    };
    let sources = edges.iter().map(|&(from, _)| from).filter(|from| !preceded.contains(from)).map(site).collect();
    let mut next: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for &(from, to) in edges {
        next.entry(site(from)).or_default().insert(site(to));
        next.entry(site(to)).or_default();
    }
    for source in by_name(sources) {
        hand_on(source, &next, found);
    }
    // What is left are circles, and what they lead to. One that nothing else leads into is led to by itself only.
    let left: BTreeSet<u32> = next.keys().copied().filter(|site| !found.split.contains_key(site)).collect();
    let reach: BTreeMap<u32, BTreeSet<u32>> = left.iter().map(|&site| (site, reachable(site, &next))).collect();
    let first = |site: u32| reach.iter().all(|(other, to)| !to.contains(&site) || reach[&site].contains(other));
    for site in by_name(left.iter().copied().filter(|&site| first(site)).collect()) {
        if !found.split.contains_key(&site) {
            hand_on(site, &next, found);
        }
    }
}

fn reachable(from: u32, next: &BTreeMap<u32, BTreeSet<u32>>) -> BTreeSet<u32> {
    let mut all = BTreeSet::from([from]);
    let mut open = vec![from];
    while let Some(site) = open.pop() {
        for &to in next.get(&site).into_iter().flatten() {
            if all.insert(to) {
                open.push(to);
            }
        }
    }
    all
}

/// Gives a new lock to a site and to all that follow it.
fn hand_on(from: u32, next: &BTreeMap<u32, BTreeSet<u32>>, found: &mut Suggestions) {
    let lock = found.new_locks;
    found.new_locks += 1;
    for site in reachable(from, next) {
        found.split.entry(site).or_default().insert(lock);
    }
}

/// Pairs that conflict, had a lock in common, and would have none.
fn unsound(
    conflicts: &BTreeSet<(u32, u32)>,
    locks: &BTreeMap<u32, BTreeSet<u32>>,
    found: &Suggestions,
) -> BTreeSet<(u32, u32)> {
    // A lock of which all get the same new one is not split: that is the lock itself.
    let mut heirs: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for (site, new) in &found.split {
        for lock in locks.get(site).into_iter().flatten() {
            heirs.entry(*lock).or_default().extend(new);
        }
    }
    /// New locks by number, or old ones.
    #[derive(PartialEq, Eq, PartialOrd, Ord)]
    enum Held {
        New(u32),
        Old(u32),
    }
    let held = |site: u32| -> BTreeSet<Held> {
        if found.remove.contains(&site) {
            return BTreeSet::new();
        }
        if let Some(new) = found.split.get(&site) {
            return new.iter().map(|&lock| Held::New(lock)).collect();
        }
        let old = locks.get(&site).into_iter().flatten();
        let heir = |&lock: &u32| match heirs.get(&lock).map(|all| (all.len(), all.first())) {
            Some((1, Some(&only))) => Held::New(only),
            _ => Held::Old(lock),
        };
        old.map(heir).collect()
    };
    let common = |a: u32, b: u32| match (locks.get(&a), locks.get(&b)) {
        (Some(a), Some(b)) => !a.is_disjoint(b),
        _ => false,
    };
    conflicts.iter().copied().filter(|&(a, b)| common(a, b) && held(a).is_disjoint(&held(b))).collect()
}

/// The neighbours that never write, of nodes that do. A site that writes on any thread is no reader.
fn readers(graph: &Usydg, edges: &[(u32, u32)], writing: &BTreeSet<u32>) -> BTreeMap<u32, BTreeSet<u32>> {
    let mut all: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for &(from, to) in edges {
        for (writer, reader) in [(from, to), (to, from)] {
            let (writer, reader) = (&graph.nodes[writer as usize], &graph.nodes[reader as usize]);
            // A path that leads on from a reader over nodes of the same site ends at the same site.
            if !writer.writes.is_empty() && writer.site != reader.site && !writing.contains(&reader.site) {
                all.entry(writer.site).or_default().insert(reader.site);
            }
        }
    }
    all
}

/// The sites of each lock in groups that conflict within themselves only.
fn independent(graph: &Usydg, conflicts: &BTreeSet<(u32, u32)>) -> BTreeMap<u32, Independent> {
    let mut sites: BTreeMap<u32, (BTreeSet<u32>, BTreeSet<u32>)> = BTreeMap::new();
    for node in &graph.nodes {
        for &lock in &node.locks {
            let (sites, threads) = sites.entry(lock).or_default();
            sites.insert(node.site);
            threads.insert(node.thread);
        }
    }
    let mut neighbours: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for &(a, b) in conflicts {
        neighbours.entry(a).or_default().insert(b);
        neighbours.entry(b).or_default().insert(a);
    }
    let group = |(lock, (sites, threads)): (u32, (BTreeSet<u32>, BTreeSet<u32>))| {
        let mut found = Independent { threads: threads.len(), ..Independent::default() };
        let mut left = sites.clone();
        while let Some(first) = left.pop_first() {
            if !neighbours.contains_key(&first) {
                found.free.insert(first);
                continue;
            }
            let mut group = BTreeSet::new();
            let mut open = vec![first];
            while let Some(site) = open.pop() {
                if group.insert(site) {
                    left.remove(&site);
                    open.extend(neighbours.get(&site).into_iter().flatten().filter(|site| sites.contains(site)));
                }
            }
            found.groups.push(group);
        }
        (lock, found)
    };
    sites.into_iter().map(group).collect()
}
