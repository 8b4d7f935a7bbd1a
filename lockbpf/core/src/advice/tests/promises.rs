//! What holds of advice whatever the records: checked word by word against what the nodes read and wrote.

use super::super::schema::LocationName;
use super::super::{Advice, Options, advise, read, render};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const PLACES: [&str; 8] = ["0x1000", "0x1008", "0x1040", "s", "s+0x8", "s+64", "T0-own", "x"];

fn places(of: &[usize]) -> Vec<&'static str> {
    of.iter().map(|&i| PLACES[i % PLACES.len()]).collect()
}

/// Run, thread, site, lock, reads, writes, and which of these the accesses went to.
type Any = (u8, u8, u8, u8, Vec<usize>, Vec<usize>, Vec<usize>);

fn lines(executions: &[Any], edges: &[(usize, usize)]) -> Vec<Value> {
    let mut lines: Vec<Value> = (0..)
        .zip(executions)
        .map(|(seq, (run, thread, site, lock, reads, writes, path))| {
            let (reads, writes) = (places(reads), places(writes));
            let all: Vec<(char, &str)> =
                reads.iter().map(|at| ('r', *at)).chain(writes.iter().map(|at| ('w', *at))).collect();
            let path: Vec<(char, Option<&str>)> = path
                .iter()
                .map(|&i| all.get(i % (all.len() + 1)).map_or(('r', None), |&(letter, at)| (letter, Some(at))))
                .collect();
            let mut line = json!({"run": run, "seq": seq, "tid": format!("T{thread}"), "lock": format!("L{lock}"),
                                  "site": format!("f{site}"), "reads": reads, "writes": writes});
            if !path.is_empty() {
                line["accesses"] = path.iter().map(|(letter, _)| *letter).collect::<String>().into();
                line["at"] = path.iter().map(|(_, at)| json!(at)).collect();
            }
            line
        })
        .collect();
    for &(from, to) in edges {
        let (from, to) = (from % executions.len(), to % executions.len());
        if executions[from].0 == executions[to].0 {
            lines.push(json!({"run": executions[from].0, "edge": [from, to]}));
        }
    }
    lines
}

fn conflict(a: (&[String], &[String]), b: (&[String], &[String])) -> bool {
    let hits =
        |writes: &[String], of: (&[String], &[String])| writes.iter().any(|at| of.0.contains(at) || of.1.contains(at));
    hits(a.1, b) || hits(b.1, a)
}

