//! The numbers that the definitions give as checks, and models as JSON.

use super::super::predict::predict;
use super::super::schema::{Algorithm, Input, LockInput, Overhead, Solver};
use super::super::stationary;
use super::{close, program};
use serde_json::json;

#[test]
fn one_lock_with_one_and_two_threads_and_many() {
    let prediction = predict(&program(&[(1.0, 1_000.0)], 1_000.0, &[1, 2, 5_000])).unwrap();
    let [one, two, many] = &prediction.points[..] else { panic!("three points") };
    assert_eq!((one.locks[0].wait_ns, one.solver), (0.0, Solver::Exact));
    close(one.throughput_per_ns, 0.0005, 1e-12);
    close(two.throughput_per_ns, 0.0008, 1e-12);
    close(two.locks[0].wait_ns, 500.0, 1e-12);
    close(two.locks[0].lock_ns, 1_500.0, 1e-12);
    close(two.locks[0].queue, 1.2, 1e-12);
    close(two.locks[0].utilisation, 0.8, 1e-12);
    close(two.contention_fraction.unwrap(), 0.2, 1e-12);
    close(many.throughput_per_ns, 1.0 / 1_000.0, 1e-9);
}

#[test]
fn the_contract_is_kept() {
    let input: Input = serde_json::from_value(json!({
        "model": "qd-wait", "threads": [4, 1], "solver": "auto", "unknown": 7,
        "locks": [{"name": "fifo", "helper_hold_ns": 900, "other_hold_ns": 1000}, {"name": "heap", "hold_ns": 2000, "overhead_ns": 5}],
        "routing": [[0.5, 0.5], [1, 0]], "local_ns": [[3000, 1000], [500, 0]],
        "lock_overhead_ns": 172, "delegation_overhead_ns": [172, 200, 300, 500]
    }))
    .unwrap();
    let prediction = serde_json::to_value(predict(&input).unwrap()).unwrap();
    assert_eq!(prediction["schema"], "lockbpf.prediction/1");
    assert_eq!(prediction["model"], "qd-wait");
    assert!(prediction["assumptions"].as_array().unwrap().len() >= 4);
    let point = &prediction["points"][0];
    assert_eq!((&point["threads"], &point["solver"]), (&json!(4), &json!("exact")));
    assert_eq!(point.get("contention_fraction"), None);
    for field in [
        "wait_ns",
        "lock_ns",
        "queue",
        "utilisation",
        "wait_helper_ns",
        "wait_other_ns",
        "delegation_helper_ns",
        "delegation_other_ns",
        "delegation_ns",
        "contending",
    ] {
        assert!(point["locks"][1][field].as_f64().is_some(), "{field}: {point}");
    }
    let low = point["locks"][0]["wait_interval_ns"][0].as_f64();
    assert!(low < point["locks"][0]["wait_ns"].as_f64() && low > Some(0.0), "{point}");
    // One thread: nobody helps and nobody waits.
    let alone = &prediction["points"][1];
    assert_eq!(
        (alone["locks"][0]["wait_ns"].as_f64(), alone["locks"][0]["contending"].as_f64()),
        (Some(0.0), Some(0.0))
    );
    let think = 2.0 / 3.0 * (0.5 * 3_000.0 + 0.5 * 1_000.0) + 1.0 / 3.0 * 500.0;
    close(alone["throughput_per_ns"].as_f64().unwrap(), 1.0 / ((2.0 * 1_072.0 + 2_172.0) / 3.0 + think), 1e-9);
    let written = serde_json::to_value(&input).unwrap();
    assert_eq!(serde_json::from_value::<Input>(written).unwrap(), input);
}

