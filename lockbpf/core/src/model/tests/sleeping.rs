//! Mutexes for which threads sleep.

use super::super::calibration::{Calibration, Figure};
use super::super::predict::predict;
use super::super::schema::{Algorithm, Input, Sleep, Solver};
use super::super::with::{With, replace};
use super::{close, program};

fn asleep(hold: f64, local: f64, sleep: Option<Sleep>, threads: &[u32]) -> Input {
    let mut input = program(&[(1.0, hold)], local, threads);
    input.locks[0].sleep = sleep;
    input.solver = Solver::Simulation;
    input
}

fn throughput(input: &Input) -> f64 {
    predict(input).unwrap().points[0].throughput_per_ns
}

const SLEEP: Sleep = Sleep { wake_ns: 7_400.0, call_ns: 1_500.0 };

#[test]
fn sleep_that_costs_nothing_is_none() {
    let none = Some(Sleep::default());
    for threads in [1, 2, 5] {
        let (with, without) = (asleep(500.0, 800.0, none, &[threads]), asleep(500.0, 800.0, None, &[threads]));
        close(throughput(&with), throughput(&without), 0.02);
    }
}

#[test]
fn one_thread_never_sleeps() {
    close(throughput(&asleep(500.0, 500.0, Some(SLEEP), &[1])), 1.0 / 1_000.0, 0.02);
}

#[test]
fn who_releases_takes_it_again_before_the_other_is_awake() {
    // Two threads, long latencies: one of them goes on alone, but for the calls that wake the other.
    let slow = Sleep { wake_ns: 1e6, call_ns: 0.0 };
    close(throughput(&asleep(500.0, 500.0, Some(slow), &[2])), 1.0 / 1_000.0, 0.05);
    // Calls that take long make it slower than one thread by itself.
    let dear = Sleep { wake_ns: 5_000.0, call_ns: 5_000.0 };
    assert!(throughput(&asleep(500.0, 500.0, Some(dear), &[2])) < 0.7 / 1_000.0);
}

/// Two threads on two CPUs, one mutex of glibc: operations per ms as measured on a virtual machine where handing on to a sleeping thread
/// takes 7.4 µs, and as played with that and a call of 1.5 µs.
#[test]
fn regimes_of_a_real_mutex() {
    for (hold, local, measured) in [
        (200.0, 1_000.0, 1_006.0),
        (1_000.0, 1_000.0, 453.0),
        (5_000.0, 1_000.0, 127.0),
        (5_000.0, 5_000.0, 99.0),
        (5_000.0, 20_000.0, 65.0),
    ] {
        let played = throughput(&asleep(hold, local, Some(SLEEP), &[2])) * 1e6;
        close(played, measured, 0.2);
    }
}

#[test]
fn however_threads_come_and_go_a_play_ends() {
    for (hold, local) in [(0.0, 1.0), (1.0, 0.0), (1e9, 1.0), (1.0, 1e9)] {
        for sleep in [Sleep { wake_ns: 0.0, call_ns: 0.0 }, Sleep { wake_ns: 1e12, call_ns: 0.0 }, SLEEP] {
            for cores in [None, Some(1)] {
                let input = Input { cores, ..asleep(hold, local, Some(sleep), &[1, 2, 64]) };
                assert!(predict(&input).unwrap().points.iter().all(|point| point.throughput_per_ns > 0.0));
            }
        }
    }
}

#[test]
fn todays_mutex_sleeps_as_long_as_was_measured() {
    let figure = |ns: f64| Figure { median_ns: ns, low_ns: ns / 2.0, high_ns: ns * 2.0 };
    let machine = Calibration {
        mutex: vec![figure(20.0), figure(150.0)],
        hand_off: figure(7_000.0),
        wake_call: figure(1_000.0),
        ..Calibration::default()
    };
    let mut input = program(&[(1.0, 1_000.0)], 1_000.0, &[2]);
    replace(&mut input, &[0], With::Mutex, Some(&machine)).unwrap();
    assert_eq!(input.locks[0].sleep, Some(Sleep { wake_ns: 7_000.0, call_ns: 1_000.0 }));
    let point = predict(&input).unwrap().points.remove(0);
    let [low, high] = point.throughput_interval_per_ns;
    assert_eq!(point.solver, Solver::Simulation);
    assert!(low < 0.95 * point.throughput_per_ns && high > 1.05 * point.throughput_per_ns, "{low} {high}");
    // Solved exactly it is a lock that everyone waits for awake.
    let awake = Input { solver: Solver::Exact, ..input.clone() };
    assert!(throughput(&awake) > 1.3 * point.throughput_per_ns);
    // Other locks in its place do not sleep.
    let machine = Calibration { mcs: machine.mutex.clone(), ..machine };
    replace(&mut input, &[0], With::Mcs, Some(&machine)).unwrap();
    assert!(input.locks[0].sleep.is_none() && input.bounds.iter().all(|bound| bound.locks[0].sleep.is_none()));
    let mut wrong = asleep(1.0, 1.0, Some(Sleep { wake_ns: f64::NAN, call_ns: 0.0 }), &[1]);
    assert!(predict(&wrong).unwrap_err().to_string().contains("wake_ns"));
    wrong.locks[0].sleep = None;
    assert!(predict(&wrong).is_ok());
}

#[test]
fn rwlocks_are_slept_for() {
    let of = |share: f64, sleep, threads: u32| {
        let mut input = asleep(1_000.0, 1_000.0, sleep, &[threads]);
        (input.locks[0].algorithm, input.locks[0].read_share) = (Some(Algorithm::Rwlock), Some(share));
        throughput(&input)
    };
    // Who only writes has a mutex, who only reads never waits.
    close(of(0.0, Some(SLEEP), 3), throughput(&asleep(1_000.0, 1_000.0, Some(SLEEP), &[3])), 0.02);
    close(of(1.0, Some(SLEEP), 3), 3.0 / 2_000.0, 0.02);
    let (awake, sleeping) = (of(0.5, None, 4), of(0.5, Some(SLEEP), 4));
    assert!(sleeping < 0.8 * awake, "{sleeping} {awake}");
    close(of(0.5, Some(Sleep::default()), 4), awake, 0.05);
}
