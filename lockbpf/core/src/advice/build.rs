//! Records to advice.

use super::items::Advisor;
use super::optimistic::occ;
use super::patterns::patterns;
use super::places::Lines;
use super::predict::Predictor;
use super::records::Records;
use super::schema::{
    Advice, ConflictEntry, Graph, IndependentEntry, LocationName, NodeEntry, PatternEntry, SCHEMA, Sampled,
    SectionEntry, ShortenEntry, Suggested,
};
use super::sections::{Section, Sections, sections};
use super::sharing::false_sharing;
use super::suggest::{Suggestions, suggest};
use super::traced::Traced;
use super::usydg::Usydg;
use crate::model::occ::conflict;
use crate::report::text::counted;
use std::collections::{BTreeMap, BTreeSet};

/// What else is known.
#[derive(Default)]
pub struct Options<'a> {
    /// w_c by site, by hand.
    pub w: BTreeMap<u32, f64>,
    /// A recording.
    pub traced: Option<&'a Traced>,
    /// What answers how much changes would gain.
    pub predictor: Option<&'a Predictor<'a>>,
    /// O: what recording a lock operation cost in that recording, ns.
    pub operation_ns: Option<f64>,
    /// By site, for whom it locks in that recording, where its function has several callers: as [`crate::report::words::Called::by`].
    pub callers: BTreeMap<u32, String>,
}

/// Gives advice.
#[must_use]
pub fn advise(records: &Records, options: &Options<'_>) -> Advice {
    let none = BTreeSet::new();
    let graph = Usydg::new(records, options.traced.map_or(&none, |traced| &traced.waits));
    let lines = Lines::new(&records.locations);
    let (sections, (patterns, found)) = both(
        || sections(records, &graph, &lines),
        || {
            let patterns = patterns(records, &graph);
            let found = suggest(records, &graph, &patterns);
            (patterns, found)
        },
    );
    let w_c = w_c(&sections, options);
    let p = |of: fn(&Section) -> f64| -> BTreeMap<(u32, u32), f64> {
        let p = |(key, section): (&(u32, u32), &Section)| Some((*key, conflict(of(section), *w_c.get(key)?).ok()?));
        sections.iter().filter_map(p).collect()
    };
    let (p_conflict, p_line) = (p(|section| section.p_c), p(|section| section.p_c_line));
    let false_sharing = false_sharing(records, &graph, &lines);
    let advisor = Advisor {
        records,
        graph: &graph,
        patterns: &patterns,
        found: &found,
        sections: &sections,
        p_conflict: &p_conflict,
        false_sharing: &false_sharing,
        predictor: options.predictor,
        callers: &options.callers,
    };
    let text = Texts(records);
    let pattern_entries = patterns.pairs.iter().filter_map(|(&(a, b), pair)| {
        let (pattern, value) = pair.pattern?;
        Some(PatternEntry { pair: text.pair(a, b), pattern, value, adjacent: pair.adjacent.pairs })
    });
    let mut pattern_entries: Vec<PatternEntry> = pattern_entries.collect();
    pattern_entries.sort_by(|a, b| a.pair.cmp(&b.pair));
    Advice {
        schema: SCHEMA,
        sampled: sampled(records),
        sections: text.sections(&sections, &w_c, &p_conflict, &p_line),
        usydg: text.graph(&graph, &found),
        patterns: pattern_entries,
        suggestions: text.suggested(&graph, &found),
        advice: advisor.items(),
        false_sharing,
        occ: options.traced.map(|traced| {
            let mut occ = occ(records, traced, &w_c, &p_conflict, options.operation_ns);
            if sections.values().any(|section| section.p_c_lock > section.p_c) {
                occ.notes.push(
                    "Conflicts with other sections of the lock are not counted here: the column `with any of the lock` has them."
                        .to_owned(),
                );
            }
            occ
        }),
        cautions: cautions(records, &found, &text, options),
    }
}

/// Does two things at once, if there is a thread for the first.
fn both<A: Send, B>(one: impl Fn() -> A + Sync, other: impl FnOnce() -> B) -> (A, B) {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, &one);
        let other = other();
        let one = match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(_) => one(),
        };
        (one, other)
    })
}

/// w_c of each section: by hand, else from a recording.
fn w_c(sections: &Sections, options: &Options<'_>) -> BTreeMap<(u32, u32), f64> {
    let known = |key: &(u32, u32)| {
        let by_hand = options.w.get(&key.0).copied();
        let traced = || options.traced?.sections.get(key)?.w_c();
        Some((*key, by_hand.or_else(traced)?))
    };
    sections.keys().filter_map(known).collect()
}

fn sampled(records: &Records) -> Sampled {
    Sampled {
        executions: records.executions.len() as u64,
        cut: records.executions.iter().filter(|execution| execution.cut).count() as u64,
        runs: records.runs.len() as u64,
        threads: records.threads.len() as u64,
        locations: records.locations.len() as u64,
    }
}

