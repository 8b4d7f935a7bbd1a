use super::gate::Outcome;
use super::schema::{Diff, LockDiff, Presence};
use super::*;
use crate::estimate::{Figures, Interval};
use crate::report::Report;
use crate::report::schema::{Durations, LockEntry, Ns, SiteEntry, ThreadEntry, ThreadId};
use proptest::prelude::*;

/// A recording of so many seconds.
fn recording(seconds: u64, locks: Vec<LockEntry>) -> Report {
    let mut report = Report { locks, ..Report::default() };
    report.quality.duration_ns = Ns::new(seconds * 1_000_000_000);
    report.quality.observed_share = 1.0;
    report.quality.target = format!("{seconds} s of work");
    let held = report.locks.iter().filter_map(|l| l.hold_ns).map(|h| h.sum).sum();
    report.threads = vec![ThreadEntry {
        tid: ThreadId::Number(1),
        held_union_ns: held,
        held_sum_ns: held,
        ..ThreadEntry::default()
    }];
    report
}

/// A lock with so many acquisitions, of which a part waited, each `wait` ns; each held `hold` ns.
fn lock(name: &str, acquisitions: u64, contended: u64, wait: u64, hold: u64) -> LockEntry {
    let durations = |count: u64, each: u64| Durations {
        sum: Ns::new(count * each),
        mean: Ns::new(each),
        max: Ns::new(if count == 0 { 0 } else { each }),
        p50: Ns::new(each),
        p99: Ns::new(each),
    };
    LockEntry {
        lock: format!("7:{name}"),
        name: name.to_owned(),
        kind: "mutex".to_owned(),
        pid: Some(7),
        comm: Some("work".to_owned()),
        acquisitions: Some(acquisitions),
        contended,
        harm_ns: Ns::new(contended * wait),
        aplt_ns: Ns::new(contended * wait),
        contended_wait_ns: durations(contended, wait),
        hold_ns: Some(durations(acquisitions, hold)),
        ..LockEntry::default()
    }
}

fn site(lock: &str, symbol: &str, instances: u64, apwt_ns: u64) -> SiteEntry {
    SiteEntry {
        lock: format!("7:{lock}"),
        symbol: symbol.to_owned(),
        instances,
        apwt_ns: Ns::new(apwt_ns),
        hold_ns: Some(Ns::new(instances * 10)),
        ..SiteEntry::default()
    }
}

fn compare(a: &Report, b: &Report) -> Diff {
    diff(a, b, Thresholds::default()).unwrap()
}

fn texts(diff: &Diff) -> Vec<&str> {
    diff.findings.iter().map(|f| f.text.as_str()).collect()
}

/// What becomes of a condition, and why.
fn gate(diff: &Diff, condition: &str) -> (Outcome, Vec<String>) {
    let judged = gate::judge(diff, &[condition.parse().unwrap()]);
    (judged[0].outcome, judged[0].reasons.clone())
}

#[test]
fn the_gate_fails_on_what_grew_too_much() {
    let locks =
        |wait, hold| vec![lock("cache_lock", 10_000, 6_000, wait, hold), lock("log_lock", 5_000, 10, 50_000, 9_000)];
    let a = recording(10, locks(200_000, 100_000));
    let mut diff = compare(&a, &recording(10, locks(260_000, 101_000)));
    let told = |text: &str| vec![text.to_owned()];
    let wait = gate(&diff, "wait > +20%");
    assert_eq!(wait, (Outcome::Failed, told("waiting of the program: 120 ms -> 156 ms per s (+30.0 %).")));
    assert_eq!(gate(&diff, "wait > +31%").0, Outcome::Passed);
    assert_eq!(gate(&diff, "hold > +20%").0, Outcome::Passed);
    let cache = told("waiting of `cache_lock`: 120 ms -> 156 ms per s (+30.0 %).");
    assert_eq!(gate(&diff, "wait[cache] > +20%"), (Outcome::Failed, cache.clone()));
    assert_eq!(gate(&diff, "wait[] > +20%"), (Outcome::Failed, cache));
    assert_eq!(gate(&diff, "wait[log] > +20%"), (Outcome::Passed, Vec::new()));
    let nothing = told("No lock's name contains \"x\".");
    assert_eq!(gate(&diff, "wait[x] > +20%"), (Outcome::Inconclusive, nothing));
    diff.gate = gate::judge(&diff, &["wait > +20%", "hold > +20%", "wait[x:y] > +20%"].map(|c| c.parse().unwrap()));
    let json = serde_json::to_value(&diff).unwrap();
    assert_eq!((&json["gate"][0]["condition"], &json["gate"][0]["outcome"]), (&"wait > +20%".into(), &"failed".into()));
    let table = table::render(&diff, 10, 120);
    assert!(table.starts_with("FAILED: wait > +20%. waiting of the program"), "{table}");
    let markdown = markdown::render(&diff, 1);
    assert!(markdown.contains("* **❌ failed**: `wait > +20%`<br>waiting of the program"), "{markdown}");
    assert!(markdown.contains("| cache&#95;lock | ") && markdown.contains("\nand 1 more lock\n"), "{markdown}");
    let annotations = markdown::annotations(&diff);
    let first = "::error title=wait > +20%25::waiting of the program: 120 ms -> 156 ms per s (+30.0 %25).\n";
    assert!(annotations.starts_with(first), "{annotations}");
    assert!(annotations.contains("::warning title=wait[x%3Ay] > +20%25::No lock's name"), "{annotations}");
}

