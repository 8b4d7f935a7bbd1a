//! The four patterns of SyncProf (section 3.4.1), by pair of static critical sections that wait for each other.

use super::records::{Execution, NONE, Records, Touch};
use super::usydg::{Node, Sharing, Usydg, sharing};
use super::who::Use;
use foldhash::fast::RandomState;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// The share of adjacent executions without a conflict beyond which a conflict is rare (δ_deg).
pub const LOW_DEGREE: f64 = 0.80;
/// The share of accesses before the first conflicting one and after the last beyond which a section is long (δ_long).
pub const LONG: f64 = 0.20;

type Map<K, V> = HashMap<K, V, RandomState>;

/// What a pair of sections has in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// They access nothing in common.
    NullShared,
    /// What they have in common neither writes.
    ReadRead,
    /// They conflict, but adjacent executions seldom do.
    LowDegreeConflict,
    /// They conflict in a part of the section only.
    LongCriticalSection,
}

/// How often adjacent executions of two sections by different threads had no conflict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adjacent {
    /// Pairs of executions.
    pub pairs: u64,
    /// How many of these were without a conflict.
    pub apart: u64,
}

impl Adjacent {
    /// Their share; `None` of none.
    #[must_use]
    pub fn share(self) -> Option<f64> {
        (self.pairs > 0).then(|| self.apart as f64 / self.pairs as f64)
    }
}

/// The conflicting part of a section's executions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Executions that had a conflicting access, of those of which the order of accesses is known.
    pub conflicting: u64,
    /// Executions of which that is known.
    pub known: u64,
    /// Σ accesses of those with a conflicting one.
    pub accesses: u64,
    /// Σ of those before the first conflicting access and after the last.
    pub outside: u64,
    /// The earliest first conflicting access.
    pub first: Option<Edge>,
    /// The latest last one.
    pub last: Option<Edge>,
}

/// An access at the edge of the conflicting part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Its place among the section's accesses, counted from 0.
    pub access: u32,
    /// The location.
    pub location: u32,
    /// The place in the code, if that is known.
    pub code: Option<u32>,
}

impl Window {
    /// The share of accesses outside; `None` where no execution conflicts, or no order is known.
    #[must_use]
    pub fn outside_share(&self) -> Option<f64> {
        (self.accesses > 0).then(|| self.outside as f64 / self.accesses as f64)
    }

    fn add(&mut self, accesses: u32, touches: impl Iterator<Item = Touch>, executions: u64) {
        self.known += executions;
        let (mut first, mut last) = (None::<Edge>, None::<Edge>);
        for touch in touches {
            if first.is_none_or(|edge| touch.first < edge.access) {
                first = Some(Edge { access: touch.first, location: touch.location, code: touch.first_code });
            }
            if last.is_none_or(|edge| touch.last > edge.access) {
                last = Some(Edge { access: touch.last, location: touch.location, code: touch.last_code });
            }
        }
        let Some((first, last)) = first.zip(last) else { return };
        self.conflicting += executions;
        self.accesses += u64::from(accesses) * executions;
        let after = accesses.saturating_sub(last.access + 1);
        self.outside += u64::from(first.access + after) * executions;
        if self.first.is_none_or(|edge| first.access < edge.access) {
            self.first = Some(first);
        }
        if self.last.is_none_or(|edge| last.access > edge.access) {
            self.last = Some(last);
        }
    }
}

/// What is known of a pair of sections that wait for each other, at least on some threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// The most that any two threads share.
    pub sharing: Sharing,
    /// How often adjacent executions had no conflict.
    pub adjacent: Adjacent,
    /// The conflicting part of each of the two.
    pub windows: [Window; 2],
    /// The first pattern that matches, and its value: the share of adjacent executions without a conflict, or of accesses
    /// outside of the conflicting part.
    pub pattern: Option<(Pattern, f64)>,
}

/// All pairs of sites that have an edge, the lower number first; and of each site the part that conflicts with any other.
#[derive(Clone, Debug, Default)]
pub struct Patterns {
    /// By pair.
    pub pairs: BTreeMap<(u32, u32), Pair>,
    /// By site.
    pub windows: BTreeMap<u32, Window>,
}

