//! Solvers on large networks. `cargo bench --bench model` prints seconds per solution; what exact solutions are to take
//! is less than one.

use criterion::Criterion;
use lockbpf_core::model::network::Class;
use lockbpf_core::model::qd::{self, Program, Station};
use lockbpf_core::model::{classes, convolution, mva, schweitzer};
use std::hint::black_box;

fn class(population: u32, locks: usize) -> Class {
    Class {
        population,
        think: 20_000.0,
        visits: vec![1.0 / locks as f64; locks],
        service: (0..locks).map(|i| 100.0 + 37.0 * i as f64).collect(),
    }
}

fn main() {
    let mut criterion = Criterion::default().sample_size(10).configure_from_args();
    let one = class(1_000, 200);
    let all: Vec<u32> = (1..=1_000).collect();
    criterion.bench_function("exact, 1,000 threads, 200 locks", |b| {
        b.iter(|| mva::solve(black_box(&one), &[], &[1_000]));
    });
    criterion.bench_function("exact, each of 1 to 1,000 threads, 200 locks", |b| {
        b.iter(|| mva::solve(black_box(&one), &[], &all));
    });
    criterion.bench_function("exact, overhead by waiters, 1,000 threads, 200 locks", |b| {
        b.iter(|| convolution::solve(black_box(&one), |i, n| one.service[i] + f64::from(n.min(8)) * 10.0));
    });
    let two = [class(64, 200), class(64, 200)];
    criterion
        .bench_function("exact, two classes of 64, 200 locks", |b| b.iter(|| classes::solve(black_box(&two), &[])));
    let large = [class(100_000, 200), class(50_000, 200)];
    criterion.bench_function("approximate, two classes of 100,000 and 50,000, 200 locks", |b| {
        b.iter(|| schweitzer::solve(black_box(&large), &[]));
    });
    let station = |&service: &f64| Station { visits: 1.0 / 200.0, helper: service, other: service, overhead: None };
    let program = Program {
        threads: 64,
        think: 20_000.0,
        stations: one.service.iter().map(station).collect(),
        lock_overhead: 172.0,
        delegation_overhead: (0..32).map(|k| 172.0 + 40.0 * f64::from(k)).collect(),
    };
    criterion.bench_function("QD locks, 64 threads, 200 locks", |b| b.iter(|| qd::solve(black_box(&program), false)));
    criterion.final_summary();
}
