//! Timing from steps, compared with a naive count; and what advice makes of it.

use super::super::timing::{Clock, Section, Timing};
use super::super::traced::{Counted, TraceNames, Traced};
use super::super::{EdgeSource, Options, Records, advise};
use super::{records, section};
use crate::id::{Lock, Process, Site, Tid};
use crate::op::{Action, Attempt, LockKind, Op, Released};
use crate::units::Time;
use proptest::prelude::*;
use std::collections::HashMap;

const PROCESS: Process = Process(0);

fn lock(addr: u64) -> Lock {
    Lock { process: PROCESS, addr }
}

fn site(addr: u64) -> Site {
    Site { process: PROCESS, addr }
}

/// One section: thread, lock, site, and when it asked, got and gave back.
type One = (u32, u64, u64, [u64; 3]);

fn steps(sections: &[One]) -> Vec<Op> {
    let mut steps = Vec::new();
    for &(tid, at_lock, at_site, times) in sections {
        let attempt = Attempt {
            lock: lock(at_lock),
            site: site(at_site),
            shared: false,
            kind: LockKind::Mutex,
            owner: None,
            stack: None,
            contended: None,
        };
        let actions = [
            Action::Attempt(attempt),
            Action::Acquire { lock: lock(at_lock), waker: None },
            Action::Release { lock: lock(at_lock), how: Released::Unlock },
        ];
        // At one time locks are given back first, and asked for before they are got.
        for ((order, action), time) in [1, 2, 0].into_iter().zip(actions).zip(times) {
            steps.push((time, order, Op { time: Time(time), tid: Tid(tid), process: PROCESS, action }));
        }
    }
    steps.sort_by_key(|&(time, order, _)| (time, order));
    steps.into_iter().map(|(.., op)| op).collect()
}

fn timing(sections: &[One]) -> Timing {
    let mut clock = Clock::default();
    steps(sections).iter().for_each(|op| clock.op(op));
    clock.finish()
}

#[test]
fn waits_meet_holds() {
    // B waits for A, then for C, which overtakes it.
    let timing = timing(&[
        (1, 9, 1, [0, 0, 100]),
        (2, 9, 2, [10, 150, 160]),
        (3, 9, 3, [20, 100, 150]),
        // Later and alone.
        (2, 9, 2, [200, 200, 230]),
    ]);
    let of = |tid: u32, at: u64| {
        let thread = timing.threads.iter().position(|span| span.tid == Tid(tid)).unwrap() as u32;
        timing.spent[&(thread, Section { lock: lock(9), site: site(at) })]
    };
    let b = of(2, 2);
    assert_eq!((b.acquisitions, b.waited, b.wait, b.hold, b.met), (2, 1, 140, 40, 2));
    assert_eq!((of(3, 3).met, of(1, 1).met, of(1, 1).hold), (1, 0, 100));
    let pairs: Vec<_> = timing.waits.iter().map(|(from, to)| (from.1.addr, to.1.addr)).collect();
    assert_eq!(pairs, [(1, 2), (1, 3), (3, 2)]);
}

#[test]
fn recursion_belongs_to_the_outermost_section() {
    let mut clock = Clock::default();
    let mut ops = steps(&[(1, 9, 1, [0, 0, 100])]);
    let inner = steps(&[(1, 9, 2, [10, 10, 20])]);
    ops.splice(2..2, inner);
    ops.iter().for_each(|op| clock.op(op));
    let timing = clock.finish();
    assert_eq!(timing.spent.len(), 1);
    assert_eq!(timing.spent[&(0, Section { lock: lock(9), site: site(1) })].hold, 100);
}

/// A recording by names that are those of the records.
fn traced(records: &Records, sections: &[One]) -> Traced {
    let timing = timing(sections);
    let mut names = TraceNames::default();
    for &(_, at_lock, at_site, _) in sections {
        names.locks.insert(lock(at_lock), vec![format!("L{at_lock}"), "L".to_owned()]);
        names.sites.insert(site(at_site), vec![at_site.to_string()]);
    }
    names.threads = timing.threads.iter().map(|span| vec![format!("T{}", span.tid.0)]).collect();
    Traced::new(records, &timing, &names, &HashMap::default(), 1)
}

