//! Honest estimates: what a process did in all, from windows in which everything was observed.
//!
//! Call sequence of the one who opens and closes the full tier:
//! 1. [`Estimator::new`] with the calibrated [`Costs`] and the budget.
//! 2. For each process, [`Estimator::stretch`] whenever a [`Stretch`] of its time is over. Stretches tile the time in which
//!    the process is observed; each contains one window at a random place, or was observed whole.
//! 3. [`Estimator::snapshot`] with the kernel's sums while the windows of these stretches are closed (or right at the end of
//!    whole ones), before the next are opened: what was added since the last snapshot is theirs.
//!    A process that exits ends its stretch, and the window in it, too.
//! 4. [`Estimator::coverage`] whenever a recording is to tell how much was observed so far, [`Estimator::so_far`] whenever a
//!    snapshot is to tell the figures, [`Estimator::finish`] at the end.
//!
//! All make [`Estimates`], which go into [`crate::observation::Harvest::estimates`]; [`apply`] scales
//! sums with them, which [`crate::analysis::Analyst::finish`] does.
//!
//! **Work, not time.** A window slows its target, a tight loop 250 times, so what is scaled with is the target's own CPU time:
//! the CPU time used less the cost of observing. A window stands for the time in which the same work would have passed
//! unobserved. Each stretch counts by the inverse of the observed part of its [progress](crate::governor::progress), over
//! which windows are spread evenly, so that it does no harm if windows are shorter where more happens. Processes that use no
//! measurable CPU time are scaled with time. So is waiting, which takes time and no work.
//!
//! **Uncertainty.** Windows are clusters: only what differs between windows tells how far an estimate may be off. Intervals
//! are of 95 %, skewed like those of counts (Fay and Feuer's for weighted sums of Poisson counts), so that what was seen in few
//! windows gets a wide one. To this comes what is not known of the cost: caches make a probe dearer in a real target than it
//! was when calibrated ([`COST_RANGE`]).
//!
//! **Edges.** A section in progress when its window closes counts as an acquisition. As many are cut by the opening as by
//! the closing, in expectation the same parts of them, so the mean hold is (Σ complete + 2 Σ cut) / (number). A section of
//! length h lies inside a window of length w with probability 1 − h/w; quantiles weigh with the inverse.
#![forbid(unsafe_code)]

mod apply;
mod distribute;
mod estimator;
mod interval;
mod known;
mod mean;
mod moments;
mod process;
mod ratio;
mod shadow;
mod stretch;
mod tail;
#[cfg(test)]
mod tests;
mod wait;

pub use apply::apply;
pub use estimator::Estimator;
pub use interval::{Interval, WIDE};
pub use known::Known;
pub use stretch::Stretch;

use crate::costs::Costs;
use crate::id::{Lock, Process, Site};
use crate::units::Nanos;
use lockbpf_common::kind::Via;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Cost of observing in a real target as a multiple of the calibrated one: at least and at most.
pub const COST_RANGE: (f64, f64) = (0.6, 1.5);

/// How much of a process was observed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Coverage {
    /// The process.
    pub process: Process,
    /// Time for which it was observed at all.
    pub time: Nanos,
    /// The part of it in which every lock operation was.
    pub observed: Nanos,
    /// CPU time that it used, cost of observing included.
    pub cpu: Nanos,
    /// What observing cost of that.
    pub cost: Nanos,
    /// CPU time of its own: without that cost.
    pub own_cpu: Nanos,
    /// The part of that in which every lock operation was observed.
    pub observed_own_cpu: Nanos,
    /// Windows.
    pub windows: u64,
    /// Whether its whole time was observed: its numbers are exact.
    pub whole: bool,
    /// Its estimated acquisitions over those seen, 1 without any: by which those of its threads are scaled.
    pub factor: f64,
    /// Likewise of the time for which it held locks.
    pub hold_factor: f64,
}

/// Whose figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// One lock at one call site, by one kind of call.
    Row(Lock, Site, Via),
    /// One lock.
    Lock(Lock),
    /// One call site, over all locks.
    Site(Site),
}

/// Figures of one subject over the whole observation, each with its interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Acquisitions; never less than were seen.
    pub acquisitions: Interval,
    /// Mean hold, ns.
    pub hold_mean_ns: Interval,
    /// 99th percentile of holds, ns.
    pub hold_p99_ns: Interval,
    /// Part of the acquisitions that was contended.
    pub contended_share: Interval,
    /// Time waited in all, ns. It is told only of locks whose waits windows alone show.
    #[serde(skip)]
    pub wait_ns: Interval,
}

