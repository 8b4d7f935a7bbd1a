//! Scripts of recordings, models made of them, and replays.

use super::super::profile;
use super::super::replay::{Ask, Change, Fate, HandOff, How, play};
use super::super::schema::Input;
use super::super::script::{Builder, Script, What};
use super::super::what_if::{Oracle, Question};
use crate::id::{Lock, Process, Site, Tid};
use crate::op::{Action, Arrival, Attempt, LockKind, Op, Released, Round};
use crate::units::{Nanos, Time};

pub(super) const PROCESS: Process = Process(1);

pub(super) fn lock(addr: u64) -> Lock {
    Lock { process: PROCESS, addr }
}

/// Steps in any order, put in order of time.
#[derive(Default)]
pub(super) struct Trace(Vec<Op>);

impl Trace {
    fn push(&mut self, time: u64, tid: u32, action: Action) {
        self.0.push(Op { time: Time(time), tid: Tid(tid), process: PROCESS, action });
    }

    /// Asks at `a`, gets at `b`, gives back at `c`.
    pub(super) fn section(&mut self, tid: u32, addr: u64, [a, b, c]: [u64; 3]) {
        let (lock, site) = (lock(addr), Site { process: PROCESS, addr: addr * 10 });
        let (kind, shared, owner, stack, contended) = (LockKind::Mutex, false, None, None, None);
        self.push(a, tid, Action::Attempt(Attempt { lock, site, shared, kind, owner, stack, contended }));
        self.push(b, tid, Action::Acquire { lock, waker: None });
        self.push(c, tid, Action::Release { lock, how: Released::Unlock });
    }

    pub(super) fn script(mut self) -> Script {
        self.0.sort_by_key(|op| op.time);
        let mut builder = Builder::default();
        self.0.iter().for_each(|op| builder.op(op).unwrap());
        builder.finish(1)
    }
}

fn play_as(script: &Script, change: &Change) -> super::super::replay::Played {
    let [a, b] =
        [HandOff::Fair, HandOff::Barging].map(|hand_off| play(script, change, How { hand_off, seed: 1, light: None }));
    assert_eq!((a.stuck, b.stuck), (0, 0));
    a
}

/// Two threads at one lock; the second waits for the first.
fn two() -> Script {
    let mut trace = Trace::default();
    trace.section(1, 5, [0, 0, 100]);
    trace.section(2, 5, [10, 100, 130]);
    trace.section(1, 5, [150, 150, 250]);
    trace.section(2, 5, [190, 250, 280]);
    trace.script()
}

#[test]
fn waits_are_told_from_own_time() {
    let script = two();
    let after = |thread: usize| script.threads[thread].steps.iter().map(|step| step.after).collect::<Vec<_>>();
    assert_eq!(after(0), [0, 100, 50, 100, 0]);
    assert_eq!(after(1), [0, 30, 60, 30, 0]);
    assert_eq!((script.duration, script.threads[1].begin), (280, 10));
    let seen = script.seen[0];
    assert_eq!((seen.acquisitions, seen.contended, seen.wait, seen.hand_off, seen.met), (4, 2, 150, 0, 2));
    assert_eq!(script.own_time().0, 250 + 120);
}

#[test]
fn a_replay_without_a_change_is_the_recording() {
    let script = two();
    let played = play_as(&script, &Change::default());
    assert_eq!((played.duration, played.waits[0], played.own), (280, (2, 150), 370));
}

#[test]
fn changes_move_waits() {
    let script = two();
    let locks = |fate| Change { locks: vec![fate], ..Change::default() };
    let removed = play_as(&script, &locks(Fate::Removed));
    assert_eq!((removed.duration, removed.waits[0]), (250, (0, 0)));
    let readers = play_as(&script, &locks(Fate::Rwlock(1.0)));
    assert_eq!(readers.duration, 250);
    let writers = play_as(&script, &locks(Fate::Rwlock(0.0)));
    assert_eq!((writers.duration, writers.waits[0]), (280, (2, 150)));
    assert_eq!(play_as(&script, &locks(Fate::Split(1))).duration, 280);
    let shorter = play_as(&script, &Change { shorten: vec![0.5], ..Change::default() });
    // 0–50, 100–150; the other: 50–65, and from 125 on it waits until 150.
    assert_eq!((shorter.duration, shorter.waits[0]), (165, (2, 40 + 25)));
    // The same with the rest outside: 0–50, and from 150 on it waits until 155; the other: 50–65, 140–155.
    let narrow = play_as(&script, &Change { shorten: vec![0.5], moved: true, ..Change::default() });
    assert_eq!((narrow.duration, narrow.waits[0], narrow.own), (255, (2, 40 + 5), 370));
}

