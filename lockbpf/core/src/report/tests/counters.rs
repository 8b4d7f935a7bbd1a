//! Counted events, with names, in JSON and in the table.

use super::*;
use crate::measures::counted::{Counted, CountedSite};
use crate::report::combine::{self, combine};
use crate::report::schema::CountersEntry;
use lockbpf_common::counter::Counter;
use lockbpf_common::counts::{Counts, SiteCounts, ThreadCounts};

const EVENTS: [&str; 3] = ["cycles", "instructions", "cache-misses"];

/// Counts of sections that were on a CPU for so long, instructions counted half of the time.
fn counts(on_cpu_ns: u64, preempted_ns: u64, counts: [u64; 3]) -> Counts {
    let mut made = Counts { on_cpu_ns, preempted_ns, counted_ns: [on_cpu_ns; 5], ..Counts::NONE };
    made.counts[..3].copy_from_slice(&counts);
    made.counted_ns[1] = on_cpu_ns / 2;
    made
}

fn counted_site(lock_addr: u64, at: u64, sections: u64, hold: Counts) -> CountedSite {
    let mut counts = SiteCounts { sections, hold, ..SiteCounts::EMPTY };
    counts.hold_hist[10] = sections;
    CountedSite { lock: lock(lock_addr), site: site(at), via: Via::Lock, counts }
}

/// Two sites of a lock, one of another; each section took 10 ms by the wall clock.
fn observed() -> Run {
    let mut o = observation();
    let sites = [(0x1000, 0x100, 3), (0x1000, 0x200, 1), (0x1100, 0x300, 2)];
    for (lock_addr, at, sections) in sites {
        for n in 0..sections {
            feed(&mut o, &section(lock_addr, 1, at, [n * 20, n * 20, n * 20 + 10]), false);
        }
    }
    let execution = counts(100 * MS, 0, [1_000_000, 400_000, 9_000]);
    o.counted = Counted {
        events: EVENTS.map(str::to_owned).to_vec(),
        sites: vec![
            counted_site(0x1000, 0x100, 3, counts(30 * MS, 0, [300_000, 150_000, 30_000])),
            counted_site(0x1000, 0x200, 1, counts(2 * MS, 7 * MS, [20_000, 10_000, 0])),
            counted_site(0x1100, 0x300, 2, counts(20 * MS, 0, [80_000, 40_000, 0])),
        ],
        threads: vec![ThreadCounts {
            tid: 1,
            threads: 1,
            execution,
            held_union: 350_000,
            held_sum: 400_000,
            wait: 10_000,
            outside: 10_000,
            ..ThreadCounts::default()
        }],
    };
    o.quality.counters.insert(Counter::CountsUnread.name(), 2);
    o
}

fn counters(o: &Run) -> CountersEntry {
    report(o).counters.unwrap()
}

#[test]
fn counts_get_names_and_reasons() {
    let c = counters(&observed());
    let told: Vec<_> = c
        .sites
        .iter()
        .map(|s| (s.symbol.as_deref().unwrap(), s.label.as_str(), s.hold_share, s.why.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            ("fn1 (work.c:1)", "global_1000", 0.75, "memory-bound"),
            ("fn3 (work.c:3)", "global_1100", 0.2, "compute"),
            ("fn2 (work.c:2)", "global_1000", 0.05, "preempted"),
        ]
    );
    // Instructions were counted half of the time.
    let first = &c.sites[0];
    assert_eq!(
        (first.hold["instructions"], first.ipc, first.misses_per_kilo_instruction),
        (300_000.0, Some(1.0), Some(100.0))
    );
    assert_eq!((first.hold_ns, first.on_cpu_ns, first.kernel_share), (ms(30), ms(30), None));
    let locks: Vec<_> = c.locks.iter().map(|l| (l.label.as_str(), l.sections, l.site.as_ref())).collect();
    assert_eq!(locks, [("global_1000", 4, None), ("global_1100", 2, None)]);
    let turns: Vec<_> = c.events.iter().map(|e| (e.name.as_str(), e.counted_share, e.execution)).collect();
    assert_eq!(turns[1], ("instructions", Some(0.5), Some(800_000.0)));
}

#[test]
fn sums_and_regions() {
    let c = counters(&observed());
    let t = &c.totals;
    assert_eq!((c.unit.as_str(), t.threads, t.locks, t.sections, t.sections_uncounted), ("cycles", 1, 2, 6, 2));
    assert_eq!((t.execution, t.held_union, t.held_sum, t.lock), (1e6, 350_000.0, 400_000.0, 10_000.0));
    let r = &c.regions;
    assert_eq!((r.free, r.lock, r.hold, r.unlock, r.unknown), (0.64, 0.01, 0.4, 0.0, 0.25));
    assert_eq!(c.dynamic.hold.iter().map(|b| b.count).sum::<u64>(), 6);
    assert_eq!(c.of_means.hold.iter().map(|b| b.count).sum::<u64>(), 2);
}

