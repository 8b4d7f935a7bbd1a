//! Counted events with names.

use super::place::Places;
use super::schema::{
    BucketEntry, CountedEntry, CounterTotals, CountersEntry, EventEntry, Ns, PartHistograms, RegionsEntry,
};
use super::select::Selected;
use crate::id::{Lock, Site};
use crate::measures::counted::{CLOCK, Counted, add, scale, scaled};
use crate::measures::quantities::{self, Buckets, Histograms, LockCounts, Quantities};
use crate::measures::why::{Ratios, unit};
use crate::observation::Observation;
use lockbpf_common::counter::Counter;
use lockbpf_common::counts::Counts;
use std::collections::{BTreeMap, HashMap};

/// The entries of what was counted, if anything was; of locks and sites those that are selected.
pub(super) fn counters(
    observation: &Observation,
    selected: &Selected,
    places: &mut Places<'_>,
) -> Option<CountersEntry> {
    let counted = &observation.counted;
    if counted.events.is_empty() {
        return None;
    }
    let q = Quantities::of(counted);
    let uncounted = observation.quality.counters.get(Counter::CountsUnread.name()).copied().unwrap_or_default();
    let clock = |counts: &Counts| scaled(counts, CLOCK).unwrap_or(0.0);
    let all: f64 = counted.sites.iter().map(|site| clock(&site.counts.hold)).sum();
    let (mut locks, mut sites) = (Vec::new(), Vec::new());
    let (by_lock, by_site) = rows(observation);
    for (lock, row) in by_lock.into_iter().filter(|&(lock, _)| selected.lock(lock)) {
        locks.push(entry(lock, None, &row, all, counted, places));
    }
    for ((lock, site), row) in by_site {
        if selected.lock(lock) && selected.site(site) {
            sites.push(entry(lock, Some(site), &row, all, counted, places));
        }
    }
    order(&mut locks);
    order(&mut sites);
    Some(CountersEntry {
        events: events(counted),
        unit: unit(&counted.events).to_owned(),
        totals: totals(&q, uncounted),
        regions: RegionsEntry {
            free: q.share(q.free()),
            lock: q.share(q.lock),
            hold: q.share(q.held_sum),
            unlock: q.share(q.unlock),
            unknown: if uncounted == 0 { 0.0 } else { uncounted as f64 / (q.sections + uncounted) as f64 },
        },
        dynamic: histograms(&quantities::dynamic(counted)),
        of_means: histograms(&quantities::of_means(counted)),
        locks,
        sites,
    })
}

/// Those held longest first.
pub(super) fn order(entries: &mut [CountedEntry]) {
    let key = |e: &CountedEntry| (e.label.clone(), e.symbol.clone(), e.lock.clone(), e.site.clone());
    entries.sort_by(|a, b| b.hold_share.total_cmp(&a.hold_share).then_with(|| key(a).cmp(&key(b))));
}

/// An entry with its ratios, and why its sections are long.
pub(super) fn with_ratios(entry: CountedEntry, ratios: &Ratios) -> CountedEntry {
    CountedEntry {
        ipc: ratios.ipc,
        ipc_user: ratios.ipc_user,
        ipc_kernel: ratios.ipc_kernel,
        misses_per_kilo_instruction: ratios.mpki,
        branch_misses_per_kilo_instruction: ratios.branch_mpki,
        kernel_share: ratios.kernel_share,
        why: ratios.why().name().to_owned(),
        ..entry
    }
}

/// Counts, and what the sums say of the same sections.
#[derive(Default)]
struct Row {
    counts: LockCounts,
    hold_ns: f64,
}

fn rows(observation: &Observation) -> (BTreeMap<Lock, Row>, BTreeMap<(Lock, Site), Row>) {
    let mean =
        |s: &crate::sums::SiteSums| s.hold.sum.0 as f64 / (s.acquisitions.saturating_sub(s.unseen)).max(1) as f64;
    let means: HashMap<_, f64> = observation.sums.iter().map(|s| ((s.lock, s.site, s.via), mean(s))).collect();
    let (mut by_lock, mut by_site): (BTreeMap<_, Row>, BTreeMap<_, Row>) = Default::default();
    for site in &observation.counted.sites {
        let mean = means.get(&(site.lock, site.site, site.via)).copied().unwrap_or_default();
        for row in [by_lock.entry(site.lock).or_default(), by_site.entry((site.lock, site.site)).or_default()] {
            row.counts.add(&site.counts);
            row.hold_ns += mean * site.counts.sections as f64;
        }
    }
    (by_lock, by_site)
}

fn entry(
    lock: Lock,
    site: Option<Site>,
    row: &Row,
    all: f64,
    counted: &Counted,
    places: &mut Places<'_>,
) -> CountedEntry {
    let Row { counts, hold_ns } = row;
    let hold = scaled(&counts.hold, CLOCK).unwrap_or(0.0);
    let ratios = Ratios::of(&counted.events, &counts.hold, *hold_ns);
    let entry = CountedEntry {
        lock: places.lock_id(lock),
        label: places.lock_label(lock),
        site: site.and_then(|site| places.site_id(site)),
        symbol: site.map(|site| places.place(site).symbol),
        sections: counts.sections,
        hold_share: if all > 0.0 { hold / all } else { 0.0 },
        hold_ns: Ns::from_f64(hold_ns.round()),
        on_cpu_ns: Ns::new(counts.hold.on_cpu_ns),
        preempted_ns: Ns::new(counts.hold.preempted_ns),
        hold: by_event(&counted.events, &counts.hold),
        wait: by_event(&counted.events, &counts.wait),
        waits: counts.waits,
        ..CountedEntry::default()
    };
    with_ratios(entry, &ratios)
}

fn by_event(events: &[String], counts: &Counts) -> BTreeMap<String, f64> {
    events.iter().enumerate().filter_map(|(n, name)| Some((name.clone(), scaled(counts, n)?))).collect()
}

fn events(counted: &Counted) -> Vec<EventEntry> {
    let mut execution = Counts::NONE;
    counted.threads.iter().for_each(|thread| add(&mut execution, &thread.execution));
    let entry = |(n, name): (usize, &String)| EventEntry {
        name: name.clone(),
        counted_share: scale(&execution, n).map(|scale| 1.0 / scale),
        execution: scaled(&execution, n),
    };
    counted.events.iter().enumerate().map(entry).collect()
}

fn totals(q: &Quantities, sections_uncounted: u64) -> CounterTotals {
    CounterTotals {
        threads: q.threads,
        locks: q.locks,
        sections: q.sections,
        sections_uncounted,
        execution: q.execution,
        lock: q.lock,
        unlock: q.unlock,
        held_union: q.held_union,
        held_sum: q.held_sum,
        average_held: q.average_held(),
        dynamic_locks_per_10k: q.dynamic_per_10k(),
        static_locks_per_thread: q.static_per_thread(),
    }
}

fn histograms(of: &Histograms) -> PartHistograms {
    PartHistograms { acquire: buckets(&of.acquire), release: buckets(&of.release), hold: buckets(&of.hold) }
}

fn buckets(buckets: &Buckets) -> Vec<BucketEntry> {
    let last = buckets.len() - 1;
    let entry = |(b, &count): (usize, &u64)| BucketEntry {
        from: if b == 0 { 0 } else { 1 << b },
        below: (b < last).then(|| 1 << (b + 1)),
        count,
    };
    buckets.iter().enumerate().filter(|&(_, &count)| count > 0).map(entry).collect()
}