/// Finds the pattern of each pair.
#[must_use]
pub fn patterns(records: &Records, graph: &Usydg) -> Patterns {
    let mut pairs: BTreeMap<(u32, u32), Pair> = BTreeMap::new();
    for &(from, to) in &graph.edges {
        let (from, to) = (&graph.nodes[from as usize], &graph.nodes[to as usize]);
        let shared = sharing((&from.reads, &from.writes), (&to.reads, &to.writes));
        let pair = pairs.entry((from.site.min(to.site), from.site.max(to.site))).or_insert(Pair {
            sharing: shared,
            adjacent: Adjacent::default(),
            windows: [Window::default(); 2],
            pattern: None,
        });
        if shared as u8 > pair.sharing as u8 {
            pair.sharing = shared;
        }
    }
    let conflicting: Vec<(u32, u32)> =
        pairs.iter().filter(|(_, pair)| pair.sharing == Sharing::Conflict).map(|(&sites, _)| sites).collect();
    for (sites, adjacent) in conflicting.iter().zip(adjacent(records, &conflicting)) {
        if let Some(pair) = pairs.get_mut(sites) {
            pair.adjacent = adjacent;
        }
    }
    let windows = windows(records, graph, &mut pairs);
    for pair in pairs.values_mut() {
        let long = pair.windows.iter().filter_map(Window::outside_share).max_by(f64::total_cmp);
        pair.pattern = match pair.sharing {
            Sharing::Null => Some((Pattern::NullShared, 1.0)),
            Sharing::ReadOnly => Some((Pattern::ReadRead, 1.0)),
            Sharing::Conflict => match (pair.adjacent.share(), long) {
                (Some(share), _) if share > LOW_DEGREE => Some((Pattern::LowDegreeConflict, share)),
                (_, Some(share)) if share > LONG => Some((Pattern::LongCriticalSection, share)),
                _ => None,
            },
        };
    }
    Patterns { pairs, windows }
}

/// Compares adjacent executions of each of these pairs, one of each of the two, by different threads.
fn adjacent(records: &Records, pairs: &[(u32, u32)]) -> Vec<Adjacent> {
    let mut found = vec![Adjacent::default(); pairs.len()];
    let mut partners: Map<u32, Vec<(u32, usize)>> = Map::default();
    for (i, &(a, b)) in pairs.iter().enumerate() {
        partners.entry(a).or_default().push((b, i));
        if a != b {
            partners.entry(b).or_default().push((a, i));
        }
    }
    let mut last: Map<(u32, u32, u32), usize> = Map::default();
    for (i, execution) in records.executions.iter().enumerate() {
        let Some(partners) = partners.get(&execution.site) else { continue };
        let key = |site| (execution.run, execution.lock, site);
        let own = last.get(&key(execution.site)).copied();
        for &(site, pair) in partners {
            let Some(before) = last.get(&key(site)).copied() else { continue };
            // Another execution of this site came in between.
            if site != execution.site && own.is_some_and(|own| own > before) {
                continue;
            }
            let other = &records.executions[before];
            if other.thread == execution.thread {
                continue;
            }
            let (ours, theirs) = (records.sets(execution.sets), records.sets(other.sets));
            let shared = sharing((ours.reads, ours.writes), (theirs.reads, theirs.writes));
            found[pair].pairs += 1;
            found[pair].apart += u64::from(shared != Sharing::Conflict);
        }
        last.insert(key(execution.site), i);
    }
    found
}

/// A site that one conflicts with, their pair, and whether that one is the second of it.
type Partner = (u32, (u32, u32), usize);

/// Finds the conflicting part of each section, in each pair and in all.
fn windows(records: &Records, graph: &Usydg, pairs: &mut BTreeMap<(u32, u32), Pair>) -> BTreeMap<u32, Window> {
    let located = |execution: &Execution| execution.path.is_some_and(|path| records.path(path).located);
    if !records.executions.iter().any(located) {
        return BTreeMap::new();
    }
    let mut partners: BTreeMap<u32, Vec<Partner>> = BTreeMap::new();
    for (&(a, b), pair) in &*pairs {
        if pair.sharing == Sharing::Conflict {
            partners.entry(a).or_default().push((b, (a, b), 0));
            if a != b {
                partners.entry(b).or_default().push((a, (a, b), 1));
            }
        }
    }
    let mut uses = Uses::new(records, graph);
    let mut all: BTreeMap<u32, Window> = BTreeMap::new();
    for (site, ways) in ways(records, |site| partners.contains_key(&site)) {
        let partners = partners.get(&site).map_or(&[][..], |partners| partners);
        let sites: Vec<u32> = partners.iter().map(|&(partner, ..)| partner).collect();
        all.extend(uses.windows(records, (site, &ways), &[&sites]).into_iter().map(|window| (site, window)));
        let columns: Vec<&[u32]> = sites.iter().map(std::slice::from_ref).collect();
        for (&(_, pair, side), window) in partners.iter().zip(uses.windows(records, (site, &ways), &columns)) {
            if let Some(pair) = pairs.get_mut(&pair) {
                pair.windows[side] = window;
            }
        }
    }
    all
}

