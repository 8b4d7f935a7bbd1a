//! Counted events.

use super::super::schema::{
    BucketEntry, CountedEntry, CounterTotals, CountersEntry, EventEntry, PartHistograms, RegionsEntry, Report,
};
use super::Check;
use std::collections::BTreeMap;

/// Clocks of a thread and of its CPU are not read at one moment: a part may pass its whole by this.
pub(super) const CLOCKS: f64 = 0.01;
/// The same, in ns, of each section or call: what reading them takes on a machine under an emulator or with other work.
pub(super) const EACH: f64 = 10_000.0;

pub(super) fn check(c: &CountersEntry, report: &Report, check: &mut Check) {
    let CountersEntry { events: counted, unit, totals, regions, dynamic, of_means, locks, sites } = c;
    check.demand(["cycles", "ns"].contains(&unit.as_str()), || format!("a clock of {unit}"));
    for EventEntry { name, counted_share, execution } in counted {
        counted_share.iter().for_each(|share| check.share(*share, || format!("{name} counted")));
        let fits = counted_share.is_some() == execution.is_some() && execution.is_none_or(|n| n >= 0.0);
        check.demand(fits, || format!("{name} counted {counted_share:?} of the time: {execution:?}"));
    }
    self::totals(totals, regions, check);
    check.shares(locks.iter().map(|l| l.hold_share), || "holds by lock".to_owned());
    check.shares(sites.iter().map(|s| s.hold_share), || "holds by section".to_owned());
    for list in [locks, sites] {
        check.demand(list.is_sorted_by(|a, b| a.hold_share >= b.hold_share), || "holds: no order".to_owned());
    }
    let names: Vec<String> = counted.iter().map(|e| e.name.clone()).collect();
    for entry in locks.iter().chain(sites) {
        section(entry, &names, check);
    }
    // A selection tells fewer sites than were counted.
    let sections = |of: &[CountedEntry]| of.iter().map(|s| s.sections).sum::<u64>();
    for list in [locks, sites] {
        let (told, all) = (sections(list), totals.sections);
        let fits = told <= all && (told == all || report.selection.is_some());
        check.demand(fits || check.runs > 1.0, || format!("{told} sections told of {all}"));
    }
    for (histograms, all) in [(dynamic, totals.sections), (of_means, totals.locks)] {
        let PartHistograms { acquire, release, hold } = histograms;
        for part in [acquire, release, hold] {
            buckets(part, all, check);
        }
    }
}

fn totals(t: &CounterTotals, regions: &RegionsEntry, check: &mut Check) {
    let CounterTotals {
        threads,
        locks,
        sections,
        sections_uncounted,
        execution,
        lock,
        unlock,
        held_union,
        held_sum,
        average_held,
        dynamic_locks_per_10k,
        static_locks_per_thread,
    } = *t;
    let most = |whole: f64| whole * (1.0 + CLOCKS) + 1.0;
    check.demand(held_union <= most(held_sum), || format!("locks held: {held_union} of {held_sum}"));
    for (part, what) in [(lock, "waiting"), (unlock, "waking"), (held_union, "holding")] {
        check.demand(0.0 <= part && part <= most(execution), || format!("{what}: {part} of {execution}"));
    }
    let per = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
    let (sections, threads, locks) = (sections as f64, threads as f64, locks as f64);
    for (told, is, what) in [
        (average_held, per(held_sum, sections), "held on average"),
        (dynamic_locks_per_10k, per(1e4 * sections, execution), "locks per 10,000"),
        (static_locks_per_thread, per(locks, threads), "locks per thread"),
    ] {
        // The counts of several runs are rounded.
        check.demand((told - is).abs() <= 1e-6 * is + 1e-6 || check.runs > 1.0, || format!("{told} {what}, not {is}"));
    }
    let RegionsEntry { free, lock: waiting, hold, unlock: waking, unknown } = *regions;
    check.share(free, || "what has nothing to do with locks".to_owned());
    check.share(unknown, || "sections that were not counted".to_owned());
    for (share, part, what) in [(waiting, lock, "waiting"), (hold, held_sum, "holding"), (waking, unlock, "waking")] {
        let is = per(part, execution);
        check.demand((share - is).abs() <= 1e-6 * is + 1e-6, || format!("{what}: {share} of all, not {is}"));
    }
    let uncounted = sections_uncounted as f64;
    let is = per(uncounted, sections + uncounted);
    check.demand((unknown - is).abs() <= 1e-6 || check.runs > 1.0, || format!("{unknown} uncounted, not {is}"));
}

