//! Whatever snapshots say, in whatever order processes come and go: what is told never falls, and adds up.

use super::*;
use crate::deadlock::{Blocked, Deadlock};
use crate::graph::findings::Who;
use crate::id::{Lock, Process, Site, Tid};
use crate::quality::Quality;
use crate::report::histograms::Bar;
use crate::report::measured::{Caused, Durations, MeasuredLock};
use crate::report::profile::{Profile, Sample};
use crate::report::schema::{Ns, StackFrame};
use crate::units::Nanos;
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap};

const LIMITS: Limits = Limits { locks: 2, culprits: 2, workloads: 3, series: 7 };

fn lock(process: u32, addr: u64, [acquisitions, contended, wait, hold]: [u64; 4], shares: [u64; 3]) -> MeasuredLock {
    let lock = Lock { process: Process(process), addr };
    let durations = |count, sum| Durations { bars: vec![Bar { from_ns: 1 << 12, count }], count, sum: Nanos(sum) };
    let causes = ["running", "sleeping", "handoff"];
    let caused = causes.into_iter().zip(shares).enumerate().map(|(at, (cause, wait))| Caused {
        held: lock,
        who: Some(Who::Section { lock, site: Site { process: Process(process), addr: at as u64 } }),
        name: format!("lock_{addr}"),
        kind: "mutex".to_owned(),
        place: format!("f{at} (a.c:{at})"),
        cause,
        wait: Nanos(wait),
    });
    MeasuredLock {
        lock,
        name: format!("lock_{addr}"),
        kind: "mutex".to_owned(),
        acquisitions: Some(acquisitions),
        contended,
        wait: durations(contended, wait),
        hold: Some(durations(acquisitions, hold)),
        waiting: contended % 3,
        recorded: Nanos(shares.iter().sum()),
        caused: caused.filter(|caused| caused.wait > Nanos(0)).collect(),
    }
}

fn workloads() -> HashMap<Process, Workload> {
    (0..6).map(|n| (Process(n), Workload::new(&format!("program{}", n % 5), "0::/system.slice/a.service\n"))).collect()
}

fn take(ledger: &mut Ledger, locks: &[MeasuredLock]) {
    let (workloads, quality) = (workloads(), Quality { late: locks.len() as u64, ..Quality::default() });
    let snapshot = Snapshot {
        at_ns: 0,
        locks,
        workloads: &workloads,
        quality: &quality,
        deadlocks: &[],
        observed: 1.0,
        overhead: Nanos(5),
    };
    ledger.take(&snapshot);
}

/// The samples of the counters in a text.
fn counters(book: &Book) -> BTreeMap<String, f64> {
    let text = book.expose(&Own::default(), Dialect::Plain);
    let is_counter = |line: &&str| {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        ["_total", "_bucket", "_count", "_sum"].iter().any(|end| name.ends_with(end))
    };
    let lines = text.lines().filter(|line| !line.starts_with('#')).filter(is_counter);
    let sample = |line: &str| line.rsplit_once(' ').map(|(name, value)| (name.to_owned(), value.parse().unwrap()));
    lines.filter_map(sample).collect()
}

fn sum(counters: &BTreeMap<String, f64>, name: &str) -> f64 {
    counters.iter().filter(|(key, _)| key.split('{').next() == Some(name)).map(|(_, value)| value).sum()
}

