//! Counted events, and calls of the C library.

use super::super::schema::{BucketEntry, CallsEntry, CountedEntry, CountersEntry, FunctionsEntry, Report};
use super::Check;

/// Clocks of a thread and of its CPU are not read at one moment: a part may pass its whole by this.
const CLOCKS: f64 = 0.01;
/// The same, in ns, of each section or call: what reading them takes on a machine under an emulator or with other work.
const EACH: f64 = 10_000.0;

pub(super) fn check(report: &Report, check: &mut Check) {
    if let Some(counters) = &report.counters {
        self::counters(counters, check);
    }
    if let Some(functions) = &report.functions {
        self::functions(functions, check);
    }
}

fn counters(c: &CountersEntry, check: &mut Check) {
    let t = &c.totals;
    let most = |whole: f64| whole * (1.0 + CLOCKS) + 1.0;
    check.demand(t.held_union <= most(t.held_sum), || format!("locks held: {} of {}", t.held_union, t.held_sum));
    let mean = t.held_sum / t.sections.max(1) as f64;
    let fits = (t.average_held - mean).abs() <= 1e-6 * mean + 1e-6;
    check.demand(fits || check.runs > 1.0, || format!("{} held on average, not {mean}", t.average_held));
    for e in &c.events {
        e.counted_share.into_iter().for_each(|share| check.share(share, || format!("{} counted", e.name)));
    }
    check.share(c.regions.unknown, || "sections that were not counted".to_owned());
    check.shares(c.locks.iter().map(|l| l.hold_share), || "holds by lock".to_owned());
    check.shares(c.sites.iter().map(|s| s.hold_share), || "holds by section".to_owned());
    for entry in c.locks.iter().chain(&c.sites) {
        section(entry, check);
    }
    let count = |buckets: &[BucketEntry]| buckets.iter().map(|b| b.count).sum::<u64>();
    let held = count(&c.dynamic.hold);
    check.demand(held <= t.sections || check.runs > 1.0, || format!("{held} holds of {} sections", t.sections));
    for bucket in [&c.dynamic, &c.of_means].into_iter().flat_map(|h| [&h.acquire, &h.release, &h.hold]).flatten() {
        check.demand(bucket.below.is_none_or(|below| bucket.from < below), || format!("an empty bucket: {bucket:?}"));
    }
}

fn section(s: &CountedEntry, check: &mut Check) {
    let name = || format!("{} of `{}`", s.symbol.as_deref().unwrap_or("all sections"), s.label);
    let whole = s.hold_ns.as_f64() * (1.0 + CLOCKS) + EACH * s.sections as f64;
    let (on, off) = (s.on_cpu_ns.as_f64(), s.preempted_ns.as_f64());
    check.demand(on <= whole && off <= whole, || format!("{}: {on} and {off} ns of {whole} ns", name()));
}

fn functions(f: &FunctionsEntry, check: &mut Check) {
    let both = f.library_share + f.program_share;
    check.demand((both - 1.0).abs() <= CLOCKS || f.execution <= 0.0, || {
        format!("library and program are {both} of all")
    });
    for c in f.categories.iter().chain(&f.functions) {
        calls(c, check);
    }
    let sum = |of: fn(&CallsEntry) -> u64| {
        (f.categories.iter().map(of).sum::<u64>(), f.functions.iter().map(of).sum::<u64>())
    };
    for ((of_categories, of_functions), what) in [(sum(|c| c.calls), "calls"), (sum(|c| c.ended), "ends")] {
        check.demand(of_functions <= of_categories || check.runs > 1.0, || {
            format!("{of_functions} {what} by function, {of_categories} by category")
        });
    }
}

fn calls(c: &CallsEntry, check: &mut Check) {
    let name = || format!("calls of {}", c.function.as_deref().unwrap_or(&c.category));
    let fits = c.ended <= c.calls && c.uncounted <= c.ended;
    check.demand(fits, || format!("{}: {} of {} of {}", name(), c.uncounted, c.ended, c.calls));
    let whole = c.time_ns.as_f64() * (1.0 + CLOCKS) + EACH * c.ended as f64;
    check.demand(c.on_cpu_ns.as_f64() <= whole, || format!("{}: {} of {}", name(), c.on_cpu_ns, c.time_ns));
}
