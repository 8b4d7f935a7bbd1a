//! Queue delegation whose threads do not wait.

use super::super::predict::predict;
use super::super::schema::{Algorithm, Input, Solver};
use super::{close, program};

fn detached(hold: f64, local: f64, overhead: f64, threads: u32) -> Input {
    let mut input = program(&[(1.0, hold)], local, &[threads]);
    input.model = Algorithm::Qd;
    (input.lock_overhead_ns, input.detached_overhead_ns) = (Some(0.0), Some(overhead));
    input
}

fn throughput(input: &Input) -> f64 {
    let point = predict(input).unwrap().points.remove(0);
    assert_eq!(point.solver, Solver::Simulation);
    point.throughput_per_ns
}

#[test]
fn one_thread_executes_its_own_sections() {
    close(throughput(&detached(500.0, 1_500.0, 1e6, 1)), 1.0 / 2_000.0, 0.02);
}

#[test]
fn nobody_waits_while_there_is_place() {
    // A lock that is seldom used: the other thread goes on, the helper executes what it left.
    let (hold, local) = (100.0, 10_000.0);
    let free = throughput(&detached(hold, local, 0.0, 2));
    assert!(free > 2.0 / (hold + local) * 0.99 && free < 2.0 / local, "{free}");
    // Both pay for a delegated section: the thread that leaves it, and the helper.
    assert!(
        throughput(&detached(5_000.0, 5_000.0, 3_000.0, 2)) < 0.9 * throughput(&detached(5_000.0, 5_000.0, 0.0, 2))
    );
}

#[test]
fn a_lock_is_not_faster_than_its_sections() {
    for threads in [2, 3, 16] {
        let most = throughput(&detached(1_000.0, 100.0, 0.0, threads));
        assert!(most <= 1.01 / 1_000.0 && most > 0.95 / 1_000.0, "{threads}: {most}");
    }
}

#[test]
fn what_leaving_a_section_takes_has_to_be_known() {
    let input = Input { detached_overhead_ns: None, ..detached(100.0, 100.0, 0.0, 2) };
    assert!(predict(&input).unwrap_err().to_string().contains("detached_overhead_ns"));
}
