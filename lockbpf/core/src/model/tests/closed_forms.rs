//! Networks whose solution is known in closed form.

use super::super::network::Class;
use super::super::{classes, convolution, mva};
use super::{class, close};

/// n threads, think time Z, one station with service s: the machine repairman (M/M/1//n).
fn repairman(n: u32, z: f64, s: f64) -> f64 {
    // p(k) ~ n!/(n−k)! · (s/z)^k.
    let mut terms = vec![1.0];
    for k in 1..=n {
        let last: f64 = terms[terms.len() - 1];
        terms.push(last * f64::from(n - k + 1) * s / z);
    }
    let idle = terms[0] / terms.iter().sum::<f64>();
    (1.0 - idle) / s
}

#[test]
fn the_machine_repairman() {
    for (n, z, s) in [(1, 500.0, 100.0), (3, 1_000.0, 1_000.0), (10, 4_000.0, 300.0), (60, 9_000.0, 250.0)] {
        let class = class(n, z, &[(1.0, s)]);
        let expected = repairman(n, z, s);
        close(mva::solve(&class, &[], &[n])[0].throughput, expected, 1e-10);
        close(convolution::solve(&class, |_, _| s).throughput, expected, 1e-10);
        close(classes::solve(&[class], &[]).unwrap()[0].throughput, expected, 1e-10);
    }
}

#[test]
fn balanced_networks() {
    // M equal stations without think time: X = n / (s (n + M − 1)).
    for (stations, n) in [(1, 7), (2, 5), (10, 30), (200, 1_000)] {
        let class = class(n, 0.0, &vec![(1.0, 40.0); stations]);
        let expected = f64::from(n) / (40.0 * (f64::from(n) + stations as f64 - 1.0));
        let found = &mva::solve(&class, &[], &[n])[0];
        close(found.throughput, expected, 1e-10);
        close(found.queue[0], f64::from(n) / stations as f64, 1e-10);
    }
}

#[test]
fn one_thread_waits_for_nobody() {
    let class = class(1, 123.0, &[(0.2, 10.0), (0.5, 77.0), (0.3, 0.0)]);
    for found in [mva::solve(&class, &[], &[1])[0].clone(), convolution::solve(&class, |i, _| class.service[i])] {
        close(found.throughput, 1.0 / (123.0 + 2.0 + 38.5), 1e-12);
        for (r, s) in found.residence.iter().zip(&class.service) {
            close(*r + 1.0, s + 1.0, 1e-12);
        }
    }
}

#[test]
fn asymptotes() {
    let class = class(1, 5_000.0, &[(0.25, 400.0), (0.75, 900.0)]);
    let points = mva::solve(&class, &[], &[2, 20_000]);
    close(points[1].throughput, 1.0 / (0.75 * 900.0), 1e-9);
    assert!(points[0].throughput < 2.0 / (5_000.0 + 100.0 + 675.0));
}

#[test]
fn a_station_with_as_many_servers_as_threads_is_a_delay() {
    // Service s/n with n threads there: nobody waits for anybody.
    let network = class(40, 2_000.0, &[(0.5, 300.0), (0.5, 100.0)]);
    let found = convolution::solve(&network, |i, n| if i == 0 { 300.0 / f64::from(n) } else { 100.0 });
    let delayed = class(40, 2_000.0 + 150.0, &[(0.5, 100.0)]);
    let expected = &mva::solve(&delayed, &[], &[40])[0];
    close(found.throughput, expected.throughput, 1e-9);
    close(found.residence[0], 300.0, 1e-9);
    close(found.queue[1], expected.queue[0], 1e-9);
}

#[test]
fn classes_that_are_alike_are_one() {
    let one = class(9, 700.0, &[(0.4, 120.0), (0.6, 80.0)]);
    let whole = &mva::solve(&one, &[], &[9])[0];
    let part = |population| Class { population, ..one.clone() };
    let parts = classes::solve(&[part(4), part(3), part(2)], &[]).unwrap();
    close(parts.iter().map(|m| m.throughput).sum(), whole.throughput, 1e-10);
    close(parts[1].residence[0], whole.residence[0], 1e-10);
    close(parts[2].queue[1] * 4.5, whole.queue[1], 1e-10);
}
