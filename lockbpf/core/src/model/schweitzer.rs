//! Bard and Schweitzer's approximation: what an arriving thread finds is taken to be what there is, less its own part.
//! Any population at the same cost; [`error`] says how far it is off.

use super::error::ModelError;
use super::network::{Class, Measures};

/// Rounds at most.
const ROUNDS: u32 = 100_000;
/// Relative change below which the solution counts as found.
const SETTLED: f64 = 1e-10;

/// How far off exact the throughput may be, as a share of it, for so many classes. Usually it is up to 4 %. The worst of one
/// class is one lock about to be saturated (5 threads, each with 2.3 times as much to do elsewhere: 6.8 %). The worst of two
/// that a search of 6,000 networks found is one fast thread beside many slow ones (28.5 % of 9 slow threads).
#[must_use]
pub const fn error(classes: usize) -> f64 {
    if classes > 1 { 0.3 } else { 0.07 }
}

/// Solves the network; `residual` ([`super::network::residual`]) by station, empty for exponential service.
///
/// # Errors
/// When the iteration does not settle.
pub fn solve(classes: &[Class], residual: &[f64]) -> Result<Vec<Measures>, ModelError> {
    let mut found: Vec<Measures> = classes.iter().map(Measures::none).collect();
    for (class, measures) in classes.iter().zip(&mut found) {
        let visited = class.visits.iter().filter(|&&v| v > 0.0).count().max(1);
        for (queue, &visits) in measures.queue.iter_mut().zip(&class.visits) {
            *queue = if visits > 0.0 { f64::from(class.population) / visited as f64 } else { 0.0 };
        }
    }
    let mut change = f64::INFINITY;
    for _ in 0..ROUNDS {
        change = 0.0;
        let before = found.clone();
        for (c, class) in classes.iter().enumerate() {
            if class.population == 0 {
                continue;
            }
            let n = f64::from(class.population);
            let mut cycle = class.think;
            let mut residence = class.service.clone();
            for (d, other) in classes.iter().enumerate() {
                let own = if c == d { (n - 1.0) / n } else { 1.0 };
                for (i, residence) in residence.iter_mut().enumerate() {
                    let busy = before[d].throughput * other.visits[i] * other.service[i];
                    let left_off = residual.get(i).map_or(0.0, |r| busy.min(1.0) * r);
                    *residence += other.service[i] * own * (before[d].queue[i] - left_off).max(0.0);
                }
            }
            cycle += class.visits.iter().zip(&residence).map(|(v, r)| v * r).sum::<f64>();
            let measures = &mut found[c];
            measures.throughput = n / cycle;
            for (i, residence) in residence.iter().enumerate() {
                measures.queue[i] = measures.throughput * class.visits[i] * residence;
                change = f64::max(change, (measures.queue[i] - before[c].queue[i]).abs() / n);
            }
            measures.residence = residence;
        }
        if change <= SETTLED {
            return Ok(found);
        }
    }
    Err(ModelError::NoConvergence { field: "solver".to_owned(), rounds: ROUNDS, change: format!("{change:.1e}") })
}
