//! Critical sections by themselves: how often their executions conflict, and about what.

use super::places::Lines;
use super::records::{NONE, Records};
use super::usydg::{Node, Usydg};
use super::who::Use;
use crate::model::conflicts::{self, Comparer};
use foldhash::fast::RandomState;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Locations told of a section.
const LOCATIONS: usize = 8;

type Map<K, V> = HashMap<K, V, RandomState>;

/// A critical section.
#[derive(Clone, Debug, Default)]
pub(super) struct Section {
    pub(super) instances: u64,
    pub(super) cut: u64,
    pub(super) threads: BTreeSet<u32>,
    /// By way through the code: executions.
    pub(super) ways: Map<u32, u64>,
    /// Executions whose way is known.
    pub(super) ways_known: u64,
    pub(super) p_c: f64,
    /// The same against executions of any section of the lock.
    pub(super) p_c_lock: f64,
    pub(super) p_c_line: f64,
    pub(super) reads: f64,
    pub(super) writes: f64,
    pub(super) conflicting: Vec<Contended>,
}

/// A location that a section conflicts about.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Contended {
    pub(super) location: u32,
    /// Executions that access it.
    pub(super) accessed: u64,
    /// Executions that write it.
    pub(super) written: u64,
    /// Sites of the lock that access it.
    pub(super) sites: BTreeSet<u32>,
}

/// By site and lock.
pub(super) type Sections = BTreeMap<(u32, u32), Section>;

/// Looks at all sections.
pub(super) fn sections(records: &Records, graph: &Usydg, lines: &Lines) -> Sections {
    // By section and run, in order.
    let mut members: BTreeMap<(u32, u32), BTreeMap<u32, Vec<u32>>> = BTreeMap::new();
    let mut sections = Sections::new();
    for (i, execution) in (0..).zip(&records.executions) {
        let key = (execution.site, execution.lock);
        members.entry(key).or_default().entry(execution.run).or_default().push(i);
        let section = sections.entry(key).or_default();
        section.instances += 1;
        section.cut += u64::from(execution.cut);
        section.threads.insert(execution.thread);
        if let Some(path) = execution.path {
            *section.ways.entry(records.path(path).way).or_default() += 1;
            section.ways_known += 1;
        }
    }
    let by_line = lines.coarser().then(|| ByLine::new(records, lines));
    let contended = contended(graph, records.locations.len());
    let mut place = vec![NONE; records.locations.len()];
    let mut comparer = Comparer::default();
    for (key, section) in &mut sections {
        let Some(runs) = members.get(key) else { continue };
        let runs: Vec<&Vec<u32>> = runs.values().collect();
        section.p_c = p_c(&mut comparer, &runs, |i| by_location(records, i));
        section.p_c_line = match &by_line {
            None => section.p_c,
            Some(by_line) => p_c(&mut comparer, &runs, |i| {
                let execution = &records.executions[i as usize];
                by_line.execution(execution.thread, execution.sets)
            }),
        };
        count(records, &runs, contended.get(&key.1).map_or(&[], |all| all), &mut place, section);
    }
    against_all(&mut comparer, records, &mut sections);
    sections
}

/// How often each section would conflict with any section of its lock.
fn against_all(comparer: &mut Comparer, records: &Records, sections: &mut Sections) {
    let mut runs: BTreeMap<(u32, u32), Vec<u32>> = BTreeMap::new();
    for (i, execution) in (0..).zip(&records.executions) {
        runs.entry((execution.lock, execution.run)).or_default().push(i);
    }
    let mut sums: BTreeMap<(u32, u32), f64> = BTreeMap::new();
    for run in runs.values() {
        let all: Vec<_> = run.iter().map(|&i| by_location(records, i)).collect();
        for (&i, p) in run.iter().zip(comparer.each(&all)) {
            let execution = &records.executions[i as usize];
            *sums.entry((execution.site, execution.lock)).or_default() += p;
        }
    }
    for (key, sum) in sums {
        if let Some(section) = sections.get_mut(&key) {
            section.p_c_lock = sum / section.instances.max(1) as f64;
        }
    }
}

fn by_location(records: &Records, i: u32) -> conflicts::Execution<'_> {
    let execution = &records.executions[i as usize];
    let sets = records.sets(execution.sets);
    conflicts::Execution { thread: execution.thread, reads: sets.reads, writes: sets.writes }
}

fn p_c<'a>(comparer: &mut Comparer, runs: &[&Vec<u32>], of: impl Fn(u32) -> conflicts::Execution<'a>) -> f64 {
    let runs: Vec<Vec<_>> = runs.iter().map(|run| run.iter().map(|&i| of(i)).collect()).collect();
    comparer.pairwise(&runs)
}