#[test]
fn all_of_a_condition_has_to_be_true_of_one_lock() {
    let locks =
        |long, often| vec![lock("long_lock", 1_000, 900, long, 10_000), lock("often_lock", 9_000, often, 9_000, 100)];
    let diff = compare(&recording(10, locks(100_000, 1_000)), &recording(10, locks(200_000, 5_000)));
    let is = |condition| gate(&diff, condition).0;
    assert_eq!(is("wait[] > +50%"), Outcome::Failed);
    assert_eq!(is("wait[] > 10ms"), Outcome::Failed);
    // One grew fivefold, but waits for 4.5 ms in a second only; the other doubled.
    assert_eq!(is("wait[] > +200% and wait[] > 10ms"), Outcome::Passed);
    assert_eq!(is("wait[] > +50% and wait[] > 10ms"), Outcome::Failed);
    assert_eq!(is("wait[often] > +200% and wait[long] > 10ms"), Outcome::Failed);
    assert_eq!(is("wait > 10ms and contended[often] > 90%"), Outcome::Passed);
    assert_eq!(is("wait > 10ms and wait[x] > +1%"), Outcome::Inconclusive);
    assert_eq!(is("acquisitions < -1%"), Outcome::Passed);
    let (_, reasons) = gate(&diff, "wait[] > +50% and contended[] > 80%");
    assert_eq!(
        reasons,
        [
            "waiting of `long_lock`: 9.00 ms -> 18.0 ms per s (+100.0 %).",
            "contended share of `long_lock`: 90 % -> 90 % (+0.0 %)."
        ]
    );
}

/// A few long waits may come by chance.
#[test]
fn the_gate_does_not_fail_by_chance() {
    let of = |count| recording(10, vec![lock("cache_lock", 1_000, count, 100_000_000, 100)]);
    assert_eq!(gate(&compare(&of(9), &of(14)), "wait > +20%").0, Outcome::Inconclusive);
    assert_eq!(gate(&compare(&of(9), &of(40)), "wait > +20%").0, Outcome::Failed);
    // A thousandth of that takes no time to speak of.
    let short = |count| recording(10, vec![lock("cache_lock", 1_000, count, 1_000, 100)]);
    assert_eq!(gate(&compare(&short(100), &short(900)), "wait > +20%").0, Outcome::Passed);
}

#[test]
fn longer_holds_at_the_same_rate() {
    // 10 s against 20 s of the same rate: only rates compare.
    let a = recording(10, vec![lock("cache_lock", 10_000, 6_000, 200_000, 100_000)]);
    let b = recording(20, vec![lock("cache_lock", 20_000, 12_000, 620_000, 200_000)]);
    let diff = compare(&a, &b);
    assert_eq!(
        texts(&diff)[0],
        "wait for `cache_lock` 3.1x up: 120 ms -> 372 ms per s; holds 2.0x longer at the same rate."
    );
    let lock = &diff.locks[0];
    assert_eq!((lock.acquisitions_per_s.a, lock.acquisitions_per_s.b), (Some(1_000.0), Some(1_000.0)));
    assert!(!lock.acquisitions_per_s.called_out && !lock.contended_share.called_out);
    assert_eq!((lock.held_share.a, lock.held_share.b), (Some(0.1), Some(0.2)));
    assert_eq!(lock.wait_ns_per_s.b, Some(372_000_000.0));
    assert_eq!(diff.overall.waiting_threads.a, Some(0.12));
    assert_eq!(diff.overall.mean_hold_ns.ratio, Some(2.0));
}

