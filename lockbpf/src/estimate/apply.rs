//! Scales an observation: sums become those of the whole time, as far as they are estimated.

use super::{Estimates, Figures, Subject};
use crate::id::{Lock, Process};
use crate::observation::Observation;
use crate::sums::{Measure, SiteSums};
use crate::units::Nanos;
use lockbpf_common::kind::Via;
use std::collections::HashMap;

/// Scales sums of locks, sites and threads to what was estimated. An observation without estimates stays as it is.
///
/// Waits need no estimate where the futex tier has seen the lock: it sees all of them. They go to the lock's rows in the
/// proportion in which windows saw them there; how they are distributed goes to the row with most of them.
pub fn apply(observation: &mut Observation) {
    let Some(estimates) = observation.estimates.as_ref().filter(|e| e.complete && e.sampled()) else { return };
    let mut rows: HashMap<Lock, Vec<usize>> = HashMap::new();
    let mut slept: HashMap<Lock, SiteSums> = HashMap::new();
    for (at, sums) in observation.sums.iter_mut().enumerate() {
        if sums.via == Via::Futex {
            slept.insert(sums.lock, sums.clone());
        } else if let Some(figures) = estimates.of(Subject::Row(sums.lock, sums.site, sums.via)) {
            scale(sums, figures);
            rows.entry(sums.lock).or_default().push(at);
        }
    }
    for (lock, rows) in rows {
        if let Some(slept) = slept.get(&lock) {
            distribute(&mut observation.sums, &rows, slept);
        }
    }
    let factors = factors(estimates);
    for thread in &mut observation.threads {
        if let Some(factor) = factors.get(&thread.process) {
            thread.acquisitions = times(thread.acquisitions, *factor);
            for time in [&mut thread.wait, &mut thread.held_sum, &mut thread.held_union] {
                time.0 = times(time.0, *factor);
            }
        }
    }
}

/// By what the sums of threads are scaled, of processes that were observed in windows.
fn factors(estimates: &Estimates) -> HashMap<Process, f64> {
    estimates.processes.iter().filter(|p| !p.whole).map(|p| (p.process, p.factor)).collect()
}

fn scale(sums: &mut SiteSums, figures: &Figures) {
    let all = figures.acquisitions.value.round();
    let factor = if sums.acquisitions > 0 { all / sums.acquisitions as f64 } else { 1.0 };
    sums.acquisitions = all as u64;
    sums.contended = ((all * figures.contended_share.value).round() as u64).min(sums.acquisitions);
    sums.hold.sum = Nanos((all * figures.hold_mean_ns.value).round() as u64);
    for count in [&mut sums.try_failures, &mut sums.timeouts, &mut sums.errors] {
        *count = times(*count, factor);
    }
    for time in [&mut sums.wait.sum, &mut sums.timed_out] {
        time.0 = times(time.0, factor);
    }
}

/// Gives rows of a lock the waits for it.
fn distribute(sums: &mut [SiteSums], rows: &[usize], slept: &SiteSums) {
    let weight = |sums: &SiteSums| (sums.wait.sum.0, sums.contended, sums.acquisitions);
    let all: u128 = rows.iter().filter_map(|&at| sums.get(at)).map(|s| u128::from(s.wait.sum.0)).sum();
    let most = rows.iter().copied().max_by_key(|&at| sums.get(at).map(weight));
    let mut rest = slept.wait.sum.0;
    for &at in rows.iter().filter(|&&at| Some(at) != most) {
        let Some(row) = sums.get_mut(at) else { continue };
        let part = u128::from(slept.wait.sum.0) * u128::from(row.wait.sum.0) / all.max(1);
        row.wait = Measure { sum: Nanos(part as u64), ..Measure::default() };
        (row.timeouts, row.timed_out) = (0, Nanos(0));
        rest = rest.saturating_sub(part as u64);
    }
    if let Some(row) = most.and_then(|at| sums.get_mut(at)) {
        row.wait = Measure { sum: Nanos(rest), ..slept.wait.clone() };
        (row.timeouts, row.timed_out) = (slept.timeouts, slept.timed_out);
    }
}

fn times(count: u64, factor: f64) -> u64 {
    (count as f64 * factor).round() as u64
}