#[test]
fn sections_ask_for_what_their_site_says() {
    // Two threads at one lock, each at a site of its own: sections of 100 and 30 as in `two`.
    let mut script = two();
    script.sites.push(Site { process: PROCESS, addr: 51 });
    for step in &mut script.threads[1].steps {
        if let What::Ask { site, .. } = &mut step.what {
            *site = 1;
        }
    }
    let played = |parts, sites: [Ask; 2]| {
        let change = Change { locks: vec![Fate::BySite(parts)], sites: sites.to_vec(), ..Change::default() };
        let played = play_as(&script, &change);
        (played.duration, played.waits[0])
    };
    assert_eq!(played(1, [Ask::Part(0), Ask::Part(0)]), (280, (2, 150)));
    assert_eq!(played(2, [Ask::Part(0), Ask::Part(1)]), (250, (0, 0)));
    assert_eq!(played(1, [Ask::Part(0), Ask::Nothing]), (250, (0, 0)));
    assert_eq!(played(1, [Ask::Reading, Ask::Reading]), (250, (0, 0)));
    assert_eq!(played(1, [Ask::Reading, Ask::Part(0)]), (280, (2, 150)));
}

#[test]
fn hand_offs_take_as_long_as_they_did() {
    let mut trace = Trace::default();
    trace.section(1, 5, [0, 0, 100]);
    trace.section(2, 5, [10, 120, 130]);
    let script = trace.script();
    for hand_off in [HandOff::Fair, HandOff::Barging] {
        let played = play(&script, &Change::default(), How { hand_off, seed: 0, light: None });
        assert_eq!((played.duration, played.waits[0]), (130, (1, 110)), "{hand_off:?}");
    }
}

#[test]
fn who_barges_in_is_let_in() {
    let mut trace = Trace::default();
    trace.section(1, 5, [0, 0, 100]);
    // Takes 20 to wake up; meanwhile the first thread has taken the lock again.
    trace.section(1, 5, [110, 110, 140]);
    trace.section(2, 5, [10, 160, 170]);
    let script = trace.script();
    let [barging, fair] = [HandOff::Barging, HandOff::Fair]
        .map(|hand_off| play(&script, &Change::default(), How { hand_off, seed: 0, light: None }).duration);
    // Kept for the second thread, it is given back at 130, and the first one wakes 20 later.
    assert_eq!((barging, fair), (170, 180));
}

#[test]
fn barriers_conditions_and_joins_bind_threads() {
    let mut trace = Trace::default();
    let arrival = |barrier: u64| {
        let site = Site { process: PROCESS, addr: 1 };
        Action::Barrier(Arrival { barrier: lock(barrier), participants: 2, round: Round::Unknown, site, post: site })
    };
    trace.section(1, 5, [0, 0, 100]);
    trace.push(110, 1, arrival(8));
    trace.push(0, 2, Action::On);
    trace.push(20, 2, arrival(8));
    trace.section(2, 6, [130, 130, 140]);
    let script = trace.script();
    let shorter = |factor| Change { shorten: vec![factor, 1.0], ..Change::default() };
    assert_eq!(play_as(&script, &shorter(1.0)).duration, 140);
    assert_eq!(play_as(&script, &shorter(0.5)).duration, 90);

    // A thread waits for a condition, which another one signals under the mutex.
    let mut trace = Trace::default();
    trace.section(1, 5, [0, 0, 10]);
    let site = Site { process: PROCESS, addr: 1 };
    trace.push(10, 1, Action::CondWait { condition: lock(9), site });
    trace.section(2, 7, [0, 0, 200]);
    trace.section(2, 5, [200, 200, 210]);
    trace.push(213, 1, Action::CondWake { condition: lock(9) });
    trace.section(1, 5, [213, 213, 220]);
    let script = trace.script();
    assert_eq!((script.explained.count, script.unexplained.count), (1, 0));
    assert_eq!(play_as(&script, &Change::default()).duration, 220);
    let long = script.sites.iter().position(|site| site.addr == 70).unwrap();
    let mut change = Change { shorten: vec![1.0; script.sites.len()], ..Change::default() };
    change.shorten[long] = 0.1;
    assert_eq!(play_as(&script, &change).duration, 40);

    // The first thread joins the second.
    let mut trace = Trace::default();
    trace.section(1, 5, [0, 0, 10]);
    trace.section(2, 6, [20, 20, 1_000]);
    trace.push(1_010, 2, Action::Exit { ends: false });
    trace.section(1, 5, [1_012, 1_012, 1_020]);
    let script = trace.script();
    assert_eq!(script.joins.count, 1);
    assert_eq!(play_as(&script, &Change::default()).duration, 1_020);
    let mut change = Change { shorten: vec![1.0; 2], ..Change::default() };
    change.shorten[script.sites.iter().position(|site| site.addr == 60).unwrap()] = 0.5;
    assert_eq!(play_as(&script, &change).duration, 530);
}

