use super::findings::{Detail, EdgeKind, Findings, Who};
use super::*;
use crate::id::{Lock, Process, Site, StackId, Tid};
use crate::op::{Action, Arrival, Attempt, Doing, Failure, Hold, LockKind, OffReason, Op, Released, Round};
use crate::units::{Nanos, Time};
use std::collections::BTreeMap;

mod examples;
mod kinds;
mod live;
mod places;
mod random;
mod reference;
mod virtual_threads;

fn lock(addr: u64) -> Lock {
    Lock { process: Process(0), addr }
}

fn site(addr: u64) -> Site {
    Site { process: Process(0), addr }
}

fn op(time: u64, tid: u32, action: Action) -> Op {
    Op { time: Time(time), tid: Tid(tid), process: Process(0), action }
}

fn asks(addr: u64, at: u64) -> Attempt {
    Attempt {
        lock: lock(addr),
        site: site(at),
        shared: false,
        kind: LockKind::Mutex,
        owner: None,
        stack: None,
        contended: None,
    }
}

fn attempt(time: u64, tid: u32, addr: u64, at: u64) -> Op {
    op(time, tid, Action::Attempt(asks(addr, at)))
}

fn attempt_of(time: u64, tid: u32, addr: u64, at: u64, kind: LockKind, shared: bool) -> Op {
    op(time, tid, Action::Attempt(Attempt { kind, shared, ..asks(addr, at) }))
}

fn acquire(time: u64, tid: u32, addr: u64) -> Op {
    op(time, tid, Action::Acquire { lock: lock(addr), waker: None })
}

fn release(time: u64, tid: u32, addr: u64) -> Op {
    op(time, tid, Action::Release { lock: lock(addr), how: Released::Unlock })
}

fn fails(time: u64, tid: u32, addr: u64, how: Failure) -> Op {
    op(time, tid, Action::Fail { lock: lock(addr), how })
}

fn arrives(time: u64, tid: u32, addr: u64, participants: u32, at: u64, post: u64) -> Op {
    op(
        time,
        tid,
        Action::Barrier(Arrival {
            barrier: lock(addr),
            participants,
            round: Round::Unknown,
            site: site(at),
            post: site(post),
        }),
    )
}

fn exits(time: u64, tid: u32) -> Op {
    op(time, tid, Action::Exit { ends: false })
}

const DETAIL: Options = Options { detail: true, told: false, overlapping_barriers: false, totals: false, hold_back: 0 };

/// The findings, with everything checked that holds for each trace.
fn findings_of(ops: &[Op], options: Options) -> Findings {
    let mut graph = WaitGraph::new(options);
    ops.iter().for_each(|op| graph.op(op, &mut ()));
    let findings = graph.finish(Time(0), &mut ());
    assert_conserved(&findings, options);
    findings
}

fn findings(ops: &[Op]) -> Findings {
    findings_of(ops, DETAIL)
}

/// Σ cost of the in-edges + unattributed = wait, per node; Σ of holders + unattributed = Σ of waits, per lock.
fn assert_conserved(f: &Findings, options: Options) {
    for (lock, shares) in &f.locks {
        let blamed: Nanos = shares.holders.iter().map(|h| h.wait).sum();
        if !options.overlapping_barriers {
            assert_eq!(blamed + shares.unattributed, shares.waits.time, "{lock:?} {shares:?}");
        }
        assert_eq!(shares.pairs.total().time + shares.unpaired, blamed, "{lock:?} {shares:?}");
        for holder in &shares.holders {
            assert_eq!(holder.causes.0.into_iter().sum::<Nanos>(), holder.wait);
            assert!(holder.nested <= holder.wait);
        }
        for (row, waiter) in shares.waiters.iter().enumerate() {
            let blamed: Nanos = (0..shares.holders.len()).map(|column| shares.blamed(row, column)).sum();
            if !options.overlapping_barriers {
                assert_eq!(blamed + waiter.unattributed, waiter.waits.time);
            }
        }
        let by_waiter: Nanos = shares.waiters.iter().map(|w| w.waits.time).sum();
        assert_eq!(by_waiter, shares.waits.time);
    }
    let Some(detail) = &f.detail else { return };
    let mut into = BTreeMap::<u64, Nanos>::new();
    let mut by_site = BTreeMap::<Site, Nanos>::new();
    let nodes: BTreeMap<u64, &findings::Node> = detail.nodes.iter().map(|n| (n.number, n)).collect();
    assert_eq!(nodes.len(), detail.nodes.len());
    for edge in &detail.edges {
        assert!(edge.cost > Nanos(0));
        *into.entry(edge.to).or_default() += edge.cost;
        if let Some(site) = nodes[&edge.from].site {
            *by_site.entry(site).or_default() += edge.cost;
        }
    }
    let apwt: BTreeMap<Site, Nanos> = f.sites.iter().map(|(&s, b)| (s, b.apwt)).filter(|s| s.1 > Nanos(0)).collect();
    assert_eq!(apwt, by_site);
    let aplt: Nanos = f.aplt.values().copied().sum();
    assert_eq!(aplt, detail.edges.iter().map(|e| e.cost).sum());
    if !options.overlapping_barriers {
        for node in detail.nodes.iter().filter(|n| n.acquire.is_some()) {
            let Some(attempt) = node.attempt else { continue };
            let blamed = into.get(&node.number).copied().unwrap_or_default();
            let left = detail.unattributed.get(&node.number).copied().unwrap_or_default();
            assert_eq!(blamed + left, node.acquire.unwrap().since(attempt), "{node:?}");
        }
    }
}

type Edges = Vec<(u64, u64, u64, EdgeKind)>;

fn edges(f: &Findings) -> Edges {
    let detail = f.detail.as_ref().unwrap();
    let mut all: Edges = detail.edges.iter().map(|e| (e.from, e.to, e.cost.0, e.kind)).collect();
    all.sort_unstable();
    all
}

fn apwt(f: &Findings, at: u64) -> u64 {
    f.sites[&site(at)].apwt.0
}

fn cpwt(f: &Findings, at: u64) -> Option<u64> {
    f.sites[&site(at)].cpwt.map(|n| n.0)
}

fn cause(f: &Findings, addr: u64, who: Who) -> u64 {
    f.locks[&lock(addr)].holders.iter().find(|h| h.who == who).map_or(0, |h| h.wait.0)
}

fn section(addr: u64, at: u64) -> Who {
    Who::Section { lock: lock(addr), site: site(at) }
}

fn detail(f: &Findings) -> &Detail {
    f.detail.as_ref().unwrap()
}
