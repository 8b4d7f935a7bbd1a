//! The formulas against the simulation.

use super::super::predict::predict;
use super::super::schema::{Algorithm, Input};
use super::super::simulation::{self, Lock, Pattern, Setup, Times};
use super::super::tally::Outcome;
use super::program;

/// Plays what the formulas are asked, with sections of these distributions.
fn play(input: &Input, threads: u32, hold: impl Fn(f64) -> Times, local: impl Fn(f64) -> Times) -> Outcome {
    let lock = |_: &_| Lock {
        algorithm: input.model,
        overhead: input.lock_overhead_ns.unwrap_or(0.0),
        delegation: input.delegation_overhead_ns.clone(),
        ..Lock::mutex()
    };
    let times = |row: &Vec<f64>| row.iter().map(|&z| local(z)).collect();
    simulation::run(&Setup {
        locks: input.locks.iter().map(lock).collect(),
        patterns: vec![Pattern {
            routing: input.routing.clone(),
            local: input.local_ns.iter().map(times).collect(),
            hold: input.locks.iter().map(|l| hold(l.hold_ns.unwrap())).collect(),
        }],
        threads: vec![0; threads as usize],
        operations: 100_000,
        seed: 7,
    })
}

/// Section lengths as a program had them: most are short, a few are long. Their mean is 1.
const MEASURED: [f64; 10] = [0.3, 0.35, 0.35, 0.4, 0.4, 0.45, 0.5, 0.75, 1.5, 5.0];

fn measured(mean: f64) -> Times {
    Times::Measured(MEASURED.iter().map(|part| part * mean).collect())
}

const LOCKS: [&[(f64, f64)]; 3] =
    [&[(1.0, 1_000.0)], &[(1.0, 1_000.0), (2.0, 700.0)], &[(1.0, 300.0), (1.0, 2_000.0), (3.0, 500.0), (5.0, 100.0)]];

#[test]
fn exponential_sections_agree_within_two_percent() {
    for locks in LOCKS {
        for (local, threads) in [(1_000.0, 2), (1_000.0, 8), (10_000.0, 4), (10_000.0, 16)] {
            let input = program(locks, local, &[threads]);
            let model = predict(&input).unwrap().points.remove(0);
            let truth = play(&input, threads, Times::Exponential, Times::Exponential);
            let what = format!("{locks:?}, {local} ns, {threads} threads");
            let off = model.throughput_per_ns / truth.throughput.value - 1.0;
            assert!(off.abs() < 0.02, "{what}: throughput {off}");
            for (lock, seen) in model.locks.iter().zip(&truth.locks) {
                let off = (lock.lock_ns - seen.residence.value) / seen.residence.value;
                // Long queues are seldom renewed: the simulation's own interval is added.
                let unsure = (seen.residence.high - seen.residence.low) / 2.0 / seen.residence.value;
                assert!(off.abs() < 0.02 + unsure, "{what}: {} {off} ± {unsure}", lock.name);
                assert!((lock.utilisation - seen.utilisation).abs() < 0.02, "{what}: {}", lock.name);
            }
        }
    }
}

#[test]
fn the_kind_of_local_work_does_not_matter() {
    // A delay's distribution is no matter, only its mean.
    for local in [measured as fn(f64) -> Times, Times::Constant] {
        let input = program(LOCKS[1], 3_000.0, &[6]);
        let model = predict(&input).unwrap().points.remove(0);
        let truth = play(&input, 6, Times::Exponential, local);
        assert!((model.throughput_per_ns / truth.throughput.value - 1.0).abs() < 0.02);
    }
}

#[test]
fn other_sections_are_within_the_interval() {
    for (hold, cv) in [(Times::Constant as fn(f64) -> Times, 0.0), (measured, 1.36)] {
        for locks in LOCKS {
            for (local, threads) in [(2_000.0, 4), (10_000.0, 12)] {
                let mut input = program(locks, local, &[threads]);
                input.locks.iter_mut().for_each(|lock| lock.hold_cv = Some(cv));
                let model = predict(&input).unwrap().points.remove(0);
                let truth = play(&input, threads, hold, Times::Exponential);
                let [low, high] = model.throughput_interval_per_ns;
                let (x, what) = (truth.throughput.value, format!("{locks:?}, {local} ns, {threads} threads, cv {cv}"));
                assert!(low * 0.97 <= x && x <= high * 1.03, "{what}: {low} {x} {high}");
            }
        }
    }
}

#[test]
fn qd_locks_are_within_what_the_paper_reports() {
    let mut off = Vec::new();
    for locks in LOCKS {
        for (local, threads) in [(1_000.0, 4), (5_000.0, 8), (10_000.0, 16)] {
            for hold in [Times::Exponential as fn(f64) -> Times, Times::Constant, measured] {
                let mut input = program(locks, local, &[threads]);
                input.model = Algorithm::QdWait;
                (input.lock_overhead_ns, input.delegation_overhead_ns) =
                    (Some(172.0), vec![172.0, 190.0, 250.0, 350.0, 500.0]);
                let model = predict(&input).unwrap().points.remove(0);
                let truth = play(&input, threads, hold, Times::Exponential);
                // As in the paper: the time from delegating to going on, at locks that matter.
                for (lock, seen) in model.locks.iter().zip(&truth.locks).filter(|(_, seen)| seen.utilisation > 0.05) {
                    let delegation = lock.qd.unwrap().delegation_ns;
                    off.push((delegation / seen.residence.value - 1.0).abs());
                }
            }
        }
    }
    let mean = off.iter().sum::<f64>() / off.len() as f64;
    assert!(off.len() >= 27 && mean < 0.24, "{mean}: {off:?}");
}

#[test]
fn the_same_seed_plays_the_same() {
    let input = program(LOCKS[1], 500.0, &[3]);
    let [a, b] = [(); 2].map(|()| play(&input, 3, Times::Exponential, Times::Exponential));
    assert_eq!(a, b);
}

#[test]
fn constant_times_need_no_luck() {
    // One thread: 100 in the section, 400 outside.
    let input = program(&[(1.0, 100.0)], 400.0, &[1]);
    let seen = play(&input, 1, Times::Constant, Times::Constant);
    assert!((seen.throughput.value * 500.0 - 1.0).abs() < 1e-9, "{seen:?}");
    assert_eq!((seen.locks[0].wait.value, seen.waiting.value), (0.0, 0.0));
    assert!((seen.locks[0].utilisation - 0.2).abs() < 1e-4, "{seen:?}");
}

#[test]
fn times_vary_as_they_are_to() {
    for cv in [0.0, 0.3, 1.0, 1.5, 4.0] {
        let mut input = program(&[(1.0, 100.0)], 0.0, &[1]);
        input.locks[0].hold_cv = Some(cv);
        // One thread: the mean is what counts.
        input.solver = super::super::schema::Solver::Simulation;
        let seen = predict(&input).unwrap().points.remove(0);
        assert!((seen.throughput_per_ns * 100.0 - 1.0).abs() < 0.05, "{cv}: {seen:?}");
    }
    let wait = |cv: f64| {
        let mut input = program(&[(1.0, 100.0)], 1_000.0, &[2]);
        input.locks[0].hold_cv = Some(cv);
        input.solver = super::super::schema::Solver::Simulation;
        predict(&input).unwrap().points.remove(0).locks[0].wait_ns
    };
    // Who waits, waits for the rest of a section: longer the more sections vary.
    let waits = [0.0, 1.0, 3.0].map(wait);
    assert!(waits[0] * 1.5 < waits[1] && waits[1] * 1.5 < waits[2], "{waits:?}");
}