#[test]
fn the_table_says_the_same() {
    let text = text(&report(&observed())).split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "as the threads' own: cycles, instructions, cache-misses. Events took turns, and are scaled: instructions (50 % of the",
        "Of 1,000,000 cycles in 1 thread: lock calls 1.0 %, unlock calls 0 %, a lock held 35 % (summed over locks 40 %), free 64 %.",
        "memory-bound",
        "preempted 70 %",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    assert!(!self::text(&report(&observation())).contains("as the threads' own"));
    assert!(report(&observation()).counters.is_none());
}

#[test]
fn a_selection_restricts_them() {
    let options = Options {
        selection: Selection { lock: Parts(vec!["global_1100".into()]), ..Selection::default() },
        ..Options::default()
    };
    let c = build(&found(&observed()), &mut FakeNames, &options).unwrap().counters.unwrap();
    assert_eq!((c.locks.len(), c.sites.len(), c.sites[0].hold_share), (1, 1, 0.2));
}

#[test]
fn several_runs_have_means_and_the_ratios_of_means() {
    let mut longer = observed();
    for site in &mut longer.counted.sites {
        site.counts.sections *= 3;
        let hold = &mut site.counts.hold;
        (hold.on_cpu_ns, hold.preempted_ns) = (3 * hold.on_cpu_ns, 3 * hold.preempted_ns);
        hold.counted_ns = hold.counted_ns.map(|ns| 3 * ns);
        hold.counts = hold.counts.map(|count| 3 * count);
    }
    // Twice the misses, thrice the sections.
    longer.counted.sites[0].counts.hold.counts[2] = 60_000;
    longer.counted.threads[0].execution.counts[0] = 3_000_000;
    let several = |runs| combine(runs, &combine::Options::default());
    let c = several(vec![report(&observed()), report(&longer)]).counters.unwrap();
    let turns: Vec<_> = c.events.iter().map(|e| (e.name.as_str(), e.counted_share, e.execution)).collect();
    assert_eq!(turns[0], ("cycles", Some(1.0), Some(2_000_000.0)));
    let t = &c.totals;
    assert_eq!((t.threads, t.locks, t.sections, t.execution, t.held_sum), (1, 2, 12, 2e6, 400_000.0));
    assert_eq!((t.average_held, t.dynamic_locks_per_10k), (800_000.0 / 24.0, 0.06));
    // Free: 640,000 of a million, and 2,640,000 of three.
    assert!((c.regions.free - 3_280_000.0 / 4e6).abs() < 1e-9, "{:?}", c.regions);
    assert!((c.regions.unknown - 4.0 / 28.0).abs() < 1e-9, "{:?}", c.regions);
    assert_eq!(c.dynamic.hold.iter().map(|b| b.count).sum::<u64>(), 12, "of both runs");
    let told: Vec<_> = c.sites.iter().map(|s| (s.symbol.as_deref().unwrap(), s.sections, s.hold["cycles"])).collect();
    assert_eq!(told[0], ("fn1 (work.c:1)", 6, 600_000.0));
    let first = &c.sites[0];
    assert!((first.hold_share - 0.75).abs() < 1e-9, "{first:?}");
    // 45,000 misses in 600,000 instructions.
    assert_eq!((first.ipc, first.misses_per_kilo_instruction), (Some(1.0), Some(75.0)));
    assert_eq!(first.why, "memory-bound");
    assert_eq!((c.locks.len(), c.locks[0].sections), (2, 8));
    // One that a run did not see counts nothing there.
    let mut fewer = observed();
    fewer.counted.sites.truncate(2);
    let c = several(vec![report(&observed()), report(&fewer)]).counters.unwrap();
    let last = c.sites.iter().find(|s| s.symbol.as_deref() == Some("fn3 (work.c:3)")).unwrap();
    assert_eq!((last.sections, last.hold["cycles"]), (1, 40_000.0));
    assert!((last.hold_share - 80_000.0 / 720_000.0).abs() < 1e-9, "{last:?}");
}

#[test]
fn runs_that_did_not_count_the_same_are_not_put_together() {
    let mut other = observed();
    other.counted.events[2] = "branch-misses".to_owned();
    for other in [report(&other), report(&observation())] {
        let combined = combine(vec![report(&observed()), other], &combine::Options::default());
        assert!(combined.counters.is_none());
        let notes = &combined.quality.notes;
        assert!(notes.iter().any(|note| note.contains("not the same in all runs")), "{notes:?}");
    }
}
