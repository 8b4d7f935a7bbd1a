//! How fast event lines are read, and sections taken apart and put in order.
#![allow(missing_docs, reason = "`criterion_group!` makes a public function")]

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use lockbpf_core::event::{Event, Outcome, Section, Via, flag};
use lockbpf_core::id::{Lock, Process, Site, StackId, Tid};
use lockbpf_core::lines::Reader;
use lockbpf_core::order::Sorter;
use lockbpf_core::units::{Nanos, Time};
use std::fmt::Write as _;
use std::hint::black_box;

/// Sections in an input.
const SECTIONS: u64 = 500_000;
/// Threads that deliver them.
const THREADS: u64 = 16;

/// A whole number that looks random: the same for the same `n`.
fn scatter(n: u64) -> u64 {
    let n = (n ^ (n >> 31)).wrapping_mul(0x7fb5_d329_728e_a185);
    (n ^ (n >> 27)).wrapping_mul(0x81da_def4_bc2d_d44d) >> 33
}

fn lines() -> String {
    let mut text = String::new();
    for n in 0..SECTIONS {
        let (t, tid, lock, site) = (n * 1_000, 4_000 + n % THREADS, scatter(n) % 64, scatter(n + 7) % 200);
        for (after, op) in [(0, "attempt"), (300, "acquire"), (900, "release")] {
            let site = if op == "attempt" { format!(r#","site":"CS{site}""#) } else { String::new() };
            let _ = writeln!(text, r#"{{"t":{},"tid":{tid},"op":"{op}","lock":"L{lock}"{site}}}"#, t + after);
        }
    }
    text
}

/// Sections in the order of their ends: most are short, one in 256 lasts long and began thousands of steps earlier.
fn sections() -> Vec<Event> {
    let process = Process(1);
    let section = |n: u64| {
        let long = if n.is_multiple_of(256) { 1_000_000 } else { 1 };
        Section {
            end: Time(10_000_000 + n * 100 + scatter(n) % 500),
            wait: Nanos(scatter(n + 1) % 2_000 * long),
            hold: Nanos(scatter(n + 2) % 1_000),
            lock: Lock { process, addr: 0x5000 + scatter(n + 3) % 64 * 64 },
            site: Site { process, addr: 0x40_0000 + scatter(n + 4) % 200 },
            tid: Tid(4_000 + (n % THREADS) as u32),
            process,
            owner: None,
            waker: None,
            stack: Some(StackId(7)),
            flags: flag::CONTENDED,
            via: Via::Lock,
            outcome: Outcome::Released,
            mutex_kind: 0,
        }
    };
    (0..SECTIONS).map(|n| Event::Section(section(n))).collect()
}

fn reading(c: &mut Criterion) {
    let text = lines();
    let mut group = c.benchmark_group("lines");
    group.throughput(Throughput::Elements(SECTIONS * 3)).sample_size(10);
    group.bench_function("read", |b| {
        b.iter(|| Reader::new(text.as_bytes(), 1).map(|event| black_box(event).is_ok()).filter(|&ok| ok).count());
    });
    group.finish();
}

fn sorting(c: &mut Criterion) {
    let events = sections();
    let mut group = c.benchmark_group("order");
    group.throughput(Throughput::Elements(SECTIONS * 3)).sample_size(10);
    group.bench_function("sort steps", |b| {
        b.iter_batched_ref(
            Sorter::default,
            |sorter| {
                let mut steps = 0u64;
                for event in &events {
                    sorter.push(event);
                    steps += sorter.pop_ready().map(black_box).count() as u64;
                }
                steps + sorter.finish().map(black_box).count() as u64
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

criterion_group!(benches, reading, sorting);
criterion_main!(benches);
