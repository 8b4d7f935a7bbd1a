//! Who waits because of whom, as a small picture: locks and the sections that hold them, laid out from left to right. An edge is
//! as wide as the waiting that comes about through it.

use crate::report::schema::{Ns, Report};
use indexmap::{IndexMap, IndexSet};
use rustc_hash::FxBuildHasher;
use serde::Serialize;

/// Waiting below this part of all is not shown.
const LEAST: f64 = 0.003;
/// Nodes shown.
const MAX_NODES: usize = 15;
/// Size of a node, and what is between two of them, in the units of the picture.
const NODE: (f64, f64) = (206.0, 46.0);
const GAP: (f64, f64) = (96.0, 16.0);
/// Width of the widest edge, and of the narrowest.
const WIDTH: (f64, f64) = (24.0, 1.5);

/// The picture.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Chains {
    width: f64,
    height: f64,
    nodes: Vec<Node>,
    edges: Vec<Edge>,
    /// Waiting of which the way is not shown.
    left_out_ns: Ns,
}

/// A lock that threads wait for, or a section that holds one.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Node {
    /// The lock's name.
    lock: String,
    /// Where it is held; `None` of a lock that is waited for.
    held_in: Option<String>,
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

/// Waiting that comes about through two nodes, in this order.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Edge {
    from: usize,
    to: usize,
    wait_ns: Ns,
    /// Where it leaves the right side of one, and enters the left side of the other.
    y: [f64; 2],
    /// Points between nodes of the columns that it passes: their middles.
    via: Vec<[f64; 2]>,
    width: f64,
    /// Whether it closes a circle.
    back: bool,
}

type Key = (String, Option<String>);
type Nodes = IndexSet<Key, FxBuildHasher>;

/// The longest chains of a report.
pub(super) fn chains(report: &Report) -> Chains {
    let mut waits: IndexMap<(Key, Key), Ns, FxBuildHasher> = IndexMap::default();
    for lock in &report.locks {
        let waited = || (lock.label.clone(), None);
        for holder in lock.holders.iter().filter(|holder| holder.lock.is_none()) {
            let held = (lock.label.clone(), Some(holder.place.symbol.clone()));
            *waits.entry((waited(), held)).or_default() += holder.wait_ns - holder.nested_ns;
        }
        for chain in &lock.chains {
            let mut from = waited();
            for link in &chain.links {
                let place = link.symbol.clone().unwrap_or_else(|| "[place not seen]".to_owned());
                let to = (link.name.clone(), Some(place));
                *waits.entry((from, to.clone())).or_default() += chain.wait_ns;
                from = to;
            }
        }
    }
    waits.retain(|(from, to), wait| *wait > Ns::default() && from != to);
    waits.sort_by(|_, a, _, b| b.cmp(a));
    let all: Ns = waits.iter().filter(|((from, _), _)| from.1.is_none()).map(|(_, wait)| *wait).sum();
    let mut nodes = Nodes::default();
    let mut edges = Vec::new();
    let mut left_out_ns = Ns::default();
    for ((from, to), wait_ns) in waits {
        let new = usize::from(!nodes.contains(&from)) + usize::from(!nodes.contains(&to));
        if nodes.len() + new > MAX_NODES || wait_ns.share_of(all) < LEAST {
            // Further links are parts of the same waiting.
            left_out_ns += if from.1.is_none() { wait_ns } else { Ns::default() };
            continue;
        }
        let [from, to] = [from, to].map(|key| nodes.insert_full(key).0);
        edges.push(Edge { from, to, wait_ns, ..Edge::default() });
    }
    Chains { left_out_ns, ..laid_out(nodes, edges) }
}