/// Sets by cache line.
struct ByLine(Vec<(Vec<u32>, Vec<u32>)>);

impl ByLine {
    fn new(records: &Records, lines: &Lines) -> Self {
        let line = |locations: &[u32]| {
            let mut lines: Vec<u32> = locations.iter().map(|&location| lines.of(location)).collect();
            lines.sort_unstable();
            lines.dedup();
            lines
        };
        let sets = (0..records.sets.len() as u32).map(|number| records.sets(number));
        Self(sets.map(|sets| (line(sets.reads), line(sets.writes))).collect())
    }

    fn execution(&self, thread: u32, sets: u32) -> conflicts::Execution<'_> {
        let (reads, writes) = self.0.get(sets as usize).map_or((&[][..], &[][..]), |(r, w)| (&r[..], &w[..]));
        conflicts::Execution { thread, reads, writes }
    }
}

/// By lock: the locations that one thread writes and another one accesses in its sections, with the sites that do.
fn contended(graph: &Usydg, locations: usize) -> BTreeMap<u32, Vec<(u32, Vec<u32>)>> {
    let mut nodes: BTreeMap<u32, Vec<&Node>> = BTreeMap::new();
    for node in &graph.nodes {
        node.locks.iter().for_each(|lock| nodes.entry(*lock).or_default().push(node));
    }
    // By location: its place among those of the lock.
    let mut place: Vec<u32> = vec![NONE; locations];
    let mut of_lock = |nodes: &[&Node]| -> Vec<(u32, Vec<u32>)> {
        let mut uses: Vec<(u32, Use, Vec<u32>)> = Vec::new();
        for node in nodes {
            for (locations, write) in [(&node.reads, false), (&node.writes, true)] {
                for &location in locations {
                    let place = &mut place[location as usize];
                    if *place == NONE {
                        *place = uses.len() as u32;
                        uses.push((location, Use::default(), Vec::new()));
                    }
                    let (_, of, sites) = &mut uses[*place as usize];
                    of.add(node.thread, write);
                    if !sites.contains(&node.site) {
                        sites.push(node.site);
                    }
                }
            }
        }
        uses.iter().for_each(|(location, ..)| place[*location as usize] = NONE);
        uses.retain(|(_, of, _)| of.conflicts());
        uses.into_iter().map(|(location, _, sites)| (location, sites)).collect()
    };
    nodes.iter().map(|(&lock, nodes)| (lock, of_lock(nodes))).collect()
}

/// Counts what a section's executions access. `place` is memory for all locations, clean before and after.
fn count(
    records: &Records,
    runs: &[&Vec<u32>],
    contended: &[(u32, Vec<u32>)],
    place: &mut [u32],
    section: &mut Section,
) {
    for (i, (location, _)) in (0..).zip(contended) {
        place[*location as usize] = i;
    }
    let mut counts = vec![(0_u64, 0_u64); contended.len()];
    let (mut reads, mut writes) = (0, 0);
    for &i in runs.iter().copied().flatten() {
        let sets = records.sets(records.executions[i as usize].sets);
        reads += sets.reads.len();
        writes += sets.writes.len();
        for &location in sets.reads {
            if let Some((accessed, _)) = counts.get_mut(place[location as usize] as usize) {
                *accessed += 1;
            }
        }
        for &location in sets.writes {
            if let Some((accessed, written)) = counts.get_mut(place[location as usize] as usize) {
                *written += 1;
                *accessed += u64::from(sets.reads.binary_search(&location).is_err());
            }
        }
    }
    contended.iter().for_each(|(location, _)| place[*location as usize] = NONE);
    let executions = section.instances.max(1) as f64;
    (section.reads, section.writes) = (reads as f64 / executions, writes as f64 / executions);
    let mut told: Vec<(usize, (u64, u64))> = counts.into_iter().enumerate().filter(|(_, (n, _))| *n > 0).collect();
    type Told = (usize, (u64, u64));
    let name = |i: usize| records.locations.text(contended[i].0);
    let by_share = |(i, (accessed, written)): &Told, (j, (other_accessed, other_written)): &Told| {
        (other_accessed, other_written).cmp(&(accessed, written)).then_with(|| name(*i).cmp(name(*j)))
    };
    if told.len() > LOCATIONS {
        told.select_nth_unstable_by(LOCATIONS, by_share);
        told.truncate(LOCATIONS);
    }
    told.sort_by(by_share);
    let entry = |(i, (accessed, written)): (usize, (u64, u64))| Contended {
        location: contended[i].0,
        accessed,
        written,
        sites: contended[i].1.iter().copied().collect(),
    };
    section.conflicting = told.into_iter().map(entry).collect();
}
