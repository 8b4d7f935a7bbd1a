//! PinCS: the paper's numbers, and small sets of accesses.

use super::super::occ::{
    Access, Overhead, Saved, Shares, Speedup, benefit, best_case, conflict, corrected, efficiency, pairwise, speedup,
};

fn times(p: f64, exec: f64, wait: f64) -> f64 {
    speedup(Shares { wait, exec }, p).unwrap().factor()
}

#[test]
fn the_numbers_of_the_paper() {
    let near = |a: f64, b: f64| assert!((a - b).abs() < 2e-6, "{a} for {b}");
    near(times(0.187379, 0.289591, 0.373387), 1.442194);
    near(times(0.138535, 0.010531, 0.254773), 1.338831);
    near(times(0.138535, 0.012389, 0.210774), 1.263874);
    near(best_case(0.419515).unwrap(), 1.722697);
}

#[test]
fn conflicts_are_directional() {
    let (reader, writer) = (Access::new(1, [8, 16], []), Access::new(2, [], [16]));
    assert_eq!((reader.conflict_with(&writer), writer.conflict_with(&reader)), (0.5, 0.0));
    assert_eq!(writer.conflict_with(&Access::new(3, [], [16])), 0.5);
    // Apart by location, together by cache line.
    let (a, b) = (Access::new(1, [], [64]), Access::new(2, [], [72]));
    assert_eq!(a.conflict_with(&b), 0.0);
    assert_eq!(a.in_blocks(64).conflict_with(&b.in_blocks(64)), 0.5);
}

#[test]
fn the_nearest_of_each_other_thread_count() {
    let read = |thread| Access::new(thread, [1], []);
    let write = |thread| Access::new(thread, [], [1]);
    assert_eq!(pairwise(&[]), 0.0);
    assert_eq!(pairwise(&[write(1), write(1)]), 0.0, "no other thread, but counted");
    // 2 sees 1 before and 1 after it; each 1 sees 2.
    assert_eq!(pairwise(&[write(1), write(2), write(1)]), 0.5);
    // The reader sees one writer of two neighbours; the writers see nobody write.
    let mixed = [write(1), read(2), read(1)];
    assert!((pairwise(&mixed) - (0.0 + 0.25 + 0.0) / 3.0).abs() < 1e-15);
    // Of a thread's executions, only the nearest before and after: the first one's write is too far away.
    let far = [write(1), read(1), read(2), read(1)];
    assert_eq!(pairwise(&far), 0.0);
    // The mean is over traces in all S together: one of thread 1, two of thread 3.
    let three = [write(3), read(2), read(3), read(1)];
    assert!((pairwise(&three) - (0.5 / 3.0) / 4.0).abs() < 1e-15);
}

#[test]
fn waiting_for_more_conflicts_more() {
    assert_eq!(conflict(0.3, 0.0), Ok(0.0));
    assert!((conflict(0.3, 1.0).unwrap() - 0.3).abs() < 1e-15);
    assert!((conflict(0.5, 2.0).unwrap() - 0.75).abs() < 1e-15);
    assert_eq!(conflict(1.0, 2.0), Ok(1.0));
    assert!(conflict(1.1, 1.0).unwrap_err().to_string().contains("`p_c`"));
    assert!(conflict(0.1, f64::NAN).unwrap_err().to_string().contains("`w_c`"));
}

#[test]
fn certain_conflicts_have_no_speedup() {
    let shares = Shares { wait: 0.5, exec: 0.1 };
    assert_eq!(speedup(shares, 1.0), Ok(Speedup::ConflictsAlways));
    assert_eq!(Speedup::ConflictsAlways.factor(), 0.0);
    assert_eq!(benefit(shares, 1.0), Ok(0.0));
    assert_eq!(benefit(shares, 0.5), Ok(0.4));
    assert_eq!(benefit(Shares { wait: 0.01, exec: 0.5 }, 0.5), Ok(0.0), "it would only cost");
    assert!(speedup(Shares { wait: 1.0, exec: 0.0 }, 0.0).unwrap_err().to_string().contains("`f_wait`"));
    assert!(speedup(Shares { wait: 0.1, exec: -0.1 }, 0.0).unwrap_err().to_string().contains("`f_exec`"));
}

#[test]
fn efficiency_is_weighted_with_time() {
    let threads = [Saved { time: 100.0, benefit: 0.5 }, Saved { time: 300.0, benefit: 0.1 }];
    assert_eq!(efficiency(&threads), Ok(0.2));
    assert_eq!(best_case(0.2), Ok(1.25));
    assert!(efficiency(&[]).is_err() && best_case(1.0).is_err());
}

#[test]
fn what_observing_cost_is_taken_away() {
    let overhead = Overhead { acquisitions: 1_000.0, w_c: 1.5, operation_ns: 100.0 };
    assert_eq!(corrected(1e6, &[overhead]), Ok(650_000.0));
    assert_eq!(corrected(1e6, &[overhead, overhead]), Ok(300_000.0));
    assert!(corrected(1e5, &[overhead]).unwrap_err().to_string().contains("calibrate"));
}