#[test]
fn other_reasons_for_waiting() {
    let a = recording(10, vec![lock("l", 10_000, 2_000, 200_000, 100_000)]);
    let first = |b| compare(&a, &recording(10, vec![b])).findings[0].text.clone();
    assert_eq!(
        first(lock("l", 30_000, 6_000, 200_000, 100_000)),
        "wait for `l` 3.0x up: 40.0 ms -> 120 ms per s; acquired 3.0x as often, held as long each time."
    );
    assert_eq!(
        first(lock("l", 10_000, 6_000, 200_000, 100_000)),
        "wait for `l` 3.0x up: 40.0 ms -> 120 ms per s; holds and rate are the same; contended 20 % -> 60 %."
    );
    assert_eq!(
        first(lock("l", 5_000, 1_000, 40_000, 50_000)),
        "wait for `l` 10x down: 40.0 ms -> 4.00 ms per s; holds 2.0x shorter, acquired 0.5x as often."
    );
    assert_eq!(
        first(lock("l", 10_000, 0, 0, 100_000)),
        "wait for `l` gone: 40.0 ms -> 0 ns per s; holds and rate are the same; contended 20 % -> 0 %."
    );
}

#[test]
fn changes_without_waiting() {
    let a = recording(10, vec![lock("l", 10_000, 0, 0, 100_000)]);
    let first = |b| compare(&a, &recording(10, vec![b])).findings[0].text.clone();
    assert_eq!(
        first(lock("l", 10_000, 0, 0, 300_000)),
        "mean hold of `l` 3.0x up: 100 µs -> 300 µs; held 10 % -> 30 %."
    );
    assert_eq!(
        first(lock("l", 20_000, 0, 0, 100_000)),
        "time that `l` is held 2.0x up: 10 % -> 20 %; acquired 2.0x as often."
    );
    assert_eq!(
        first(lock("l", 20_000, 0, 0, 50_000)),
        "mean hold of `l` 2.0x down: 100 µs -> 50.0 µs; acquired 2.0x as often."
    );
    // 20 ns instead of 10 ns, a thousand times a second: nobody cares.
    let quiet = |hold| recording(10, vec![lock("l", 10_000, 0, 0, hold)]);
    assert!(compare(&quiet(10), &quiet(20)).locks[0].mean_hold_ns.ratio == Some(2.0));
    assert_eq!(texts(&compare(&quiet(10), &quiet(20))), Vec::<&str>::new());
}

#[test]
fn one_long_wait_is_chance() {
    let a = recording(10, vec![lock("l", 10_000, 100, 10_000, 1_000)]);
    let mut other = lock("l", 10_000, 100, 10_000, 1_000);
    other.harm_ns += Ns::new(90_000_000);
    other.contended_wait_ns.sum += Ns::new(90_000_000);
    other.contended_wait_ns.max = Ns::new(90_000_000);
    let diff = compare(&a, &recording(10, vec![other]));
    assert!(diff.locks[0].wait_ns_per_s.ratio.unwrap() > 10.0);
    assert_eq!(texts(&diff), Vec::<&str>::new());
}

#[test]
fn new_and_vanished_locks() {
    let a = recording(10, vec![lock("old", 10_000, 1_000, 1_000_000, 10_000), lock("tiny_old", 5, 0, 0, 10)]);
    let b = recording(10, vec![lock("new", 10_000, 2_000, 1_000_000, 10_000)]);
    let diff = compare(&a, &b);
    assert_eq!(
        texts(&diff)[..3],
        [
            "`new` is new: 200 ms per s of waiting, held 1.0 % of the time.",
            "`old` is gone: 100 ms per s of waiting, held 1.0 % of the time.",
            "1 lock new, 2 vanished.",
        ]
    );
    let tiny = diff.locks.iter().find(|l| l.name == "tiny_old").unwrap();
    assert_eq!((tiny.presence, tiny.instances), (Presence::Vanished, [1, 0]));
    assert_eq!((tiny.mean_hold_ns.a, tiny.mean_hold_ns.b), (Some(10.0), None));
    assert_eq!(tiny.acquisitions_per_s.b, Some(0.0));
}

