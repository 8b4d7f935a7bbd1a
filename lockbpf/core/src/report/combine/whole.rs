//! What is said of a whole recording, over several runs.

use super::super::schema::{
    ConditionEntry, CoverageEntry, CriticalPathEntry, FutexCounts, FutexEntry, InversionEntry, Ns, ObservedEntry,
    PathLockEntry, PatternEntry, PerturbationEntry, QualityEntry, Report, SCHEMA, ThreadEntry, Totals,
};
use super::over::{Key, LockIds, Over};
use super::{blame, counted};
use crate::report::{throttled, unwatched};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Everything but locks, critical sections and the verdict.
pub(super) fn report(all: &Over<'_, Report>, ids: &LockIds<'_>) -> Report {
    let totals = totals(all);
    let mut quality = quality(all);
    if all.any(|r| r.graph.is_some()) {
        quality.notes.push("The graph is not shown for several runs.".to_owned());
    }
    let counters = counted::counters(all, ids).unwrap_or_else(|counted::NotTheSame| {
        quality.notes.push("Counted events are not shown: they were not the same in all runs.".to_owned());
        None
    });
    if all.any(|r| r.functions.is_some()) {
        quality.notes.push("Calls of the C library are not shown for several runs.".to_owned());
    }
    Report {
        schema: SCHEMA.to_owned(),
        selection: all.things().next().and_then(|(_, r)| r.selection.clone()),
        deadlocks: all.things().flat_map(|(_, r)| r.deadlocks.iter().cloned()).collect(),
        ended_circles: all.things().flat_map(|(_, r)| r.ended_circles.iter().cloned()).collect(),
        patterns: patterns(all),
        culprits: blame::culprits(all, &totals, ids),
        threads: threads(all),
        critical_path: critical_path(all),
        inversions: inversions(all),
        conditions: conditions(all),
        futexes: futexes(all),
        totals,
        counters,
        quality,
        ..Report::default()
    }
}

fn totals(all: &Over<'_, Report>) -> Totals {
    let names: BTreeSet<Key> = all.things().flat_map(|(_, r)| r.locks.iter().map(super::over::lock_key)).collect();
    Totals {
        locks: names.len() as u64 + all.most(|r| r.totals.locks_omitted),
        locks_omitted: all.most(|r| r.totals.locks_omitted),
        acquisitions: all.count(|r| r.totals.acquisitions),
        contended: all.count(|r| r.totals.contended),
        wait_ns: all.ns(|r| r.totals.wait_ns),
        harm_ns: all.ns(|r| r.totals.harm_ns),
        recorded_wait_ns: all.ns(|r| r.totals.recorded_wait_ns),
        unattributed_ns: all.ns(|r| r.totals.unattributed_ns),
        attribution: blame::attribution(all, |r| r.totals.attribution),
        waiting_now: all.count(|r| r.totals.waiting_now),
    }
}

/// Threads of one id and name are one.
fn threads(all: &Over<'_, Report>) -> Vec<ThreadEntry> {
    let mut threads = all.within(
        |r| &r.threads,
        |t| vec![t.tid.to_string(), t.comm.clone()],
        |all| ThreadEntry {
            wait_ns: all.ns(|t| t.wait_ns),
            kernel_wait_ns: all.ns(|t| t.kernel_wait_ns),
            held_union_ns: all.ns(|t| t.held_union_ns),
            held_sum_ns: all.ns(|t| t.held_sum_ns),
            acquisitions: all.count(|t| t.acquisitions),
            estimated: all.any(|t| t.estimated),
            ..all.largest(|t| t.wait_ns).clone()
        },
    );
    threads.sort_by(|a, b| (b.wait_ns, &a.tid, &a.comm).cmp(&(a.wait_ns, &b.tid, &b.comm)));
    threads
}

/// The mean path: it begins at 0, since each run has its own clock.
fn critical_path(all: &Over<'_, Report>) -> Option<CriticalPathEntry> {
    let of = |r: &Report, part: fn(&CriticalPathEntry) -> Ns| r.critical_path.as_ref().map(part).unwrap_or_default();
    let length = all.ns(|r| of(r, |p| p.length_ns));
    let waiting = all.ns(|r| of(r, |p| p.waiting_ns));
    let mut locks = all.within(
        |r| r.critical_path.as_ref().map(|path| &path.locks[..]).unwrap_or_default(),
        |l| vec![l.name.clone()],
        |all| {
            let wait = all.ns(|l| l.wait_ns);
            let hops = all.count(|l| l.hops);
            PathLockEntry { wait_ns: wait, share: wait.share_of(length), hops, ..all.largest(|l| l.wait_ns).clone() }
        },
    );
    locks.sort_by(|a, b| (b.wait_ns, &a.name).cmp(&(a.wait_ns, &b.name)));
    all.any(|r| r.critical_path.is_some()).then(|| CriticalPathEntry {
        start_ns: Ns::default(),
        end_ns: length,
        length_ns: length,
        waiting_ns: waiting,
        waiting_share: waiting.share_of(length),
        locks,
        hops: all.count(|r| r.critical_path.as_ref().map_or(0, |p| p.hops)),
        last_thread: None,
        ended: !all.any(|r| r.critical_path.as_ref().is_some_and(|p| !p.ended)),
        ends: all.count(|r| r.critical_path.as_ref().map_or(0, |p| p.ends)),
        agreeing: all.count(|r| r.critical_path.as_ref().map_or(0, |p| p.agreeing)),
        truncated: all.any(|r| r.critical_path.as_ref().is_some_and(|p| p.truncated)),
    })
}

