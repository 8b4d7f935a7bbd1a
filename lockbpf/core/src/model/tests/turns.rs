//! More threads than CPUs, which take turns on them.

use super::super::predict::predict;
use super::super::rank::rank;
use super::super::schema::{Algorithm, Input, Overhead, Point, Sleep, Solver};
use super::{close, program};

const SLICE: f64 = 4e6;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Sleeps,
    Reads,
    Spins,
    InTurn,
    QdWait,
    Qd,
}

const ALL: [Kind; 6] = [Kind::Sleeps, Kind::Reads, Kind::Spins, Kind::InTurn, Kind::QdWait, Kind::Qd];

fn input(kind: Kind, hold: f64, local: f64, cores: u32, threads: &[u32]) -> Input {
    let mut input = program(&[(1.0, hold)], local, threads);
    (input.cores, input.slice_ns) = (Some(cores), Some(SLICE));
    (input.lock_overhead_ns, input.detached_overhead_ns) = (Some(0.0), Some(0.0));
    input.delegation_overhead_ns = vec![0.0];
    let lock = &mut input.locks[0];
    match kind {
        Kind::Sleeps => lock.sleep = Some(Sleep::default()),
        Kind::Reads => (lock.algorithm, lock.read_share) = (Some(Algorithm::Rwlock), Some(0.5)),
        Kind::Spins => lock.spins = true,
        Kind::InTurn => (lock.spins, lock.in_turn) = (true, true),
        Kind::QdWait => lock.algorithm = Some(Algorithm::QdWait),
        Kind::Qd => lock.algorithm = Some(Algorithm::Qd),
    }
    input
}

fn point(input: &Input) -> Point {
    predict(input).unwrap().points.remove(0)
}

#[test]
fn no_lock_makes_more_of_the_cpus_than_there_is() {
    for kind in ALL {
        for (cores, threads) in [(1, 3), (2, 4), (2, 16)] {
            let point = point(&input(kind, 1_000.0, 4_000.0, cores, &[threads]));
            assert_eq!(point.solver, Solver::Simulation);
            let rate = point.throughput_per_ns * 5_000.0;
            assert!(rate > 0.0 && rate <= f64::from(cores) * 1.03, "{kind:?} {cores} {threads}: {rate}");
            let [low, high] = point.throughput_interval_per_ns;
            assert!(low <= point.throughput_per_ns && point.throughput_per_ns <= high);
        }
    }
}

#[test]
fn on_one_cpu_hardly_anybody_meets_a_lock_that_is_taken() {
    // Two threads that take turns, on a CPU that does nothing but their work.
    for kind in [Kind::Sleeps, Kind::Reads] {
        close(point(&input(kind, 1_000.0, 4_000.0, 1, &[2])).throughput_per_ns, 1.0 / 5_000.0, 0.03);
    }
    // Who spins for one whose holder is off the CPU does so for a whole slice: one slice in five ends in a section.
    let spun = point(&input(Kind::Spins, 1_000.0, 4_000.0, 1, &[2])).throughput_per_ns;
    close(spun, 1.0 / 5_000.0 / 1.2, 0.05);
}

#[test]
fn waiting_in_turn_all_but_stops_and_is_no_winner() {
    let [spun, in_turn] = [Kind::Spins, Kind::InTurn].map(|kind| input(kind, 1_000.0, 4_000.0, 2, &[4]));
    let [barging, stopped] = [&spun, &in_turn].map(point);
    assert!(stopped.throughput_per_ns < barging.throughput_per_ns / 20.0, "{stopped:?}");
    // It may go well for a while.
    let [low, high] = stopped.throughput_interval_per_ns;
    assert!(low < 1.01 * stopped.throughput_per_ns && high > barging.throughput_per_ns, "{low} {high}");
    let ranking = rank(&spun, &[("ticket".to_owned(), in_turn)]).unwrap();
    assert!(ranking.points[0].alternatives[0].gain < -0.9 && !ranking.points[0].alternatives[0].may_collapse);
}

#[test]
fn what_waiters_add_is_added() {
    let mut dear = input(Kind::Spins, 1_000.0, 0.0, 2, &[4]);
    let cheap = point(&dear).throughput_per_ns;
    dear.locks[0].overhead_ns = Overhead::ByWaiters(vec![0.0, 1_000.0]);
    let dear = point(&dear).throughput_per_ns;
    assert!(dear < 0.75 * cheap && dear > 0.25 * cheap, "{dear} {cheap}");
}

#[test]
fn threads_with_a_cpu_each_are_predicted_as_before() {
    let mixed = predict(&input(Kind::Spins, 1_000.0, 4_000.0, 2, &[4, 1, 2])).unwrap().points;
    assert_eq!(mixed.iter().map(|point| point.threads).collect::<Vec<_>>(), [4, 1, 2]);
    let solvers: Vec<Solver> = mixed.iter().map(|point| point.solver).collect();
    assert_eq!(solvers, [Solver::Simulation, Solver::Exact, Solver::Exact]);
    // Whoever asks for an exact solution gets that of CPUs shared in slices of no length.
    let exact = Input { solver: Solver::Exact, ..input(Kind::Spins, 1_000.0, 4_000.0, 2, &[4]) };
    assert_eq!(point(&exact).throughput_interval_per_ns[0], 0.0);
}

#[test]
fn however_threads_come_and_go_a_play_ends() {
    for kind in ALL {
        for (hold, local) in [(0.0, 1.0), (1.0, 0.0), (1e9, 1.0), (1.0, 1e9)] {
            for (cores, threads) in [(1, 2), (2, 5)] {
                let mut input = input(kind, hold, local, cores, &[threads]);
                if matches!(kind, Kind::Sleeps) {
                    input.locks[0].sleep = Some(Sleep { wake_ns: 1e6, call_ns: 1e5 });
                }
                assert!(point(&input).throughput_per_ns > 0.0, "{kind:?} {hold} {local} {cores} {threads}");
            }
        }
    }
    let wrong = Input { slice_ns: Some(f64::NAN), ..input(Kind::Qd, 1.0, 1.0, 1, &[2]) };
    assert!(predict(&wrong).unwrap_err().to_string().contains("slice_ns"));
    assert!(point(&Input { slice_ns: Some(0.0), ..wrong }).throughput_per_ns > 0.0);
}
