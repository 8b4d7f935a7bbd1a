use super::*;
use crate::graph::WaitGraph;
use crate::op::{Action, Arrival, Attempt, Op, Round};
use crate::units::Nanos;

fn lock(addr: u64) -> Lock {
    Lock { process: Process(0), addr }
}

fn site(addr: u64) -> Site {
    Site { process: Process(0), addr }
}

/// Writes down what it is told.
#[derive(Default)]
struct Notes(Vec<String>);

fn name(i: &Instance) -> String {
    let mark = if i.contended { "!" } else { "" };
    format!("d{}{mark} T{} L{}", i.number, i.tid.0, i.lock.addr)
}

impl Observer for Notes {
    fn acquired(&mut self, i: &Instance) {
        self.0.push(format!("{} acquired {}", name(i), i.acquire.unwrap().0));
    }
    fn released(&mut self, i: &Instance, at: Time, how: Released) {
        self.0.push(format!("{} {how:?} {}", name(i), at.0));
    }
    fn failed(&mut self, i: &Instance, at: Time, how: Failure) {
        self.0.push(format!("{} {how:?} {}", name(i), at.0));
    }
    fn passed(&mut self, region: &Instance, successor: &Instance) {
        let wait = successor.acquire.unwrap().since(successor.attempt.unwrap());
        self.0.push(format!("{} passed as {} after {}", name(region), name(successor), wait.0));
    }
    fn open(&mut self, i: &Instance, end: Time) {
        self.0.push(format!("{} open {}", name(i), end.0));
    }
}

fn ask(addr: u64, kind: LockKind, shared: bool) -> Action {
    let (owner, stack, contended) = (None, None, None);
    Action::Attempt(Attempt { lock: lock(addr), site: site(1), shared, kind, owner, stack, contended })
}

fn attempt(addr: u64) -> Action {
    ask(addr, LockKind::Mutex, false)
}

fn acquire(addr: u64) -> Action {
    Action::Acquire { lock: lock(addr), waker: None }
}

fn release(addr: u64) -> Action {
    Action::Release { lock: lock(addr), how: Released::Unlock }
}

fn fail(addr: u64, how: Failure) -> Action {
    Action::Fail { lock: lock(addr), how }
}

fn run(steps: &[(u64, u32, Action)]) -> (Notes, WaitGraph) {
    let (mut notes, mut graph) = (Notes::default(), WaitGraph::default());
    for &(time, tid, action) in steps {
        graph.op(&Op { time: Time(time), tid: Tid(tid), process: Process(0), action }, &mut notes);
    }
    (notes, graph)
}

#[test]
fn sections_are_told_once_each() {
    let (mut notes, graph) = run(&[
        (0, 1, attempt(1)),
        (0, 1, acquire(1)),
        (1, 1, attempt(1)),
        (1, 1, acquire(1)),
        (2, 2, attempt(1)),
        (3, 1, release(1)),
        (4, 3, attempt(1)),
        (4, 3, fail(1, Failure::TryFailed)),
        (5, 1, release(1)),
        (6, 2, acquire(1)),
        (7, 3, attempt(1)),
    ]);
    graph.finish(Time(9), &mut notes);
    let expected = [
        "d1 T1 L1 acquired 0",
        "d3! T3 L1 TryFailed 4",
        "d1 T1 L1 Unlock 5",
        "d2! T2 L1 acquired 6",
        "d4! T3 L1 open 9",
        "d2! T2 L1 open 9",
    ];
    assert_eq!(notes.0, expected);
}