/// What was estimated, and from how much.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimates {
    /// Share of the target's CPU time that observing was allowed to cost; `None` without a bound.
    pub budget: Option<f64>,
    /// What observing adds to a hold, ns: figures here are without it, sums of what was observed as a whole are not.
    pub hold_bias_ns: Interval,
    /// Every process with stretches, in the order of their numbers.
    pub processes: Vec<Coverage>,
    /// What is estimated, in order. Only of processes that were not observed as a whole.
    pub figures: Vec<(Subject, Figures)>,
    /// Subjects for which there was no room: their sums are those of the observed time.
    pub beyond: u64,
    /// Whether `figures` are there: not in the checkpoints of a recording, but at its end.
    pub complete: bool,
}

impl Estimates {
    /// Gives locks other identities. What was estimated of several that become one is not that of the one: it is left out, and follows
    /// from their rows.
    pub fn rename_locks(&mut self, mut of: impl FnMut(Lock) -> Lock) {
        let mut seen: HashMap<Lock, u32> = HashMap::new();
        for (subject, _) in &mut self.figures {
            match subject {
                Subject::Row(lock, ..) => *lock = of(*lock),
                Subject::Lock(lock) => {
                    *lock = of(*lock);
                    *seen.entry(*lock).or_default() += 1;
                }
                Subject::Site(_) => {}
            }
        }
        self.figures.retain(|(subject, _)| !matches!(subject, Subject::Lock(lock) if seen.get(lock) > Some(&1)));
        self.figures.sort_by_key(|&(subject, _)| subject);
    }

    /// Whether anything was observed in windows only.
    #[must_use]
    pub fn sampled(&self) -> bool {
        self.processes.iter().any(|p| !p.whole)
    }

    /// Whether the figures of a process are estimates.
    #[must_use]
    pub fn are_of(&self, process: Process) -> bool {
        self.complete && self.processes.iter().any(|p| p.process == process && !p.whole)
    }

    /// Coverage over all processes.
    #[must_use]
    pub fn overall(&self) -> Coverage {
        let all = &self.processes;
        let sum = |of: fn(&Coverage) -> Nanos| all.iter().map(of).sum();
        Coverage {
            process: Process(0),
            time: sum(|p| p.time),
            observed: sum(|p| p.observed),
            cpu: sum(|p| p.cpu),
            cost: sum(|p| p.cost),
            own_cpu: sum(|p| p.own_cpu),
            observed_own_cpu: sum(|p| p.observed_own_cpu),
            windows: all.iter().map(|p| p.windows).sum(),
            whole: all.iter().all(|p| p.whole),
            factor: 1.0,
            hold_factor: 1.0,
        }
    }

    /// What is known of a subject beside its figures: what the kernel saw asleep, the longest hold as observed.
    #[must_use]
    pub fn known(&self, slept: u64, longest: Nanos) -> Known {
        Known { slept: slept as f64, hold_max_ns: (longest.0 as f64 - self.hold_bias_ns.value).max(0.0) }
    }

    /// The figures of a subject.
    #[must_use]
    pub fn of(&self, subject: Subject) -> Option<&Figures> {
        let at = self.figures.binary_search_by_key(&subject, |&(subject, _)| subject).ok()?;
        self.figures.get(at).map(|(_, figures)| figures)
    }
}

impl Coverage {
    /// Part of its time that was fully observed.
    #[must_use]
    pub fn observed_share(&self) -> f64 {
        part(self.observed, self.time)
    }

    /// Part of its own CPU time that was fully observed.
    #[must_use]
    pub fn observed_cpu_share(&self) -> f64 {
        part(self.observed_own_cpu, self.own_cpu)
    }

    /// What observing cost in CPUs: CPU time for its time.
    #[must_use]
    pub fn cost_cpus(&self) -> f64 {
        if self.time.0 == 0 { 0.0 } else { self.cost.0 as f64 / self.time.0 as f64 }
    }

    /// Part of its CPU time that observing cost.
    #[must_use]
    pub fn cost_share(&self) -> f64 {
        part(self.cost, self.cpu)
    }
}

fn part(part: Nanos, whole: Nanos) -> f64 {
    if whole.0 == 0 { 0.0 } else { (part.0 as f64 / whole.0 as f64).min(1.0) }
}
