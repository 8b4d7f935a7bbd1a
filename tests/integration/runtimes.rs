//! Runtimes whose locks are compiled into programs: Rust's standard library, parking_lot. Every lock is waited for a known number
//! of times by design: one thread holds it until another sleeps for it, which that thread's system call tells.

use crate::harness::exact::assert_complete;
use crate::harness::may_observe;
use crate::harness::observer::Observer;
use crate::harness::report::{Party, Report};
use crate::harness::workload::{Truth, Workload};
use std::io::{Read, Write};
use std::process::Command;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};

/// In the environment of the workload.
const RUN: &str = "LOCKBPF_TEST_RUST_LOCKS";
/// How often each lock is waited for in each way.
const ROUNDS: u64 = 20;

/// What the workload did, and what was observed of it.
fn observed(options: &[&str]) -> (Truth, Report) {
    let program = std::env::current_exe().expect("this test is a program");
    let arguments = ["--exact", "runtimes::workload", "--nocapture"];
    let mut workload = Workload::launch(Command::new(&program).args(arguments).env(RUN, "1"));
    let observer = Observer::of(workload.pid(), options);
    workload.go();
    let truth = workload.finish();
    let report = observer.report();
    assert_complete(&report);
    (truth, report)
}

#[test]
fn rust_locks() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observed(&[]);
    for (name, kind) in [
        ("STD_MUTEX", "mutex (Rust std)"),
        ("STD_RWLOCK", "rwlock (Rust std)"),
        ("PARKING_MUTEX", "mutex (parking_lot)"),
        ("PARKING_RWLOCK", "rwlock (parking_lot)"),
    ] {
        let told: Vec<_> = report.locks.iter().filter(|lock| lock.name.contains(name)).collect();
        let [lock] = told.as_slice() else { panic!("{name} in {:?}", report.names()) };
        assert_eq!((lock.kind.as_str(), lock.contended), (kind, truth.fact(name)), "{lock:?}");
        assert!(lock.contended_wait_ns.sum >= truth.fact(&format!("{name}_ns")) as f64, "{lock:?}");
        // Free ones are taken inline, and releases with nobody waiting are, too.
        assert_eq!((lock.release_unseen, lock.hold_ns.sum), (lock.contended, 0.0), "{lock:?}");
    }
}

#[test]
fn parking_lots_locks_are_known_by_futex_calls() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observed(&["--futex-only"]);
    for (name, kind) in [("PARKING_MUTEX", "parking_lot::Mutex"), ("PARKING_RWLOCK", "parking_lot::RwLock")] {
        let told: Vec<_> = report.locks.iter().filter(|lock| lock.name.contains(name)).collect();
        let [lock] = told.as_slice() else { panic!("{name} in {:?}", report.names()) };
        assert_eq!((lock.kind.as_str(), lock.contended), (kind, truth.fact(name)), "{lock:?}");
        assert!(lock.contended_wait_ns.sum >= truth.fact(&format!("{name}_ns")) as f64, "{lock:?}");
        assert_eq!(lock.unattributed_ns, 0.0, "each waiter was woken by the thread that gave the lock back: {lock:?}");
        // Where it did so. The functions of a read-write lock's that are inlined there have names that say nothing.
        let here = |party: &Party| party.function.as_deref().is_some_and(|function| function.contains("contend"));
        assert!(lock.holders.iter().any(here), "{lock:?}");
    }
}

static STD_MUTEX: Mutex<u64> = Mutex::new(0);
static STD_RWLOCK: RwLock<u64> = RwLock::new(0);
static PARKING_MUTEX: parking_lot::Mutex<u64> = parking_lot::Mutex::new(0);
static PARKING_RWLOCK: parking_lot::RwLock<u64> = parking_lot::RwLock::new(0);

/// How long the holder keeps it once the other sleeps.
const HOLD: Duration = Duration::from_millis(1);

static WAITER: AtomicI32 = AtomicI32::new(0);
static WAITED_NS: AtomicU64 = AtomicU64::new(0);

/// Holds what `hold` returns until a thread that does `want` sleeps, `rounds` times. Not inlined: it is the place that is told.
#[inline(never)]
fn contend<G>(rounds: u64, hold: impl Fn() -> G, want: impl Fn() + Send + Sync) -> u64 {
    WAITED_NS.store(0, Ordering::Relaxed);
    for _ in 0..rounds {
        let held = hold();
        WAITER.store(0, Ordering::Release);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let tid = std::fs::read_link("/proc/thread-self").unwrap();
                let tid: i32 = tid.file_name().unwrap().to_str().unwrap().parse().unwrap();
                WAITER.store(tid, Ordering::Release);
                want();
            });
            while !sleeps(WAITER.load(Ordering::Acquire)) {
                std::thread::sleep(Duration::from_micros(100));
            }
            let from = Instant::now();
            std::thread::sleep(HOLD);
            WAITED_NS.fetch_add(from.elapsed().as_nanos() as u64, Ordering::Relaxed);
            drop(held);
        });
    }
    WAITED_NS.load(Ordering::Relaxed)
}

/// Whether a thread sleeps in a futex call.
fn sleeps(tid: i32) -> bool {
    let call = if cfg!(target_arch = "x86_64") { "202 " } else { "98 " };
    tid != 0 && std::fs::read_to_string(format!("/proc/self/task/{tid}/syscall")).is_ok_and(|s| s.starts_with(call))
}

/// The workload: this program runs itself as one, since what tests compile has no crates.
#[test]
fn workload() {
    if std::env::var_os(RUN).is_none() {
        return;
    }
    let rounds = ROUNDS;
    println!("ready");
    std::io::stdout().flush().unwrap();
    std::io::stdin().read_exact(&mut [0]).unwrap();
    let truth = [
        ("STD_MUTEX", contend(rounds, || STD_MUTEX.lock().unwrap(), || *STD_MUTEX.lock().unwrap() += 1), 1),
        (
            "STD_RWLOCK",
            contend(rounds, || STD_RWLOCK.write().unwrap(), || drop(STD_RWLOCK.read().unwrap()))
                + contend(rounds, || STD_RWLOCK.read().unwrap(), || *STD_RWLOCK.write().unwrap() += 1),
            2,
        ),
        ("PARKING_MUTEX", contend(rounds, || PARKING_MUTEX.lock(), || *PARKING_MUTEX.lock() += 1), 1),
        (
            "PARKING_RWLOCK",
            contend(rounds, || PARKING_RWLOCK.write(), || drop(PARKING_RWLOCK.read()))
                + contend(rounds, || PARKING_RWLOCK.read(), || *PARKING_RWLOCK.write() += 1),
            2,
        ),
    ];
    let facts: Vec<String> = truth
        .iter()
        .map(|(name, waited_ns, times)| format!(r#""{name}":{},"{name}_ns":{waited_ns}"#, times * rounds))
        .collect();
    let (pid, facts) = (std::process::id(), facts.join(","));
    println!(r#"{{"workload":"rust_locks","pid":{pid},"locks":[],"threads":[],"facts":{{{facts}}}}}"#);
}
