//! Whether what a report says can be true all at once: each figure beside those that it is printed with. No lock is held longer on
//! average than at most, no part exceeds its whole, no interval misses its point. What is found is a defect of lockbpf's, whatever the
//! target did.
//!
//! Each check takes the schema's structs apart without `..`, so a new field does not compile until it is decided here what it has to agree
//! with. A field that can have any value beside the others is bound to `_`.

mod blame;
mod counted;
mod danger;
mod functions;
mod graph;
mod lock;
mod pattern;
mod quality;
mod value;
mod whole;
mod word;

use super::schema::{Ns, Report};

/// Rounding of numbers that were written as decimals.
const RELATIVE: f64 = 1e-9;
/// Means over several runs are rounded to the thousandth, and counts to whole ones.
const THOUSANDTH: f64 = 0.001;

/// Relations that a report violates, each as a sentence; none of a report that can be believed as far as its own numbers go.
#[must_use]
pub fn violations(report: &Report) -> Vec<String> {
    let runs = report.runs.as_ref().map_or(1, |runs| runs.count.max(1));
    let mut check = Check { runs: runs as f64, found: Vec::new() };
    whole::check(report, &mut check);
    check.found
}

/// Collects what does not fit.
struct Check {
    /// How many runs the figures are means of.
    runs: f64,
    found: Vec<String>,
}

impl Check {
    /// Demands that something holds; `what` says what else is wrong.
    fn demand(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.found.push(what());
        }
    }

    /// Demands that a time does not exceed another one.
    fn within(&mut self, part: Ns, whole: Ns, what: impl FnOnce() -> String) {
        self.demand(self.at_most(part.as_f64(), whole.as_f64(), 1), || format!("{}: {part} of {whole}", what()));
    }

    /// Demands that times add up to another one.
    fn adds_up(&mut self, parts: impl IntoIterator<Item = Ns>, whole: Ns, what: impl FnOnce() -> String) {
        let (mut sum, mut number) = (0.0, 1);
        for part in parts {
            sum += part.as_f64();
            number += 1;
        }
        let whole = whole.as_f64();
        let fits = self.at_most(sum, whole, number) && self.at_most(whole, sum, number);
        self.demand(fits, || format!("{}: the parts are {sum} ns, the whole is {whole} ns", what()));
    }

    /// Demands that parts of a whole do not exceed it.
    fn parts(&mut self, parts: impl IntoIterator<Item = Ns>, whole: Ns, what: impl FnOnce() -> String) {
        let (mut sum, mut number) = (0.0, 1);
        for part in parts {
            sum += part.as_f64();
            number += 1;
        }
        let whole = whole.as_f64();
        self.demand(self.at_most(sum, whole, number), || {
            format!("{}: the parts are {sum} ns, the whole is {whole} ns", what())
        });
    }

    /// Demands a share, of 1.
    fn share(&mut self, share: f64, what: impl FnOnce() -> String) {
        self.demand((0.0..=1.0 + 1e-6).contains(&share), || format!("{}: {share} is no share", what()));
    }

    /// Demands shares that a whole can have all at once.
    fn shares(&mut self, shares: impl IntoIterator<Item = f64>, what: impl Fn() -> String) {
        let mut sum = 0.0;
        for share in shares {
            self.share(share, &what);
            sum += share;
        }
        // Means over several runs are rounded to thousandths of a ns, which shows in a few ns.
        let most = if self.runs > 1.0 { 1.01 } else { 1.0 + 1e-6 };
        self.demand(sum <= most, || format!("{}: shares of {sum} in all", what()));
    }

    /// Demands that a count does not exceed another one.
    fn count(&mut self, part: u64, whole: u64, what: impl FnOnce() -> String) {
        self.demand(self.count_at_most(part, whole), || format!("{}: {part} of {whole}", what()));
    }

    /// Demands that nothing takes time that did not happen.
    fn happened(&mut self, times: u64, took: Ns, what: impl FnOnce() -> String) {
        // The mean of a few over several runs is rounded to none.
        self.demand(times > 0 || took == Ns::default() || self.runs > 1.0, || format!("{}: {took} of none", what()));
    }

    /// Demands that a list begins with the longest.
    fn longest_first<'a, T: 'a>(
        &mut self,
        list: impl IntoIterator<Item = &'a T>,
        of: impl Fn(&T) -> Ns,
        what: impl FnOnce() -> String,
    ) {
        let times: Vec<Ns> = list.into_iter().map(of).collect();
        self.demand(times.is_sorted_by(|a, b| a >= b), || format!("{}: no order", what()));
    }

    /// Whether a number does not exceed another by more than rounding does, of so many numbers.
    fn at_most(&self, a: f64, b: f64, numbers: u64) -> bool {
        let slack = if self.runs > 1.0 { THOUSANDTH * numbers as f64 } else { 0.0 };
        a <= b + slack + RELATIVE * a.abs().max(b.abs())
    }

    /// Whether a count does not exceed another; over several runs each is rounded.
    fn count_at_most(&self, a: u64, b: u64) -> bool {
        a <= b.saturating_add(u64::from(self.runs > 1.0))
    }
}

#[cfg(test)]
mod tests;
