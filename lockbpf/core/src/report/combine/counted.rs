//! Counted events over several runs: sums are means over the runs, ratios those of these means, and histograms count the sections
//! of all runs.

use super::super::counters::{order, with_ratios};
use super::super::schema::{
    BucketEntry, CountedEntry, CounterTotals, CountersEntry, EventEntry, PartHistograms, RegionsEntry, Report,
};
use super::over::{Key, LockIds, Over, identity};
use crate::measures::counted::CLOCK;
use crate::measures::quantities::per;
use crate::measures::why::{Ratios, Times};
use std::collections::{BTreeMap, BTreeSet};

/// What was counted, if anything was; `Err` if it was not the same in all runs.
pub(super) fn counters(all: &Over<'_, Report>, ids: &LockIds<'_>) -> Result<Option<CountersEntry>, NotTheSame> {
    let counted: Vec<_> = all.things().filter_map(|(run, report)| Some((run, report.counters.as_ref()?))).collect();
    let several = counted.len() == all.things().count();
    let Some(all) = Over::new(counted, all.runs()) else { return Ok(None) };
    let names = |entry: &CountersEntry| entry.events.iter().map(|event| event.name.clone()).collect::<Vec<_>>();
    let first = all.first();
    if !several || all.any(|entry| names(entry) != names(first)) {
        return Err(NotTheSame);
    }
    let events: Vec<EventEntry> = (0..first.events.len()).map(|n| event(&all, n)).collect();
    let clock = events.get(CLOCK).map(|event| event.name.clone()).unwrap_or_default();
    // By run, since shares are of the holds of the whole run.
    let held: Vec<f64> = all.things().map(|(_, entry)| held(entry, &clock)).collect();
    let entries = |of: fn(&CountersEntry) -> &[CountedEntry]| {
        let mut entries = all.within(of, key, |all| entry(all, ids, &clock, held.iter().sum()));
        order(&mut entries);
        entries
    };
    Ok(Some(CountersEntry {
        events,
        unit: first.unit.clone(),
        totals: totals(&all),
        regions: regions(&all),
        dynamic: histograms(&all, |entry| &entry.dynamic),
        of_means: histograms(&all, |entry| &entry.of_means),
        locks: entries(|entry| &entry.locks),
        sites: entries(|entry| &entry.sites),
    }))
}

/// Runs in which other events were counted, or none.
pub(super) struct NotTheSame;

fn key(entry: &CountedEntry) -> Key {
    let mut key = vec![identity(&entry.lock, &entry.label).to_owned()];
    key.extend(entry.site.as_ref().map(|site| identity(site, entry.symbol.as_deref().unwrap_or_default()).to_owned()));
    key
}

/// The holds of all locks of a run, by the clock: an entry's own by its share of them.
fn held(entry: &CountersEntry, clock: &str) -> f64 {
    let own = |entry: &CountedEntry| Some(entry.hold.get(clock)? / entry.hold_share).filter(|all| all.is_finite());
    entry.locks.iter().find_map(own).unwrap_or(0.0)
}

fn event(all: &Over<'_, CountersEntry>, n: usize) -> EventEntry {
    let mean = |of: fn(&EventEntry) -> Option<f64>| {
        let known: Vec<f64> = all.things().filter_map(|(_, entry)| of(entry.events.get(n)?)).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    };
    let name = all.first().events.get(n).map(|event| event.name.clone()).unwrap_or_default();
    EventEntry { name, counted_share: mean(|event| event.counted_share), execution: mean(|event| event.execution) }
}

