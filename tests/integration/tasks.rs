//! Locks of tokio's, for which tasks wait and no threads. Every lock is waited for a known number of times: where one thread runs all tasks,
//! a task that gives way to one that asks for a lock goes on when that one waits for it.

use crate::harness::exact::assert_complete;
use crate::harness::may_observe;
use crate::harness::observer::Observer;
use crate::harness::report::{Culprit, Lock, Report};
use crate::harness::workload::{Truth, Workload};
use std::io::{Read, Write};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Mutex, RwLock, Semaphore, mpsc};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

/// In the environment of the workload: how many threads run its tasks.
const RUN: &str = "LOCKBPF_TEST_TASKS";
/// How often each lock is waited for in each way.
const ROUNDS: u64 = 20;
/// How long the holder keeps it once the other waits.
const HOLD: Duration = Duration::from_millis(2);

/// What the workload did, and what was observed of it.
fn observed(threads: u32, options: &[&str]) -> (Truth, Report) {
    let program = std::env::current_exe().expect("this test is a program");
    let arguments = ["--exact", "tasks::workload", "--nocapture"];
    let mut workload = Workload::launch(Command::new(&program).args(arguments).env(RUN, threads.to_string()));
    let observer = Observer::of(workload.pid(), options);
    workload.go();
    let truth = workload.finish();
    (truth, observer.report())
}

fn lock<'a>(report: &'a Report, name: &str) -> &'a Lock {
    let told: Vec<_> =
        report.locks.iter().filter(|lock| lock.name.contains(name) && lock.kind.ends_with("(tokio)")).collect();
    let [lock] = told.as_slice() else { panic!("{name} in {:?}", report.names()) };
    lock
}

#[test]
fn tasks_wait_for_locks_of_tokio() {
    let Some(_turn) = may_observe() else { return };
    let (truth, report) = observed(1, &[]);
    assert_complete(&report);
    // How often each was waited for and acquired, in rounds.
    for (name, kind, waits, acquisitions) in
        [("TASKS", "mutex", 1, 3), ("SHARED", "rwlock", 2, 4), ("PERMITS", "semaphore", 1, 2)]
    {
        let lock = lock(&report, name);
        let told = (lock.kind.as_str(), lock.contended, lock.acquisitions);
        assert_eq!(told, (format!("{kind} (tokio)").as_str(), waits * ROUNDS, acquisitions * ROUNDS), "{lock:?}");
        // From when the other one waits until it is given back; the task's own clock has more.
        let (least, most) = (truth.fact(&format!("{name}_held_ns")), truth.fact(&format!("{name}_waited_ns")));
        let told = lock.wait_ns.sum;
        assert!((least as f64..=most as f64).contains(&told), "{name}: {told} of {least} to {most}");
    }
    let mutex = lock(&report, "TASKS");
    assert_eq!((mutex.release_unseen, mutex.timeouts), (0, ROUNDS), "{mutex:?}");
    assert!(mutex.timed_out_wait_ns >= ROUNDS * HOLD.as_nanos() as u64 / 2, "{mutex:?}");
    assert!(mutex.hold_ns.sum >= truth.fact("TASKS_held_ns") as f64, "{mutex:?}");
    // A channel is no lock.
    let told = report.locks.iter().filter(|lock| lock.kind.ends_with("(tokio)")).count();
    assert_eq!(told, 4, "{:?}", report.names());
    let verdict = report.verdict.join(" ");
    assert!(verdict.contains("1 task") || verdict.contains(" tasks waited"), "{verdict}");
}

/// Whoever holds a lock while it sleeps is to blame, where it asked for the lock, and did not run meanwhile: whatever threads it goes on in.
#[test]
fn the_task_that_sleeps_with_the_lock_is_the_culprit() {
    let Some(_turn) = may_observe() else { return };
    for (threads, options) in [(1, &[][..]), (2, &[]), (2, &["--budget", "3%"])] {
        let (_, report) = observed(threads, options);
        let is_here = |c: &&Culprit| c.name.contains("TASKS");
        let Some(culprit) = report.culprits.iter().find(is_here) else { panic!("{:?}", report.verdict) };
        let function = culprit.function.as_deref().unwrap_or_default();
        assert!(function.contains("keep_mutex"), "{threads} {options:?}: {culprit:?}");
        let causes = culprit.causes.as_ref().expect("what it did");
        let (asleep, all) = (causes["sleeping"], causes.values().sum::<f64>());
        assert!(asleep > 0.5 * all, "{threads} {options:?}: {causes:?}");
        // What it does while its thread does not sleep is not known.
        assert_eq!(causes["running"], 0.0, "{threads} {options:?}: {causes:?}");
    }
}