/// Puts nodes into columns, each to the right of those that lead to it.
fn laid_out(nodes: Nodes, mut edges: Vec<Edge>) -> Chains {
    let mut columns = vec![0; nodes.len()];
    for at in 0..edges.len() {
        edges[at].back = leads(&edges[..at], edges[at].to, edges[at].from);
    }
    // No way without a circle has more edges than there are nodes.
    for _ in 0..nodes.len() {
        for edge in edges.iter().filter(|edge| !edge.back) {
            columns[edge.to] = columns[edge.to].max(columns[edge.from] + 1);
        }
    }
    let widest = edges.iter().map(|edge| edge.wait_ns).max().unwrap_or_default();
    for edge in &mut edges {
        edge.width = (WIDTH.0 * edge.wait_ns.share_of(widest)).max(WIDTH.1);
    }
    let through = |node: usize| {
        let width = |end: fn(&Edge) -> usize| edges.iter().filter(|e| end(e) == node).map(|e| e.width).sum::<f64>();
        width(|edge| edge.from).max(width(|edge| edge.to))
    };
    let heights: Vec<f64> = (0..nodes.len()).map(|node| NODE.1.max(through(node) + 8.0)).collect();
    let mut tops = vec![0.0; nodes.len()];
    let (mut height, mut width) = (0.0_f64, 0.0_f64);
    for column in 0..=columns.iter().copied().max().unwrap_or_default() {
        let left = column as f64 * (NODE.0 + GAP.0);
        let passes = |edge: &Edge| !edge.back && columns[edge.from] < column && column < columns[edge.to];
        let mut here: Vec<Item> = (0..nodes.len()).filter(|&node| columns[node] == column).map(Item::Node).collect();
        here.extend((0..edges.len()).filter(|&at| passes(&edges[at])).map(Item::Edge));
        // Near to where it comes from; nodes and edges were found in the order of their waiting.
        let source = |item: &Item| -> f64 {
            match *item {
                Item::Node(node) => {
                    let widest = edges.iter().find(|edge| edge.to == node && !edge.back);
                    widest.map_or(0.0, |e| e.via.last().map_or(tops[e.from], |at| at[1]))
                }
                Item::Edge(at) => edges[at].via.last().map_or(tops[edges[at].from], |at| at[1]),
            }
        };
        here.sort_by(|a, b| source(a).total_cmp(&source(b)));
        let mut y = 0.0;
        for item in here {
            let tall = match item {
                Item::Node(node) => {
                    tops[node] = y;
                    width = width.max(left + NODE.0);
                    heights[node]
                }
                Item::Edge(at) => {
                    let tall = edges[at].width;
                    edges[at].via.push([left + NODE.0 / 2.0, y + tall / 2.0]);
                    tall
                }
            };
            height = height.max(y + tall);
            y += tall + GAP.1;
        }
    }
    let nodes: Vec<Node> = nodes
        .into_iter()
        .enumerate()
        .map(|(i, (lock, held_in))| Node {
            lock,
            held_in,
            x: columns[i] as f64 * (NODE.0 + GAP.0),
            y: tops[i],
            width: NODE.0,
            height: heights[i],
        })
        .collect();
    ports(&mut edges, &nodes, 0);
    ports(&mut edges, &nodes, 1);
    Chains { width, height, nodes, edges, left_out_ns: Ns::default() }
}

/// What stands in a column: a node, or an edge on its way to a later column.
#[derive(Clone, Copy)]
enum Item {
    Node(usize),
    Edge(usize),
}

/// Whether edges lead from one node to another.
fn leads(edges: &[Edge], from: usize, to: usize) -> bool {
    let mut reached = vec![from];
    let mut at = 0;
    while let Some(&node) = reached.get(at) {
        let next = edges.iter().filter(|edge| edge.from == node && !edge.back).map(|edge| edge.to);
        let new: Vec<usize> = next.filter(|node| !reached.contains(node)).collect();
        reached.extend(new);
        at += 1;
    }
    reached.contains(&to)
}

