//! Exact mean value analysis of several classes, over all populations up to the one asked for. First come, first served
//! with services that differ by class: an arriving thread waits for those that it finds, each with its own class's service.

use super::error::ModelError;
use super::network::{Class, Measures};

/// Numbers that are kept at most: 128 MB.
const MAX_KEPT: f64 = (1_u64 << 24) as f64;

/// Whether the populations of these classes are few enough.
#[must_use]
pub fn feasible(classes: &[Class]) -> bool {
    let stations = classes.first().map_or(0, |class| class.visits.len());
    let states: f64 = classes.iter().map(|class| f64::from(class.population) + 1.0).product();
    states * (classes.len() * (stations + 1)) as f64 <= MAX_KEPT
}

/// Solves the network; `residual` ([`super::network::residual`]) by station, empty for exponential service.
///
/// # Errors
/// When there are too many populations to go through.
pub fn solve(classes: &[Class], residual: &[f64]) -> Result<Vec<Measures>, ModelError> {
    if !feasible(classes) {
        let problem =
            "there are too many combinations of classes for an exact solution: ask for `schweitzer` or `auto`";
        return Err(ModelError::invalid("solver", problem));
    }
    let stations = classes.first().map_or(0, |class| class.visits.len());
    // A population is a number: Σ n_c · stride_c.
    let mut strides = Vec::with_capacity(classes.len());
    let mut states = 1_usize;
    for class in classes {
        strides.push(states);
        states *= class.population as usize + 1;
    }
    let width = classes.len() * stations;
    let mut queues = vec![0.0_f64; states * width];
    let mut throughputs = vec![0.0_f64; states * classes.len()];
    let mut residence = vec![0.0_f64; width];
    let mut population = vec![0_u32; classes.len()];
    for state in 1..states {
        for (n, class) in population.iter_mut().zip(classes) {
            if *n < class.population {
                *n += 1;
                break;
            }
            *n = 0;
        }
        for (c, class) in classes.iter().enumerate() {
            let residence = &mut residence[c * stations..][..stations];
            if population[c] == 0 {
                residence.fill(0.0);
                continue;
            }
            let without = state - strides[c];
            residence.copy_from_slice(&class.service);
            for (d, other) in classes.iter().enumerate() {
                let queue = &queues[without * width + d * stations..][..stations];
                let throughput = throughputs[without * classes.len() + d];
                for i in 0..stations {
                    let left_off = residual.get(i).map_or(0.0, |r| throughput * other.visits[i] * other.service[i] * r);
                    residence[i] += other.service[i] * (queue[i] - left_off);
                }
            }
            let at_locks: f64 = class.visits.iter().zip(&*residence).map(|(v, r)| v * r).sum();
            let throughput = f64::from(population[c]) / (class.think + at_locks);
            throughputs[state * classes.len() + c] = throughput;
            let queue = &mut queues[state * width + c * stations..][..stations];
            for i in 0..stations {
                queue[i] = throughput * class.visits[i] * residence[i];
            }
        }
    }
    let last = states - 1;
    let measures = classes.iter().enumerate().map(|(c, class)| Measures {
        throughput: throughputs[last * classes.len() + c],
        residence: residence[c * stations..][..stations].to_vec(),
        queue: queues[last * width + c * stations..][..stations].to_vec(),
        service: class.service.clone(),
    });
    Ok(measures.collect())
}