/// A histogram of `all`.
fn buckets(buckets: &[BucketEntry], all: u64, check: &mut Check) {
    let mut sum = 0_u64;
    for bucket in buckets {
        let BucketEntry { from, below, count } = *bucket;
        let empty = count == 0 || below.is_some_and(|below| from >= below);
        check.demand(!empty, || format!("an empty bucket: {bucket:?}"));
        sum = sum.saturating_add(count);
    }
    check.demand(buckets.is_sorted_by(|a, b| a.below.is_some_and(|below| below <= b.from)), || {
        format!("buckets that overlap: {buckets:?}")
    });
    check.demand(sum <= all || check.runs > 1.0, || format!("{sum} in a histogram of {all}"));
}

fn section(s: &CountedEntry, counted: &[String], check: &mut Check) {
    let CountedEntry {
        label,
        symbol,
        sections,
        hold_ns,
        on_cpu_ns,
        preempted_ns,
        hold,
        wait,
        ipc,
        ipc_user,
        ipc_kernel,
        misses_per_kilo_instruction,
        branch_misses_per_kilo_instruction,
        kernel_share,
        why,
        // Who it is; and waits that were counted, whether their sections were or not.
        lock: _,
        site: _,
        hold_share: _,
        waits: _,
    } = s;
    let name = || format!("{} of `{label}`", symbol.as_deref().unwrap_or("all sections"));
    let whole = hold_ns.as_f64() * (1.0 + CLOCKS) + EACH * *sections as f64;
    let (on, off) = (on_cpu_ns.as_f64(), preempted_ns.as_f64());
    check.demand(on <= whole && off <= whole, || format!("{}: {on} and {off} ns of {whole} ns", name()));
    events(hold, counted, check, &name);
    events(wait, counted, check, &name);
    let per_kilo = [misses_per_kilo_instruction, branch_misses_per_kilo_instruction];
    ratios([ipc, ipc_user, ipc_kernel].into_iter().chain(per_kilo), check, &name);
    kernel_share.iter().for_each(|share| {
        // Parts of an event that took turns are scaled, each by its own time.
        check.demand(*share >= 0.0 && share.is_finite(), || format!("{} in the kernel: {share}", name()));
    });
    for (ratio, a, b, each) in [
        (ipc, "instructions", "cycles", 1.0),
        (misses_per_kilo_instruction, "cache-misses", "instructions", 1e3),
        (branch_misses_per_kilo_instruction, "branch-misses", "instructions", 1e3),
    ] {
        let known = hold.get(a).zip(hold.get(b)).filter(|(_, of)| **of > 0.0);
        if let Some((a, of)) = known {
            let fits = ratio.is_some_and(|ratio| (ratio * of - a * each).abs() <= 1e-6 * a * each);
            check.demand(fits, || format!("{}: {a} of {of} are not {ratio:?}", name()));
        }
    }
    let known = ["preempted", "asleep", "kernel-bound", "memory-bound", "compute", "running"].contains(&why.as_str());
    check.demand(known, || format!("{} is {why}", name()));
}

/// Counts by event: of those that were counted, and none less than nothing.
pub(super) fn events(counts: &BTreeMap<String, f64>, counted: &[String], check: &mut Check, name: &dyn Fn() -> String) {
    for (event, n) in counts {
        let fits = *n >= 0.0 && n.is_finite() && counted.contains(event);
        check.demand(fits, || format!("{n} {event} in {}, of {counted:?}", name()));
    }
}

/// Ratios of counts.
pub(super) fn ratios<'a>(
    ratios: impl IntoIterator<Item = &'a Option<f64>>,
    check: &mut Check,
    name: &dyn Fn() -> String,
) {
    for ratio in ratios.into_iter().flatten() {
        check.demand(*ratio >= 0.0 && ratio.is_finite(), || format!("a ratio of {ratio} in {}", name()));
    }
}