/// A thread, its order of accesses, and how many executions had these.
type Way = (u32, u32, u64);

/// By site: the ways that are known to have gone where. Executions that went the same way over the same data count together.
fn ways(records: &Records, wanted: impl Fn(u32) -> bool) -> BTreeMap<u32, Vec<Way>> {
    let way = |execution: &Execution| Some((execution.site, execution.thread, execution.path?));
    let mut alike: Vec<(u32, u32, u32)> =
        records.executions.iter().filter(|execution| wanted(execution.site)).filter_map(way).collect();
    alike.sort_unstable();
    let mut all: BTreeMap<u32, Vec<Way>> = BTreeMap::new();
    for alike in alike.chunk_by(|a, b| a == b) {
        let (site, thread, path) = alike[0];
        if records.path(path).located {
            all.entry(site).or_default().push((thread, path, alike.len() as u64));
        }
    }
    all
}

/// Uses that are looked at together: 64 MiB.
const MAX_USES: usize = 1 << 22;

/// Who uses which location at which site.
struct Uses<'a> {
    nodes: BTreeMap<u32, Vec<&'a Node>>,
    /// By location: its place among those of the site that is looked at; clean between uses.
    place: Vec<u32>,
}

impl<'a> Uses<'a> {
    fn new(records: &Records, graph: &'a Usydg) -> Self {
        let mut nodes: BTreeMap<u32, Vec<&Node>> = BTreeMap::new();
        graph.nodes.iter().for_each(|node| nodes.entry(node.site).or_default().push(node));
        Self { nodes, place: vec![NONE; records.locations.len()] }
    }

    fn locations(&self, site: u32) -> impl Iterator<Item = (&'a Node, u32, bool)> + use<'a> {
        let nodes = self.nodes.get(&site).map_or_else(Vec::new, Clone::clone);
        nodes.into_iter().flat_map(|node| {
            let all = |of: &'a [u32], write| of.iter().map(move |&location| (node, location, write));
            all(&node.reads, false).chain(all(&node.writes, true))
        })
    }

    /// The parts of a site's executions that conflict with sections of others, by group of these.
    fn windows(&mut self, records: &Records, (site, ways): (u32, &[Way]), groups: &[&[u32]]) -> Vec<Window> {
        let mut locations = 0;
        for (_, location, _) in self.locations(site) {
            if self.place[location as usize] == NONE {
                self.place[location as usize] = locations;
                locations += 1;
            }
        }
        let mut windows = Vec::with_capacity(groups.len());
        for groups in groups.chunks((MAX_USES / (locations as usize).max(1)).max(1)) {
            windows.append(&mut self.together(records, ways, groups, locations));
        }
        for (_, location, _) in self.locations(site) {
            self.place[location as usize] = NONE;
        }
        windows
    }

    /// All groups while an execution is at hand: what there is of executions is more than what is of sites.
    fn together(&self, records: &Records, ways: &[Way], groups: &[&[u32]], locations: u32) -> Vec<Window> {
        let mut uses = vec![Use::default(); locations as usize * groups.len()];
        for (i, group) in groups.iter().enumerate() {
            for (node, location, write) in group.iter().flat_map(|&site| self.locations(site)) {
                let place = self.place[location as usize];
                if place != NONE {
                    uses[place as usize * groups.len() + i].add(node.thread, write);
                }
            }
        }
        let mut windows = vec![Window::default(); groups.len()];
        let mut touches: Vec<(Touch, &[Use])> = Vec::new();
        for &(thread, path, executions) in ways {
            let path = records.path(path);
            touches.clear();
            touches.extend(path.touches().map(|touch| {
                let from = self.place[touch.location as usize] as usize * groups.len();
                (touch, &uses[from..from + groups.len()])
            }));
            for (i, window) in windows.iter_mut().enumerate() {
                let conflicts = |(touch, uses): &&(Touch, &[Use])| {
                    if touch.write { uses[i].accesses.other_than(thread) } else { uses[i].writes.other_than(thread) }
                };
                window.add(path.accesses, touches.iter().filter(conflicts).map(|(touch, _)| *touch), executions);
            }
        }
        windows
    }
}
