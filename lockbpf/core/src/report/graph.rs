//! The wait graph and its critical path, with names.

use super::place::Places;
use super::schema::{CriticalPathEntry, EdgeEntry, GraphEntry, NodeEntry, PathLockEntry};
use super::text::share;
use crate::graph::findings::{CriticalPath, Detail, EdgeKind};
use crate::id::Tid;
use crate::units::Nanos;

/// The identity of a node.
fn id(number: u64) -> String {
    format!("d{number}")
}

/// The graph.
pub(super) fn graph(detail: &Detail, last_thread: Option<Tid>, places: &mut Places<'_>) -> GraphEntry {
    let mut nodes = Vec::with_capacity(detail.nodes.len());
    for node in &detail.nodes {
        nodes.push(NodeEntry {
            id: id(node.number),
            site: node.site.and_then(|site| places.site_id(site)),
            tid: places.thread(node.tid),
            lock: places.lock_id(node.lock),
            attempt_ns: node.attempt.map(|at| places.at(at)),
            acquire_ns: node.acquire.map(|at| places.at(at)),
            release_ns: node.release.map(|at| places.at(at)),
        });
    }
    let edges = detail.edges.iter().filter(|e| e.cost > Nanos(0)).map(|e| EdgeEntry {
        from: id(e.from),
        to: id(e.to),
        kind: kind(e.kind).to_owned(),
        cost_ns: places.ns(e.cost),
        inferred: e.inferred,
    });
    let left = detail.unattributed.iter().filter(|(_, wait)| **wait > Nanos(0));
    GraphEntry {
        nodes,
        edges: edges.collect(),
        unattributed_ns: left.map(|(&node, &wait)| (id(node), places.ns(wait))).collect(),
        critical_components: detail.critical_components.iter().map(|c| c.iter().copied().map(id).collect()).collect(),
        last_thread: last_thread.map(|tid| places.thread(tid)),
    }
}

fn kind(kind: EdgeKind) -> &'static str {
    match kind {
        EdgeKind::Direct => "direct",
        EdgeKind::Indirect => "indirect",
        EdgeKind::Nested => "nested",
        EdgeKind::Barrier => "barrier",
    }
}

/// The critical path; `None` if it has no length.
pub(super) fn critical_path(path: &CriticalPath, places: &mut Places<'_>) -> Option<CriticalPathEntry> {
    let length = path.end.since(path.start);
    let waiting: Nanos = path.waiting.iter().map(|w| w.wait).sum();
    let mut locks = Vec::with_capacity(path.waiting.len());
    for w in &path.waiting {
        locks.push(PathLockEntry {
            lock: places.lock_id(w.lock),
            name: places.lock_label(w.lock),
            wait_ns: places.ns(w.wait),
            share: share(w.wait.0, length.0),
            hops: w.hops,
        });
    }
    locks.sort_by(|a, b| (b.wait_ns, &a.name).cmp(&(a.wait_ns, &b.name)));
    (length > Nanos(0)).then(|| CriticalPathEntry {
        start_ns: places.at(path.start),
        end_ns: places.at(path.end),
        length_ns: places.ns(length),
        waiting_ns: places.ns(waiting),
        waiting_share: share(waiting.0, length.0),
        locks,
        hops: path.hops,
        last_thread: path.last.map(|tid| places.thread(tid)),
        ended: path.ended,
        ends: path.ends,
        agreeing: path.agreeing,
        truncated: path.truncated,
    })
}
