//! PinCS: the paper's numbers, and small sets of accesses.

use super::super::conflicts::{Comparer, Execution};
use super::super::occ::{
    Overhead, Saved, Shares, Speedup, benefit, best_case, conflict, corrected, efficiency, speedup,
};
use proptest::prelude::*;

/// An execution's thread, reads and writes.
type Owned = (u32, Vec<u32>, Vec<u32>);

fn execution((thread, reads, writes): &Owned) -> Execution<'_> {
    Execution { thread: *thread, reads, writes }
}

fn fast(runs: &[Vec<Owned>]) -> f64 {
    let runs: Vec<Vec<_>> = runs.iter().map(|run| run.iter().map(execution).collect()).collect();
    Comparer::default().pairwise(&runs)
}

/// C(A, B), word by word.
fn conflicts((_, reads, writes): &Owned, (.., other): &Owned) -> f64 {
    if other.iter().any(|location| reads.contains(location) || writes.contains(location)) { 0.5 } else { 0.0 }
}

/// p_c as it is defined, each execution beside each.
fn by_definition(runs: &[Vec<Owned>]) -> f64 {
    let (mut sum, mut all) = (0.0, 0);
    for run in runs {
        for (i, trace) in run.iter().enumerate() {
            let mut threads: Vec<u32> = run.iter().map(|&(thread, ..)| thread).filter(|&t| t != trace.0).collect();
            threads.sort_unstable();
            threads.dedup();
            let mut near = Vec::new();
            for thread in threads {
                near.extend(run[..i].iter().rev().find(|other| other.0 == thread));
                near.extend(run[i + 1..].iter().find(|other| other.0 == thread));
            }
            let met: f64 = near.iter().map(|other| conflicts(trace, other)).sum();
            sum += if near.is_empty() { 0.0 } else { met / near.len() as f64 };
            all += 1;
        }
    }
    if all == 0 { 0.0 } else { sum / f64::from(all) }
}

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
fn the_nearest_of_each_other_thread_count() {
    let read = |thread| (thread, vec![1], vec![]);
    let write = |thread| (thread, vec![], vec![1]);
    let one = |run: &[Owned]| fast(&[run.to_vec()]);
    assert_eq!((fast(&[]), one(&[])), (0.0, 0.0));
    assert_eq!(one(&[write(1), write(1)]), 0.0, "no other thread, but counted");
    // 2 sees 1 before and 1 after it; each 1 sees 2.
    assert_eq!(one(&[write(1), write(2), write(1)]), 0.5);
    // Directional: who only reads sees the write of another, who writes does not see the reading.
    assert_eq!(one(&[read(1), write(2)]), 0.25);
    // The reader sees one writer of two neighbours; the writers see nobody write.
    let mixed = [write(1), read(2), read(1)];
    assert!((one(&mixed) - (0.0 + 0.25 + 0.0) / 3.0).abs() < 1e-15);
    // Of a thread's executions, only the nearest before and after: the first one's write is too far away.
    let far = [write(1), read(1), read(2), read(1)];
    assert_eq!(one(&far), 0.0);
    // The mean is over traces in all S together: one of thread 1, two of thread 3.
    let three = [write(3), read(2), read(3), read(1)];
    assert!((one(&three) - (0.5 / 3.0) / 4.0).abs() < 1e-15);
    // Runs do not see one another, but count together.
    assert_eq!(fast(&[vec![write(1), write(2)], vec![write(3), write(3)]]), 0.25);
}

/// PinCS's figure 1: three threads take turns, and each increments the shared variable every other time.
#[test]
fn a_tossed_coin() {
    let mut random = fastrand::Rng::with_seed(3);
    let run: Vec<Owned> = (0..30_000)
        .map(|_| {
            let (thread, tossed) = (random.u32(0..3), random.bool());
            // Its own counter, and the shared one.
            let places = if tossed { vec![1 + thread, 0] } else { vec![1 + thread] };
            (thread, places.clone(), places)
        })
        .collect();
    let p_c = fast(&[run]);
    // Both have to have tossed heads, and the other one has to finish first.
    assert!((p_c - 0.125).abs() < 0.003, "{p_c}");
    // With the waits that the paper measured.
    let p = conflict(p_c, 1.626667).unwrap();
    assert!((p - 0.187379).abs() < 0.012, "{p}");
}

proptest! {
    #[test]
    fn executions_compared_at_once_are_compared_as_defined(
        runs in prop::collection::vec(
            prop::collection::vec(
                (0_u32..80, prop::collection::vec(0_u32..12, 0..4), prop::collection::vec(0_u32..12, 0..3)),
                0..120,
            ),
            0..3,
        ),
        few in any::<bool>(),
    ) {
        let mut runs: Vec<Vec<Owned>> = runs;
        if few {
            runs.iter_mut().flatten().for_each(|(thread, ..)| *thread %= 3);
        }
        let (fast, defined) = (fast(&runs), by_definition(&runs));
        prop_assert!((fast - defined).abs() < 1e-12, "{} for {}", fast, defined);
    }
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