#[test]
fn estimates_that_fall_and_processes_that_end_take_nothing_away() {
    let mut ledger = Ledger::new(LIMITS);
    take(&mut ledger, &[lock(1, 1, [100, 10, 3_000, 9_000], [1_000, 2_000, 0])]);
    take(&mut ledger, &[lock(1, 1, [90, 10, 3_000, 8_000], [3_000, 0, 0])]);
    take(&mut ledger, &[]);
    ledger.end_round();
    take(&mut ledger, &[lock(2, 9, [7, 1, 500, 1], [500, 0, 0]), lock(1, 1, [5, 1, 100, 1], [0, 0, 100])]);
    let counters = counters(ledger.book());
    let labels = "comm=\"program1\",unit=\"a.service\",lock=\"lock_1\",kind=\"mutex\"";
    assert_eq!(counters[&format!("lockbpf_lock_acquisitions_total{{{labels}}}")], 105.0);
    assert_eq!(counters[&format!("lockbpf_lock_wait_seconds_sum{{{labels}}}")], 3.1e-6);
    // What moved from one culprit to another counts once.
    let caused = |at: usize, cause: &str| {
        let key = format!("lockbpf_wait_caused_seconds_total{{{labels},site=\"f{at} (a.c:{at})\",cause=\"{cause}\"}}");
        (counters[&key] * 1e9).round()
    };
    assert_eq!((caused(0, "running"), caused(1, "sleeping"), caused(2, "handoff")), (1_000.0, 2_000.0, 100.0));
    assert_eq!(sum(&counters, "lockbpf_lost_total"), 3.0);
}

#[test]
fn a_lock_that_becomes_the_worst_gets_a_series() {
    let mut ledger = Ledger::new(LIMITS);
    let idle: Vec<_> = (1..6).map(|addr| lock(1, addr, [10, 0, 0, 10], [0; 3])).collect();
    take(&mut ledger, &idle);
    // Nobody waited: nobody is told apart.
    assert_eq!(ledger.book().told(), (0, 0));
    for addr in 1..6 {
        let mut locks = idle.clone();
        locks[addr - 1] = lock(1, addr as u64, [10, 5, 5_000, 10], [5_000, 0, 0]);
        take(&mut ledger, &locks);
    }
    assert_eq!(ledger.book().told().0, 5);
    let counters = counters(ledger.book());
    assert_eq!(sum(&counters, "lockbpf_lock_acquisitions_total"), 50.0);
    assert!((sum(&counters, "lockbpf_wait_caused_seconds_total") - 25_000e-9).abs() < 1e-12);
}

#[test]
fn the_silent_make_room() {
    let mut ledger = Ledger::new(LIMITS);
    let of = |process| [lock(process, 1, [1, 1, 10, 1], [10, 0, 0])];
    (0..3).for_each(|process| take(&mut ledger, &of(process)));
    take(&mut ledger, &of(3));
    assert!(ledger.book().workloads.keys().any(|workload| workload.comm == "other"));
    for _ in 0..40 {
        take(&mut ledger, &of(3));
    }
    assert!(ledger.book().workloads.keys().any(|workload| workload.comm == "program3"));
    assert_eq!(ledger.book().evicted, 1);
}

#[test]
fn a_deadlock_counts_once() {
    let member =
        |tid| Blocked { tid: Tid(tid), lock: Lock::default(), site: None, since: crate::units::Time(0), stack: None };
    let stands = Deadlock { members: vec![member(2), member(1)], ..Deadlock::default() };
    let again = Deadlock { members: vec![member(1), member(2)], before_start: true, ..Deadlock::default() };
    let over = Deadlock { members: vec![member(7)], ended: Some(crate::units::Time(1)), ..Deadlock::default() };
    let (workloads, quality) = (HashMap::new(), Quality::default());
    let mut ledger = Ledger::new(LIMITS);
    let mut look = |deadlocks: &[Deadlock]| {
        let locks = &[];
        let (workloads, quality) = (&workloads, &quality);
        ledger.take(&Snapshot { at_ns: 0, locks, workloads, quality, deadlocks, observed: 1.0, overhead: Nanos(0) });
        (ledger.book().deadlocks, ledger.book().standing)
    };
    assert_eq!(look(&[stands.clone(), over]), (1, 1));
    assert_eq!(look(&[stands]), (1, 1));
    // A new observation finds it again after a moment.
    assert_eq!(look(&[]), (1, 1));
    assert_eq!(look(&[again]), (1, 1));
    assert_eq!(look(&[]), (1, 1));
    look(&[]);
    assert_eq!(look(&[]), (1, 0));
}