#[test]
fn visits_are_stationary() {
    let close_to = |r: &[&[f64]], expected: &[f64]| {
        let r: Vec<Vec<f64>> = r.iter().map(|row| row.to_vec()).collect();
        for (found, expected) in stationary(&r, "routing").unwrap().iter().zip(expected) {
            assert!((found - expected).abs() < 2e-12, "{r:?}: {found} for {expected}");
        }
    };
    close_to(&[&[1.0]], &[1.0]);
    close_to(&[&[0.5, 0.5], &[1.0, 0.0]], &[2.0 / 3.0, 1.0 / 3.0]);
    // A circle, which never comes to rest but has its shares; and a lock that is left for ever.
    close_to(&[&[0.0, 1.0, 0.0], &[0.0, 0.0, 1.0], &[1.0, 0.0, 0.0]], &[1.0 / 3.0; 3]);
    close_to(&[&[0.5, 0.5, 0.0], &[0.0, 0.0, 1.0], &[0.0, 1.0, 0.0]], &[0.0, 0.5, 0.5]);
    // Shares as different as can be.
    close_to(&[&[1.0 - 1e-12, 1e-12], &[1.0, 0.0]], &[1.0, 1e-12]);
}

#[test]
fn a_qd_lock_is_a_fixpoint() {
    let mut input = program(&[(1.0, 1_000.0)], 2_000.0, &[8]);
    input.model = Algorithm::QdWait;
    (input.lock_overhead_ns, input.delegation_overhead_ns) = (Some(172.0), vec![172.0, 200.0, 380.0, 600.0, 900.0]);
    let prediction = predict(&input).unwrap();
    let [point] = &prediction.points[..] else { panic!("one point") };
    let qd = point.locks[0].qd.unwrap();
    // What k means for the helper and the others, written out.
    let delegation = super::super::qd::delegation(&input.delegation_overhead_ns, qd.contending);
    let helper = super::class(1, 2_000.0 + qd.contending * 1_000.0, &[(1.0, 1_172.0)]);
    let others = super::class(7, 2_000.0, &[(1.0, 1_000.0 + delegation)]);
    let solved = super::super::classes::solve(&[helper, others], &[]).unwrap();
    close(solved[1].queue[0], qd.contending, 1e-7);
    close(qd.wait_helper_ns, solved[0].residence[0] - 1_172.0, 1e-6);
    close(qd.delegation_helper_ns, solved[0].residence[0] + qd.contending * 1_000.0, 1e-6);
    close(qd.delegation_other_ns, solved[1].residence[0], 1e-6);
    let [x_h, x_o] = [solved[0].throughput, solved[1].throughput];
    let mean = (x_h * qd.delegation_helper_ns + x_o * qd.delegation_other_ns) / (x_h + x_o);
    close(qd.delegation_ns, mean, 1e-6);
    close(point.throughput_per_ns, x_h + x_o, 1e-6);
}

#[test]
fn one_lock_of_several_may_be_a_qd_lock() {
    let mut input = program(&[(1.0, 1_000.0), (1.0, 500.0)], 500.0, &[6]);
    input.locks[0].algorithm = Some(Algorithm::QdWait);
    input.locks[1].overhead_ns = Overhead::ByWaiters(vec![50.0, 100.0, 300.0]);
    (input.lock_overhead_ns, input.delegation_overhead_ns) = (Some(100.0), vec![100.0, 100.0]);
    let prediction = predict(&input).unwrap();
    let [qd, mutex] = &prediction.points[0].locks[..] else { panic!("two locks") };
    assert!(qd.qd.is_some() && mutex.qd.is_none());
    assert!(mutex.lock_ns > 550.0 + mutex.wait_ns - 1e-6 && mutex.lock_ns < 800.0 + mutex.wait_ns, "{mutex:?}");
}