fn cautions(records: &Records, found: &Suggestions, text: &Texts<'_>, options: &Options<'_>) -> Vec<String> {
    let mut all = vec![
        "Only what was executed can be known: a way through a section that was not sampled may access anything."
            .to_owned(),
        "A lock may guard more than memory: the order of output, of files, of system calls.".to_owned(),
    ];
    let alone = found.independent.iter().filter(|(_, independent)| independent.threads < 2).map(|(&lock, _)| lock);
    let alone = text.all(alone.collect::<Vec<_>>().iter().map(|&lock| records.locks.text(lock)));
    if !alone.is_empty() {
        all.push(format!(
            "Only one thread was seen at {}: nothing can be said about conflicts there.",
            super::items::listed(&alone)
        ));
    }
    let Some(traced) = options.traced else {
        all.push("Without a trace (--trace) it is not known how long sections were waited for, and nothing can be predicted.".to_owned());
        return all;
    };
    if !traced.missing.is_empty() {
        let names = text.all(traced.missing.iter().map(|&(site, _)| records.sites.text(site)));
        all.push(format!(
            "The trace does not have {}: of {} nothing is known but what was accessed.",
            super::items::listed(&names),
            if names.len() == 1 { "it" } else { "them" }
        ));
    }
    if !traced.together.is_empty() {
        let names = text.all(traced.together.iter().map(|&(site, _)| records.sites.text(site)));
        all.push(format!(
            "The trace does not tell {} apart, which take the lock by the same method: what it has of them is shared out as \
             their threads' samples are.",
            super::items::listed(&names)
        ));
    }
    if !traced.by_site.is_empty() {
        let of = counted(traced.by_site.len() as u64, "section");
        all.push(format!("Locks have other names in the trace: {of} were found by their sites."));
    }
    all
}

/// Names of locations in their order. Nodes have many, and most have the same.
struct Sorted {
    names: Vec<LocationName>,
    /// By number: the place in `names`.
    rank: Vec<u32>,
}

impl Sorted {
    fn new(locations: &super::Names) -> Self {
        // Most texts differ where they are cheap to compare.
        let begin = |text: &str| {
            let mut bytes = [0; 16];
            bytes.iter_mut().zip(text.bytes()).for_each(|(to, byte)| *to = byte);
            u128::from_be_bytes(bytes)
        };
        let mut order: Vec<(u128, &str, u32)> =
            (0..).zip(locations.iter()).map(|(number, text)| (begin(text), text, number)).collect();
        order.sort_unstable();
        let mut rank = vec![0; order.len()];
        (0..).zip(&order).for_each(|(place, &(.., number))| rank[number as usize] = place);
        Self { names: order.iter().map(|&(_, text, _)| LocationName(text.into())).collect(), rank }
    }

    fn names(&self, numbers: &[u32]) -> Vec<LocationName> {
        let mut places: Vec<u32> = numbers.iter().map(|&number| self.rank[number as usize]).collect();
        places.sort_unstable();
        places.iter().map(|&place| self.names[place as usize].clone()).collect()
    }
}

/// Numbers to texts, in order of the texts.
struct Texts<'a>(&'a Records);

