//! What of a recording does not agree with the assumptions of the model that was made of it, in words.

use super::pattern::Pattern;
use super::schema::{Input, LockInput};
use crate::report::text::{counted, percent};

/// Locks with less than this share of the operations do not matter.
const FEW: f64 = 0.01;
/// Relative difference of the halves of a recording from which on it is not steady.
const UNSTEADY: f64 = 0.2;
/// Lock operations from which on halves are compared.
const COMPARABLE: f64 = 100.0;
/// Coefficients of variation from here to there pass for exponential.
const EXPONENTIAL: std::ops::Range<f64> = 0.7..1.4;
/// Locks of which it is told that they are not exponential.
const TOLD: usize = 4;
/// Share of the time between sections from which on idling is told.
const IDLE: f64 = 0.05;

/// Whether the halves differ in lock operations.
pub(super) fn unsteady([a, b]: [f64; 2]) -> Option<String> {
    let off = (a - b).abs() / a.max(b).max(f64::MIN_POSITIVE);
    (off > UNSTEADY && a + b > COMPARABLE)
        .then(|| format!("The recording is not steady: its halves differ by {} in lock operations.", percent(off)))
}

/// Threads that are no part of the model, of all that there are, and those that came late.
pub(super) fn threads(said: &mut Vec<String>, all: usize, busy: usize, late: usize) {
    if all > busy {
        said.push(format!("Left out: {} with hardly any lock operations.", counted((all - busy) as u64, "thread")));
    }
    if late > 0 {
        said.push(format!("The number of threads changed: {late} of {all} began after the first tenth."));
    }
}

/// Locks whose sections are not exponential.
pub(super) fn distributions(said: &mut Vec<String>, input: &Input, whole: &Pattern) {
    let odd = |(i, lock): (u32, &LockInput)| {
        let cv = lock.hold_cv.filter(|cv| !EXPONENTIAL.contains(cv) && whole.share(i) > FEW)?;
        Some(format!("`{}` {cv:.2}", lock.name))
    };
    let odd: Vec<String> = (0..).zip(&input.locks).filter_map(odd).collect();
    if !odd.is_empty() {
        let more = if odd.len() > TOLD { format!(" and of {} more locks", odd.len() - TOLD) } else { String::new() };
        said.push(format!(
            "Sections are not exponential: their coefficient of variation is not 1 but, of {}{more}.",
            odd[..odd.len().min(TOLD)].join(", ")
        ));
    }
}

/// Acquisitions inside of others' sections, among so many.
pub(super) fn nesting(said: &mut Vec<String>, nested: u64, acquisitions: f64) {
    if nested > 0 {
        said.push(format!(
            "{} of acquisitions are made while another lock is held: they are part of that section, and waits for them are not \
             predicted.",
            percent(nested as f64 / acquisitions.max(1.0))
        ));
    }
}

/// Time in which threads were idle, of so much between sections.
pub(super) fn idling(said: &mut Vec<String>, idle: f64, local: f64) {
    if idle > IDLE * local {
        said.push(format!(
            "{} of the time between sections threads were idle (conditions, semaphores): how long depends on other threads, but is \
             kept as it was.",
            percent(idle / local)
        ));
    }
}

/// Waits for conditions that are no part of the model.
pub(super) fn conditions(said: &mut Vec<String>, left_out: u64) {
    if left_out > 0 {
        said.push(format!("{left_out} waits for conditions are left out."));
    }
}

/// That so many threads were in one another's way while recorded.
pub(super) fn company(said: &mut Vec<String>, busy: usize, contended: u64) {
    if busy > 1 && contended > 0 {
        said.push(format!(
            "The recording is of {busy} threads: sections and times between them include what they cost one another (caches, CPUs)."
        ));
    }
}