/// The source itself says that functions of the program wait for lock 9.
#[test]
fn who_waits_by_functions_of_the_program_takes_other_locks_meanwhile() {
    let Action::Attempt(plain) = ask(9, LockKind::Other, false) else { unreachable!() };
    let waits = Action::Attempt(Attempt { contended: Some(true), ..plain });
    let (mut notes, graph) = run(&[
        (0, 1, attempt(1)),
        (0, 1, acquire(1)),
        (0, 4, attempt(9)),
        (0, 4, acquire(9)),
        (5, 2, attempt(5)),
        (5, 2, acquire(5)),
        (6, 3, attempt(5)),
        (10, 2, waits),
        (40, 2, attempt(1)),
        (60, 1, release(1)),
        (60, 2, acquire(1)),
        (65, 2, attempt(2)),
        (65, 2, acquire(2)),
        (66, 2, release(2)),
        (70, 2, release(1)),
        (80, 2, attempt(5)),
        (80, 2, acquire(5)),
        (85, 2, release(5)),
        (100, 4, release(9)),
        (100, 2, acquire(9)),
        (100, 2, release(9)),
        (105, 2, release(5)),
        (105, 3, acquire(5)),
        (106, 3, release(5)),
        // Without an end.
        (110, 2, waits),
        (111, 2, waits),
        (112, 2, waits),
    ]);
    let impossible = graph.state().impossible().clone();
    assert_eq!(impossible.into_iter().collect::<Vec<_>>(), [("attempt_while_waiting", 2)]);
    let f = graph.finish(Time(120), &mut notes);
    let waited: std::collections::BTreeMap<_, _> =
        f.locks.iter().map(|l| (l.0.addr, l.1.waits.time.0)).filter(|&(_, ns)| ns > 0).collect();
    // Each new attempt for lock 9 drops the one before. The last one waits for 8 until the end.
    assert_eq!(waited, [(1, 20), (5, 99), (9, 90 + 8)].into(), "{:?}", notes.0);
    let nested: u64 = f.locks[&lock(5)].holders.iter().map(|holder| holder.nested.0).sum();
    assert_eq!(nested, 90, "thread 2 waits while thread 3 waits for it");
}

#[test]
fn readers_do_not_contend_with_readers() {
    let read = ask(1, LockKind::Rwlock, true);
    let (notes, graph) = run(&[
        (0, 1, read),
        (0, 1, acquire(1)),
        (1, 2, read),
        (1, 2, acquire(1)),
        // Once more by the same reader.
        (2, 2, read),
        (2, 2, acquire(1)),
        (3, 3, ask(1, LockKind::Rwlock, false)),
        (4, 2, release(1)),
        (5, 2, release(1)),
        (6, 1, release(1)),
        (6, 3, acquire(1)),
    ]);
    let acquired: Vec<_> = notes.0.iter().filter(|n| n.contains("acquired")).collect();
    assert_eq!(acquired, ["d1 T1 L1 acquired 0", "d2 T2 L1 acquired 1", "d3! T3 L1 acquired 6"]);
    assert!(graph.state().impossible().is_empty());
}

#[test]
fn waiting_for_a_condition_is_idle() {
    let how = Released::CondWait;
    let wake = Action::CondWake { condition: lock(7) };
    let (notes, graph) = run(&[
        (0, 1, attempt(1)),
        (0, 1, acquire(1)),
        (5, 1, Action::CondWait { condition: lock(7), site: site(3) }),
        (5, 1, Action::Release { lock: lock(1), how }),
        (90, 1, wake),
        (90, 1, attempt(1)),
        (91, 1, acquire(1)),
        (92, 2, wake),
        (93, 2, wake),
    ]);
    assert_eq!(notes.0, ["d1 T1 L1 acquired 0", "d1 T1 L1 CondWait 5", "d2 T1 L1 acquired 91"]);
    // T2 may have waited since before the recording, but once only.
    assert_eq!(graph.state().cut(), &BTreeMap::from([("wake_without_wait", 1)]));
    assert_eq!(graph.state().impossible(), &BTreeMap::from([("wake_without_wait", 1)]));
}

#[test]
fn a_barrier_passes_round_after_round() {
    let arrive = |participants| {
        Action::Barrier(Arrival { barrier: lock(1), participants, round: Round::Unknown, site: site(1), post: site(2) })
    };
    let (notes, graph) =
        run(&[(0, 1, arrive(2)), (4, 1, arrive(2)), (5, 2, arrive(2)), (8, 2, arrive(2)), (9, 1, arrive(3))]);
    assert_eq!(notes.0, ["d1 T1 L1 passed as d2! T1 L1 after 5", "d3 T2 L1 passed as d4 T2 L1 after 0"]);
    let expected = [("arrival_while_at_barrier", 1), ("participants_changed", 1)];
    assert_eq!(graph.state().impossible(), &BTreeMap::from(expected));
    let cut = graph.finish(Time(10), &mut ()).cut;
    assert_eq!(cut, BTreeMap::from([("waiting_at_end", 2)]));
}

