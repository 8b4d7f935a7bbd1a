//! Models from sums of transitions: the same as from every section.

use super::super::predict::predict;
use super::super::profile::{self, ProfileError};
use super::super::schema::Input;
use super::super::summed::{self, Sums};
use super::scripts::{PROCESS, Trace, lock};
use crate::id::{Site, Tid};
use crate::sums::KernelSums;
use crate::transitions::Transition;
use crate::units::{Nanos, Time};
use lockbpf_common::kind::Via;
use std::collections::BTreeMap;

/// Visits: thread, lock, attempt and release. Nobody waits.
#[derive(Default)]
struct Visits(Vec<(u32, u64, [u64; 2])>);

impl Visits {
    /// Each thread goes on with its visits, so many times: the time before each, the lock, and how long it stays.
    fn rounds(&mut self, tid: u32, rounds: u64, visits: impl Fn(u64) -> Vec<(u64, u64, u64)>) {
        let mut now = 0;
        for round in 0..rounds {
            for (before, lock, hold) in visits(round) {
                self.0.push((tid, lock, [now + before, now + before + hold]));
                now += before + hold;
            }
        }
    }

    fn by_events(&self, wanted: impl Fn(&str) -> bool) -> Result<Input, ProfileError> {
        let mut trace = Trace::default();
        for &(tid, lock, [a, b]) in &self.0 {
            trace.section(tid, lock, [a, a, b]);
        }
        let script = trace.script();
        profile::model(&script, None, |i| script.locks[i].addr.to_string(), wanted)
    }

    /// As the kernel side sums them up.
    fn transitions(&self) -> Vec<Transition> {
        let mut last = BTreeMap::new();
        let mut sums = BTreeMap::<_, Transition>::new();
        for &(tid, to, [a, b]) in &self.0 {
            let before = last.insert(tid, (to, b));
            let (from, local) = before.map_or((None, 0), |(from, end)| (Some(from), a - end));
            let sum = sums.entry((tid, from, to)).or_insert_with(|| transition(tid, from, Some(to), a));
            sum.count += 1;
            sum.local += Nanos(local);
            sum.visits += 1;
            sum.hold += Nanos(b - a);
            sum.squares += u128::from((b - a) * (b - a));
        }
        sums.into_values().collect()
    }

    fn by_sums(&self, wanted: impl Fn(&str) -> bool) -> Result<Input, ProfileError> {
        of(&self.transitions(), &[], wanted)
    }
}

pub(super) fn transition(tid: u32, from: Option<u64>, to: Option<u64>, first: u64) -> Transition {
    Transition {
        process: PROCESS,
        tid: Tid(tid),
        from: from.map(lock),
        to: to.map(lock),
        first: Time(first),
        count: 0,
        local: Nanos(0),
        visits: 0,
        hold: Nanos(0),
        cut: Nanos(0),
        squares: 0,
    }
}

fn of(transitions: &[Transition], pace: &[(Time, u64)], wanted: impl Fn(&str) -> bool) -> Result<Input, ProfileError> {
    let sums = Sums {
        transitions,
        sums: &[],
        period: (Time(0), Time(1_000_000)),
        pace,
        windows: true,
        estimates: None,
        shadow: None,
    };
    summed::model(&sums, |lock| lock.addr.to_string(), wanted)
}

fn all(_: &str) -> bool {
    true
}

#[track_caller]
fn assert_near(a: &[f64], b: &[f64]) {
    let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9 * a.abs().max(1.0);
    assert!(a.len() == b.len() && a.iter().zip(b).all(near), "{a:?} is not {b:?}");
}