#[test]
fn optimistic_execution_from_a_recording() {
    // Two threads take turns: each waits 100 and is inside for 100, of 200 a turn.
    let sections: Vec<One> = (0..20_u64)
        .map(|turn| ((turn % 2) as u32 + 1, 9, 1, [(turn * 100).saturating_sub(100), turn * 100, turn * 100 + 100]))
        .collect();
    let lines: Vec<_> = (0..40)
        .map(|seq| {
            let thread = seq % 2;
            let own = format!("own-{thread}");
            let places = if seq / 2 % 2 == 0 { vec![own.as_str(), "n"] } else { vec![own.as_str()] };
            section(0, seq, &format!("T{}", thread + 1), "1", &places, &places)
        })
        .collect();
    let records = records(&lines);
    let traced = traced(&records, &sections);
    let options = Options { traced: Some(&traced), operation_ns: Some(5.0), ..Options::default() };
    let found = advise(&records, &options);
    let entry = &found.sections[0];
    // All but the first acquisition wait for one hold.
    assert!((entry.w_c.unwrap() - 19.0 / 20.0).abs() < 1e-12, "{entry:?}");
    let p = 1.0 - (1.0 - entry.p_c).powf(0.95);
    assert!((entry.p_conflict.unwrap() - p).abs() < 1e-12);
    let occ = found.occ.as_ref().unwrap();
    let second = occ.threads.iter().find(|row| row.tid == "T2").unwrap();
    // T2: ten acquisitions in 2,000 ns, each with 2.95 operations of 5 ns.
    let cost = 10.0 * 2.95 * 5.0;
    let (wait, exec) = ((1_000.0 - cost) / (2_000.0 - cost), 1_000.0 / (2_000.0 - cost));
    assert!((second.f_wait - wait).abs() < 1e-12 && (second.f_exec - exec).abs() < 1e-12, "{second:?}");
    let benefit = (wait - exec * p / (1.0 - p)).max(0.0);
    assert!((second.benefit - benefit).abs() < 1e-12 && benefit > 0.0);
    assert!((second.speedup.unwrap() - 1.0 / (1.0 - wait + exec * p / (1.0 - p))).abs() < 1e-12);
    assert!((occ.best_case_speedup.unwrap() - 1.0 / (1.0 - occ.efficiency)).abs() < 1e-12);
    assert_eq!(found.usydg.edges_from["L"], EdgeSource::Trace);
    assert_eq!(found.usydg.edges, [["T1:1", "T2:1"].map(str::to_owned), ["T2:1", "T1:1"].map(str::to_owned)]);
    // By hand it is what was said.
    let by_hand = advise(&records, &Options { w: [(0, 0.0)].into(), traced: Some(&traced), ..Options::default() });
    assert_eq!((by_hand.sections[0].w_c, by_hand.sections[0].p_conflict), (Some(0.0), Some(0.0)));
    let none = advise(&records, &Options::default());
    assert!(none.occ.is_none() && none.sections[0].w_c.is_none());
}

#[test]
fn for_whom_a_section_locks_is_evidence() {
    let lines: Vec<_> =
        (0..8).map(|seq| section(0, seq, ["T1", "T2"][seq as usize % 2], "db_lock", &["n"], &["n"])).collect();
    let records = records(&lines);
    let callers = [(records.sites.find("db_lock").unwrap(), "called by `vacuum` for 98 % of it".to_owned())].into();
    let evidence = |options: &Options<'_>| advise(&records, options).advice[0].evidence.join(" ");
    let told = evidence(&Options { callers, ..Options::default() });
    assert!(told.contains("`db_lock` causes waiting, called by `vacuum` for 98 % of it."), "{told}");
    assert!(!evidence(&Options::default()).contains("called by"));
}