#[test]
fn who_arrives_again_at_a_barrier_has_left_it() {
    let arrive =
        |round| Action::Barrier(Arrival { barrier: lock(1), participants: 2, round, site: site(1), post: site(2) });
    // T2 was there first, but its arrival is told after that of T1. In the next round each of them found nobody.
    let (notes, graph) = run(&[
        (0, 1, arrive(Round::Later)),
        (1, 2, arrive(Round::First)),
        (5, 2, arrive(Round::First)),
        (6, 1, arrive(Round::First)),
    ]);
    let passed = ["d1 T1 L1 passed as d2 T1 L1 after 0", "d3 T2 L1 passed as d4 T2 L1 after 0"];
    let then = ["d5 T2 L1 passed as d6! T2 L1 after 1", "d7 T1 L1 passed as d8 T1 L1 after 0"];
    assert_eq!(notes.0, [passed, then].concat());
    assert!(graph.state().impossible().is_empty(), "{:?}", graph.state().impossible());
    assert_eq!(graph.state().cut(), &BTreeMap::from([("barrier_round_cut", 2)]));
}

/// A call as live sources tell it: with whether it had to wait.
fn live(addr: u64, contended: bool) -> Action {
    let Action::Attempt(asked) = attempt(addr) else { unreachable!("it is one") };
    Action::Attempt(Attempt { contended: Some(contended), ..asked })
}

#[test]
fn a_timed_call_for_ones_own_lock_fails_and_the_lock_is_kept() {
    let (notes, graph) = run(&[
        (0, 1, live(1, false)),
        (0, 1, acquire(1)),
        (2, 1, live(1, true)),
        (5, 1, fail(1, Failure::TimedOut)),
        (6, 1, release(1)),
    ]);
    assert_eq!(notes.0, ["d1 T1 L1 acquired 0", "d0! T1 L1 TimedOut 5", "d1 T1 L1 Unlock 6"]);
    assert!(graph.state().impossible().is_empty(), "{:?}", graph.state().impossible());
    // Only if it gets the lock, a release was missed.
    let (notes, graph) = run(&[
        (0, 1, live(1, false)),
        (0, 1, acquire(1)),
        (2, 1, live(1, false)),
        (2, 1, acquire(1)),
        (6, 1, release(1)),
    ]);
    assert_eq!(notes.0, ["d1 T1 L1 acquired 0", "d2 T1 L1 acquired 2", "d2 T1 L1 Unlock 6"]);
    assert_eq!(graph.state().impossible(), &BTreeMap::from([("release_missing", 1)]));
}

#[test]
fn a_missing_release_is_not_a_recursion() {
    let (notes, graph) = run(&[
        (0, 1, attempt(1)),
        (0, 1, acquire(1)),
        (2, 2, attempt(1)),
        (3, 2, acquire(1)),
        (4, 2, release(1)),
        (5, 1, attempt(1)),
        (5, 1, acquire(1)),
        (6, 1, release(1)),
    ]);
    let ends: Vec<_> = notes.0.iter().filter(|n| n.contains("Unlock")).collect();
    assert_eq!(ends, ["d2! T2 L1 Unlock 4", "d3 T1 L1 Unlock 6"]);
    assert_eq!(graph.state().impossible(), &BTreeMap::from([("acquire_of_held", 1), ("release_missing", 1)]));
}

#[test]
fn permits_that_nobody_returns_are_dropped() {
    let mut steps = Vec::new();
    for t in 0..2_000 {
        steps.extend([(t, 1, ask(1, LockKind::Semaphore, false)), (t, 1, acquire(1))]);
    }
    let (notes, graph) = run(&steps);
    assert_eq!(graph.state().cut(), &BTreeMap::from([("permit_not_returned", 2_000 - 1_024)]));
    assert_eq!(notes.0.iter().filter(|n| n.contains("Unlock")).count(), 2_000 - 1_024);
}

#[test]
fn exited_threads_and_idle_locks_are_forgotten() {
    let mut steps = Vec::new();
    for i in 0..100_000u32 {
        let (t, addr) = (u64::from(i), u64::from(i));
        steps.extend([
            (t, i, attempt(addr)),
            (t, i, acquire(addr)),
            (t, i, release(addr)),
            (t, i, Action::Exit { ends: false }),
        ]);
    }
    let (_, graph) = run(&steps);
    let m = &graph.state().m;
    assert!(m.threads.len() <= 1_025 && m.locks.len() <= 65_536, "{} {}", m.threads.len(), m.locks.len());
    assert!(m.nodes.is_empty() && graph.state().impossible().is_empty());
    let f = graph.finish(Time(0), &mut ());
    assert_eq!((f.last_thread, f.sites[&site(1)].cpwt), (Some(Tid(99_999)), Some(Nanos(0))));
}
