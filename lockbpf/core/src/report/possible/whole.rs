//! What is said of all locks together, of threads, paths, condition variables, futex words, and of the observation itself.

use super::super::schema::{
    CoverageEntry, CriticalPathEntry, CulpritEntry, Durations, FutexEntry, GraphEntry, LockEntry, Ns, QualityEntry,
    Report, SiteEntry,
};
use super::{Check, lock};
use std::collections::HashMap;

pub(super) fn check(report: &Report, check: &mut Check) {
    totals(report, check);
    for c in &report.culprits {
        culprit(c, report, check);
    }
    check.shares(report.culprits.iter().map(|c| c.share), || "culprits".to_owned());
    check.shares(report.culprits.iter().map(|c| c.share_of_all), || "culprits, of all waiting".to_owned());
    sites(report, check);
    threads(report, check);
    if let Some(p) = &report.critical_path {
        path(p, check);
    }
    if let Some(graph) = &report.graph {
        self::graph(graph, check);
    }
    for c in &report.conditions {
        for (durations, what) in [(&c.idle_ns, "idle time"), (&c.wake_latency_ns, "wake latency")] {
            check.durations(durations, None, &|| format!("{what} of {}", c.label));
        }
    }
    for f in &report.futexes {
        futex(f, check);
    }
    for d in &report.deadlocks {
        check.demand(!d.threads.is_empty(), || "a deadlock of nobody".to_owned());
        for b in &d.threads {
            check.within(b.since_ns, d.found_ns, || {
                format!("thread {} waits since after its deadlock was found", b.tid)
            });
        }
    }
    for order in report.inversions.iter().flat_map(|i| &i.orders) {
        check.demand(order.count > 0, || format!("`{}` before `{}`, but never", order.outer_name, order.inner_name));
    }
    quality(&report.quality, report, check);
}

fn totals(report: &Report, check: &mut Check) {
    let t = &report.totals;
    let told = t.locks - t.locks_omitted.min(t.locks);
    check.demand(told == report.locks.len() as u64 || check.runs > 1.0, || {
        format!("{} locks told, {} of {} left out", report.locks.len(), t.locks_omitted, t.locks)
    });
    let slack = if check.runs > 1.0 { told } else { 0 };
    let mut count = |of: &dyn Fn(&LockEntry) -> u64, all: u64, exactly: bool, what: &str| {
        let sum: u64 = report.locks.iter().map(of).fold(0, u64::saturating_add);
        let fits = sum <= all.saturating_add(slack) && (!exactly || sum.saturating_add(slack) >= all);
        check.demand(fits, || format!("{what}: {sum} of the locks, {all} in all"));
    };
    let whole = t.locks_omitted == 0;
    // Acquisitions of runtimes' locks are in the total only.
    let all_known = report.locks.iter().all(|l| l.acquisitions.is_some());
    count(&|l| l.acquisitions.unwrap_or_default(), t.acquisitions, whole && all_known, "acquisitions");
    // A lock that was summed together with others is in their sums, too.
    count(&|l| if l.in_others { 0 } else { l.contended }, t.contended, whole, "contended acquisitions");
    count(&|l| l.waiting_now.count, t.waiting_now, whole, "waits now");
    let mut time = |of: fn(&LockEntry) -> Ns, all: Ns, what: &str| {
        let parts = report.locks.iter().map(of);
        if whole {
            check.adds_up(parts, all, || format!("{what} of all locks"));
        } else {
            check.parts(parts, all, || format!("{what} of the locks told"));
        }
    };
    time(|l| if l.in_others { Ns::default() } else { l.wait_ns.sum }, t.wait_ns, "waiting");
    time(|l| if l.in_others { Ns::default() } else { l.harm_ns }, t.harm_ns, "harm");
    time(|l| l.recorded_wait_ns, t.recorded_wait_ns, "recorded waiting");
    time(|l| l.unattributed_ns, t.unattributed_ns, "waiting without anybody to blame");
    let parts = t.attribution;
    check.adds_up([parts.exact_ns, parts.inferred_ns, parts.unknown_ns], t.harm_ns, || {
        "all waiting by how surely it is charged".to_owned()
    });
    check.within(t.unattributed_ns, t.recorded_wait_ns, || "waiting without anybody to blame".to_owned());
    check.within(t.wait_ns, t.harm_ns, || "waiting beside harm".to_owned());
}

