//! The critical path and the wait graph.

use super::super::schema::{CriticalPathEntry, EdgeEntry, GraphEntry, NodeEntry, Ns, PathLockEntry};
use super::Check;
use std::collections::HashMap;

pub(super) fn path(p: &CriticalPathEntry, check: &mut Check) {
    let CriticalPathEntry {
        start_ns,
        end_ns,
        length_ns,
        waiting_ns,
        waiting_share,
        locks,
        hops,
        ended,
        ends,
        agreeing,
        last_thread: _,
        truncated: _,
    } = p;
    let name = || "the critical path".to_owned();
    check.adds_up([*length_ns, *start_ns], *end_ns, name);
    check.within(*waiting_ns, *length_ns, || "waiting on the critical path".to_owned());
    check.share(*waiting_share, || "waiting on the critical path".to_owned());
    let fits = (waiting_share - waiting_ns.share_of(*length_ns)).abs() <= 1e-6;
    check.demand(fits || check.runs > 1.0, || format!("{waiting_share} of {length_ns} are not {waiting_ns}"));
    check.adds_up(locks.iter().map(|l| l.wait_ns), *waiting_ns, || "locks on the critical path".to_owned());
    check.shares(locks.iter().map(|l| l.share), || "locks on the critical path".to_owned());
    check.longest_first(locks, |l| l.wait_ns, || "locks on the critical path".to_owned());
    let mut by_lock = 0_u64;
    for PathLockEntry { lock: _, name, wait_ns, share: _, hops } in locks {
        check.happened(*hops, *wait_ns, || format!("`{name}` on the critical path"));
        by_lock = by_lock.saturating_add(*hops);
    }
    check.demand(by_lock <= hops.saturating_add(locks.len() as u64), || format!("{by_lock} hops of {hops}"));
    check.count(*agreeing, *ends, || "ends that agree on the critical path".to_owned());
    check.demand(!*ended || *ends == 0, || format!("the path from the end, and from {ends} others"));
}

pub(super) fn check(graph: &GraphEntry, check: &mut Check) {
    let GraphEntry { nodes, edges, unattributed_ns, critical_components, last_thread: _ } = graph;
    let known: HashMap<&str, &NodeEntry> = nodes.iter().map(|n| (n.id.as_str(), n)).collect();
    check.demand(known.len() == nodes.len(), || "nodes of one name".to_owned());
    for NodeEntry { id, attempt_ns, acquire_ns, release_ns, site: _, tid: _, lock: _ } in nodes {
        let times: Vec<Ns> = [*attempt_ns, *acquire_ns, *release_ns].into_iter().flatten().collect();
        check.demand(times.is_sorted(), || format!("{id} has times out of order: {times:?}"));
    }
    // By node: what is charged, and whether all of it is for a lock. Barriers that overlap charge some waiting twice.
    let mut charged: HashMap<&str, (Ns, bool)> = HashMap::new();
    for EdgeEntry { from, to, kind, cost_ns, inferred: _ } in edges {
        let there = known.contains_key(from.as_str()) && known.contains_key(to.as_str());
        check.demand(there, || format!("an edge from {from} to {to}, which are not both there"));
        check.demand(*cost_ns > Ns::default(), || format!("an edge from {from} to {to} that costs nothing"));
        let is_lock = ["direct", "indirect", "nested"].contains(&kind.as_str());
        check.demand(is_lock || kind == "barrier", || format!("an edge from {from} to {to} that is {kind}"));
        let (sum, locks) = charged.entry(to).or_insert((Ns::default(), true));
        *sum += *cost_ns;
        *locks &= is_lock;
    }
    for (id, wait) in unattributed_ns {
        check.demand(known.contains_key(id.as_str()), || format!("{id} waits for nobody, and is not there"));
        charged.entry(id).or_insert((Ns::default(), true)).0 += *wait;
    }
    for (id, (sum, _)) in charged.into_iter().filter(|(_, (_, locks))| *locks) {
        let times = known.get(id).and_then(|node| node.acquire_ns.zip(node.attempt_ns));
        if let Some((acquire, attempt)) = times {
            check.adds_up([sum], acquire - attempt, || format!("what {id} waited for"));
        }
    }
    for id in critical_components.iter().flatten() {
        check.demand(known.contains_key(id.as_str()), || format!("{id} is critical, and is not there"));
    }
}