/// What all runs have, as the run tells it that has most of it.
fn patterns(all: &Over<'_, Report>) -> Vec<PatternEntry> {
    let key = |p: &PatternEntry| (std::mem::discriminant(&p.evidence), p.name.clone());
    let mut reports = all.things().map(|(_, report)| report);
    let Some(first) = reports.next() else { return Vec::new() };
    let mut patterns = first.patterns.clone();
    for report in reports {
        patterns.retain_mut(|known| match report.patterns.iter().find(|p| key(p) == key(known)) {
            Some(other) => {
                if other.wait_ns > known.wait_ns {
                    *known = other.clone();
                }
                true
            }
            None => false,
        });
    }
    patterns.sort_by_key(|p| Reverse(p.wait_ns));
    patterns
}

/// Each circle of lock orders once.
fn inversions(all: &Over<'_, Report>) -> Vec<InversionEntry> {
    let mut seen = BTreeSet::new();
    let names = |i: &InversionEntry| -> Vec<[String; 4]> {
        i.orders
            .iter()
            .map(|o| [&o.outer_name, &o.outer_symbol, &o.inner_name, &o.inner_symbol].map(String::clone))
            .collect()
    };
    all.things().flat_map(|(_, r)| &r.inversions).filter(|i| seen.insert(names(i))).cloned().collect()
}

fn conditions(all: &Over<'_, Report>) -> Vec<ConditionEntry> {
    let key = |c: &ConditionEntry| vec![c.comm.clone().unwrap_or_default(), c.kind.clone(), c.name.clone()];
    let mut conditions = all.within(
        |r| &r.conditions,
        key,
        |all| ConditionEntry {
            permits: all
                .largest(ConditionEntry::waited_ns)
                .permits
                .map(|_| all.count(|c| c.permits.unwrap_or_default())),
            waits: all.count(|c| c.waits),
            timeouts: all.count(|c| c.timeouts),
            errors: all.count(|c| c.errors),
            idle_ns: all.durations(|c| Some((c.idle_ns, c.waits))).unwrap_or_default(),
            slept_ns: all.ns(|c| c.slept_ns),
            wakes: all.count(|c| c.wakes),
            wakes_of_none: all.count(|c| c.wakes_of_none),
            woken: all.count(|c| c.woken),
            blocked_again: all.count(|c| c.blocked_again),
            wake_latency_ns: all.durations(|c| Some((c.wake_latency_ns, c.woken))).unwrap_or_default(),
            waiting_now: all.count(|c| c.waiting_now),
            waiting_now_ns: all.ns(|c| c.waiting_now_ns),
            ..all.largest(ConditionEntry::waited_ns).clone()
        },
    );
    conditions.sort_by(|a, b| (b.waited_ns(), &a.name).cmp(&(a.waited_ns(), &b.name)));
    conditions
}

fn futexes(all: &Over<'_, Report>) -> Vec<FutexEntry> {
    let key = |f: &FutexEntry| vec![f.comm.clone().unwrap_or_default(), f.name.clone()];
    let mut futexes = all.within(
        |r| &r.futexes,
        key,
        |all| FutexEntry {
            counts: FutexCounts {
                slept: all.count(|f| f.counts.slept),
                again: all.count(|f| f.counts.again),
                timed_out: all.count(|f| f.counts.timed_out),
                interrupted: all.count(|f| f.counts.interrupted),
                wakes: all.count(|f| f.counts.wakes),
                wakes_of_none: all.count(|f| f.counts.wakes_of_none),
                wait_sum_ns: all.ns(|f| f.counts.wait_sum_ns),
                timed_out_wait_ns: all.ns(|f| f.counts.timed_out_wait_ns),
            },
            wait_ns: all.durations(|f| Some((f.wait_ns, f.counts.slept))).unwrap_or_default(),
            waiting_now: all.count(|f| f.waiting_now),
            waiting_now_ns: all.ns(|f| f.waiting_now_ns),
            ..all.largest(|f| f.wait_ns.sum).clone()
        },
    );
    futexes.sort_by(|a, b| (b.wait_ns.sum, &a.name).cmp(&(a.wait_ns.sum, &b.name)));
    futexes
}

