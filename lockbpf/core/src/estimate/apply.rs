//! Scales sums: they become those of the whole time, as far as they are estimated.

use super::distribute::distribute;
use super::{Coverage, Estimates, Figures, Subject};
use crate::event::ThreadTotals;
use crate::id::{Lock, Process, Site};
use crate::sums::{Measure, SiteSums};
use crate::units::Nanos;
use lockbpf_common::kind::Via;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Scales sums of locks, sites and threads to what was estimated. Without figures they stay as they are.
///
/// Waits need no estimate where the futex tier has seen the lock: it sees all of them. They go to the places in the proportion in
/// which those that were `recorded` were there, or, if none was, to the lock's rows as windows saw them.
pub fn apply(
    estimates: &Estimates,
    sums: &mut Vec<SiteSums>,
    threads: &mut [ThreadTotals],
    recorded: &dyn Fn(Lock) -> BTreeMap<Site, Nanos>,
) {
    if !estimates.complete || !estimates.sampled() {
        return;
    }
    // Each process has rows of its own for a lock that they share; some may have been seen as a whole.
    let mut rows: BTreeMap<(Lock, Process), Vec<usize>> = BTreeMap::new();
    let mut slept: HashMap<(Lock, Process), SiteSums> = HashMap::new();
    for (at, row) in sums.iter_mut().enumerate() {
        let whose = (row.lock, row.site.process);
        if row.via == Via::Futex {
            slept.entry(whose).and_modify(|all| all.add_futex_calls(row)).or_insert_with(|| row.clone());
        } else if let Some(figures) = estimates.of(Subject::Row(row.lock, row.site, row.via)) {
            scale(row, &figures.beside(&estimates.known(0, row.hold.max)));
            rows.entry(whose).or_default().push(at);
        }
    }
    for (whose, rows) in rows {
        if let Some(slept) = slept.get(&whose) {
            let mut recorded = recorded(whose.0);
            recorded.retain(|site, _| site.process == whose.1);
            distribute(sums, &rows, slept, recorded);
        }
    }
    unseen(sums, &slept);
    let processes: HashMap<Process, &Coverage> =
        estimates.processes.iter().filter(|p| !p.whole).map(|p| (p.process, p)).collect();
    for thread in threads {
        let Some(process) = processes.get(&thread.process) else { continue };
        thread.acquisitions = times(thread.acquisitions, process.factor);
        thread.held_sum.0 = times(thread.held_sum.0, process.hold_factor);
        thread.held_union.0 = times(thread.held_union.0, process.hold_factor).min(process.time.0);
        // Waiting takes time and no work.
        let share = process.observed_share();
        // No thread waits longer than there was time.
        let wait = times(thread.wait.0, if share > 0.0 { 1.0 / share } else { 1.0 });
        thread.wait.0 = wait.min(process.time.0.max(thread.wait.0));
    }
}

/// Gives locks that processes share the waits of those whose acquisitions no window saw.
fn unseen(sums: &mut [SiteSums], slept: &HashMap<(Lock, Process), SiteSums>) {
    let called = |row: &SiteSums| !matches!(row.via, Via::Futex | Via::CondWait) && row.acquisitions > 0;
    let told: HashSet<(Lock, Process)> =
        sums.iter().filter(|row| called(row)).map(|row| (row.lock, row.site.process)).collect();
    for (&(lock, process), slept) in
        slept.iter().filter(|(whose, slept)| slept.acquisitions > 0 && !told.contains(whose))
    {
        let rows = sums.iter_mut().filter(|row| row.lock == lock && row.site.process != process && called(row));
        if let Some(row) = rows.max_by_key(|row| row.seen()) {
            row.wait.merge(&slept.wait);
            row.acquisitions += slept.acquisitions;
            row.contended += slept.acquisitions;
            row.timeouts += slept.timeouts;
            row.timed_out += slept.timed_out;
        }
    }
}

fn scale(sums: &mut SiteSums, figures: &Figures) {
    let all = figures.acquisitions.value.round();
    let factor = if sums.acquisitions > 0 { all / sums.acquisitions as f64 } else { 1.0 };
    sums.acquisitions = all as u64;
    sums.contended = ((all * figures.contended_share.value).round() as u64).min(sums.acquisitions);
    sums.hold.sum = Nanos((all * figures.hold_mean_ns.value).round() as u64);
    for count in [&mut sums.unseen, &mut sums.try_failures, &mut sums.timeouts, &mut sums.errors] {
        *count = times(*count, factor);
    }
    sums.unseen = sums.unseen.min(sums.acquisitions);
    let waited = sums.wait.sum;
    sums.wait.sum = waited.max(Nanos(figures.wait_ns.value.round() as u64));
    // Each of those seen stands for as many.
    sums.wait.histogram.scale(if waited > Nanos(0) { sums.wait.sum.0 as f64 / waited.0 as f64 } else { 1.0 });
    sums.timed_out.0 = times(sums.timed_out.0, factor);
    if sums.contended == 0 {
        sums.wait = Measure::default();
    }
}

fn times(count: u64, factor: f64) -> u64 {
    (count as f64 * factor).round() as u64
}
