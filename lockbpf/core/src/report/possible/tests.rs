//! Generated reports hold no contradiction, and made-up contradictions are found.

use super::super::combine::combine;
use super::super::fixture::{FakeNames, P, found, server};
use super::super::schema::*;
use super::super::{Options, build};
use super::violations;
use crate::analysis::{self, Analyst, Closing};
use crate::costs::Costs;
use crate::estimate::{Estimator, Interval, Stretch};
use crate::event::{Event, ProcessSeen};
use crate::id::{Lock, Process, Site, Tid};
use crate::observation::Harvest;
use crate::op::{Action, Arrival, Attempt, LockKind, Op, Released, Round};
use crate::perturbation::Perturbation;
use crate::quality::Quality;
use crate::sums::KernelSums;
use crate::units::{Nanos, Time};
use lockbpf_common::kind::{Via, mutex_kind};
use lockbpf_common::sums::{Sums, bucket};
use proptest::prelude::*;

fn report(mut analyst: Analyst, harvest: Harvest, end: u64) -> Report {
    analyst.meet(ProcessSeen { time: Time(0), process: P, pid: 7, start: Time(0), comm: "p".to_owned() });
    let closing = Closing { period: Some((Time(0), Time(end))), harvest, ..Closing::default() };
    // Building asserts it as well, in debug builds.
    build(&analyst.finish(closing), &mut FakeNames, &Options::default()).unwrap()
}

/// Any steps: those that cannot follow one another are left out by the analysis.
fn steps() -> impl Strategy<Value = Vec<Op>> {
    let step = (0u64..60, 0u32..5, 0u32..16, 0u64..4, 0u64..5, any::<bool>());
    let op = move |(pause, tid, what, addr, at, flag)| {
        let (lock, site) =
            (Lock { process: P, addr: 0x1000 + addr * 64 }, Site { process: P, addr: 0x300 + at * 0x100 });
        let action = match what {
            0..=5 => Action::Attempt(Attempt {
                lock,
                site,
                shared: flag && what == 0,
                kind: LockKind::Mutex,
                owner: None,
                stack: None,
                contended: None,
            }),
            6..=9 => Action::Acquire { lock, waker: None },
            10..=13 => {
                Action::Release { lock, how: if flag || what > 10 { Released::Unlock } else { Released::Unseen } }
            }
            14 => Action::Barrier(Arrival {
                barrier: Lock { addr: 0x9000, ..lock },
                site,
                post: site,
                participants: 3,
                round: Round::of_code(if flag { 0 } else { (pause % 20) as u32 }),
            }),
            _ => Action::Exit { ends: false },
        };
        (pause, Tid(tid + 1), action)
    };
    prop::collection::vec(step.prop_map(op), 1..150).prop_map(|steps| {
        let mut time = 0;
        let op = |(pause, tid, action)| {
            time += pause;
            Op { time: Time(time), tid, process: P, action }
        };
        steps.into_iter().map(op).collect()
    })
}

/// What a lock does in a window: sections, of which some were cut, their holds, how many waited.
type Looks = (u64, u64, u64, u64);

/// Sums as the kernel keeps them.
fn look(sums: &mut Sums, (sections, cut, hold, contended): Looks, window: u64) {
    let hold = hold.min(window);
    sums.acquisitions += sections;
    sums.hold_ns += sections * hold;
    sums.contended += contended.min(sections);
    sums.wait_ns += contended.min(sections) * hold;
    if sections > 0 {
        sums.hold_max_ns = sums.hold_max_ns.max(hold);
        sums.hold_hist[bucket(hold)] += sections;
        if contended > 0 {
            sums.wait_max_ns = sums.wait_max_ns.max(hold);
            sums.wait_hist[bucket(hold)] += contended.min(sections);
        }
    }
    sums.cut += cut;
    sums.cut_ns += cut * (window / 2);
    sums.hold_max_ns = sums.hold_max_ns.max(if cut > 0 { window / 2 } else { 0 });
}