#[test]
fn sites_are_blamed() {
    let mut a = recording(10, vec![lock("l", 10_000, 1_000, 1_000_000, 10_000)]);
    let mut b = recording(10, vec![lock("l", 10_000, 1_000, 4_000_000, 10_000)]);
    a.sites = vec![site("l", "flush (wal.c:210)", 100, 500_000_000), site("l", "read (wal.c:9)", 9_900, 500_000_000)];
    b.sites = vec![site("l", "flush (wal.c:214)", 100, 3_500_000_000), site("l", "read (wal.c:9)", 9_900, 500_000_000)];
    let diff = compare(&a, &b);
    let of_sites: Vec<_> = diff.findings.iter().filter(|f| f.about == "site").map(|f| f.text.as_str()).collect();
    assert_eq!(of_sites, ["waiting caused by `flush (wal.c:214)` holding `l` 7.0x up: 50.0 ms -> 350 ms per s."]);
    assert_eq!(diff.sites[0].symbol_a.as_deref(), Some("flush (wal.c:210)"));
    assert_eq!(diff.sites[0].mean_hold_ns.a, Some(10.0));
}

#[test]
fn processes_of_one_name_are_put_together() {
    let worker = |pid, comm: &str| LockEntry {
        lock: format!("{pid}:l"),
        pid: Some(pid),
        comm: Some(comm.to_owned()),
        ..lock("l", 1_000, 100, 1_000_000, 10)
    };
    let a = recording(10, vec![worker(1, "worker"), worker(2, "worker"), worker(3, "main")]);
    let b = recording(10, vec![worker(4, "worker"), worker(5, "main")]);
    let diff = compare(&a, &b);
    let of = |name: &str| diff.locks.iter().find(|l| l.name == name).unwrap();
    assert_eq!(of("worker:l").instances, [2, 1]);
    assert_eq!(of("main:l").wait_ns_per_s.ratio, Some(1.0));
    assert_eq!(of("worker:l").acquisitions_per_s.ratio, Some(0.5));
    // One process on each side: its name does not matter.
    let renamed = compare(&recording(1, vec![worker(1, "v1")]), &recording(1, vec![worker(9, "v2")]));
    assert_eq!(renamed.locks[0].presence, Presence::Both);
}

#[test]
fn locks_without_a_symbol_are_compared_by_family() {
    let numbered = |n: u64, hold| {
        let names = (1..=n).map(|i| if i == 1 { "lock in f".to_owned() } else { format!("lock in f #{i}") });
        names.map(|name| lock(&name, 1_000, 0, 0, hold)).collect::<Vec<_>>()
    };
    let diff = compare(&recording(10, numbered(2, 1_000_000)), &recording(10, numbered(3, 2_000_000)));
    assert_eq!(diff.locks.len(), 1);
    assert_eq!((diff.locks[0].name.as_str(), diff.locks[0].instances), ("lock in f", [2, 3]));
    assert_eq!(diff.locks[0].mean_hold_ns.ratio, Some(2.0));
    let text = table::render(&diff, 10, 140);
    assert!(text.contains("lock in f (2 -> 3 locks)"), "{text}");
    // Event lines' own names are what they are.
    let own = |name: &str| LockEntry { pid: None, comm: None, ..lock(name, 1, 0, 0, 1) };
    let lines = recording(10, vec![own("pool #1"), own("pool #2")]);
    assert_eq!(compare(&lines, &lines).locks.len(), 2);
}

