mod brute;
mod checks;
mod closed_forms;
mod crowded;
mod delegated;
mod optimistic;
mod properties;
mod ranked;
mod refusals;
mod scripts;
mod shadowed;
mod simulated;
mod sleeping;
mod summed;
mod turns;

use super::network::Class;
use super::schema::{Input, LockInput};

/// A program whose threads choose each next lock independently.
fn program(locks: &[(f64, f64)], local_ns: f64, threads: &[u32]) -> Input {
    let all: f64 = locks.iter().map(|(share, _)| share).sum();
    let row: Vec<f64> = locks.iter().map(|(share, _)| share / all).collect();
    Input {
        threads: threads.to_vec(),
        locks: locks
            .iter()
            .enumerate()
            .map(|(i, &(_, hold))| LockInput { name: format!("L{i}"), hold_ns: Some(hold), ..LockInput::default() })
            .collect(),
        routing: vec![row; locks.len()],
        local_ns: vec![vec![local_ns; locks.len()]; locks.len()],
        ..Input::default()
    }
}

fn class(population: u32, think: f64, stations: &[(f64, f64)]) -> Class {
    let (visits, service) = stations.iter().copied().unzip();
    Class { population, think, visits, service }
}

#[track_caller]
fn close(a: f64, b: f64, tolerance: f64) {
    assert!((a - b).abs() <= tolerance * b.abs().max(1e-300), "{a} is not within {tolerance} of {b}");
}