static TASKS: Mutex<u64> = Mutex::const_new(0);
/// Got by the task that asks for `TASKS`, in the thread of which the holder got that: nobody waits for it.
static BESIDE: Mutex<()> = Mutex::const_new(());
static SHARED: RwLock<u64> = RwLock::const_new(0);
static PERMITS: Semaphore = Semaphore::const_new(2);

/// Whether the other task is about to ask.
static ASKS: AtomicBool = AtomicBool::new(false);
static HELD_NS: AtomicU64 = AtomicU64::new(0);
static WAITED_NS: AtomicU64 = AtomicU64::new(0);

/// Keeps what it has until another task, which asks for it, has waited.
async fn keep<G>(held: G, ask: impl Future<Output = ()> + Send + 'static) {
    ASKS.store(false, Ordering::Release);
    let other = tokio::spawn(async {
        let from = Instant::now();
        ASKS.store(true, Ordering::Release);
        ask.await;
        WAITED_NS.fetch_add(from.elapsed().as_nanos() as u64, Ordering::Relaxed);
    });
    while !ASKS.load(Ordering::Acquire) {
        yield_now().await;
    }
    let from = Instant::now();
    sleep(HOLD).await;
    HELD_NS.fetch_add(from.elapsed().as_nanos() as u64, Ordering::Relaxed);
    drop(held);
    other.await.unwrap();
}

// The report names these functions as places, so the compiler may not inline them.
#[inline(never)]
async fn keep_mutex() {
    let ask = async {
        let _beside = BESIDE.lock().await;
        *TASKS.lock().await += 1;
    };
    keep(TASKS.lock().await, ask).await;
}

#[inline(never)]
async fn keep_from_readers() {
    keep(SHARED.write().await, async { drop(SHARED.read().await) }).await;
}

#[inline(never)]
async fn keep_from_writers() {
    keep(SHARED.read().await, async { *SHARED.write().await += 1 }).await;
}

#[inline(never)]
async fn keep_permits() {
    keep(PERMITS.acquire_many(2).await.unwrap(), async { drop(PERMITS.acquire().await.unwrap()) }).await;
}

/// Another task waits for it in vain.
async fn keep_for_long() {
    let held = TASKS.lock().await;
    let other = tokio::spawn(async { timeout(HOLD / 2, TASKS.lock()).await.is_err() });
    assert!(other.await.unwrap());
    drop(held);
}

/// The facts of rounds in which a lock is waited for.
fn facts(runtime: &Runtime, name: &str, ways: impl AsyncFn()) -> String {
    HELD_NS.store(0, Ordering::Relaxed);
    WAITED_NS.store(0, Ordering::Relaxed);
    runtime.block_on(async {
        for _ in 0..ROUNDS {
            ways().await;
        }
    });
    let [held, waited] = [&HELD_NS, &WAITED_NS].map(|ns| ns.load(Ordering::Relaxed));
    format!(r#""{name}_held_ns":{held},"{name}_waited_ns":{waited}"#)
}

/// The workload: this program runs itself as one, since what tests compile has no crates.
#[test]
fn workload() {
    let Some(threads) = std::env::var(RUN).ok().and_then(|threads| threads.parse().ok()) else { return };
    let mut builder = if threads == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    let runtime = builder.worker_threads(threads).enable_time().build().unwrap();
    println!("ready");
    std::io::stdout().flush().unwrap();
    std::io::stdin().read_exact(&mut [0]).unwrap();
    let facts = [
        facts(&runtime, "TASKS", keep_mutex),
        facts(&runtime, "SHARED", async || {
            keep_from_readers().await;
            keep_from_writers().await;
        }),
        facts(&runtime, "PERMITS", keep_permits),
    ];
    runtime.block_on(async {
        for _ in 0..ROUNDS {
            keep_for_long().await;
        }
        let (room, mut sent) = mpsc::channel(1);
        let sender = tokio::spawn(async move {
            for n in 0..ROUNDS {
                room.send(n).await.unwrap();
            }
        });
        while sent.recv().await.is_some() {
            sleep(HOLD).await;
        }
        sender.await.unwrap();
    });
    let (pid, facts) = (std::process::id(), facts.join(","));
    println!(r#"{{"workload":"tasks","pid":{pid},"locks":[],"threads":[],"facts":{{{facts}}}}}"#);
}