/// Puts the ends of edges on one side of each node below one another, in the order of their other ends.
fn ports(edges: &mut [Edge], nodes: &[Node], side: usize) {
    let ends = |edge: &Edge| if side == 0 { (edge.from, edge.to) } else { (edge.to, edge.from) };
    for (node, place) in nodes.iter().enumerate() {
        let mut here: Vec<usize> = (0..edges.len()).filter(|&edge| ends(&edges[edge]).0 == node).collect();
        let towards = |at: usize| {
            let via = if side == 0 { edges[at].via.first() } else { edges[at].via.last() };
            via.map_or(nodes[ends(&edges[at]).1].y, |at| at[1])
        };
        here.sort_by(|&a, &b| towards(a).total_cmp(&towards(b)));
        let all: f64 = here.iter().map(|&edge| edges[edge].width).sum();
        let mut y = place.y + (place.height - all) / 2.0;
        for edge in here {
            edges[edge].y[side] = y + edges[edge].width / 2.0;
            y += edges[edge].width;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::schema::{ChainEntry, HolderEntry, LinkEntry, LockEntry, Place};

    fn place(symbol: &str) -> Place {
        Place { symbol: symbol.to_owned(), ..Place::default() }
    }

    fn lock(name: &str, holders: &[(&str, u64)], chains: &[(&[(&str, &str)], u64)]) -> LockEntry {
        let holder = |&(symbol, wait): &(&str, u64)| HolderEntry {
            place: place(symbol),
            wait_ns: Ns::new(wait),
            ..HolderEntry::default()
        };
        let link = |&(name, symbol): &(&str, &str)| LinkEntry {
            name: name.to_owned(),
            symbol: Some(symbol.to_owned()),
            ..LinkEntry::default()
        };
        let chain = |&(links, wait): &(&[(&str, &str)], u64)| ChainEntry {
            links: links.iter().map(link).collect(),
            wait_ns: Ns::new(wait),
            ..ChainEntry::default()
        };
        LockEntry {
            label: name.to_owned(),
            holders: holders.iter().map(holder).collect(),
            chains: chains.iter().map(chain).collect(),
            ..LockEntry::default()
        }
    }

    fn of(locks: Vec<LockEntry>) -> Chains {
        chains(&Report { locks, ..Report::default() })
    }

    #[test]
    fn chains_go_from_left_to_right_and_are_as_wide_as_their_waiting() {
        let seen = of(vec![lock("A", &[("f", 30)], &[(&[("A", "g"), ("B", "h")], 60)]), lock("B", &[("h", 15)], &[])]);
        let named = |node: usize| (seen.nodes[node].lock.as_str(), seen.nodes[node].held_in.as_deref());
        let edge = |e: &Edge| (named(e.from), named(e.to), e.wait_ns.whole(), e.width);
        let edges: Vec<_> = seen.edges.iter().map(edge).collect();
        assert_eq!(
            edges,
            [
                (("A", None), ("A", Some("g")), 60, 24.0),
                (("A", Some("g")), ("B", Some("h")), 60, 24.0),
                (("A", None), ("A", Some("f")), 30, 12.0),
                (("B", None), ("B", Some("h")), 15, 6.0),
            ]
        );
        assert!(seen.edges.iter().all(|e| !e.back && seen.nodes[e.from].x < seen.nodes[e.to].x));
        assert_eq!(seen.left_out_ns, Ns::default());
        assert_eq!(seen.width, 3.0 * NODE.0 + 2.0 * GAP.0);
    }

    #[test]
    fn nodes_do_not_overlap_and_too_many_are_left_out() {
        let names: Vec<String> = (0..20).map(|n| format!("L{n}")).collect();
        let seen = of(names.iter().map(|name| lock(name, &[("f", 10), ("g", 5)], &[])).collect());
        // Seven locks with the place where each is held most, and one place more.
        assert_eq!(seen.nodes.len(), MAX_NODES);
        assert_eq!(seen.left_out_ns, Ns::new(20 * 15 - 7 * 10 - 5));
        for (i, a) in seen.nodes.iter().enumerate() {
            for b in &seen.nodes[..i] {
                assert!(a.x != b.x || a.y >= b.y + b.height || b.y >= a.y + a.height);
            }
            assert!(a.x + a.width <= seen.width && a.y + a.height <= seen.height);
        }
    }

    #[test]
    fn edges_pass_between_the_nodes_of_other_columns() {
        let chains: &[(&[(&str, &str)], u64)] = &[(&[("A", "g"), ("B", "h")], 60)];
        let seen = of(vec![lock("A", &[], chains), lock("B", &[("h", 60)], &[])]);
        let long = seen.edges.iter().find(|edge| !edge.via.is_empty()).unwrap();
        let between = seen.nodes.iter().find(|node| node.held_in.as_deref() == Some("g")).unwrap();
        assert_eq!((seen.nodes[long.from].lock.as_str(), long.via.len()), ("B", 1));
        assert!((long.via[0][1] - between.y - between.height / 2.0).abs() > (between.height + long.width) / 2.0);
    }

    #[test]
    fn what_is_very_little_is_left_out() {
        let seen = of(vec![lock("A", &[("f", 10_000), ("g", 2)], &[])]);
        assert_eq!((seen.edges.len(), seen.left_out_ns), (1, Ns::new(2)));
    }

    #[test]
    fn a_circle_is_drawn_back() {
        let seen = of(vec![
            lock("A", &[], &[(&[("A", "f"), ("B", "g")], 20)]),
            lock("B", &[], &[(&[("B", "g"), ("A", "f")], 10)]),
        ]);
        let back: Vec<u64> = seen.edges.iter().filter(|e| e.back).map(|e| e.wait_ns.whole()).collect();
        assert_eq!(back, [10]);
        assert_eq!(of(Vec::new()), Chains::default());
    }
}
