//! Programs that hang: a wait that never ends is what a user most wants to see, and no record of it is ever complete.

use crate::harness::may_observe;
use crate::harness::observer::Observer;
use crate::harness::report::{Lock, Report};
use crate::harness::workload::{Truth, Workload};
use lockbpf::capture::inflight::Snapshot;
use lockbpf::capture::session::now;
use lockbpf::capture::waits::Waits;
use lockbpf::deadlock::find;
use lockbpf::id::Process;
use lockbpf::units::{Nanos, Time};
use std::collections::HashMap;

/// Observes a workload until it is stuck, and so much longer that a deadlock is certain: two looks at it, half a second apart.
fn observe_stuck(line: &str) -> (Truth, Report) {
    let mut workload = Workload::start(line);
    let observer = Observer::of(workload.pid(), &[]);
    workload.go();
    let truth = workload.truth();
    std::thread::sleep(std::time::Duration::from_millis(1_200));
    observer.interrupt();
    (truth, observer.report())
}

fn waiters(lock: &Lock) -> Vec<&str> {
    lock.waiting_now.places.iter().filter_map(|place| place.function.as_deref()).collect()
}

#[test]
fn waits_for_ever_are_reported() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observe_stuck("stuck hang 3");
    let lock = report.named("hung_lock");
    assert_eq!(lock.lock, format!("{}:{}", truth.pid, truth.lock("hung_lock").addr));
    assert_eq!(lock.waiting_now.count, 3, "{lock:?}");
    assert!(lock.waiting_now.longest_ns >= 500_000_000, "{lock:?}");
    assert_eq!(waiters(lock), ["hopeless_waiter"]);
    assert!(!lock.waiting_now.places[0].stack.is_empty(), "a wait that goes on has a stack: {lock:?}");
    assert_eq!(report.locks[0].name, "hung_lock", "what hangs is the most harmful: {:?}", report.names());
}

#[test]
fn a_deadlock_shows_both_locks() {
    let Some(_turn) = may_observe() else { return };
    let (_, report) = observe_stuck("stuck deadlock");
    for (name, waiter) in [("lock_a", "b_then_a"), ("lock_b", "a_then_b")] {
        let lock = report.named(name);
        assert_eq!(lock.waiting_now.count, 1, "{lock:?}");
        assert_eq!(waiters(lock), [waiter]);
    }
    let [deadlock] = &report.deadlocks[..] else { panic!("{:?}", report.deadlocks) };
    assert_eq!(deadlock["threads"].as_array().map(Vec::len), Some(2), "{deadlock}");
    assert!(report.verdict[0].starts_with("DEADLOCK: 2 threads wait for one another"), "{:?}", report.verdict);
}

/// What lockbpf says of a deadlock, while it still observes: the lines after the first, which must contain `first`.
fn told_at_once(observer: &mut Observer, first: &str) -> String {
    let told = observer.running.err.find(|line| line.starts_with("lockbpf: deadlock"));
    let told = told.unwrap_or_else(|| panic!("lockbpf ended without a word of the deadlock"));
    assert!(told.contains(first), "{told}");
    // Two threads, each with its lock and its own function, which comes first of the calls.
    let mut text = String::new();
    for _ in 0..2 {
        let waits = observer.running.err.find(|line| line.contains(" waits for ")).expect("half a deadlock");
        let function = observer.running.err.next().expect("a wait without a call");
        text += &format!("{waits}\n{function}\n");
    }
    text
}

fn assert_told(text: &str) {
    for (waiter, lock) in [("a_then_b", "lock_b"), ("b_then_a", "lock_a")] {
        assert!(text.contains(&format!(" waits for {lock}, held by thread ")), "no {lock}: {text}");
        assert!(text.contains(&format!("{waiter} (")), "no {waiter}: {text}");
    }
}

#[test]
fn a_deadlock_is_told_at_once() {
    let Some(_turn) = may_observe() else { return };
    for options in [&[][..], &["--futex-only"]] {
        let mut workload = Workload::start("stuck deadlock");
        let mut observer = Observer::of(workload.pid(), options);
        workload.go();
        assert_told(&told_at_once(&mut observer, &format!("deadlock in process {}:", workload.pid())));
        assert!(observer.running.is_alive());
        observer.interrupt();
        observer.report();
    }
}

#[test]
fn a_deadlock_that_was_there_before_is_told_at_once() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start("stuck deadlock");
    workload.go();
    workload.truth();
    for options in [&[][..], &["--futex-only"]] {
        let mut observer = Observer::of(workload.pid(), options);
        assert_told(&told_at_once(&mut observer, "there before the observation began:"));
        observer.interrupt();
        observer.report();
    }
}

/// As where the kernel left out the programs that would have seen the waits begin.
#[test]
fn a_deadlock_whose_beginning_was_missed() {
    let mut workload = Workload::start("stuck deadlock");
    let pids = HashMap::from([(Process(1), workload.pid())]);
    let start = now();
    let mut waits = Waits::new(&Snapshot::take(&[workload.pid()]), start);
    workload.go();
    workload.truth();
    let circle = |waits: &mut Waits, at: Time| {
        let found = waits.look(at, &[], &pids);
        assert!(found.iter().all(|wait| !wait.before_start), "{found:?}");
        find(&found.iter().map(|wait| (wait.blocked.tid, wait.blocked.lock, wait.holder)).collect::<Vec<_>>()).len()
    };
    let later = now() + Nanos(1_000_000_000);
    assert_eq!(circle(&mut waits, later), 0, "it is known without being looked for");
    waits.missed(&Snapshot::take(&[workload.pid()]), now());
    assert_eq!(circle(&mut waits, later), 1);
}

#[test]
fn robust_mutexes_name_their_owners_in_their_words() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start("stuck robust");
    let mut observer = Observer::of(workload.pid(), &[]);
    workload.go();
    assert_told(&told_at_once(&mut observer, "deadlock in process"));
    observer.interrupt();
    observer.report();
    for options in [&[][..], &["--futex-only"]] {
        let mut observer = Observer::of(workload.pid(), options);
        assert_told(&told_at_once(&mut observer, "there before"));
        observer.interrupt();
        observer.report();
    }
}

#[test]
fn a_thread_that_waits_for_itself() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start("stuck self");
    let mut observer = Observer::of(workload.pid(), &[]);
    workload.go();
    let told = observer.running.err.find(|line| line.ends_with(" waits for lock_a, held by itself"));
    assert!(told.is_some());
    observer.interrupt();
    observer.report();
}

/// A thread that may go on is in no deadlock, even if it does not for a long time.
#[test]
fn waiting_is_no_deadlock() {
    let Some(_turn) = may_observe() else { return };
    for line in ["stuck hang 3", "stuck timed"] {
        for options in [&[][..], &["--futex-only"]] {
            let mut workload = Workload::start(line);
            let observer = Observer::of(workload.pid(), &[options, &["--duration", "1500ms"]].concat());
            workload.go();
            workload.truth();
            let outcome = observer.outcome();
            outcome.report();
            assert!(!outcome.stderr.contains("deadlock"), "{line} {options:?}: {}", outcome.stderr);
        }
    }
}

#[test]
fn attaching_to_a_program_that_hangs_already() {
    let Some(_turn) = may_observe() else { return };
    let mut workload = Workload::start("stuck hang 2");
    workload.go();
    let truth = workload.truth();
    let outcome = Observer::of(workload.pid(), &["--duration", "500ms"]).outcome();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let id = format!("{}:{}", truth.pid, truth.lock("hung_lock").addr);
    assert!(outcome.stdout.contains(&id), "the lock that everybody waits for is not told: {}", outcome.stdout);
}
