//! Predictions by simulation: for locks that no formula here describes, and for more threads than CPUs.

use super::crowd::{self, Shared};
use super::error::ModelError;
use super::predict::{Checked, algorithm};
use super::schema::{Algorithm, Input, LockPoint, Overhead, Point, Solver};
use super::simulation::{self, Lock, Pattern, Setup, Spins, Times};
use super::tally::{Outcome, Seen};

/// Lock operations played.
const OPERATIONS: u64 = 400_000;
/// The same of mutexes, which are asked about for many numbers of threads.
const FEWER_OPERATIONS: u64 = 100_000;
/// The same of more threads than CPUs, each number of which is played several times.
const CROWDED_OPERATIONS: u64 = 100_000;
/// Threads beyond which that takes too long to settle.
const MAX_THREADS: u32 = 4_096;

/// How threads take turns on CPUs, if they are this many. `None` if each has a CPU of its own, or nobody has measured how long turns are.
pub(super) fn shared(input: &Input, threads: u32) -> Option<Shared> {
    let (cpus, slice_ns) = input.cores.zip(input.slice_ns)?;
    let played = matches!(input.solver, Solver::Auto | Solver::Simulation);
    (played && threads > cpus && threads <= MAX_THREADS).then_some(Shared { cpus, slice_ns, stay: false })
}

/// The same with turns and moves that a kernel may decide on as well.
fn variants(shared: Shared) -> [Shared; 3] {
    let slices = [0.5, 2.0].map(|times| Shared { slice_ns: shared.slice_ns * times, ..shared });
    [Shared { stay: true, ..shared }, slices[0], slices[1]]
}

/// Plays each number of threads: exponential times, but for sections whose coefficient of variation is known.
pub(super) fn points(checked: &Checked<'_>) -> Result<Vec<Point>, ModelError> {
    let input = checked.input;
    if let Some(i) = input.threads.iter().position(|&n| n > MAX_THREADS) {
        return Err(ModelError::invalid(
            format!("threads[{i}]"),
            format!("a simulation takes at most {MAX_THREADS} threads"),
        ));
    }
    let crowded = input.threads.iter().all(|&n| shared(input, n).is_some());
    let mut locks = Vec::new();
    // Of each lock, the first of its shards and how many there are.
    let mut first = Vec::new();
    for (i, lock) in input.locks.iter().enumerate() {
        let algorithm = algorithm(input, lock);
        let overhead = match (&lock.overhead_ns, algorithm) {
            (_, Algorithm::Qd | Algorithm::QdWait) => input.lock_overhead_ns.unwrap_or(0.0),
            (Overhead::Constant(ns), _) => *ns,
            // What waiters add is what they sleep for.
            (Overhead::ByWaiters(table), _) if lock.sleep.is_some() || crowded => table.first().copied().unwrap_or(0.0),
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
            spins: match algorithm {
                Algorithm::Qd | Algorithm::QdWait => Some(Spins::Barging),
                _ => lock.spins.then_some(if lock.in_turn { Spins::InTurn } else { Spins::Barging }),
            },
            contended: match &lock.overhead_ns {
                Overhead::ByWaiters(table) if lock.spins => table.clone(),
                _ => Vec::new(),
            },
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
            operations: match (crowded, rwlock) {
                (true, _) => CROWDED_OPERATIONS,
                (false, true) => OPERATIONS,
                (false, false) => FEWER_OPERATIONS,
            },
            seed: 1,
        };
        let point = |seen: &Outcome| self::point(threads, input, &first, seen);
        let Some(shared) = shared(input, threads) else { return point(&simulation::run(&setup)) };
        let mut likely = point(&crowd::run(&setup, shared));
        for variant in variants(shared) {
            let fewer = Setup { operations: CROWDED_OPERATIONS / 4, ..setup.clone() };
            likely.contain(&point(&crowd::run(&fewer, variant)));
        }
        likely
    };
    Ok(input.threads.iter().map(point).collect())
}

/// What was seen of the locks, of each from its first shard on.
fn point(threads: u32, input: &Input, first: &[(usize, usize)], seen: &Outcome) -> Point {
    let locks = input.locks.iter().zip(first).map(|(lock, &(at, shards))| {
        let all = &seen.locks[at..at + shards];
        let mean = |of: fn(&Seen) -> f64| all.iter().map(of).sum::<f64>() / shards as f64;
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
}
