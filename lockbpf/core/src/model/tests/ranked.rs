//! Locks ranked against today's.

use super::super::rank::{SURE, rank};
use super::super::rank_table::render;
use super::super::schema::{Input, Overhead};
use super::program;

fn with(overhead: f64) -> Input {
    let mut input = program(&[(1.0, 1_000.0)], 2_000.0, &[1, 4]);
    input.locks[0].overhead_ns = Overhead::Constant(overhead);
    input
}

fn others() -> Vec<(String, Input)> {
    vec![("slow".to_owned(), with(800.0)), ("fast".to_owned(), with(10.0)), ("same".to_owned(), with(200.0))]
}

#[test]
fn the_fastest_comes_first_and_is_surely_so() {
    let ranking = rank(&with(200.0), &others()).unwrap();
    let point = &ranking.points[1];
    let names: Vec<&str> = point.alternatives.iter().map(|of| of.lock.as_str()).collect();
    assert_eq!((point.threads, names), (4, vec!["fast", "same", "slow"]));
    let [fast, same, slow] = &point.alternatives[..] else { panic!("{point:?}") };
    assert!(fast.gain > 0.05 && fast.faster > SURE && fast.gain_interval[0] > 0.0, "{fast:?}");
    assert!(same.gain.abs() < 1e-9 && (0.4..0.6).contains(&same.faster), "{same:?}");
    assert!(slow.gain < -0.2 && slow.faster < 1.0 - SURE && slow.gain_interval[1] < 0.0, "{slow:?}");
    for of in &point.alternatives {
        let [low, high] = of.gain_interval;
        assert!(low <= of.gain && of.gain <= high, "{of:?}");
    }
    assert_eq!(rank(&with(200.0), &others()).unwrap(), ranking, "the same every time");
}

/// Times that are known badly make throughput uncertain, but hardly which lock is faster: they are the same for both.
#[test]
fn what_is_not_known_is_the_same_for_both() {
    let bounded = |mut input: Input| {
        input.bounds = [2.0, 0.5]
            .map(|times| {
                let mut bound = input.clone();
                bound.locks[0].hold_ns = Some(1_000.0 * times);
                bound.local_ns = vec![vec![2_000.0 * times]];
                bound
            })
            .into();
        input
    };
    let others: Vec<_> = others().into_iter().map(|(name, input)| (name, bounded(input))).collect();
    let ranking = rank(&bounded(with(200.0)), &others).unwrap();
    let [low, high] = ranking.points[1].today_interval_per_ns;
    assert!(high > 2.0 * low, "{low} {high}");
    assert!(ranking.points[1].alternatives[0].faster > SURE, "{ranking:?}");
}

#[test]
fn where_threads_spin_for_cpus_nothing_can_be_told() {
    let mut spinning = with(10.0);
    spinning.locks[0].spins = true;
    let on_two = |input: Input| Input { cores: Some(2), ..input };
    let ranking = rank(&on_two(with(200.0)), &[("spin".to_owned(), on_two(spinning))]).unwrap();
    assert!(!ranking.points[0].alternatives[0].may_collapse && ranking.points[1].alternatives[0].may_collapse);
    let text = render(&ranking, 200);
    for part in ["today's", "cannot tell: more threads spin than there are CPUs", "Faster in", "intervals begin at 0"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