fn culprit(c: &CulpritEntry, report: &Report, check: &mut Check) {
    let name = || format!("{} holding `{}`", c.place.symbol, c.name);
    check.within(c.wait_ns, report.totals.recorded_wait_ns, || format!("caused by {}", name()));
    check.within(c.nested_ns, c.wait_ns, || format!("through nesting, by {}", name()));
    check.within(c.inferred_ns, c.wait_ns, || format!("by inference, {}", name()));
    check.demand(c.share_of_all <= c.share + 1e-6, || format!("{}: more of all than of what was recorded", name()));
    check.causes(c.causes.as_ref(), c.wait_ns, &name);
    check.parts(c.off_stacks.iter().map(|o| o.wait_ns), c.wait_ns, || format!("stacks of {}", name()));
    check.callers(c.callers.as_ref(), c.wait_ns, &name);
    if let Some(chain) = &c.chain {
        lock::chain(chain, report.totals.recorded_wait_ns, check, &|| format!("the chain to {}", name()));
    }
}

fn sites(report: &Report, check: &mut Check) {
    for (s, rank) in report.sites.iter().zip(1..) {
        check.demand(s.rank == rank, || format!("{} has rank {}, not {rank}", s.symbol, s.rank));
        check.demand(s.locks > 0, || format!("{} is a section of no lock", s.symbol));
        site(s, check);
    }
    check.demand(report.sites.is_sorted_by(|a, b| a.apwt_ns >= b.apwt_ns), || "sections without order".to_owned());
}

fn site(s: &SiteEntry, check: &mut Check) {
    check.callers(s.callers.as_ref(), s.apwt_ns, &|| s.symbol.clone());
    if let Some(cpwt) = s.cpwt_ns {
        check.within(cpwt, s.apwt_ns, || format!("CPWT of {}", s.symbol));
    }
    check.causes(s.causes.as_ref(), s.apwt_ns, &|| s.symbol.clone());
    if let Some(c) = s.corrected {
        check.within(c.wait_ns, s.wait_ns, || format!("waits at {} without the observer", s.symbol));
        check
            .within(c.hold_ns, s.hold_ns.unwrap_or_default(), || format!("holds of {} without the observer", s.symbol));
    }
    let Some(figures) = &s.estimates else { return };
    check.figures(figures, &|| s.symbol.clone());
    let fits = (figures.acquisitions.value - s.instances as f64).abs() <= 1.0 + 1e-6 * s.instances as f64;
    check.demand(fits || check.runs > 1.0, || format!("{}: {} sections of {figures:?}", s.symbol, s.instances));
    if let Some(hold) = s.hold_ns {
        let product = figures.acquisitions.value * figures.hold_mean_ns.value;
        let fits = (hold.as_f64() - product).abs() <= 2.0 + figures.acquisitions.value + 1e-6 * product;
        check.demand(fits || check.runs > 1.0, || format!("{}: held {hold}, but {figures:?}", s.symbol));
    }
}

fn threads(report: &Report, check: &mut Check) {
    let time = report.quality.duration_ns;
    for t in &report.threads {
        // What exited threads did beyond those listed is one entry, which no thread has time for.
        let one = t.tid != 0 && time > Ns::default();
        check.within(t.held_union_ns, t.held_sum_ns, || format!("thread {} holds", t.tid));
        check.within(t.kernel_wait_ns, t.wait_ns, || format!("thread {} waits in the kernel", t.tid));
        for (part, what) in [(t.held_union_ns, "holds"), (t.wait_ns, "waits")].into_iter().filter(|_| one) {
            check.within(part, time, || format!("thread {} {what}", t.tid));
        }
    }
}

