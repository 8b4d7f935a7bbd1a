//! What holds for every network.

use super::super::network::Class;
use super::super::predict::predict;
use super::super::schema::Algorithm;
use super::super::{classes, convolution, mva, schweitzer};
use super::{class, program};
use proptest::collection::vec;
use proptest::prelude::*;

fn stations() -> impl Strategy<Value = Vec<(f64, f64)>> {
    vec((0.01..1.0_f64, 1.0..2_000.0_f64), 1..6)
}

fn demand(class: &Class) -> f64 {
    class.demands().fold(0.0, f64::max)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn more_threads_do_more_and_wait_more(stations in stations(), think in 0.0..5_000.0_f64) {
        let class = class(1, think, &stations);
        let numbers: Vec<u32> = (1..40).collect();
        let found = mva::solve(&class, &[], &numbers);
        for (two, n) in found.windows(2).zip(1_u32..) {
            prop_assert!(two[1].throughput >= two[0].throughput * (1.0 - 1e-12));
            prop_assert!(two[1].throughput <= 1.0 / demand(&class) * (1.0 + 1e-12));
            for (a, b) in two[0].residence.iter().zip(&two[1].residence) {
                prop_assert!(*b >= a * (1.0 - 1e-9));
            }
            // Everybody is somewhere.
            let there: f64 = two[0].queue.iter().sum::<f64>() + two[0].throughput * think;
            prop_assert!((there - f64::from(n)).abs() < 1e-9 * f64::from(n));
        }
    }

    #[test]
    fn two_exact_ways_agree(stations in stations(), think in 0.0..5_000.0_f64, n in 1_u32..60) {
        let class = class(n, think, &stations);
        let (a, b) = (&mva::solve(&class, &[], &[n])[0], convolution::solve(&class, |i, _| class.service[i]));
        prop_assert!((a.throughput / b.throughput - 1.0).abs() < 1e-9);
        for (a, b) in a.queue.iter().zip(&b.queue) {
            prop_assert!((a - b).abs() < 1e-9 * f64::from(n));
        }
    }

    #[test]
    fn the_approximation_is_near(stations in stations(), think in 0.0..5_000.0_f64, n in 1_u32..100) {
        let class = class(n, think, &stations);
        let exact = &mva::solve(&class, &[], &[n])[0];
        let near = &schweitzer::solve(&[class], &[]).unwrap()[0];
        let off = near.throughput / exact.throughput - 1.0;
        prop_assert!(off.abs() < schweitzer::error(1), "{off}");
    }

    #[test]
    fn the_approximation_is_near_with_classes(stations in stations(), think in 100.0..5_000.0_f64, a in 1_u32..20, b in 1_u32..20) {
        // Equal service in both classes: there the recursion is exact.
        let turned: Vec<(f64, f64)> =
            stations.iter().rev().zip(&stations).map(|(&(visits, _), &(_, service))| (visits, service)).collect();
        let network = [class(a, think, &stations), class(b, think / 2.0, &turned)];
        let exact = classes::solve(&network, &[]).unwrap();
        let near = schweitzer::solve(&network, &[]).unwrap();
        let total = |m: &[super::super::network::Measures]| m.iter().map(|m| m.throughput).sum::<f64>();
        let off = total(&near) / total(&exact) - 1.0;
        prop_assert!(off.abs() < schweitzer::error(2), "{off}");
        for i in 0..stations.len() {
            let busy: f64 = exact.iter().zip(&network).map(|(m, c)| m.throughput * c.visits[i] * c.service[i]).sum();
            prop_assert!(busy <= 1.0 + 1e-9);
        }
        for (m, c) in exact.iter().zip(&network) {
            let there = m.queue.iter().sum::<f64>() + m.throughput * c.think;
            prop_assert!((there - f64::from(c.population)).abs() < 1e-9 * f64::from(c.population));
        }
    }

    #[test]
    fn names_of_locks_do_not_matter(stations in stations(), think in 0.0..5_000.0_f64, n in 1_u32..30, qd: bool) {
        let mut input = program(&stations, think, &[n]);
        if qd {
            input.model = Algorithm::QdWait;
            (input.lock_overhead_ns, input.delegation_overhead_ns) = (Some(172.0), vec![172.0, 200.0, 400.0, 700.0]);
        }
        let a = predict(&input).unwrap().points.remove(0);
        input.locks.reverse();
        for rows in [&mut input.routing, &mut input.local_ns] {
            rows.reverse();
            rows.iter_mut().for_each(|row| row.reverse());
        }
        let b = predict(&input).unwrap().points.remove(0);
        prop_assert!((a.throughput_per_ns / b.throughput_per_ns - 1.0).abs() < 1e-6);
        for (a, b) in a.locks.iter().zip(b.locks.iter().rev()) {
            prop_assert_eq!(&a.name, &b.name);
            prop_assert!((a.wait_ns - b.wait_ns).abs() <= 1e-6 * a.lock_ns);
        }
    }

    #[test]
    fn intervals_contain_their_values(stations in stations(), think in 0.0..5_000.0_f64, n in 1_u32..30, qd: bool) {
        let mut input = program(&stations, think, &[n]);
        if qd {
            input.model = Algorithm::QdWait;
            (input.lock_overhead_ns, input.delegation_overhead_ns) = (Some(172.0), vec![172.0, 200.0, 400.0, 700.0]);
        }
        let point = predict(&input).unwrap().points.remove(0);
        let [low, high] = point.throughput_interval_per_ns;
        prop_assert!(low <= point.throughput_per_ns * (1.0 + 1e-9) && point.throughput_per_ns <= high * (1.0 + 1e-9));
        let at_locks: f64 = point.locks.iter().map(|lock| lock.queue).sum();
        prop_assert!(at_locks <= f64::from(n) * (1.0 + 1e-9));
        for lock in &point.locks {
            let [low, high] = lock.wait_interval_ns;
            prop_assert!(low <= lock.wait_ns && lock.wait_ns <= high && low >= 0.0, "{lock:?}");
            prop_assert!(lock.utilisation <= 1.0 + 1e-9);
        }
    }
}