#[test]
fn overhead_by_waiters_lets_throughput_collapse() {
    let mut input = program(&[(1.0, 500.0)], 500.0, &[1, 2, 4, 8, 16]);
    input.locks[0].overhead_ns = Overhead::ByWaiters(vec![20.0, 400.0, 800.0, 1_200.0]);
    let points = predict(&input).unwrap().points;
    close(points[0].throughput_per_ns, 1.0 / 1_020.0, 1e-12);
    assert!(points[4].throughput_per_ns < points[1].throughput_per_ns, "{points:?}");
    // Always three waiters and more: the last entry.
    close(points[4].throughput_per_ns, 1.0 / 1_700.0, 0.01);
    // The same table for every number of waiters is no table.
    input.locks[0].overhead_ns = Overhead::ByWaiters(vec![70.0]);
    let table = predict(&input).unwrap().points;
    input.locks[0].overhead_ns = Overhead::Constant(70.0);
    for (a, b) in table.iter().zip(predict(&input).unwrap().points) {
        close(a.throughput_per_ns, b.throughput_per_ns, 1e-9);
        close(a.locks[0].queue, b.locks[0].queue, 1e-9);
        close(a.throughput_interval_per_ns[1], b.throughput_interval_per_ns[1], 1e-9);
    }
}

#[test]
fn a_split_lock_is_several_locks() {
    let mut input = program(&[(1.0, 1_000.0), (3.0, 200.0)], 700.0, &[1, 5, 9]);
    input.locks[0].shards = Some(4);
    let split = predict(&input).unwrap().points;
    let by_hand = [(1.0, 1_000.0), (1.0, 1_000.0), (1.0, 1_000.0), (1.0, 1_000.0), (12.0, 200.0)];
    for (a, b) in split.iter().zip(predict(&program(&by_hand, 700.0, &[1, 5, 9])).unwrap().points) {
        close(a.throughput_per_ns, b.throughput_per_ns, 1e-12);
        close(a.locks[0].wait_ns + 1.0, b.locks[3].wait_ns + 1.0, 1e-9);
        close(a.locks[0].utilisation, b.locks[0].utilisation, 1e-9);
        close(a.locks[0].queue, 4.0 * b.locks[0].queue, 1e-9);
    }
}

#[test]
fn readers_let_each_other_in() {
    let mut input = program(&[(1.0, 1_000.0)], 1_000.0, &[8]);
    let mutex = predict(&input).unwrap().points[0].clone();
    input.locks[0] = LockInput { algorithm: Some(Algorithm::Rwlock), read_share: Some(0.0), ..input.locks[0].clone() };
    let writers = predict(&input).unwrap().points[0].clone();
    assert_eq!(writers.solver, Solver::Simulation);
    close(writers.locks[0].wait_ns, mutex.locks[0].wait_ns, 0.02);
    input.locks[0].read_share = Some(1.0);
    let readers = predict(&input).unwrap().points[0].clone();
    assert_eq!(readers.locks[0].wait_ns, 0.0);
    close(readers.throughput_per_ns, 8.0 / 2_000.0, 0.02);
    input.locks[0].read_share = Some(0.9);
    let mixed = predict(&input).unwrap().points[0].locks[0].wait_ns;
    assert!(mixed > 0.0 && mixed < mutex.locks[0].wait_ns / 2.0, "{mixed}");
}

#[test]
fn classes_share_the_threads() {
    let mut input = program(&[(1.0, 1_000.0), (1.0, 1_000.0)], 1_000.0, &[5]);
    let own = |lock: usize| {
        let mut rows = vec![vec![0.0; 2]; 2];
        rows.iter_mut().for_each(|row| row[lock] = 1.0);
        rows
    };
    let class = |lock: usize, share: f64| super::super::schema::ClassInput {
        name: format!("class {lock}"),
        share,
        routing: own(lock),
        local_ns: vec![vec![1_000.0; 2]; 2],
        hold_ns: Vec::new(),
    };
    input.classes = vec![class(0, 0.4), class(1, 0.6)];
    let point = predict(&input).unwrap().points[0].clone();
    // Two threads at the first lock and three at the second never meet.
    let alone = |n: u32| predict(&program(&[(1.0, 1_000.0)], 1_000.0, &[n])).unwrap().points[0].clone();
    close(point.locks[0].wait_ns, alone(2).locks[0].wait_ns, 1e-9);
    close(point.locks[1].queue, alone(3).locks[0].queue, 1e-9);
    close(point.throughput_per_ns, alone(2).throughput_per_ns + alone(3).throughput_per_ns, 1e-9);
}
