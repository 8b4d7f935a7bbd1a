//! Predictions by simulation: for locks that no formula here describes.

use super::error::ModelError;
use super::predict::{Checked, algorithm};
use super::schema::{Algorithm, LockPoint, Overhead, Point, Solver};
use super::simulation::{self, Lock, Pattern, Setup, Times};

/// Lock operations played.
const OPERATIONS: u64 = 400_000;
/// The same of mutexes, which are asked about for many numbers of threads.
const FEWER_OPERATIONS: u64 = 100_000;
/// Threads beyond which that takes too long to settle.
const MAX_THREADS: u32 = 4_096;

/// Plays each number of threads: exponential times, but for sections whose coefficient of variation is known.
pub(super) fn points(checked: &Checked<'_>) -> Result<Vec<Point>, ModelError> {
    let input = checked.input;
    if let Some(i) = input.threads.iter().position(|&n| n > MAX_THREADS) {
        return Err(ModelError::invalid(
            format!("threads[{i}]"),
            format!("a simulation takes at most {MAX_THREADS} threads"),
        ));
    }
    let mut locks = Vec::new();
    // Of each lock, the first of its shards and how many there are.
    let mut first = Vec::new();
    for (i, lock) in input.locks.iter().enumerate() {
        let algorithm = algorithm(input, lock);
        let overhead = match (&lock.overhead_ns, algorithm) {
            (_, Algorithm::Qd | Algorithm::QdWait) => input.lock_overhead_ns.unwrap_or(0.0),
            (Overhead::Constant(ns), _) => *ns,
            // What waiters add is what they sleep for.
            (Overhead::ByWaiters(table), _) if lock.sleep.is_some() => table.first().copied().unwrap_or(0.0),
            (Overhead::ByWaiters(_), _) => {
                let problem = "a simulation takes one number only";
                return Err(ModelError::invalid(format!("locks[{i}].overhead_ns"), problem));
            }
        };
        let shards = lock.shards.unwrap_or(1) as usize;
        first.push((locks.len(), shards));
        let one = Lock {
            algorithm,
            read_share: lock.read_share.unwrap_or(0.0),
            overhead,
            delegation: input.delegation_overhead_ns.clone(),
            detached: input.detached_overhead_ns.unwrap_or(0.0),
            sleep: lock.sleep,
        };
        locks.extend(std::iter::repeat_n(one, shards));
    }
    let routings = match &input.classes[..] {
        [] => vec![(&input.routing, &input.local_ns)],
        classes => classes.iter().map(|c| (&c.routing, &c.local_ns)).collect(),
    };
    let each = || first.iter().enumerate().flat_map(|(lock, &(_, shards))| std::iter::repeat_n((lock, shards), shards));
    let patterns: Vec<Pattern> = routings
        .iter()
        .zip(&checked.patterns)
        .map(|((r, z), pattern)| Pattern {
            routing: each().map(|(i, _)| each().map(|(j, shards)| r[i][j] / shards as f64).collect()).collect(),
            local: each().map(|(i, _)| each().map(|(j, _)| Times::Exponential(z[i][j])).collect()).collect(),
            hold: each()
                .map(|(i, _)| Times::Varying { mean: pattern.hold[i], cv: input.locks[i].hold_cv.unwrap_or(1.0) })
                .collect(),
        })
        .collect();
    let rwlock = locks.iter().any(|lock| lock.algorithm == Algorithm::Rwlock);
    let point = |&threads: &u32| {
        let populations = checked.populations(threads);
        let members = populations.iter().enumerate().flat_map(|(p, &n)| std::iter::repeat_n(p, n as usize));
        let setup = Setup {
            locks: locks.clone(),
            patterns: patterns.clone(),
            threads: members.collect(),
            operations: if rwlock { OPERATIONS } else { FEWER_OPERATIONS },
            seed: 1,
        };
        let seen = simulation::run(&setup);
        let locks = input.locks.iter().zip(&first).map(|(lock, &(at, shards))| {
            let all = &seen.locks[at..at + shards];
            let mean = |of: fn(&simulation::Seen) -> f64| all.iter().map(of).sum::<f64>() / shards as f64;
            LockPoint {
                name: lock.name.clone(),
                wait_ns: mean(|s| s.wait.value),
                wait_interval_ns: [mean(|s| s.wait.low), mean(|s| s.wait.high)],
                lock_ns: mean(|s| s.residence.value),
                queue: all.iter().map(|s| s.queue).sum(),
                utilisation: mean(|s| s.utilisation),
                qd: None,
            }
        });
        Point {
            threads,
            solver: Solver::Simulation,
            throughput_per_ns: seen.throughput.value,
            throughput_interval_per_ns: [seen.throughput.low, seen.throughput.high],
            locks: locks.collect(),
            contention_fraction: Some(seen.waiting.value),
            contention_fraction_interval: Some([seen.waiting.low, seen.waiting.high]),
        }
    };
    Ok(input.threads.iter().map(point).collect())
}