#[test]
fn callers_of_one_method_have_what_their_threads_do() {
    // The recording knows the method only: site 7.
    let sections = [(1, 9, 7, [0, 0, 100]), (2, 9, 7, [50, 100, 150]), (3, 9, 7, [150, 150, 170])];
    let by_method = |seq, tid: &str, site: &str, at: &str| {
        let mut line = section(0, seq, tid, site, &[], &[at]);
        line["method"] = "7".into();
        line
    };
    let records = records(&[
        by_method(0, "T1", "put", "x"),
        by_method(1, "T1", "put", "x"),
        by_method(2, "T1", "put", "x"),
        by_method(3, "T2", "take", "y"),
    ]);
    let traced = traced(&records, &sections);
    let key = |name: &str| (records.sites.find(name).unwrap(), 0);
    let time = |name: &str| traced.sections[&key(name)];
    // T3 was not followed: three quarters of what it does are taken to be puts.
    assert_eq!((time("put").acquisitions, time("put").wait_ns, time("put").hold_ns), (1.75, 0.0, 115.0));
    assert_eq!((time("take").acquisitions, time("take").wait_ns, time("take").hold_ns), (1.25, 50.0, 55.0));
    assert_eq!(traced.together, [key("put"), key("take")].into());
    assert!(traced.missing.is_empty());
    let waits: Vec<_> = traced.waits.iter().map(|wait| (wait.from.1, wait.to.1)).collect();
    assert_eq!(waits, [(key("put").0, key("take").0)]);
    let found = advise(&records, &Options { traced: Some(&traced), ..Options::default() });
    assert!(found.cautions.iter().any(|caution| caution.contains("`put` and `take` apart")), "{:?}", found.cautions);
}

#[test]
fn what_was_counted_only_counts() {
    let sections = [(1, 9, 1, [0, 0, 100]), (2, 9, 1, [50, 100, 150])];
    let records = records(&[section(0, 1, "1", "1", &[], &["x"])]);
    let timing = timing(&sections);
    let mut names = TraceNames::default();
    names.locks.insert(lock(9), vec!["L".to_owned()]);
    names.sites.insert(site(1), vec!["1".to_owned()]);
    names.threads = vec![vec!["1".to_owned()], vec!["2".to_owned()]];
    let counted =
        [(Section { lock: lock(9), site: site(1) }, Counted { acquisitions: 10, hold: 600 })].into_iter().collect();
    let traced = Traced::new(&records, &timing, &names, &counted, 1);
    let time = traced.sections.values().next().unwrap();
    assert_eq!((time.w_c(), time.hold_ns, time.wait_ns), (Some(0.1), 600.0, 50.0));
}

/// w_c and waits as they are defined, each acquisition beside each hold.
fn met_by_definition(sections: &[One], of: &One) -> u64 {
    let &(tid, at_lock, _, [asked, got, _]) = of;
    let meets = |&&(other, other_lock, _, [_, from, to]): &&One| {
        other != tid && other_lock == at_lock && from < got && to > asked && got > asked
    };
    sections.iter().filter(meets).count() as u64
}

proptest! {
    #[test]
    fn holds_met_are_those_that_overlap(
        requests in prop::collection::vec((0_u32..5, 0_u64..2, 0_u64..20, 0_u64..12), 1..60),
    ) {
        // Each lock is first come, first served; a thread does one thing at a time.
        let mut free = [0_u64; 2];
        let mut ready = [0_u64; 5];
        let mut sections: Vec<One> = Vec::new();
        let mut now = 0;
        for (tid, at_lock, think, hold) in requests {
            let asked = ready[tid as usize].max(now) + think % 7;
            now = asked;
            let got = asked.max(free[at_lock as usize]);
            // Holds that take no time would have no order beside others at the same time.
            let end = got + hold + 1;
            (free[at_lock as usize], ready[tid as usize]) = (end, end + 1);
            sections.push((tid, at_lock, u64::from(tid) + 10, [asked, got, end]));
        }
        let timing = timing(&sections);
        let sum: u64 = timing.spent.values().map(|spent| spent.met).sum();
        let defined: u64 = sections.iter().map(|one| met_by_definition(&sections, one)).sum();
        prop_assert_eq!(sum, defined);
        let waited: u64 = timing.spent.values().map(|spent| spent.wait).sum();
        prop_assert_eq!(waited, sections.iter().map(|(.., [a, b, _])| b - a).sum::<u64>());
        let held: u64 = timing.spent.values().map(|spent| spent.hold).sum();
        prop_assert_eq!(held, sections.iter().map(|(.., [_, b, c])| c - b).sum::<u64>());
    }
}
