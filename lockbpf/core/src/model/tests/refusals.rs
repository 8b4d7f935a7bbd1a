//! Inputs without a meaning are refused, and the field is named.

use super::super::predict::predict;
use super::super::schema::{Algorithm, ClassInput, Input, Overhead, Solver};
use super::program;

fn good() -> Input {
    program(&[(1.0, 100.0), (2.0, 50.0)], 10.0, &[1, 2])
}

type Spoil = fn(&mut Input);

#[test]
fn each_field_is_named() {
    let cases: [(Spoil, &str); 24] = [
        (|i| i.locks.clear(), "`locks`"),
        (|i| i.threads.clear(), "`threads`"),
        (|i| i.threads[1] = 0, "`threads[1]`"),
        (|i| i.locks[1].hold_ns = None, "`locks[1].hold_ns`"),
        (|i| i.locks[0].hold_ns = Some(-1.0), "`locks[0].hold_ns`"),
        (|i| i.locks[0].hold_ns = Some(f64::INFINITY), "`locks[0].hold_ns`"),
        (|i| i.locks[0].hold_cv = Some(f64::NAN), "`locks[0].hold_cv`"),
        (|i| i.locks[0].shards = Some(0), "`locks[0].shards`"),
        (|i| i.locks[0].shards = Some(u32::MAX), "`locks`"),
        (|i| i.locks[1].overhead_ns = Overhead::ByWaiters(Vec::new()), "`locks[1].overhead_ns`"),
        (|i| i.locks[1].overhead_ns = Overhead::ByWaiters(vec![1.0, -2.0]), "`locks[1].overhead_ns[1]`"),
        (|i| i.locks[1].algorithm = Some(Algorithm::Rwlock), "`locks[1].read_share`"),
        (|i| i.routing[1][0] = 0.5, "`routing[1]`"),
        (|i| i.routing[0][1] = f64::NAN, "`routing[0][1]`"),
        (|i| i.routing.truncate(1), "`routing`"),
        (|i| i.routing[0].truncate(1), "`routing[0]`"),
        (|i| i.routing = vec![vec![1.0, 0.0], vec![0.0, 1.0]], "`routing`"),
        (|i| i.local_ns[1].truncate(1), "`local_ns[1]`"),
        (|i| i.local_ns[1][1] = -0.5, "`local_ns[1][1]`"),
        (
            |i| {
                i.local_ns = vec![vec![0.0; 2]; 2];
                i.locks.iter_mut().for_each(|l| l.hold_ns = Some(0.0));
            },
            "`local_ns`",
        ),
        (|i| i.model = Algorithm::QdWait, "`lock_overhead_ns`"),
        (
            |i| {
                i.model = Algorithm::QdWait;
                i.lock_overhead_ns = Some(1.0);
            },
            "`delegation_overhead_ns`",
        ),
        (|i| i.classes = vec![ClassInput { share: -1.0, ..ClassInput::default() }], "`classes[0].share`"),
        (|i| (i.solver, i.threads) = (Solver::Exact, vec![u32::MAX]), "`solver`"),
    ];
    assert!(predict(&good()).is_ok());
    for (spoil, field) in cases {
        let mut input = good();
        spoil(&mut input);
        let error = predict(&input).expect_err(field).to_string();
        assert!(error.starts_with(&format!("{field}: ")), "{field}: {error}");
    }
}

#[test]
fn what_is_too_large_for_an_exact_solution_is_approximated() {
    let mut input = good();
    input.threads = vec![u32::MAX];
    let point = predict(&input).unwrap().points.remove(0);
    assert_eq!(point.solver, Solver::Schweitzer);
    assert!((point.throughput_per_ns * 100.0 / 3.0 - 1.0).abs() < 1e-3, "{point:?}");
}
