//! Orders of locking that contradict one another: if the threads meet at the wrong moment, they wait for one another for
//! ever, even if they never did so far.
#![forbid(unsafe_code)]

use super::LockOrder;
use crate::id::{Lock, Tid};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

/// Inversions listed at most.
pub const MAX_INVERSIONS: usize = 100;
/// Orders looked at in the search for short circles, at most: it ends after a fraction of a second on any input.
const MAX_STEPS: usize = 4_000_000;

/// Locks that are taken in a circle of orders: each link takes its inner lock, which is the outer lock of the next link,
/// while it holds its outer lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inversion {
    /// The links, beginning with the smallest outer lock; the last one's inner lock is the first one's outer lock.
    pub links: Vec<LockOrder>,
}

impl Inversion {
    /// Whether it could deadlock: each link needs a thread of its own, so no two of them may be one thread's alone.
    fn is_dangerous(&self) -> bool {
        let mut alone: HashSet<Tid> = HashSet::new();
        self.links.len() > 1 && self.links.iter().all(|link| link.others || alone.insert(link.tid))
    }
}

/// The contradictions among `orders` that could deadlock, the shortest first: for each order that lies on a circle, a
/// shortest one through it. What one thread alone does in both orders cannot deadlock and is left out. A lock that guards a
/// whole circle, so that it cannot deadlock either, is not known: only the lock taken last before the inner one is.
/// At most [`MAX_INVERSIONS`].
#[must_use]
pub fn inversions(orders: &[LockOrder]) -> Vec<Inversion> {
    let graph = Graph::of(orders);
    let component = graph.components();
    let mut steps = 0;
    let mut seen = BTreeSet::new();
    let mut found: Vec<Inversion> = Vec::new();
    for (edge, &(from, to)) in graph.ends.iter().enumerate() {
        if from == to || component.get(from) != component.get(to) {
            continue;
        }
        let Some(mut circle) = graph.path(to, from, &component, &mut steps) else { continue };
        circle.insert(0, edge);
        let first = (0..circle.len()).min_by_key(|&i| circle.get(i).map(|&e| (graph.outer(e), e))).unwrap_or(0);
        circle.rotate_left(first);
        if !seen.insert(circle.clone()) {
            continue;
        }
        let inversion = Inversion { links: circle.iter().filter_map(|&e| orders.get(e)).copied().collect() };
        if inversion.is_dangerous() {
            found.push(inversion);
        }
    }
    found.sort_by_key(|i| (i.links.len(), i.links.iter().map(|link| (link.outer, link.inner)).collect::<Vec<_>>()));
    found.truncate(MAX_INVERSIONS);
    found
}

/// Locks and orders by number.
struct Graph {
    locks: Vec<Lock>,
    /// Outer and inner lock of each order.
    ends: Vec<(usize, usize)>,
    /// Orders by their outer lock.
    out: Vec<Vec<usize>>,
}

impl Graph {
    fn of(orders: &[LockOrder]) -> Self {
        let mut numbers: HashMap<Lock, usize> = HashMap::new();
        let mut locks = Vec::new();
        let mut number = |lock| {
            *numbers.entry(lock).or_insert_with(|| {
                locks.push(lock);
                locks.len() - 1
            })
        };
        let ends: Vec<_> = orders.iter().map(|o| (number(o.outer), number(o.inner))).collect();
        let mut out = vec![Vec::new(); locks.len()];
        for (edge, &(from, _)) in ends.iter().enumerate() {
            if let Some(edges) = out.get_mut(from) {
                edges.push(edge);
            }
        }
        Self { locks, ends, out }
    }

    fn outer(&self, edge: usize) -> Option<Lock> {
        self.ends.get(edge).and_then(|&(from, _)| self.locks.get(from)).copied()
    }

    fn edges(&self, node: usize) -> &[usize] {
        self.out.get(node).map_or(&[], Vec::as_slice)
    }

    fn target(&self, edge: usize) -> Option<usize> {
        self.ends.get(edge).map(|&(_, to)| to)
    }

    /// The strongly connected component of each lock (Tarjan, with a stack of its own: orders come from outside).
    fn components(&self) -> Vec<usize> {
        const NONE: usize = usize::MAX;
        let n = self.locks.len();
        let (mut index, mut low, mut component) = (vec![NONE; n], vec![NONE; n], vec![NONE; n]);
        let mut open: Vec<usize> = Vec::new();
        let mut visited = 0;
        for root in 0..n {
            // Nodes on the way from the root, with the number of edges that were followed.
            let mut way = if index[root] == NONE { vec![(root, 0)] } else { Vec::new() };
            while let Some(&mut (node, ref mut followed)) = way.last_mut() {
                if *followed == 0 && index[node] == NONE {
                    (index[node], low[node]) = (visited, visited);
                    visited += 1;
                    open.push(node);
                }
                let next = self.edges(node).get(*followed).and_then(|&edge| self.target(edge));
                *followed += 1;
                match next {
                    Some(to) if index[to] == NONE => way.push((to, 0)),
                    Some(to) if component[to] == NONE => low[node] = low[node].min(index[to]),
                    Some(_) => {}
                    None => {
                        way.pop();
                        if let Some(&(parent, _)) = way.last() {
                            low[parent] = low[parent].min(low[node]);
                        }
                        while low[node] == index[node] && component[node] == NONE {
                            let Some(member) = open.pop() else { break };
                            component[member] = node;
                        }
                    }
                }
            }
        }
        component
    }