/// The first thread waits for the second one's end and ends the program; a third one goes on for ever.
#[test]
fn a_program_ends_with_the_thread_that_ends_it() {
    for exits_late in [false, true] {
        let mut trace = Trace::default();
        for round in 0..10 {
            let at = round * 100;
            // The third holds the lock for 80 of each 100, the second for the rest.
            trace.section(3, 5, [at, at, at + 80]);
            trace.section(2, 5, [at, at + 80, at + 99]);
        }
        trace.push(if exits_late { 1_004 } else { 1_000 }, 2, Action::Exit { ends: false });
        trace.push(1_002, 1, Action::Join { thread: Tid(2), wait: Nanos(1_001) });
        trace.push(1_010, 1, Action::Exit { ends: true });
        // Killed by that.
        trace.push(1_015, 3, Action::Exit { ends: false });
        let script = trace.script();
        assert_eq!((script.duration, script.ends.is_some(), script.joins.count), (1_010, true, 1), "{exits_late}");
        let as_it_was = play_as(&script, &Change::default()).duration;
        assert!(as_it_was.abs_diff(1_010) < 20, "{as_it_was}");
        let removed = play_as(&script, &Change { locks: vec![Fate::Removed], ..Change::default() }).duration;
        assert!(removed < 250, "{removed}");
    }
    // A wait for a number that is no thread's explains nothing.
    let mut trace = Trace::default();
    trace.section(1, 5, [0, 0, 10]);
    trace.push(50, 1, Action::Join { thread: Tid(77), wait: Nanos(30) });
    assert_eq!(trace.script().joins.count, 0);
}

/// Threads that go around two locks: 100 in the first, 300 in the second, 600 outside, staggered so that none waits.
fn rounds(threads: u32, rounds: u64) -> Script {
    let mut trace = Trace::default();
    for tid in 0..threads {
        for round in 0..rounds {
            let at = round * 1_000 + u64::from(tid) * 400;
            trace.section(tid, 1, [at, at, at + 100]);
            trace.section(tid, 2, [at + 100, at + 100, at + 400]);
        }
    }
    trace.script()
}

fn names() -> Vec<String> {
    ["a", "b"].map(str::to_owned).to_vec()
}

fn model_of(script: &Script) -> Input {
    profile::model(script, None, |lock| names()[lock].clone(), |_| true).unwrap()
}

#[test]
fn a_model_of_a_recording() {
    let input = model_of(&rounds(2, 50));
    assert_eq!(input.threads, [2]);
    assert_eq!(input.locks.iter().map(|l| l.hold_ns.unwrap()).collect::<Vec<_>>(), [100.0, 300.0]);
    assert_eq!(input.routing, [[0.0, 1.0], [1.0, 0.0]]);
    assert_eq!(input.local_ns, [[0.0, 0.0], [600.0, 0.0]]);
    assert!(input.classes.is_empty());
    let said = input.violations.join("\n");
    assert!(said.contains("coefficient of variation is not 1 but, of `a` 0.00, `b` 0.00."), "{said}");
    let point = super::super::predict::predict(&Input { threads: vec![1], ..input }).unwrap().points.remove(0);
    assert!((point.throughput_per_ns - 2.0 / 1_000.0).abs() < 1e-12);
}