fn path(p: &CriticalPathEntry, check: &mut Check) {
    check.adds_up([p.length_ns, p.start_ns], p.end_ns, || "the critical path".to_owned());
    check.within(p.waiting_ns, p.length_ns, || "waiting on the critical path".to_owned());
    check.share(p.waiting_share, || "waiting on the critical path".to_owned());
    check.parts(p.locks.iter().map(|l| l.wait_ns), p.waiting_ns, || "locks on the critical path".to_owned());
    check.shares(p.locks.iter().map(|l| l.share), || "locks on the critical path".to_owned());
    let hops: u64 = p.locks.iter().map(|l| l.hops).sum();
    check.demand(hops <= p.hops.saturating_add(p.locks.len() as u64), || format!("{hops} hops of {}", p.hops));
}

fn graph(graph: &GraphEntry, check: &mut Check) {
    let nodes: HashMap<&str, _> = graph.nodes.iter().map(|n| (n.id.as_str(), n)).collect();
    for n in &graph.nodes {
        let times: Vec<Ns> = [n.attempt_ns, n.acquire_ns, n.release_ns].into_iter().flatten().collect();
        check.demand(times.is_sorted(), || format!("{} has times out of order: {n:?}", n.id));
    }
    for e in &graph.edges {
        let known = nodes.contains_key(e.from.as_str()) && nodes.contains_key(e.to.as_str());
        check.demand(known, || format!("an edge from {} to {}, which are not both there", e.from, e.to));
    }
}

fn futex(f: &FutexEntry, check: &mut Check) {
    let name = || format!("futex word {}", f.label);
    check.durations(&f.wait_ns, None, &name);
    check.adds_up([f.counts.wait_sum_ns], f.wait_ns.sum, || format!("waits of {} in two ways", name()));
    check.shares(f.waiters.iter().map(|w| w.share), || format!("waiters of {}", name()));
    let slept = f.counts.slept + f.counts.timed_out + f.counts.interrupted;
    check.demand(slept > 0 || f.wait_ns.sum == Ns::default(), || format!("{} was slept on by nobody", name()));
    check.demand(f.purpose != String::new(), || format!("{} has no purpose", name()));
    if f.wait_ns == Durations::default() {
        return;
    }
    for w in f.waiters.iter() {
        check.within(w.max_ns, Ns::from_f64(w.wait_ns.as_f64() * check.runs), || format!("a waiter of {}", name()));
    }
}

fn quality(q: &QualityEntry, report: &Report, check: &mut Check) {
    check.share(q.observed_share, || "the time observed".to_owned());
    check.demand(q.open_at_end >= report.totals.waiting_now || check.runs > 1.0, || {
        format!("{} waits open, {} of them for locks", q.open_at_end, report.totals.waiting_now)
    });
    check.demand(q.notes.iter().all(|note| note.ends_with(['.', '!', '?'])), || format!("no sentences: {:?}", q.notes));
    if let Some(o) = &q.observed {
        check.interval(&o.hold_bias_ns, &|| "what observing adds to a hold".to_owned());
        let mut coverage = |c: &CoverageEntry, who: &str| {
            for share in [c.time_share, c.cpu_share, c.cost_share] {
                check.share(share, || format!("what was observed of {who}"));
            }
        };
        coverage(&o.overall, "all");
        o.processes.iter().for_each(|p| coverage(&p.coverage, "a process"));
    }
    if let Some(s) = &q.sleep {
        check.adds_up([s.locks_ns], report.totals.harm_ns, || "sleep for locks".to_owned());
        let told = s.places.iter().map(|p| p.slept_ns);
        check.parts(told, s.parked_ns + s.runtimes_ns.unwrap_or_default() + s.unknown_ns, || {
            "places in which threads slept".to_owned()
        });
    }
    if let Some(p) = &q.perturbation {
        check.demand(p.stepped_hits <= p.hits, || format!("{} of {} hits single-stepped", p.stepped_hits, p.hits));
        p.cost_share.into_iter().for_each(|share| check.share(share, || "the cost of observing".to_owned()));
    }
}