#[test]
fn stacks_are_known_by_names_alone() {
    let frame = |function: Option<&str>, address: &str| StackFrame {
        function: function.map(str::to_owned),
        address: address.to_owned(),
        ..StackFrame::default()
    };
    let sample = |address: &str, wait| Sample {
        frames: vec![frame(Some("f"), address), frame(None, address)],
        lock: "lock in f (a.c:3) #2".to_owned(),
        process: Process(1),
        count: 1,
        wait_ns: Ns::new(wait),
        ..Sample::default()
    };
    let profile = |waits: &[(&str, u64)]| Profile {
        wait_ns: Ns::new(waits.iter().map(|(_, wait)| wait).sum()),
        waiters: waits.iter().map(|&(address, wait)| sample(address, wait)).collect(),
        ..Profile::default()
    };
    let mut profiles = Profiles::new(8);
    profiles.take(&profile(&[("0x7f00", 10), ("0x7f10", 5)]), &workloads());
    profiles.end_round();
    profiles.take(&profile(&[("0x5500", 3)]), &workloads());
    let told = profiles.stacks().profile("x", None, 1);
    assert_eq!((told.waiters.len(), told.wait_ns, told.waiters[0].count), (1, Ns::new(18), 3));
    assert_eq!(
        (told.waiters[0].lock.as_str(), told.waiters[0].frames[1].function.as_deref()),
        ("lock in f (a.c:3)", Some("[unnamed]"))
    );
    assert_eq!(told.waiters[0].labels[0], ("comm", "program1".to_owned()));
}

#[test]
fn stacks_are_bounded_and_nothing_is_lost() {
    let sample = |n: u64| Sample {
        frames: vec![StackFrame { function: Some(format!("f{n}")), ..StackFrame::default() }],
        lock: "a".to_owned(),
        count: 1,
        wait_ns: Ns::new(n + 1),
        ..Sample::default()
    };
    let waiters: Vec<_> = (0..20).map(sample).collect();
    let wait: u64 = waiters.iter().map(|sample| sample.wait_ns.whole()).sum();
    let profile = Profile { wait_ns: Ns::new(wait), waiters, ..Profile::default() };
    let mut profiles = Profiles::new(8);
    for round in 1..5 {
        profiles.take(&profile, &HashMap::new());
        let told = profiles.stacks().profile("x", None, 1);
        assert_eq!((told.waiters.len(), told.wait_ns.whole()), (9, round * wait));
        profiles.end_round();
    }
    // Nothing grew in this one: room is made for a quarter.
    profiles.end_round();
    assert_eq!(profiles.stacks().profile("x", None, 1).waiters.len(), 7);
}

#[test]
fn what_has_come_since_adds_up_though_stacks_make_room() {
    let sample = |n: u64, wait: u64| Sample {
        frames: vec![StackFrame { function: Some(format!("f{n}")), ..StackFrame::default() }],
        count: 1,
        wait_ns: Ns::new(wait),
        ..Sample::default()
    };
    let mut profiles = Profiles::new(4);
    let (mut before, mut all, mut told) = (Stacks::default(), 0, 0);
    for round in 0..40u64 {
        // Others now and then: who goes comes back.
        let waiters: Vec<_> = (0..3).map(|n| sample((round / 2 * 3 + n) % 7, 10 + n + round % 5)).collect();
        let wait = waiters.iter().map(|sample| sample.wait_ns.whole()).sum();
        profiles.take(&Profile { wait_ns: Ns::new(wait), waiters, ..Profile::default() }, &HashMap::new());
        all += wait;
        // Not each time.
        if round % 3 > 0 {
            let now = profiles.stacks();
            told += now.since(&before).profile("x", None, 1).wait_ns.whole();
            assert_eq!(told, all, "{round}");
            assert!(now.since(&now).is_empty());
            before = now;
        }
        profiles.end_round();
    }
    assert!(before.profile("x", None, 1).wait_ns.whole() < all, "nobody has made room");
}