fn totals(all: &Over<'_, CountersEntry>) -> CounterTotals {
    let count = |of: fn(&CounterTotals) -> u64| all.count(|entry| of(&entry.totals));
    let sum = |of: fn(&CounterTotals) -> f64| all.things().map(|(_, entry)| of(&entry.totals)).sum::<f64>();
    let mean = |of: fn(&CounterTotals) -> f64| sum(of) / all.runs() as f64;
    let sections = sum(|t| t.sections as f64);
    CounterTotals {
        threads: count(|t| t.threads),
        locks: count(|t| t.locks),
        sections: count(|t| t.sections),
        sections_uncounted: count(|t| t.sections_uncounted),
        execution: mean(|t| t.execution),
        lock: mean(|t| t.lock),
        unlock: mean(|t| t.unlock),
        held_union: mean(|t| t.held_union),
        held_sum: mean(|t| t.held_sum),
        average_held: per(sum(|t| t.held_sum), sections),
        dynamic_locks_per_10k: per(1e4 * sections, sum(|t| t.execution)),
        static_locks_per_thread: per(sum(|t| t.locks as f64), sum(|t| t.threads as f64)),
    }
}

/// The executions of all runs together.
fn regions(all: &Over<'_, CountersEntry>) -> RegionsEntry {
    let sum = |of: &dyn Fn(&CountersEntry) -> f64| all.things().map(|(_, entry)| of(entry)).sum::<f64>();
    let execution = sum(&|entry| entry.totals.execution);
    let share =
        |of: fn(&RegionsEntry) -> f64| per(sum(&|entry| of(&entry.regions) * entry.totals.execution), execution);
    let uncounted = sum(&|entry| entry.totals.sections_uncounted as f64);
    RegionsEntry {
        free: share(|r| r.free),
        lock: share(|r| r.lock),
        hold: share(|r| r.hold),
        unlock: share(|r| r.unlock),
        unknown: per(uncounted, uncounted + sum(&|entry| entry.totals.sections as f64)),
    }
}

fn histograms(all: &Over<'_, CountersEntry>, of: fn(&CountersEntry) -> &PartHistograms) -> PartHistograms {
    let merged = |part: fn(&PartHistograms) -> &[BucketEntry]| {
        let mut buckets: BTreeMap<u64, BucketEntry> = BTreeMap::new();
        for bucket in all.things().flat_map(|(_, entry)| part(of(entry))) {
            let merged = buckets.entry(bucket.from).or_insert(BucketEntry { count: 0, ..*bucket });
            merged.count = merged.count.saturating_add(bucket.count);
        }
        buckets.into_values().collect()
    };
    PartHistograms { acquire: merged(|p| &p.acquire), release: merged(|p| &p.release), hold: merged(|p| &p.hold) }
}

fn entry(all: &Over<'_, CountedEntry>, ids: &LockIds<'_>, clock: &str, held: f64) -> CountedEntry {
    let (run, like) = all.largest_run(|entry| entry.hold_ns);
    let sums = |of: fn(&CountedEntry) -> &BTreeMap<String, f64>| {
        let names: BTreeSet<&String> = all.things().flat_map(|(_, entry)| of(entry).keys()).collect();
        let mean = |name: &String| all.things().filter_map(|(_, entry)| of(entry).get(name)).sum::<f64>();
        names.into_iter().map(|name| (name.clone(), mean(name) / all.runs() as f64)).collect::<BTreeMap<_, _>>()
    };
    let hold = sums(|entry| &entry.hold);
    let entry = CountedEntry {
        lock: ids.of(run, &like.lock),
        sections: all.count(|entry| entry.sections),
        hold_share: per(hold.get(clock).copied().unwrap_or_default() * all.runs() as f64, held),
        hold_ns: all.ns(|entry| entry.hold_ns),
        on_cpu_ns: all.ns(|entry| entry.on_cpu_ns),
        preempted_ns: all.ns(|entry| entry.preempted_ns),
        wait: sums(|entry| &entry.wait),
        waits: all.count(|entry| entry.waits),
        hold,
        ..like.clone()
    };
    let times = Times {
        hold_ns: entry.hold_ns.as_f64(),
        on_cpu_ns: entry.on_cpu_ns.as_f64(),
        preempted_ns: entry.preempted_ns.as_f64(),
    };
    let ratios = Ratios::by_name(|name| entry.hold.get(name).copied(), times);
    with_ratios(entry, &ratios)
}