#[track_caller]
fn assert_same(a: &Input, b: &Input) {
    assert_eq!(a.threads, b.threads);
    for (a, b) in a.locks.iter().zip(&b.locks) {
        assert_eq!(a.name, b.name);
        assert_near(&[a.hold_ns.unwrap()], &[b.hold_ns.unwrap()]);
        assert_near(&[a.hold_cv.unwrap_or(-1.0)], &[b.hold_cv.unwrap_or(-1.0)]);
    }
    let rows = |model: &Input| {
        let own = model.routing.iter().chain(&model.local_ns).cloned();
        let classes = model.classes.iter();
        let classes =
            classes.flat_map(|class| class.routing.iter().chain(&class.local_ns).chain([&class.hold_ns]).cloned());
        own.chain(classes).collect::<Vec<_>>()
    };
    let shares = |model: &Input| model.classes.iter().map(|class| class.share).collect::<Vec<_>>();
    assert_near(&shares(a), &shares(b));
    let (a, b) = (rows(a), rows(b));
    assert_eq!(a.len(), b.len());
    a.iter().zip(&b).for_each(|(a, b)| assert_near(a, b));
}

#[test]
fn sums_tell_the_same_as_events() {
    let mut visits = Visits::default();
    for tid in [1, 2] {
        visits.rounds(tid, 200, |round| {
            let other = if (round * 7 + u64::from(tid)) % 10 < 3 { 6 } else { 7 };
            vec![(100 + round % 13, 5, 40 + round % 31), (30, other, 200 + round * 3 % 57)]
        });
    }
    visits.rounds(3, 150, |round| vec![(500 + round % 7, 7, 90), (10 + round % 3, 7, 20)]);
    // Hardly locks anything.
    visits.rounds(4, 3, |_| vec![(1_000, 8, 10)]);
    let (events, sums) = (visits.by_events(all).unwrap(), visits.by_sums(all).unwrap());
    assert_same(&events, &sums);
    assert_eq!((sums.threads.as_slice(), sums.classes.len()), ([3].as_slice(), 2));
    assert!(sums.violations.iter().any(|said| said.contains("Left out: 1 thread")), "{:?}", sums.violations);
    assert!(predict(&sums).is_ok());
}

/// Events come in the order of time, sums in that of the threads' numbers.
#[test]
fn the_order_of_threads_does_not_matter() {
    let mut visits = Visits::default();
    visits.rounds(1, 1, |_| vec![(90, 5, 10), (10, 6, 10), (10, 7, 10), (10, 8, 10)]);
    visits.rounds(2, 1, |_| vec![(60, 6, 10), (10, 8, 10), (10, 5, 10)]);
    visits.rounds(3, 1, |_| vec![(30, 7, 10), (10, 5, 10), (10, 8, 10), (10, 6, 10)]);
    assert_same(&visits.by_events(all).unwrap(), &visits.by_sums(all).unwrap());
}

#[test]
fn what_is_done_with_other_locks_is_time_in_between() {
    let mut visits = Visits::default();
    visits.rounds(1, 100, |round| vec![(100, 5, 40), (30, 6, 200 + round % 5), (50, 7, 10)]);
    let wanted = |name: &str| name != "6";
    let (events, sums) = (visits.by_events(wanted).unwrap(), visits.by_sums(wanted).unwrap());
    assert_same(&events, &sums);
    assert_near(&sums.local_ns[0], &[0.0, 30.0 + 202.0 + 50.0]);
    // A lock that is come back to until the thread goes on.
    let mut visits = Visits::default();
    visits.rounds(1, 60, |round| {
        let again = std::iter::repeat_n((20, 6, 30), (round % 3) as usize);
        [(100, 5, 40)].into_iter().chain(again).chain([(50, 7, 10)]).collect()
    });
    assert_same(&visits.by_events(wanted).unwrap(), &visits.by_sums(wanted).unwrap());
    assert_eq!(visits.by_sums(|name| name == "9"), Err(ProfileError::Empty));
    assert_eq!(of(&[], &[], all), Err(ProfileError::Empty));
}

