//! Queue delegation locks: one helper and n − 1 others as two classes, and the number of threads that the helper helps as
//! the fixpoint of what that number makes of the network.

use super::error::ModelError;
use super::network::{Class, Measures};
use super::{classes, schweitzer};

/// Rounds at most.
const ROUNDS: u32 = 10_000;
/// Relative change of every k below which the fixpoint counts as found.
const SETTLED: f64 = 1e-9;
/// How far the first rounds go towards what they find.
const DAMPING: f64 = 0.5;
/// After so many rounds they go half as far: overheads that rise steeply make longer steps go to and fro.
const PATIENCE: u32 = 200;
/// Below this many threads a change of k is no matter.
const NOBODY: f64 = 1e-9;

/// A lock of a network with QD locks.
#[derive(Clone, Debug, PartialEq)]
pub struct Station {
    /// Visits per cycle.
    pub visits: f64,
    /// The helper's own section, ns; of another lock than a QD lock: everybody's.
    pub helper: f64,
    /// A delegated section, ns.
    pub other: f64,
    /// Overhead by waiters of a lock that is no QD lock; `None`: it is one.
    pub overhead: Option<Vec<f64>>,
}

/// A program with QD locks.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Threads, at least 1.
    pub threads: u32,
    /// Time outside of locks per cycle, ns.
    pub think: f64,
    /// The locks.
    pub stations: Vec<Station>,
    /// LO, ns.
    pub lock_overhead: f64,
    /// DO(0), DO(1), …, ns; not empty.
    pub delegation_overhead: Vec<f64>,
}

/// The solution.
#[derive(Clone, Debug, PartialEq)]
pub struct Solved {
    /// The helper.
    pub helper: Measures,
    /// The others.
    pub others: Measures,
    /// k by station: mean number of others there, the one in service included.
    pub contending: Vec<f64>,
    /// Whether each round was solved exactly.
    pub exact: bool,
}

/// A table at a place between its entries: linear in between, as the last entry beyond; 0 of an empty one.
#[must_use]
pub fn at(table: &[f64], place: f64) -> f64 {
    let below = place.max(0.0).floor();
    let (Some(&from), next) = (table.get(below as usize), table.get(below as usize + 1)) else {
        return table.last().copied().unwrap_or(0.0);
    };
    next.map_or(from, |to| from + (to - from) * (place.max(0.0) - below))
}

/// DO(k)/k, ns: what each of k contending threads adds to the delegation; for less than one thread as for one.
#[must_use]
pub fn delegation(table: &[f64], k: f64) -> f64 {
    let k = k.max(1.0);
    at(table, k) / k
}

/// Solves a program; `approximately` if that is wanted in any case.
///
/// # Errors
/// When the fixpoint, or the approximation, does not settle.
pub fn solve(program: &Program, approximately: bool) -> Result<Solved, ModelError> {
    let Program { threads, think, stations, lock_overhead, delegation_overhead } = program;
    let visits: Vec<f64> = stations.iter().map(|s| s.visits).collect();
    let mut k = vec![0.0_f64; stations.len()];
    let mut waiting = vec![0.0_f64; stations.len()];
    let mut change = f64::INFINITY;
    for round in 0..ROUNDS {
        let damping = DAMPING * 0.5_f64.powi((round / PATIENCE).min(12) as i32);
        let helps: f64 =
            stations.iter().zip(&k).filter(|(s, _)| s.overhead.is_none()).map(|(s, k)| s.visits * k * s.other).sum();
        let service = |helper: bool| {
            let of = |((station, &k), &waiting): ((&Station, &f64), &f64)| match (&station.overhead, helper) {
                (Some(overhead), _) => station.helper + at(overhead, waiting),
                (None, true) => station.helper + lock_overhead,
                (None, false) => station.other + delegation(delegation_overhead, k),
            };
            stations.iter().zip(&k).zip(&waiting).map(of).collect::<Vec<_>>()
        };
        let helper = Class { population: 1, think: think + helps, visits: visits.clone(), service: service(true) };
        let others = Class {
            population: threads.saturating_sub(1),
            think: *think,
            visits: visits.clone(),
            service: service(false),
        };
        let network = [helper, others];
        let exact = !approximately && classes::feasible(&network);
        let mut found = if exact { classes::solve(&network, &[])? } else { schweitzer::solve(&network, &[])? };
        let (Some(others), Some(helper)) = (found.pop(), found.pop()) else {
            return Err(ModelError::invalid("locks", "there are none"));
        };
        change = 0.0;
        for i in 0..stations.len() {
            let moved = |old: &mut f64, new: f64| {
                let by = (new - *old).abs() / new.max(NOBODY);
                *old += damping * (new - *old);
                by
            };
            change = change.max(moved(&mut k[i], others.queue[i]));
            if stations[i].overhead.is_some() {
                let served = |m: &Measures| m.throughput * visits[i] * m.service[i];
                let queued = helper.queue[i] + others.queue[i] - served(&helper) - served(&others);
                change = change.max(moved(&mut waiting[i], queued.max(0.0)));
            }
        }
        if change < SETTLED {
            return Ok(Solved { contending: others.queue.clone(), helper, others, exact });
        }
    }
    Err(ModelError::NoConvergence { field: "locks".to_owned(), rounds: ROUNDS, change: format!("{change:.1e}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read_between_their_entries() {
        let table = [5.0, 10.0, 30.0];
        let read = [0.0, 0.5, 1.0, 1.5, 2.0, 7.0].map(|k| at(&table, k));
        assert_eq!(read, [5.0, 7.5, 10.0, 20.0, 30.0, 30.0]);
        assert_eq!(at(&[], 3.0), 0.0);
        // DO(k)/k: as for one thread below that, constant DO beyond the end.
        let per_thread = [0.0, 0.5, 1.0, 1.5, 2.0, 6.0].map(|k| delegation(&table, k));
        assert_eq!(per_thread, [10.0, 10.0, 10.0, 20.0 / 1.5, 15.0, 5.0]);
    }
}
