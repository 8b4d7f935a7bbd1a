//! Small networks by adding up the product form over all states.

use super::super::network::Class;
use super::super::{classes, convolution, mva};
use super::{class, close};

/// Throughput and queues of one class. `service(i, n)`: at station i with n threads there.
fn product_form(class: &Class, service: &dyn Fn(usize, u32) -> f64) -> (f64, Vec<f64>) {
    let constant = |n: u32| normalise(class, service, n).0;
    let (whole, queues) = normalise(class, service, class.population);
    (constant(class.population - 1) / whole, queues.iter().map(|q| q / whole).collect())
}

fn normalise(class: &Class, service: &dyn Fn(usize, u32) -> f64, n: u32) -> (f64, Vec<f64>) {
    let stations = class.visits.len();
    let (mut sum, mut queues) = (0.0, vec![0.0; stations]);
    let mut state = vec![0_u32; stations];
    loop {
        let inside: u32 = state.iter().sum();
        if inside <= n {
            let outside = n - inside;
            let mut weight = (1..=outside).map(|k| class.think / f64::from(k)).product::<f64>();
            for (i, &k) in state.iter().enumerate() {
                weight *= (1..=k).map(|k| class.visits[i] * service(i, k)).product::<f64>();
            }
            sum += weight;
            queues.iter_mut().zip(&state).for_each(|(q, &k)| *q += weight * f64::from(k));
        }
        let Some(next) = state.iter().position(|&k| k < n) else { return (sum, queues) };
        state[next] += 1;
        state[..next].fill(0);
    }
}

#[test]
fn one_class() {
    for (n, think, stations) in [
        (1, 10.0, &[(0.5, 3.0), (0.5, 4.0)][..]),
        (4, 10.0, &[(0.2, 3.0), (0.7, 4.0), (0.1, 30.0)]),
        (6, 0.0, &[(1.0, 3.0), (2.0, 4.0)]),
        (5, 100.0, &[(0.1, 3.0), (0.2, 4.0), (0.3, 5.0), (0.4, 60.0)]),
    ] {
        let class = class(n, think, stations);
        let (throughput, queues) = product_form(&class, &|i, _| class.service[i]);
        for found in [mva::solve(&class, &[], &[n])[0].clone(), convolution::solve(&class, |i, _| class.service[i])] {
            close(found.throughput, throughput, 1e-10);
            found.queue.iter().zip(&queues).for_each(|(a, b)| close(*a, *b, 1e-10));
        }
    }
}

#[test]
fn service_that_depends_on_the_waiters() {
    let class = class(6, 50.0, &[(0.3, 8.0), (0.7, 5.0)]);
    let service = |i: usize, n: u32| class.service[i] + if i == 0 { 2.0 * f64::from(n - 1) } else { 0.0 };
    let (throughput, queues) = product_form(&class, &service);
    let found = convolution::solve(&class, service);
    close(found.throughput, throughput, 1e-10);
    found.queue.iter().zip(&queues).for_each(|(a, b)| close(*a, *b, 1e-10));
    assert!(found.service[0] > class.service[0] && found.service[0] < class.service[0] + 10.0);
}

/// G of two classes at shared stations of equal service: Π over stations of (k1 + k2)!/(k1! k2!) · d1^k1 · d2^k2.
fn two_classes(classes: &[Class; 2], n: [u32; 2]) -> f64 {
    let stations = classes[0].visits.len();
    let demand = |c: usize, i: usize| classes[c].visits[i] * classes[c].service[i];
    let factorial = |n: u32| (1..=n).map(f64::from).product::<f64>();
    fn splits(n: u32, parts: usize) -> Vec<Vec<u32>> {
        if parts == 0 {
            return if n == 0 { vec![Vec::new()] } else { Vec::new() };
        }
        let with = |k: u32| splits(n - k, parts - 1).into_iter().map(move |rest| [vec![k], rest].concat());
        (0..=n).flat_map(with).collect()
    }
    let mut sum = 0.0;
    for a in splits(n[0], stations + 1) {
        for b in splits(n[1], stations + 1) {
            let mut weight = classes[0].think.powi(a[stations] as i32) / factorial(a[stations]);
            weight *= classes[1].think.powi(b[stations] as i32) / factorial(b[stations]);
            for i in 0..stations {
                weight *= factorial(a[i] + b[i]) / factorial(a[i]) / factorial(b[i]);
                weight *= demand(0, i).powi(a[i] as i32) * demand(1, i).powi(b[i] as i32);
            }
            sum += weight;
        }
    }
    sum
}

#[test]
fn classes_of_equal_service() {
    let network = [class(3, 20.0, &[(0.3, 8.0), (0.7, 5.0)]), class(2, 7.0, &[(0.9, 8.0), (0.1, 5.0)])];
    let found = classes::solve(&network, &[]).unwrap();
    let whole = two_classes(&network, [3, 2]);
    close(found[0].throughput, two_classes(&network, [2, 2]) / whole, 1e-10);
    close(found[1].throughput, two_classes(&network, [3, 1]) / whole, 1e-10);
}