impl Texts<'_> {
    fn all<'t>(&self, texts: impl Iterator<Item = &'t str>) -> Vec<String> {
        texts.map(str::to_owned).collect::<BTreeSet<String>>().into_iter().collect()
    }

    fn sites<'n>(&self, numbers: impl IntoIterator<Item = &'n u32>) -> Vec<String> {
        self.all(numbers.into_iter().map(|&site| self.0.sites.text(site)))
    }

    fn site(&self, site: u32) -> String {
        self.0.sites.text(site).to_owned()
    }

    fn pair(&self, a: u32, b: u32) -> [String; 2] {
        let mut pair = [self.site(a), self.site(b)];
        pair.sort();
        pair
    }

    fn sections(
        &self,
        sections: &Sections,
        w_c: &BTreeMap<(u32, u32), f64>,
        p_conflict: &BTreeMap<(u32, u32), f64>,
        p_line: &BTreeMap<(u32, u32), f64>,
    ) -> Vec<SectionEntry> {
        let entry = |(key, section): (&(u32, u32), &Section)| {
            let share = |n: u64| n as f64 / section.instances.max(1) as f64;
            let conflicting = section.conflicting.iter().map(|about| ConflictEntry {
                location: self.0.locations.text(about.location).to_owned(),
                name: self.0.location(about.location).to_owned(),
                share: share(about.accessed),
                written: share(about.written),
                others: self.sites(about.sites.iter().filter(|site| **site != key.0)),
            });
            let branches = self.0.branches.get(key);
            SectionEntry {
                site: self.site(key.0),
                lock: self.0.locks.text(key.1).to_owned(),
                instances: section.instances,
                threads: section.threads.len() as u64,
                paths: (section.ways_known > 0).then_some(section.ways.len() as u64),
                branches: branches.map(|all| all.len() as u64),
                branches_one_sided: branches.map(|all| all.values().filter(|b| b.is_one_sided()).count() as u64),
                p_c: section.p_c,
                w_c: w_c.get(key).copied(),
                p_conflict: p_conflict.get(key).copied(),
                p_c_lock: section.p_c_lock,
                p_c_line: section.p_c_line,
                p_conflict_line: p_line.get(key).copied(),
                reads: section.reads,
                writes: section.writes,
                conflicting: conflicting.collect(),
            }
        };
        let mut all: Vec<SectionEntry> = sections.iter().map(entry).collect();
        all.sort_by(|a, b| b.instances.cmp(&a.instances).then_with(|| (&a.lock, &a.site).cmp(&(&b.lock, &b.site))));
        all
    }

    fn graph(&self, graph: &Usydg, found: &Suggestions) -> Graph {
        let id = |node: u32| graph.nodes[node as usize].id.clone();
        let edges = |edges: &[(u32, u32)]| edges.iter().map(|&(from, to)| [id(from), id(to)]).collect();
        let sorted = Sorted::new(&self.0.locations);
        let node = |node: &super::Node| NodeEntry {
            id: node.id.clone(),
            reads: sorted.names(&node.reads),
            writes: sorted.names(&node.writes),
        };
        Graph {
            nodes: graph.nodes.iter().map(node).collect(),
            edges: edges(&graph.edges),
            removed_edges: edges(&found.removed_edges),
            edges_from: graph.sources.iter().map(|(&lock, &from)| (self.0.locks.text(lock).to_owned(), from)).collect(),
        }
    }

    fn suggested(&self, graph: &Usydg, found: &Suggestions) -> Suggested {
        let names = self.new_names(found.new_locks);
        let new = |numbers: &BTreeSet<u32>| -> Vec<String> {
            numbers.iter().filter_map(|&number| names.get(number as usize).cloned()).collect()
        };
        let mut splits: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for node in &graph.nodes {
            for &lock in &node.locks {
                splits.entry(lock).or_default().extend(found.split.get(&node.site).into_iter().flatten());
            }
        }
        let lock = |lock: u32| self.0.locks.text(lock).to_owned();
        let mut unsafe_split: Vec<[String; 2]> = found.unsafe_pairs.iter().map(|&(a, b)| self.pair(a, b)).collect();
        unsafe_split.sort();
        let in_pair = |site: &&u32| found.unsafe_pairs.iter().any(|(a, b)| a == *site || b == *site);
        let mut shorten: Vec<ShortenEntry> =
            found.shorten.iter().filter_map(|(&site, of)| self.shorter(site, of)).collect();
        shorten.sort_by(|a, b| b.saved_share.total_cmp(&a.saved_share).then_with(|| a.site.cmp(&b.site)));
        let independent = found.independent.iter().filter(|(_, of)| of.threads > 1).map(|(&number, of)| {
            let mut groups: Vec<Vec<String>> = of.groups.iter().map(|group| self.sites(group)).collect();
            groups.sort();
            IndependentEntry { lock: lock(number), groups, free: self.sites(&of.free) }
        });
        let mut independent: Vec<IndependentEntry> = independent.collect();
        independent.sort_by(|a, b| a.lock.cmp(&b.lock));
        Suggested {
            remove: self.sites(&found.remove),
            split: found.split.iter().map(|(&site, numbers)| (self.site(site), new(numbers))).collect(),
            unsafe_split,
            unsafe_remove: self.sites(found.remove.iter().filter(in_pair)),
            readers_of: found.readers.iter().map(|(&site, readers)| (self.site(site), self.sites(readers))).collect(),
            shorten,
            splits: splits
                .iter()
                .filter(|(_, new)| new.len() > 1)
                .map(|(&old, numbers)| (lock(old), new(numbers)))
                .collect(),
            independent,
        }
    }

    fn shorter(&self, site: u32, window: &super::Window) -> Option<ShortenEntry> {
        let (first, last) = (window.first?, window.last?);
        let location = |location: u32| self.0.locations.text(location).to_owned();
        let code = |code: Option<u32>| code.map(|code| self.0.code.text(code).to_owned());
        Some(ShortenEntry {
            site: self.site(site),
            from: first.access,
            to: last.access,
            saved_share: window.outside_share()?,
            from_at: location(first.location),
            to_at: location(last.location),
            from_code: code(first.code),
            to_code: code(last.code),
            conflicting: window.conflicting,
            known: window.known,
        })
    }

    /// `L1`, `L2`, …, but none that is the name of a lock already.
    fn new_names(&self, wanted: u32) -> Vec<String> {
        let names = (1_u64..).map(|n| format!("L{n}")).filter(|name| self.0.locks.find(name).is_none());
        names.take(wanted as usize).collect()
    }
}