#[test]
fn futex_only_recordings_have_no_holds() {
    let futex = LockEntry { acquisitions: None, hold_ns: None, ..lock("l", 0, 1_000, 1_000_000, 0) };
    let diff = compare(&recording(10, vec![futex.clone()]), &recording(5, vec![futex]));
    let LockDiff { acquisitions_per_s, held_share, mean_hold_ns, wait_ns_per_s, .. } = &diff.locks[0];
    assert_eq!([acquisitions_per_s.a, held_share.b, mean_hold_ns.a], [None; 3]);
    assert_eq!(wait_ns_per_s.ratio, Some(2.0));
    let text = table::render(&diff, 10, 140);
    assert!(text.starts_with("A: 10 s of work, 10.0 s, 1 thread\nB: 5 s of work, 5.00 s, 1 thread\n"), "{text}");
    assert!(text.contains("▲ 2.0x"), "{text}");
}

#[test]
fn no_duration_no_rates() {
    let some = recording(1, Vec::new());
    let none = recording(0, Vec::new());
    assert_eq!(diff(&some, &none, Thresholds::default()), Err(DiffError::NoDuration(Which::B)));
    assert_eq!(
        diff(&none, &some, Thresholds::default()).unwrap_err().to_string(),
        "recording A has no duration: there are no rates to compare"
    );
}

#[test]
fn the_table_tells_thresholds_and_omissions() {
    let locks = |factor: u64| (0..5).map(|i| lock(&format!("l{i}"), 10_000, 1_000 * factor, 1_000_000, 10)).collect();
    let text = table::render(&compare(&recording(10, locks(1)), &recording(10, locks(2))), 3, 140);
    assert!(text.contains("and 2 more"), "{text}");
    assert!(
        text.contains("by a factor of 1.25 or more that matter (waiting or holding of 0.1 % of the time)"),
        "{text}"
    );
    let text = table::render(&compare(&recording(10, locks(1)), &recording(10, locks(1))), 3, 140);
    assert!(text.contains("Nothing changed that exceeds the thresholds."), "{text}");
}

fn any_lock() -> impl Strategy<Value = LockEntry> {
    (0..6_u8, 0..100_000_u64, 0.0..=1.0_f64, 0..1_000_000_u64, 0..1_000_000_u64)
        .prop_map(|(name, n, part, wait, hold)| lock(&format!("l{name}"), n, (n as f64 * part) as u64, wait, hold))
}

fn any_recording() -> impl Strategy<Value = Report> {
    (1..100_u64, prop::collection::vec(any_lock(), 0..6)).prop_map(|(seconds, locks)| recording(seconds, locks))
}

proptest! {
    #[test]
    fn a_recording_does_not_differ_from_itself(a in any_recording()) {
        let diff = compare(&a, &a);
        prop_assert_eq!(texts(&diff), Vec::<&str>::new());
    }

    #[test]
    fn both_directions_tell_the_same(a in any_recording(), b in any_recording()) {
        let (there, back) = (compare(&a, &b), compare(&b, &a));
        prop_assert_eq!(there.locks.len(), back.locks.len());
        for lock in &there.locks {
            let other = back.locks.iter().find(|l| l.name == lock.name).unwrap();
            prop_assert_eq!(lock.wait_ns_per_s.called_out, other.wait_ns_per_s.called_out);
            prop_assert_eq!(lock.mean_hold_ns.called_out, other.mean_hold_ns.called_out);
            prop_assert_eq!(lock.acquisitions_per_s.a, other.acquisitions_per_s.b);
        }
        // Whatever the numbers are, they can be shown.
        prop_assert!(table::render(&there, 3, 80).ends_with('\n'));
    }
}

#[test]
fn estimates_that_may_be_alike_are_not_called_out() {
    let estimated = |n: u64, part: f64| {
        let mut l = lock("hot", n, n / 10, 1_000, 2_000);
        let around = |value: f64| Interval { value, low: value * (1.0 - part), high: value * (1.0 + part) };
        l.estimates = Some(Figures {
            acquisitions: around(n as f64),
            hold_mean_ns: around(2_000.0),
            hold_p99_ns: around(2_000.0),
            contended_share: around(0.1),
            wait_ns: Interval::default(),
        });
        recording(10, vec![l])
    };
    let called_out = |part| {
        let d = compare(&estimated(1_000_000, part), &estimated(1_500_000, part));
        let all = [d.locks[0].acquisitions_per_s, d.locks[0].held_share, d.overall.dynamic_locks_per_s];
        all.map(|change| change.called_out)
    };
    assert_eq!((called_out(0.05), called_out(0.5)), ([true; 3], [false; 3]));
}