#[test]
fn of_too_many_locks_those_that_matter_are_kept() {
    let mut visits = Visits::default();
    visits.rounds(1, 2, |round| {
        let many = (0..1_500).map(|lock| (100, 100 + lock, 10 + round));
        many.flat_map(|visit| [visit, (5, 7, 40)]).collect()
    });
    let transitions = visits.transitions();
    let mut waited = KernelSums {
        lock: lock(7),
        site: Site { process: PROCESS, addr: 1 },
        via: Via::Lock,
        sums: lockbpf_common::sums::Sums::EMPTY,
    };
    (waited.sums.acquisitions, waited.sums.contended, waited.sums.wait_ns) = (3_000, 10, 500);
    let sums = Sums {
        transitions: &transitions,
        sums: &[waited],
        period: (Time(0), Time(1)),
        pace: &[],
        windows: false,
        estimates: None,
        shadow: None,
    };
    let model = summed::model(&sums, |lock| lock.addr.to_string(), all).unwrap();
    assert_eq!(model.locks.len(), 256);
    let of = model.locks.iter().position(|lock| lock.name == "7").expect("the lock that is waited for");
    assert!(model.violations.iter().any(|said| said.contains("Of 1,501 locks the 256")), "{:?}", model.violations);
    // Mostly from itself to itself, by way of one of the others.
    assert!((model.routing[of][of] - 1_245.0 / 1_500.0).abs() < 0.01, "{}", model.routing[of][of]);
    assert!((model.local_ns[of][of] - 115.5).abs() < 0.1, "{}", model.local_ns[of][of]);
    assert!(predict(&model).is_ok());
}

#[test]
fn what_windows_cut_is_made_up_for() {
    let seen = |from, to, [count, local, visits, hold, cut]: [u64; 5]| Transition {
        count,
        local: Nanos(local),
        visits,
        hold: Nanos(hold),
        cut: Nanos(cut),
        ..transition(1, from, to, 10)
    };
    // Two windows: in each the thread was seen from the middle of something to the middle of something else.
    let transitions = [
        seen(None, Some(5), [1, 0, 1, 40, 0]),
        seen(None, Some(6), [1, 0, 1, 100, 0]),
        seen(Some(5), Some(6), [9, 900, 8, 800, 45]),
        seen(Some(6), Some(5), [8, 1_600, 8, 320, 0]),
        seen(Some(6), None, [1, 800, 0, 0, 0]),
    ];
    let model = of(&transitions, &[], all).unwrap();
    assert_eq!(model.routing, [[0.0, 1.0], [1.0, 0.0]]);
    // 2,400 of which 8 ends were seen; 945 of which 9 were.
    assert_near(&model.local_ns[1], &[300.0, 0.0]);
    assert_near(&model.local_ns[0], &[0.0, 100.0]);
    assert_near(&[model.locks[1].hold_ns.unwrap()], &[105.0]);
    let said = model.violations.join("\n");
    assert!(said.contains("in windows") && said.contains("5.0 % were cut"), "{said}");
    // Windows that have nothing in common: nobody knows how the thread came from one to the other, but it did.
    let transitions = [
        seen(None, Some(5), [1, 0, 1, 40, 0]),
        seen(Some(5), Some(5), [8, 800, 8, 320, 0]),
        seen(None, Some(6), [1, 0, 1, 100, 0]),
        seen(Some(6), Some(6), [8, 800, 8, 800, 0]),
    ];
    let model = of(&transitions, &[], all).unwrap();
    assert!(predict(&model).is_ok());
}

#[test]
fn halves_are_compared_by_the_recorders_snapshots() {
    let mut visits = Visits::default();
    visits.rounds(1, 200, |_| vec![(100, 5, 40)]);
    let transitions = visits.transitions();
    let said = |pace: &[u64]| {
        let pace: Vec<_> = (0..).map(|i| Time(i * 200_000)).zip(pace.iter().copied()).collect();
        of(&transitions, &pace, all).unwrap().violations.join("\n")
    };
    assert!(!said(&[0, 200, 400, 600, 800, 1_000]).contains("steady"));
    assert!(said(&[0, 50, 100, 400, 700, 1_000]).contains("not steady: its halves differ by 67 %"));
    // Too few to tell.
    assert!(!said(&[0, 500, 10_000]).contains("steady"));
}
