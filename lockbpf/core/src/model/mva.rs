//! Exact mean value analysis of one class: from n − 1 threads to n, in O(stations) each.

use super::network::{Class, Measures};

/// Solves for growing numbers of threads, one at a time.
#[derive(Clone, Debug)]
pub struct Mva<'a> {
    class: &'a Class,
    residual: &'a [f64],
    now: Measures,
}

impl<'a> Mva<'a> {
    /// With no threads yet; `class.population` is not looked at. `residual` ([`super::network::residual`]) by station;
    /// empty for exponential service, of which the solution is exact.
    #[must_use]
    pub fn new(class: &'a Class, residual: &'a [f64]) -> Self {
        Self { class, residual, now: Measures::none(class) }
    }

    /// One thread more.
    pub fn step(&mut self, threads: u32) -> &Measures {
        let Class { think, visits, service, .. } = self.class;
        let Measures { throughput, residence, queue, .. } = &mut self.now;
        let mut cycle = *think;
        for i in 0..visits.len() {
            let ahead = match self.residual.get(i) {
                // Less of the one in service is left than a whole service.
                Some(left_off) => queue[i] - *throughput * visits[i] * service[i] * left_off,
                None => queue[i],
            };
            residence[i] = service[i] * (1.0 + ahead);
            cycle += visits[i] * residence[i];
        }
        *throughput = f64::from(threads) / cycle;
        for i in 0..visits.len() {
            queue[i] = *throughput * visits[i] * residence[i];
        }
        &self.now
    }
}

/// The solutions for these numbers of threads, in their order.
#[must_use]
pub fn solve(class: &Class, residual: &[f64], threads: &[u32]) -> Vec<Measures> {
    let mut found = vec![Measures::none(class); threads.len()];
    let mut order: Vec<usize> = (0..threads.len()).collect();
    order.sort_unstable_by_key(|&i| threads[i]);
    let (mut mva, mut at) = (Mva::new(class, residual), 0);
    for i in order {
        while at < threads[i] {
            at += 1;
            mva.step(at);
        }
        if at > 0 {
            found[i] = mva.now.clone();
        }
    }
    found
}