fn check(found: &Advice, locks_of: &BTreeMap<String, BTreeSet<String>>) {
    let nodes: BTreeMap<&str, _> = found.usydg.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let site = |id: &str| id.split_once(':').unwrap().1.to_owned();
    let texts = |names: &[LocationName]| names.iter().map(|name| name.0.to_string()).collect::<Vec<_>>();
    let nodes: BTreeMap<&str, (Vec<String>, Vec<String>)> =
        nodes.iter().map(|(&id, node)| (id, (texts(&node.reads), texts(&node.writes)))).collect();
    let sets = |id: &str| (&nodes[id].0[..], &nodes[id].1[..]);
    let gone: BTreeSet<_> = found.usydg.removed_edges.iter().collect();
    assert!(gone.iter().all(|edge| found.usydg.edges.contains(edge)));
    assert!(gone.iter().all(|[from, to]| !conflict(sets(from), sets(to))), "{gone:?}");
    let left: Vec<_> = found.usydg.edges.iter().filter(|edge| !gone.contains(edge)).collect();
    for [from, to] in &left {
        // What stays either conflicts, or is between equal sites of which one has an edge to another.
        assert!(conflict(sets(from), sets(to)) || site(from) == site(to), "{from} {to}");
    }
    let suggestions = &found.suggestions;
    let split = |id: &str| suggestions.split[&site(id)].iter().collect::<BTreeSet<_>>();
    for [from, to] in &left {
        assert!(!split(from).is_empty() && split(from).is_subset(&split(to)), "{from} {to}: {:?}", suggestions.split);
    }
    let connected: BTreeSet<String> = left.iter().flat_map(|edge| edge.iter().map(|id| site(id))).collect();
    assert_eq!(connected, suggestions.split.keys().cloned().collect());
    assert!(suggestions.remove.iter().all(|site| !connected.contains(site)));
    // Locations that one thread uses are nobody else's business.
    let thread = |id: &str| id.split_once(':').unwrap().0.to_owned();
    let mut users: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (id, (reads, writes)) in &nodes {
        for at in reads.iter().chain(writes) {
            users.entry(at).or_default().insert(thread(id));
        }
    }
    let shared = |all: &[String]| all.iter().filter(|at| users[at.as_str()].len() > 1).cloned().collect::<Vec<_>>();
    let mut by_site: BTreeMap<String, (Vec<String>, Vec<String>)> = BTreeMap::new();
    for (id, (reads, writes)) in &nodes {
        let (all_reads, all_writes) = by_site.entry(site(id)).or_default();
        all_reads.extend(shared(reads));
        all_writes.extend(shared(writes));
    }
    let unsound: BTreeSet<_> = suggestions.unsafe_split.iter().collect();
    for (a, (a_reads, a_writes)) in &by_site {
        for (b, (b_reads, b_writes)) in by_site.range(a.clone()..) {
            let conflicts = conflict((a_reads, a_writes), (b_reads, b_writes));
            let had = !locks_of[a].is_disjoint(&locks_of[b]);
            let pair = [a.clone(), b.clone()];
            let removed = suggestions.remove.contains(a) || suggestions.remove.contains(b);
            let apart = match (suggestions.split.get(a), suggestions.split.get(b)) {
                (Some(a), Some(b)) => !a.iter().any(|lock| b.contains(lock)),
                _ => false,
            };
            if conflicts && had && (removed || apart) {
                assert!(unsound.contains(&pair), "{pair:?}: {suggestions:?}");
            }
            if unsound.contains(&pair) {
                assert!(conflicts && had, "{pair:?}: {suggestions:?}");
            }
            for independent in &suggestions.independent {
                let group = |site: &String| independent.groups.iter().position(|group| group.contains(site));
                if let (Some(ours), Some(theirs)) = (group(a), group(b)) {
                    assert!(ours == theirs || !conflicts, "{pair:?}: {independent:?}");
                }
                assert!(!independent.free.contains(a) || !conflicts || !had, "{pair:?}: {independent:?}");
            }
        }
    }
    for section in &found.sections {
        assert!((0.0..=0.5).contains(&section.p_c) && section.p_c_line >= section.p_c - 1e-12, "{section:?}");
        assert!((0.0..=0.5).contains(&section.p_c_lock));
    }
    for entry in &suggestions.shorten {
        assert!(entry.from <= entry.to && entry.saved_share > 0.2 && entry.saved_share < 1.0, "{entry:?}");
    }
}

proptest! {
    #[test]
    fn promises_are_kept(
        executions in prop::collection::vec(
            (
                0_u8..2, 0_u8..3, 0_u8..4, 0_u8..2,
                prop::collection::vec(0_usize..8, 0..3),
                prop::collection::vec(0_usize..8, 0..2),
                prop::collection::vec(0_usize..6, 0..5),
            ),
            1..40,
        ),
        edges in prop::collection::vec((0_usize..40, 0_usize..40), 0..10),
    ) {
        let lines = lines(&executions, &edges);
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let records = read(text.as_bytes()).unwrap();
        let mut locks_of: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (.., site, lock, _, _, _) in &executions {
            locks_of.entry(format!("f{site}")).or_default().insert(format!("L{lock}"));
        }
        let found = advise(&records, &Options::default());
        check(&found, &locks_of);
        prop_assert_eq!(&found, &advise(&records, &Options::default()));
        prop_assert!(render(&found, 80).ends_with('\n'));
    }
}