#[test]
fn patterns_become_classes() {
    let mut trace = Trace::default();
    for round in 0..100 {
        let at = round * 1_000;
        trace.section(1, 1, [at, at, at + 100]);
        trace.section(2, 2, [at, at, at + 300]);
        trace.section(3, 2, [at + 400, at + 400, at + 700]);
    }
    let input = model_of(&trace.script());
    assert_eq!(input.threads, [3]);
    let mut shares: Vec<f64> = input.classes.iter().map(|class| class.share).collect();
    shares.sort_by(f64::total_cmp);
    assert_eq!(shares, [1.0, 2.0]);
    assert!(super::super::predict::predict(&input).is_ok());
}

#[test]
fn nesting_and_changes_over_time_are_said() {
    let mut trace = Trace::default();
    for round in 0..200 {
        // Three times as often in the second half.
        let at = if round < 50 { round * 3_000 } else { 150_000 + (round - 50) * 1_000 };
        trace.section(1, 1, [at, at, at + 500]);
        trace.section(1, 2, [at + 100, at + 100, at + 200]);
    }
    let script = trace.script();
    let input = model_of(&script);
    assert_eq!(input.locks.len(), 1, "the inner lock is part of the outer one's section");
    let said = input.violations.join("\n");
    assert!(said.contains("not steady") && said.contains("50 % of acquisitions"), "{said}");
    assert!(profile::model(&script, None, |_| String::new(), |_| false).is_err());
    assert!(profile::model(&Trace::default().script(), None, |_| String::new(), |_| true).is_err());
}

#[test]
fn questions_are_answered_with_intervals() {
    let mut trace = Trace::default();
    // Two threads take turns in a section of 100 with nothing else to do.
    for turn in 0..200_u64 {
        let tid = (turn % 2) as u32;
        trace.section(tid, 1, [(turn * 100).saturating_sub(100), turn * 100, turn * 100 + 100]);
    }
    let script = trace.script();
    let (names, sites) = (vec!["m".to_owned()], vec!["f".to_owned()]);
    let oracle = Oracle::new(&script, &names, &sites, 8);
    let near = |a: f64, b: f64| assert!((a - b).abs() < 0.02, "{a} for {b}");
    let shorter = oracle.ask(&Question::Shorten(vec![0], 0.5)).unwrap();
    near(shorter.gain, 0.5);
    let removed = oracle.ask(&Question::Remove(vec![0])).unwrap();
    near(removed.gain, 0.5);
    assert_eq!((removed.bottleneck, removed.wait_ns), (None, 0.0));
    let split = oracle.ask(&Question::Split(vec![0], 2)).unwrap();
    assert!(split.gain > 0.1 && split.gain < 0.5, "{split:?}");
    let [low, high] = split.gain_interval;
    assert!(low <= split.gain && split.gain <= high);
    assert_eq!(split.bottleneck.as_deref(), Some("m"));
    let more = oracle.ask(&Question::Threads(4)).unwrap();
    near(more.gain, 0.0);
    let one = oracle.ask(&Question::Threads(1)).unwrap();
    near(one.gain, 0.0);
    assert_eq!(oracle.candidates().len(), 3);
    let crowded = Oracle::new(&script, &names, &sites, 1).ask(&Question::Remove(vec![0])).unwrap();
    assert!(crowded.gain_interval[0] < 0.05 && !crowded.violations.is_empty(), "{crowded:?}");
}

#[test]
fn what_was_cut_off_is_counted() {
    let mut trace = Trace::default();
    trace.push(0, 1, Action::Release { lock: lock(1), how: Released::Unlock });
    trace.push(5, 2, Action::Acquire { lock: lock(2), waker: None });
    trace.section(1, 1, [10, 10, 20]);
    trace.push(30, 1, Action::Fail { lock: lock(3), how: crate::op::Failure::TryFailed });
    let script = trace.script();
    assert_eq!((script.cut, script.acquisitions()), (2, 1));
    assert!(script.threads.iter().all(|thread| thread.steps.last().is_some_and(|step| step.what == What::End)));
}