#[test]
fn a_series_counts_since_the_snapshot_before_it() {
    let mut ledger = Ledger::new(LIMITS);
    let (workloads, quality) = (workloads(), Quality::default());
    for (at_ns, process) in [(100, 1), (200, 2), (300, 1)] {
        let locks = &[lock(process, 1, [1, 1, 10, 1], [10, 0, 0])];
        let (workloads, quality) = (&workloads, &quality);
        ledger.take(&Snapshot { at_ns, locks, workloads, quality, deadlocks: &[], observed: 1.0, overhead: Nanos(0) });
    }
    let since: Vec<_> = ledger.book().workloads.values().map(|account| account.since_ns).collect();
    assert_eq!(since, [0, 100]);
    let own = Own { started_ns: 50, ..Own::default() };
    let request = ledger.book().otlp_request(&own, &[("service.name", "x")], 300);
    let has = |ns: u64| request.windows(9).any(|bytes| bytes[0] == 2 << 3 | 1 && bytes[1..] == ns.to_le_bytes());
    assert!(has(50) && has(100) && !has(0) && !has(200));
}

fn snapshots() -> impl Strategy<Value = Vec<Option<Vec<MeasuredLock>>>> {
    let of_lock = (0u32..6, 0u64..5, prop::array::uniform4(0u64..1_000), prop::array::uniform3(0u64..1_000))
        .prop_map(|(process, addr, sums, shares)| lock(process, addr, sums, shares));
    let snapshot = prop::collection::vec(of_lock, 0..12).prop_map(|mut locks| {
        locks.sort_by_key(|lock| lock.lock);
        locks.dedup_by_key(|lock| lock.lock);
        locks
    });
    // `None`: the observation is begun anew.
    prop::collection::vec(prop::option::weighted(0.8, snapshot), 1..40)
}

proptest! {
    #[test]
    fn nothing_ever_falls_and_all_adds_up(snapshots in snapshots()) {
        let mut ledger = Ledger::new(LIMITS);
        let mut peaks: HashMap<Lock, [u64; 4]> = HashMap::new();
        let mut all = [0u64; 4];
        let mut before = BTreeMap::new();
        for snapshot in snapshots {
            let Some(locks) = snapshot else {
                ledger.end_round();
                peaks.clear();
                continue;
            };
            take(&mut ledger, &locks);
            for lock in &locks {
                let peaks = peaks.entry(lock.lock).or_default();
                let now = [lock.acquisitions.unwrap_or(0), lock.contended, lock.wait.sum.0, lock.recorded.0];
                for ((all, peak), now) in all.iter_mut().zip(peaks).zip(now) {
                    *all += now.saturating_sub(*peak);
                    *peak = (*peak).max(now);
                }
            }
            let after = counters(ledger.book());
            if ledger.book().evicted == 0 {
                for (series, value) in &before {
                    prop_assert!(after.get(series) >= Some(value), "{series} fell from {value} to {:?}", after.get(series));
                }
                let told = |name| (sum(&after, name) * 1e9).round() as u64;
                prop_assert_eq!(sum(&after, "lockbpf_lock_acquisitions_total") as u64, all[0]);
                prop_assert_eq!(sum(&after, "lockbpf_lock_contentions_total") as u64, all[1]);
                prop_assert_eq!(sum(&after, "lockbpf_lock_wait_seconds_count") as u64, all[1]);
                prop_assert_eq!(told("lockbpf_lock_wait_seconds_sum"), all[2]);
                prop_assert_eq!(told("lockbpf_wait_caused_seconds_total"), all[3]);
            }
            let (locks, culprits) = ledger.book().told();
            prop_assert!(locks <= LIMITS.series && culprits <= LIMITS.series);
            prop_assert!(ledger.book().workloads.len() <= LIMITS.workloads + 1);
            before = after;
        }
    }
}