fn sums(lock: u64, site: u64, process: Process, via: Via, sums: Sums) -> KernelSums {
    let kind = if via == Via::Futex { mutex_kind::IS_FUTEX } else { 0 };
    let lock = Lock { process: P, addr: lock };
    KernelSums { lock, site: Site { process, addr: site }, via, sums: Sums { kind, ..sums } }
}

/// Sums and estimates of some windows, and of waits that the kernel saw all the time. With `unseen`, half of the releases of one lock are not seen, and
/// none of another, which is a runtime's.
fn windows(cycles: &[([Looks; 3], u64, u64)], slept: u64, shared: bool, unseen: bool) -> Harvest {
    const CYCLE: u64 = 500_000_000;
    let mut estimator = Estimator::new(Costs::default(), Some(0.03));
    let other = if shared { Process(P.0 + 1) } else { P };
    let mut rows = [Sums::EMPTY; 3];
    let all = |rows: &[Sums; 3]| {
        let [a, b, c] = *rows;
        vec![
            sums(0x1000, 0x300, P, Via::Lock, a),
            sums(0x1000, 0x400, other, Via::Lock, b),
            sums(0x1040, 0x300, P, if unseen { Via::GoLock } else { Via::Lock }, c),
        ]
    };
    for (number, (looks, window, cpu)) in (0..).zip(cycles) {
        let mut looks = *looks;
        if unseen {
            // Whatever is seen of a runtime's lock is a wait, and its end.
            (looks[2].1, looks[2].3) = (0, looks[2].0);
        }
        rows.iter_mut().zip(looks).for_each(|(row, looks)| look(row, looks, *window));
        if unseen {
            (rows[0].unseen, rows[2].unseen) = (rows[0].acquisitions / 2, rows[2].acquisitions);
        }
        for process in [P, other] {
            let (from, to) = (Time(number * CYCLE), Time((number + 1) * CYCLE));
            let (observed, cpu) = (Nanos(*window), Nanos(*cpu));
            let (observed_cpu, cost) = (cpu.min(observed), Nanos(looks[0].0 * 1_000));
            let stretch = Stretch {
                process,
                from,
                to,
                observed,
                cpu,
                observed_cpu,
                cost,
                observed_cost: cost,
                ..Stretch::default()
            };
            estimator.stretch(stretch);
        }
        estimator.snapshot(&all(&rows));
    }
    let mut slept_sums = Sums { acquisitions: slept, contended: slept, ..Sums::EMPTY };
    for wait in (0..slept).map(|n| 50_000 * (n + 1)) {
        slept_sums.wait_ns += wait;
        slept_sums.wait_max_ns = slept_sums.wait_max_ns.max(wait);
        slept_sums.wait_hist[bucket(wait)] += 1;
    }
    let mut harvest = Harvest { sums: all(&rows), estimates: Some(estimator.finish()), ..Harvest::default() };
    harvest.sums.extend([P, other].map(|process| sums(0x1000, 0, process, Via::Futex, slept_sums)));
    harvest.sums.truncate(if shared { 5 } else { 4 });
    harvest
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn reports_of_steps_hold_no_contradiction(runs in prop::collection::vec(steps(), 2..4)) {
        let mut reports = Vec::new();
        for ops in runs {
            let end = ops.last().map_or(0, |op| op.time.0);
            let mut analyst = Analyst::new(analysis::Options { detail: true, ..analysis::Options::default() });
            ops.into_iter().for_each(|op| analyst.take(Event::Op(op)));
            let perturbation = Some(Perturbation { hold_bias_ns: 3, ..Perturbation::default() });
            let quality = Quality { perturbation, ..Quality::default() };
            let report = report(analyst, Harvest { quality, ..Harvest::default() }, end);
            prop_assert_eq!(violations(&report), Vec::<String>::new());
            reports.push(report);
        }
        prop_assert_eq!(violations(&combine(reports, &Default::default())), Vec::<String>::new());
    }

    #[test]
    fn reports_of_windows_hold_no_contradiction(
        cycles in prop::collection::vec((
            prop::array::uniform3((0u64..400, 0u64..3, 1u64..30_000_000, 0u64..40)),
            5_000_000u64..40_000_000,
            1_000_000u64..500_000_000,
        ), 1..12),
        slept in 0u64..60,
        shared: bool,
        unseen: bool,
    ) {
        let end = cycles.len() as u64 * 500_000_000;
        let harvest = windows(&cycles, slept, shared, unseen);
        let report = report(Analyst::new(analysis::Options::default()), harvest, end);
        prop_assert_eq!(violations(&report), Vec::<String>::new());
        let waited: u64 = report.locks.iter().filter(|l| l.lock.ends_with("0x1000")).map(|l| l.wait_ns.sum.whole()).sum();
        let each: u64 = (1..=slept).map(|n| 50_000 * n).sum();
        if slept > 0 && cycles.iter().any(|(looks, ..)| looks[0].0 + looks[1].0 > 0) {
            prop_assert_eq!(waited, each * if shared { 2 } else { 1 }, "of every process");
        }
    }
}