#[test]
fn who_hardly_locks_is_left_out() {
    let mut trace = Trace::default();
    for round in 0..100 {
        trace.section(1, 1, [round * 1_000, round * 1_000, round * 1_000 + 100]);
    }
    trace.section(2, 2, [0, 0, 50]);
    trace.section(2, 1, [200, 200, 250]);
    let input = model_of(&trace.script());
    assert_eq!((input.threads, input.locks.len(), input.classes.len()), (vec![1], 1, 0));
    assert!(input.violations[0].starts_with("Left out: 1 thread with"), "{:?}", input.violations);
}

#[test]
fn work_is_divided_unless_threads_meet() {
    let site = Site { process: PROCESS, addr: 1 };
    let script = |barrier_at: u64| {
        let mut trace = Trace::default();
        for tid in [1, 2] {
            let arrival = Arrival { barrier: lock(8), participants: 2, round: Round::Unknown, site, post: site };
            trace.push(barrier_at, tid, Action::Barrier(arrival));
            for round in 0..10 {
                let at = 100 + round * 100 + u64::from(tid) * 10;
                trace.section(tid, u64::from(tid), [at, at, at + 60]);
            }
        }
        trace.script()
    };
    let (names, sites) = (vec![String::new(); 3], vec![String::new(); 3]);
    let ask = |script: &Script, threads| {
        Oracle::new(script, &names, &sites, 8).ask(&Question::Threads(threads)).map(|answer| answer.gain)
    };
    let early = script(50);
    // Of four threads, two want each lock, which is held for 600 of 1,000.
    let [four, one] = [4, 1].map(|threads| ask(&early, threads).unwrap());
    assert!((0.2..0.45).contains(&four) && (-1.0..-0.7).contains(&one), "{four} {one}");
    assert!(ask(&script(555), 4).is_err());
}

#[test]
fn a_lock_taken_again_by_its_holder_is_one_section() {
    let ask = |contended| {
        let (site, kind) = (Site { process: PROCESS, addr: 50 }, LockKind::Mutex);
        let (lock, shared, owner, stack) = (lock(5), false, None, None);
        Action::Attempt(Attempt { lock, site, shared, kind, owner, stack, contended })
    };
    let (got, back) =
        (Action::Acquire { lock: lock(5), waker: None }, Action::Release { lock: lock(5), how: Released::Unlock });
    let mut trace = Trace::default();
    for (time, action) in [(0, ask(None)), (1, got), (10, ask(None)), (11, got), (20, back), (40, back)] {
        trace.push(time, 1, action);
    }
    let script = trace.script();
    assert_eq!((script.acquisitions(), script.cut, script.threads[0].steps.len()), (1, 0, 3));
    assert_eq!(play_as(&script, &Change::default()).duration, 40);
    // Live, a release is missing.
    let mut trace = Trace::default();
    for (time, action) in [(0, ask(Some(false))), (1, got), (10, ask(Some(false))), (11, got), (20, back)] {
        trace.push(time, 1, action);
    }
    let script = trace.script();
    assert_eq!((script.acquisitions(), script.cut), (2, 1));
    assert_eq!(play_as(&script, &Change::default()).duration, 20);
}

#[test]
fn a_change_that_would_be_a_deadlock_is_refused() {
    let mut trace = Trace::default();
    // a then b, and b then a, one after the other. With a shorter section before that they meet.
    trace.section(1, 3, [0, 0, 5]);
    trace.section(1, 1, [10, 10, 40]);
    trace.section(1, 2, [20, 20, 30]);
    trace.section(2, 9, [0, 0, 100]);
    trace.section(2, 2, [110, 110, 140]);
    trace.section(2, 1, [120, 120, 130]);
    let script = trace.script();
    let names = vec![String::new(); script.locks.len()];
    let sites: Vec<String> = script.sites.iter().map(|site| site.addr.to_string()).collect();
    let oracle = Oracle::new(&script, &names, &sites, 8);
    let long = sites.iter().position(|site| site == "90").unwrap();
    let shorter = |by| oracle.ask(&Question::Shorten(vec![long], by));
    assert!(shorter(0.5).is_ok());
    assert!(shorter(0.99).unwrap_err().to_string().contains("2 threads would wait for one another"));
}