    /// The orders on a shortest way between two locks of a component.
    fn path(&self, from: usize, to: usize, component: &[usize], steps: &mut usize) -> Option<Vec<usize>> {
        let mut came_by: HashMap<usize, usize> = HashMap::new();
        let mut queue = VecDeque::from([from]);
        while let Some(node) = queue.pop_front() {
            if node == to {
                let mut path = Vec::new();
                let mut at = to;
                while let Some(&edge) = came_by.get(&at).filter(|_| at != from) {
                    path.push(edge);
                    at = self.ends.get(edge)?.0;
                }
                path.reverse();
                return Some(path);
            }
            for &edge in self.edges(node) {
                *steps += 1;
                if *steps > MAX_STEPS {
                    return None;
                }
                let next = self.target(edge)?;
                if component.get(next) == component.get(to) && next != from && !came_by.contains_key(&next) {
                    came_by.insert(next, edge);
                    queue.push_back(next);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Process, Site};
    use proptest::prelude::*;

    fn lock(addr: u64) -> Lock {
        Lock { process: Process(1), addr }
    }

    fn order(outer: u64, inner: u64, tid: u32) -> LockOrder {
        let site = |addr| Site { process: Process(1), addr };
        LockOrder {
            outer: lock(outer),
            outer_site: site(outer + 1000),
            inner: lock(inner),
            inner_site: site(inner + 2000),
            tid: Tid(tid),
            others: false,
            count: 1,
        }
    }

    fn circles(found: &[Inversion]) -> Vec<Vec<u64>> {
        found.iter().map(|i| i.links.iter().map(|link| link.outer.addr).collect()).collect()
    }

    #[test]
    fn two_orders_of_two_locks() {
        let orders = [order(1, 2, 10), order(2, 3, 10), order(2, 1, 11), order(4, 1, 12)];
        let found = inversions(&orders);
        assert_eq!(found, [Inversion { links: vec![orders[0], orders[2]] }]);
    }

    #[test]
    fn one_thread_cannot_deadlock_with_itself() {
        assert!(inversions(&[order(1, 2, 10), order(2, 1, 10)]).is_empty());
        let mut shared = order(2, 1, 10);
        shared.others = true;
        assert_eq!(inversions(&[order(1, 2, 10), shared]).len(), 1, "another thread takes one of the orders, too");
        let three = [order(1, 2, 10), order(2, 3, 10), order(3, 1, 11)];
        assert!(inversions(&three).is_empty(), "three links need three threads");
    }

    #[test]
    fn the_shortest_circle_through_each_order() {
        // 1→2→3→1 and 2→1: the long one is found through 2→3, the short one through 1→2.
        let orders = [order(1, 2, 10), order(2, 3, 11), order(3, 1, 12), order(2, 1, 13), order(1, 1, 14)];
        assert_eq!(circles(&inversions(&orders)), [vec![1, 2], vec![1, 2, 3]]);
    }

    #[test]
    fn a_tangle_is_searched_for_a_bounded_time() {
        // Every pair of 200 locks in both orders.
        let orders: Vec<_> = (0..200u64)
            .flat_map(|a| (0..200).filter(move |&b| a != b).map(move |b| order(a, b, (a * 200 + b) as u32)))
            .collect();
        let found = inversions(&orders);
        assert_eq!(found.len(), MAX_INVERSIONS);
        assert!(found.iter().all(|i| i.links.len() == 2));
    }

    #[test]
    fn a_long_chain_needs_no_deep_stack() {
        let orders: Vec<_> = (0..100_000u64).map(|i| order(i, i + 1, i as u32)).collect();
        assert!(inversions(&orders).is_empty());
    }

    proptest! {
        #[test]
        fn a_hierarchy_has_none(pairs in prop::collection::vec((0u64..50, 1u64..50, 0u32..5), 0..100)) {
            let orders: Vec<_> = pairs.iter().map(|&(from, up, tid)| order(from, from + up, tid)).collect();
            prop_assert!(inversions(&orders).is_empty());
        }

        #[test]
        fn a_planted_circle_is_found(
            len in 2u64..8,
            pairs in prop::collection::vec((0u64..50, 1u64..50, 0u32..5), 0..60),
        ) {
            // Of locks of its own, by threads of its own.
            let planted = (0..len).map(|i| order(1000 + i, 1000 + (i + 1) % len, 100 + i as u32));
            let mut orders: Vec<_> = pairs.iter().map(|&(from, up, tid)| order(from, from + up, tid)).collect();
            orders.extend(planted);
            // Ways into the circle and out of it close no other.
            orders.extend([order(3, 1000, 1), order(1001, 9999, 2)]);
            let found = inversions(&orders);
            prop_assert_eq!(circles(&found), vec![(1000..1000 + len).collect::<Vec<_>>()]);
        }

        #[test]
        fn what_is_found_are_circles(pairs in prop::collection::vec((0u64..9, 0u64..9, 0u32..9), 0..60)) {
            let orders: Vec<_> = pairs.iter().map(|&(a, b, tid)| order(a, b, tid)).collect();
            for inversion in inversions(&orders) {
                let links = &inversion.links;
                for (i, link) in links.iter().enumerate() {
                    prop_assert_eq!(link.inner, links[(i + 1) % links.len()].outer);
                }
                let distinct: HashSet<Lock> = links.iter().map(|link| link.outer).collect();
                prop_assert_eq!(distinct.len(), links.len());
            }
        }
    }
}