/// Events and losses of all runs together; times are means.
fn quality(all: &Over<'_, Report>) -> QualityEntry {
    let entries = || all.things().map(|(_, r)| &r.quality);
    let sums = |of: fn(&QualityEntry) -> &BTreeMap<String, u64>| {
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for (cause, n) in entries().flat_map(of) {
            *sums.entry(cause.clone()).or_default() += n;
        }
        sums
    };
    let mut targets: Vec<_> = entries().map(|q| q.target.clone()).collect();
    targets.dedup();
    let mut failed_probes = Vec::new();
    let mut notes = Vec::new();
    for q in entries() {
        failed_probes.extend(q.failed_probes.iter().cloned());
        notes.extend(q.notes.iter().cloned());
    }
    let mut seen = BTreeSet::new();
    failed_probes.retain(|p| seen.insert((p.probe.clone(), p.file.clone(), p.reason.clone())));
    let mut seen = BTreeSet::new();
    notes.retain(|note| seen.insert(note.clone()));
    let time = all.ns(|r| r.quality.duration_ns);
    let observed: f64 = entries().map(|q| q.observed_share).sum();
    QualityEntry {
        target: targets.join(", "),
        duration_ns: time,
        observed_share: observed / all.runs() as f64,
        observed: coverage(&entries().filter_map(|q| q.observed.as_ref()).collect::<Vec<_>>()),
        futex_only: all.any(|r| r.quality.futex_only),
        processes: all.most(|r| r.quality.processes),
        min_wait_ns: all.largest(|r| r.quality.min_wait_ns).quality.min_wait_ns,
        events: entries().map(|q| q.events).sum(),
        unfocused: entries().map(|q| q.unfocused).sum(),
        thinned: entries().map(|q| q.thinned).sum(),
        kernel_in_interrupts: entries().map(|q| q.kernel_in_interrupts).sum(),
        lost: sums(|q| &q.lost),
        late: entries().map(|q| q.late).sum(),
        impossible: sums(|q| &q.impossible),
        edges: sums(|q| &q.edges),
        perturbation: perturbation(&entries().filter_map(|q| q.perturbation).collect::<Vec<_>>()),
        unobserved: entries().flat_map(|q| q.unobserved.iter().cloned()).collect(),
        throttled: throttled::together(entries()),
        unwatched: unwatched::together(entries()),
        virtual_threads: entries().flat_map(|q| q.virtual_threads.iter().copied()).collect(),
        open_at_end: entries().map(|q| q.open_at_end).sum(),
        failed_probes,
        // What follows from all of it.
        distrust: None,
        sleep: None,
        notes,
        incomplete: all.any(|r| r.quality.incomplete),
    }
}

/// What observing took in all runs together. The share is that of the runs in the mean, if it is known of all.
fn perturbation(runs: &[PerturbationEntry]) -> Option<PerturbationEntry> {
    let sum = |of: fn(&PerturbationEntry) -> u64| runs.iter().map(of).sum();
    let mean = |of: fn(&PerturbationEntry) -> Option<f64>| {
        let shares: Option<Vec<f64>> = runs.iter().map(of).collect();
        shares.map(|shares| shares.iter().sum::<f64>() / runs.len() as f64)
    };
    (!runs.is_empty()).then(|| PerturbationEntry {
        hits: sum(|run| run.hits),
        stepped_hits: sum(|run| run.stepped_hits),
        futex_calls: sum(|run| run.futex_calls),
        switches: sum(|run| run.switches),
        records: sum(|run| run.records),
        record_bytes: sum(|run| run.record_bytes),
        stack_bytes: sum(|run| run.stack_bytes),
        cost_ns: runs.iter().map(|run| run.cost_ns).sum(),
        hold_bias_ns: runs.iter().map(|run| run.hold_bias_ns).max().unwrap_or_default(),
        cost_share: mean(|run| run.cost_share),
        futex_cost_share: mean(|run| run.futex_cost_share),
        measured: runs.iter().all(|run| run.measured),
        children: sum(|run| run.children),
        children_cost_at_most_ns: runs.iter().map(|run| run.children_cost_at_most_ns).sum(),
    })
}

/// How much was fully observed, in the mean; windows of all runs together. Processes are others in each run.
fn coverage(runs: &[&ObservedEntry]) -> Option<ObservedEntry> {
    let mean = |of: fn(&CoverageEntry) -> f64| runs.iter().map(|r| of(&r.overall)).sum::<f64>() / runs.len() as f64;
    let first = runs.first()?;
    Some(ObservedEntry {
        budget: first.budget,
        hold_bias_ns: first.hold_bias_ns,
        overall: CoverageEntry {
            time_share: mean(|c| c.time_share),
            cpu_share: mean(|c| c.cpu_share),
            windows: runs.iter().map(|r| r.overall.windows).sum(),
            cost_share: mean(|c| c.cost_share),
            cost_cpus: mean(|c| c.cost_cpus),
            estimated: runs.iter().any(|r| r.overall.estimated),
        },
        processes: Vec::new(),
    })
}
