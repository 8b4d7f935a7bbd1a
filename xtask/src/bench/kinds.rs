//! What an uncontended use of each kind of lock costs, bare and observed in full.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

use super::{
    observer::{Mode, Observation, Observers},
    pairs::Workload,
    stats::Spread,
};

/// Uses that the workload knows, and what they are.
const USES: [(&str, &str); 11] = [
    ("mutex", "mutex: lock, unlock"),
    ("mutex_try", "mutex: trylock, unlock"),
    ("mutex_timed", "mutex: timedlock, unlock"),
    ("rwlock_read", "rwlock: rdlock, unlock"),
    ("rwlock_write", "rwlock: wrlock, unlock"),
    ("spin", "spin lock: lock, unlock"),
    ("c11_mutex", "C11: mtx_lock, mtx_unlock"),
    ("semaphore", "semaphore: wait, post"),
    ("cond_signal", "condition variable: signal, nobody waits"),
    ("barrier_of_one", "barrier of one: wait"),
    ("once_done", "once: done already"),
];

/// One kind of use.
#[derive(Debug, Serialize)]
pub(super) struct Kind {
    /// What it is.
    pub(super) name: &'static str,
    /// CPU time of a use, ns, while nobody observes.
    pub(super) bare_ns: Spread,
    /// The same while observed in full, without a budget.
    pub(super) observed_ns: Spread,
}

/// Measures round by round until the time is used up, two rounds at least: each has a bare and an observed window of every kind.
///
/// # Errors
/// The workload cannot be compiled, the observer fails, or the benchmark was interrupted.
pub(super) fn measure(observers: &Observers, window: Duration, time: Duration) -> Result<Vec<Kind>> {
    let deadline = Instant::now() + time;
    let mut workload = Workload::start(window)?;
    let mut samples = [const { (Vec::new(), Vec::new()) }; USES.len()];
    for round in 0.. {
        if round >= 2 && Instant::now() > deadline {
            break;
        }
        for ((what, _), (bare, _)) in USES.iter().zip(&mut samples) {
            bare.push(per_use(&mut workload, what)?);
        }
        let observation = Observation::start(observers, Mode::Full, workload.child.pid())?;
        let reading = observation.read()?;
        for ((what, _), (_, observed)) in USES.iter().zip(&mut samples) {
            observed.push(per_use(&mut workload, what)?);
        }
        let used = reading.percent_until(&observation.read()?);
        observation.stop(used)?;
    }
    let kind = |((_, name), (bare, observed)): (&(_, &'static str), (Vec<f64>, Vec<f64>))| {
        Some(Kind { name, bare_ns: Spread::of(bare)?, observed_ns: Spread::of(observed)? })
    };
    Ok(USES.iter().zip(samples).filter_map(kind).collect())
}

/// CPU time of a use in one window, ns.
fn per_use(workload: &mut Workload, what: &str) -> Result<f64> {
    let window = workload.window(what)?;
    Ok(window.cpu_ns / window.made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workload_knows_every_use() {
        let mut workload = Workload::start(Duration::from_millis(2)).unwrap();
        for (what, _) in USES {
            assert!(per_use(&mut workload, what).unwrap() > 0.0, "{what}");
        }
    }
}
