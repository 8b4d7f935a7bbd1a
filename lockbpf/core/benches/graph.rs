//! State machines and wait graph on synthetic steps: steps per second, by kind of load and length.
//!
//! `cargo bench --bench graph` prints a table of steps per second and leaves statistics to criterion. The steps of long
//! runs are made while they are consumed, so that memory for them does not matter.

use criterion::{BatchSize, Criterion, Throughput};
use lockbpf_core::analysis::Options;
use lockbpf_core::graph::WaitGraph;
use lockbpf_core::id::{Lock, Process, Site, Tid};
use lockbpf_core::op::{Action, Attempt, LockKind, Op, Released};
use lockbpf_core::units::Time;
use std::collections::VecDeque;
use std::time::Instant;

/// A load: one round of steps for the round's number.
type Load = fn(&mut Rounds);

/// Makes steps, round after round.
struct Rounds {
    now: u64,
    seed: u64,
    queue: VecDeque<u32>,
    steps: Vec<Op>,
}

impl Rounds {
    fn new() -> Self {
        Self { now: 1_000, seed: 42, queue: VecDeque::new(), steps: Vec::new() }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % below
    }

    fn push(&mut self, tid: u32, action: Action) {
        self.now += 20;
        self.steps.push(Op { time: Time(self.now), tid: Tid(tid), process: Process(1), action });
    }

    fn attempt(&mut self, tid: u32, addr: u64, site: u64) {
        let process = Process(1);
        self.push(
            tid,
            Action::Attempt(Attempt {
                lock: Lock { process, addr },
                site: Site { process, addr: site },
                shared: false,
                kind: LockKind::Mutex,
                owner: None,
                stack: None,
                contended: None,
            }),
        );
    }

    fn acquire(&mut self, tid: u32, addr: u64) {
        self.push(tid, Action::Acquire { lock: Lock { process: Process(1), addr }, waker: None });
    }

    fn release(&mut self, tid: u32, addr: u64) {
        let lock = Lock { process: Process(1), addr };
        self.push(tid, Action::Release { lock, how: Released::Unlock });
    }
}

/// Eight threads, a hundred locks, nobody waits.
fn uncontended(r: &mut Rounds) {
    let (tid, addr) = (r.random(8) as u32, r.random(100));
    r.attempt(tid, addr, addr % 7);
    r.acquire(tid, addr);
    r.release(tid, addr);
}

/// Eight threads, a hundred locks; in one of four sections another thread waits.
fn typical(r: &mut Rounds) {
    let (a, addr) = (r.random(8) as u32, r.random(100));
    r.attempt(a, addr, addr % 7);
    r.acquire(a, addr);
    let waits = r.random(4) == 0;
    let b = (a + 1 + r.random(7) as u32) % 8;
    if waits {
        r.attempt(b, addr, addr % 5);
    }
    r.release(a, addr);
    if waits {
        r.acquire(b, addr);
        r.release(b, addr);
    }
}

/// Every section is waited for, by three threads.
fn contended(r: &mut Rounds) {
    let addr = r.random(4);
    r.attempt(0, addr, 0);
    r.acquire(0, addr);
    for tid in 1..4 {
        r.attempt(tid, addr, u64::from(tid));
    }
    for tid in 0..3 {
        r.release(tid, addr);
        r.acquire(tid + 1, addr);
    }
    r.release(3, addr);
}

/// A thread waits for an outer lock, whose holder waits for an inner one.
fn nested(r: &mut Rounds) {
    let (outer, inner) = (r.random(50), 100 + r.random(5));
    r.attempt(1, inner, 1);
    r.acquire(1, inner);
    r.attempt(2, outer, 2);
    r.acquire(2, outer);
    r.attempt(3, outer, 3);
    r.attempt(2, inner, 4);
    r.release(1, inner);
    r.acquire(2, inner);
    r.release(2, inner);
    r.release(2, outer);
    r.acquire(3, outer);
    r.release(3, outer);
}

/// One lock, for which 511 threads wait all the time.
fn queue(r: &mut Rounds) {
    if r.queue.is_empty() {
        r.queue.extend(0..512);
        for tid in 0..512 {
            r.attempt(tid, 1, u64::from(tid % 8));
        }
        r.acquire(0, 1);
    }
    if let Some(first) = r.queue.pop_front() {
        r.queue.push_back(first);
        r.release(first, 1);
        r.attempt(first, 1, u64::from(first % 8));
        if let Some(&next) = r.queue.front() {
            r.acquire(next, 1);
        }
    }
}

const LOADS: [(&str, Load); 5] = [
    ("uncontended", uncontended),
    ("typical: 8 threads, 100 locks, 1 of 4 waited for", typical),
    ("contended: every section waited for by 3", contended),
    ("nested", nested),
    ("queue of 512 threads", queue),
];

/// Steps per second over so many steps; making them is not counted.
fn rate(load: Load, count: u64) -> f64 {
    let (mut rounds, mut graph) = (Rounds::new(), WaitGraph::new(Options::default()));
    let (mut done, mut seconds) = (0, 0.0);
    while done < count {
        rounds.steps.clear();
        while rounds.steps.len() < 100_000 {
            load(&mut rounds);
        }
        let begin = Instant::now();
        for op in &rounds.steps {
            graph.op(op, &mut ());
        }
        seconds += begin.elapsed().as_secs_f64();
        done += rounds.steps.len() as u64;
    }
    let begin = Instant::now();
    std::hint::black_box(graph.finish(Time(0), &mut ()));
    done as f64 / (seconds + begin.elapsed().as_secs_f64())
}

fn main() {
    println!("{:<52} {:>12} {:>12} {:>12}", "million steps/s over", "1e5 steps", "1e6 steps", "1e7 steps");
    for (name, load) in LOADS {
        let [a, b, c] = [100_000, 1_000_000, 10_000_000].map(|count| rate(load, count) / 1e6);
        println!("{name:<52} {a:>12.2} {b:>12.2} {c:>12.2}");
    }
    let mut criterion = Criterion::default().sample_size(20).configure_from_args();
    for (name, load) in LOADS {
        let mut rounds = Rounds::new();
        while rounds.steps.len() < 100_000 {
            load(&mut rounds);
        }
        let mut group = criterion.benchmark_group("graph");
        group.throughput(Throughput::Elements(rounds.steps.len() as u64));
        group.bench_function(name, |b| {
            b.iter_batched(
                || WaitGraph::new(Options::default()),
                |mut graph| {
                    rounds.steps.iter().for_each(|op| graph.op(op, &mut ()));
                    graph
                },
                BatchSize::LargeInput,
            );
        });
        group.finish();
    }
    criterion.final_summary();
}