fn pattern(evidence: Evidence) -> PatternEntry {
    let (lock, name) = ("1234:0x1000".to_owned(), "global_1000".to_owned());
    PatternEntry { lock, name, wait_ns: Ns::new(9), share: 0.5, evidence }
}

#[test]
fn contradictions_are_found() {
    let good = build(&found(&server()), &mut FakeNames, &Options::default()).unwrap();
    assert_eq!(violations(&good), Vec::<String>::new());
    type Spoil = fn(&mut Report);
    let spoilt: &[(&str, Spoil)] = &[
        ("the mean exceeds the longest", |r| {
            let hold = Durations { mean: Ns::new(3_730_000), max: Ns::new(367_000), ..Durations::default() };
            r.locks[0].hold_ns = Some(hold);
        }),
        ("sum, mean and count differ", |r| r.locks[0].acquisitions = Some(100_000)),
        ("contended: 1000000 of", |r| r.locks[0].contended = 1_000_000),
        ("harm of", |r| r.locks[0].harm_ns = Ns::new(1)),
        ("all waiting by how surely", |r| r.totals.attribution.exact_ns += Ns::new(77)),
        ("`global_1000` (1234:0x1000) by how surely", |r| r.locks[0].attribution.unknown_ns += Ns::new(77)),
        ("without the observer", |r| {
            r.locks[0].corrected = Some(CorrectedEntry { hold_ns: Ns::new(u64::MAX), ..Default::default() });
        }),
        ("those to blame", |r| r.locks[0].unattributed_ns = Ns::new(77)),
        ("is no share", |r| r.culprits[0].share = 1.5),
        ("waits: ", |r| r.threads[0].wait_ns = Ns::new(u64::MAX)),
        ("is without its point", |r| {
            let wrong = Interval { value: 1.0, low: 2.0, high: 3.0 };
            r.quality.observed =
                Some(super::super::schema::ObservedEntry { hold_bias_ns: wrong, ..Default::default() });
        }),
        ("has rank", |r| r.sites[0].rank = 9),
        ("acquisitions: ", |r| r.totals.acquisitions += 1),
        ("the schema", |r| r.schema.clear()),
        ("no sentences", |r| r.verdict.push("Yes".to_owned())),
        ("calls that were not seen", |r| r.locks[0].kernel = true),
        ("threads in", |r| r.locks[0].waiting_threads = 9_999),
        ("of several runs in one", |r| r.locks[0].spread = Some(LockSpread::default())),
        ("caused by `global_1000`", |r| r.locks[0].aplt_ns = Ns::new(u64::MAX)),
        ("ends that agree", |r| {
            r.critical_path = Some(CriticalPathEntry { ends: 1, agreeing: 2, ..Default::default() });
        }),
        ("what d2 waited for", |r| {
            let at = |ns| Some(Ns::new(ns));
            let node = |id: &str| NodeEntry { id: id.to_owned(), ..Default::default() };
            let waits = NodeEntry { attempt_ns: at(5), acquire_ns: at(9), ..node("d2") };
            let (from, to, kind) = ("d1".to_owned(), "d2".to_owned(), "direct".to_owned());
            let edge = EdgeEntry { from, to, kind, cost_ns: Ns::new(3), inferred: false };
            r.graph = Some(GraphEntry { nodes: vec![node("d1"), waits], edges: vec![edge], ..Default::default() });
        }),
        ("blocked again", |r| {
            let (kind, purpose) = ("condvar".to_owned(), "condition".to_owned());
            r.conditions.push(ConditionEntry { kind, purpose, blocked_again: 1, ..Default::default() });
        }),
        ("waits by wakers", |r| {
            let (kind, purpose) = ("futex".to_owned(), "unknown".to_owned());
            let wakers = vec![ThreadWait { count: 9, wait_ns: Ns::new(9), ..Default::default() }];
            r.futexes.push(FutexEntry { kind, purpose, wakers, ..Default::default() });
        }),
        ("a deadlock that ended", |r| {
            let (ended_ns, threads) = (Some(Ns::new(1)), vec![BlockedEntry::default()]);
            r.deadlocks.push(DeadlockEntry { ended_ns, threads, ..Default::default() });
        }),
        ("how long a circle stood", |r| {
            let (ended_ns, threads) = (Some(Ns::new(10)), vec![BlockedEntry::default()]);
            let lasted_ns = Ns::new(99);
            r.ended_circles.push(DeadlockEntry { ended_ns, lasted_ns, threads, ..Default::default() });
        }),
        ("in vain", |r| {
            let evidence = Evidence::ThunderingHerd(ThunderingHerd { wakes: 1, woken: 9, returns: 3, in_vain: 4 });
            r.patterns.push(pattern(evidence));
        }),
        ("starves and does not", |r| {
            let tid = ThreadId::default();
            let starving = vec![StarvingEntry { tid: tid.clone(), overtaken: 9, waits: 1, wait_ns: Ns::new(9) }];
            let favoured = vec![FavouredEntry { tid, taken: 9, ..Default::default() }];
            r.patterns.push(pattern(Evidence::Starvation(Starvation { starving, favoured, ..Default::default() })));
        }),
        ("what children paid", |r| {
            let children_cost_at_most_ns = Ns::new(1);
            r.quality.perturbation = Some(PerturbationEntry { children_cost_at_most_ns, ..Default::default() });
        }),
        ("futex calls cost", |r| {
            let (cost_share, futex_cost_share) = (Some(0.1), Some(0.2));
            r.quality.perturbation = Some(PerturbationEntry { cost_share, futex_cost_share, ..Default::default() });
        }),
        ("not observed from", |r| {
            let (from_ns, to_ns) = (Ns::new(9), Some(Ns::new(3)));
            r.quality.unobserved.push(UnobservedEntry { from_ns, to_ns, ..Default::default() });
        }),
        ("used up in 3 of 2", |r| {
            r.quality.throttled.push(ThrottledEntry { periods: 2, throttled_periods: 3, ..Default::default() });
        }),
        ("windows at", |r| {
            let overall = CoverageEntry { windows: 3, ..Default::default() };
            r.quality.observed = Some(ObservedEntry { overall, ..Default::default() });
        }),
        ("costs little and much", |r| {
            r.quality.distrust = Some(DistrustEntry { unranked: true, ..Default::default() });
        }),
        ("are not Some(3.0)", |r| {
            let hold = [("cache-misses".to_owned(), 10.0), ("instructions".to_owned(), 1_000.0)].into();
            let counted = CountedEntry { hold, misses_per_kilo_instruction: Some(3.0), ..Default::default() };
            r.counters = Some(CountersEntry { locks: vec![counted], ..Default::default() });
        }),
        ("calls inside of none", |r| {
            let category = CallsEntry { nested: 1, ..Default::default() };
            r.functions = Some(FunctionsEntry { categories: vec![category], ..Default::default() });
        }),
    ];
    for (what, spoil) in spoilt {
        let mut report = good.clone();
        spoil(&mut report);
        let found = violations(&report);
        assert!(found.iter().any(|v| v.contains(what)), "{what}: {found:?}");
    }
}
