//! False sharing: different locations of one cache line that different threads write.

use super::places::{Lines, line_name};
use super::records::Records;
use super::schema::{FalseSharing, LineLocation};
use super::usydg::Usydg;
use foldhash::fast::RandomState;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What is written on a line.
#[derive(Default)]
struct Line {
    /// By location: who writes it, and who accesses it.
    written: BTreeMap<u32, BTreeSet<u32>>,
    accessed: BTreeMap<u32, BTreeSet<u32>>,
    sites: BTreeSet<u32>,
    locks: BTreeSet<u32>,
}

impl Line {
    /// The locations that a thread writes while another one writes others of the line, and neither accesses what the other
    /// writes.
    fn falsely_shared(&self) -> BTreeSet<u32> {
        let threads: BTreeSet<u32> = self.written.values().flatten().copied().collect();
        let of = |uses: &BTreeMap<u32, BTreeSet<u32>>, thread: u32| -> BTreeSet<u32> {
            uses.iter().filter(|(_, threads)| threads.contains(&thread)).map(|(&location, _)| location).collect()
        };
        let uses: Vec<_> = threads.iter().map(|&t| (of(&self.written, t), of(&self.accessed, t))).collect();
        let mut found = BTreeSet::new();
        for (i, (writes, accesses)) in uses.iter().enumerate() {
            for (other_writes, other_accesses) in &uses[i + 1..] {
                if writes.is_disjoint(other_accesses) && other_writes.is_disjoint(accesses) {
                    found.extend(writes.iter().chain(other_writes));
                }
            }
        }
        found
    }
}

/// By line: whether several locations of it are written, and by several threads.
fn several(graph: &Usydg, lines: &Lines) -> Vec<bool> {
    /// A location and a thread, and whether there are others.
    type First = Option<(u32, u32, bool, bool)>;
    let mut first: Vec<First> = vec![None; lines.count()];
    for node in &graph.nodes {
        for &location in &node.writes {
            let (known, thread, locations, threads) =
                first[lines.of(location) as usize].get_or_insert((location, node.thread, false, false));
            *locations |= *known != location;
            *threads |= *thread != node.thread;
        }
    }
    first.into_iter().map(|first| matches!(first, Some((_, _, true, true)))).collect()
}

/// Finds it, over all locks; lines that most executions write first.
pub(super) fn false_sharing(records: &Records, graph: &Usydg, lines: &Lines) -> Vec<FalseSharing> {
    if !lines.coarser() {
        return Vec::new();
    }
    let several = several(graph, lines);
    let mut by_line: BTreeMap<u32, Line> = BTreeMap::new();
    for node in &graph.nodes {
        for &location in node.writes.iter().filter(|&&location| several[lines.of(location) as usize]) {
            let line = by_line.entry(lines.of(location)).or_default();
            line.written.entry(location).or_default().insert(node.thread);
            line.sites.insert(node.site);
            line.locks.extend(&node.locks);
        }
    }
    for node in &graph.nodes {
        for &location in node.reads.iter().chain(&node.writes) {
            let line = lines.of(location);
            if several[line as usize]
                && let Some(line) = by_line.get_mut(&line)
            {
                line.accessed.entry(location).or_default().insert(node.thread);
            }
        }
    }
    let shared: BTreeMap<u32, (Line, BTreeSet<u32>)> = by_line
        .into_iter()
        .map(|(number, line)| (number, (line.falsely_shared(), line)))
        .filter(|(_, (locations, _))| !locations.is_empty())
        .map(|(number, (locations, line))| (number, (line, locations)))
        .collect();
    let mut alike: HashMap<u32, u64, RandomState> = HashMap::default();
    if !shared.is_empty() {
        for execution in &records.executions {
            *alike.entry(execution.sets).or_default() += 1;
        }
    }
    let mut instances: BTreeMap<u32, u64> = BTreeMap::new();
    for (number, executions) in alike {
        let written = records.sets(number).writes.iter();
        let of = |location: &u32| {
            let line = lines.of(*location);
            shared.get(&line).is_some_and(|(_, locations)| locations.contains(location)).then_some(line)
        };
        for line in written.filter_map(of).collect::<BTreeSet<u32>>() {
            *instances.entry(line).or_default() += executions;
        }
    }
    let sorted = |numbers: &BTreeSet<u32>, names: &super::Names| {
        let mut texts: Vec<String> = numbers.iter().map(|&number| names.text(number).to_owned()).collect();
        texts.sort();
        texts
    };
    let entry = |(number, (line, locations)): (u32, (Line, BTreeSet<u32>))| {
        let mut told: Vec<LineLocation> = locations
            .iter()
            .map(|location| LineLocation {
                location: records.locations.text(*location).to_owned(),
                name: records.location(*location).to_owned(),
                written_by: line.written.get(location).map(|who| sorted(who, &records.threads)).unwrap_or_default(),
            })
            .collect();
        told.sort_by(|a, b| a.location.cmp(&b.location));
        FalseSharing {
            line: told.first().map(|first| line_name(&first.location)).unwrap_or_default(),
            locations: told,
            sites: sorted(&line.sites, &records.sites),
            locks: sorted(&line.locks, &records.locks),
            instances: instances.get(&number).copied().unwrap_or_default(),
        }
    };
    let mut all: Vec<FalseSharing> = shared.into_iter().map(entry).collect();
    all.sort_by(|a, b| b.instances.cmp(&a.instances).then_with(|| a.line.cmp(&b.line)));
    all
}
