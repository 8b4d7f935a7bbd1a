//! More threads than CPUs.

use super::super::cores::unstretch;
use super::super::predict::predict;
use super::super::schema::{Algorithm, Input, Recorded};
use super::{close, program};

fn on(cores: Option<u32>, threads: &[u32]) -> Input {
    Input { cores, ..program(&[(1.0, 1_000.0)], 5_000.0, threads) }
}

fn throughputs(input: &Input) -> Vec<f64> {
    predict(input).unwrap().points.iter().map(|point| point.throughput_per_ns).collect()
}

#[test]
fn threads_that_do_not_wait_share_the_cpus() {
    let (alone, shared) = (throughputs(&on(None, &[1, 2, 4, 40])), throughputs(&on(Some(2), &[1, 2, 4, 40])));
    assert_eq!(alone[..2], shared[..2]);
    // Two CPUs of work, and somewhat less where they have to wait for the lock all the same.
    close(shared[2], 2.0 / 6_000.0, 0.01);
    // Nearly all of so many sleep for the lock, and whoever holds it has a CPU.
    assert!(shared[3] <= 1.0 / 1_000.0 && shared[3] > 2.0 / 6_000.0 * 0.99, "{}", shared[3]);
}

#[test]
fn intervals_hold_what_happens_if_nobody_sleeps_in_time() {
    let point = predict(&on(Some(2), &[4])).unwrap().points.remove(0);
    let [low, high] = point.throughput_interval_per_ns;
    assert!(low < point.throughput_per_ns && point.throughput_per_ns <= high, "{low} {high}");
    let mut spinning = on(Some(2), &[4]);
    spinning.locks[0].spins = true;
    let prediction = predict(&spinning).unwrap();
    let point = &prediction.points[0];
    assert!(point.throughput_per_ns < throughputs(&on(Some(2), &[4]))[0]);
    assert_eq!(point.throughput_interval_per_ns[0], 0.0);
    assert!(prediction.assumptions.join("\n").contains("intervals begin at 0"));
}

#[test]
fn waits_for_cpus_are_taken_out_of_a_recording_of_many_threads() {
    let truth = on(Some(2), &[1, 4, 8]);
    let observed = throughputs(&truth)[1];
    // Recorded with four threads, everything took as much longer as they had too few CPUs.
    let times = throughputs(&on(None, &[4]))[0] / observed;
    assert!(times > 1.5, "{times}");
    let mut recorded = program(&[(1.0, 1_000.0 * times)], 5_000.0 * times, &[1, 4, 8]);
    recorded.cores = Some(2);
    recorded.recorded = Some(Recorded { threads: 4, ..Recorded::default() });
    recorded.bounds = vec![recorded.clone()];
    unstretch(&mut recorded, 2).unwrap();
    for (a, b) in throughputs(&recorded).into_iter().zip(throughputs(&truth)) {
        close(a, b, 1e-9);
    }
    close(recorded.bounds[0].locks[0].hold_ns.unwrap(), 1_000.0, 1e-9);
    // Recorded with a CPU for each thread there is nothing to take out.
    let mut few = Input { recorded: Some(Recorded { threads: 2, ..Recorded::default() }), ..truth.clone() };
    unstretch(&mut few, 2).unwrap();
    assert_eq!(few.locks, truth.locks);
}

#[test]
fn who_waits_for_delegated_work_uses_a_cpu() {
    let mut input = on(Some(2), &[2, 4]);
    input.model = Algorithm::QdWait;
    input.lock_overhead_ns = Some(50.0);
    input.delegation_overhead_ns = vec![50.0];
    let (shared, alone) = (throughputs(&input), throughputs(&Input { cores: None, ..input.clone() }));
    assert_eq!(shared[0], alone[0]);
    close(shared[1], alone[1] / 2.0, 1e-9);
    assert!(predict(&Input { cores: Some(0), ..input }).is_err());
}
